//! `get_audit_log`: the record, as far as a model may read it.

use serde_json::Value;

use nexus_core::prelude::*;
use nexus_core::principal::Level;
use nexus_core::provider::{Origin, Own};
use nexus_core::text;
use nexus_core::tool::{BadTool, Entry, Family};
use std::fmt::Write;
use std::sync::Arc;

use super::Journal;
use crate::store::body::Kept;
use crate::store::facts::Sessions;
use crate::store::rows::Filter;
use crate::store::{Store, StoreError};
use crate::when;

const DEFAULT: u32 = 50;
const MOST: u32 = 200;
/// Bytes of rows in one reply, roughly: what is more comes with the cursor.
const LARGEST: usize = 100_000;
/// Characters of arguments in a line that has nothing better to say.
const SHORT: usize = 200;

/// Reads the hub's audit record, newest first: who called which tool, what was allowed or refused and why, how it ended.
///
/// Every call to this hub is in it, also refused ones, approvals, failed keys, and this call itself. Secrets are taken
/// out of the arguments before they are recorded. A sandboxed key sees only the rows of its own session. There is a
/// `cursor` in the reply when there are older rows that fit: give it with the same filters to go on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetAuditLog {
    /// How many rows, 1 to 200; 50 if not given. Fewer come when they are large.
    #[schemars(range(min = 1, max = 200))]
    limit: Option<u32>,
    /// Only rows since then: `30m`, `2h`, `7d`, a date, or a timestamp (RFC 3339).
    since: Option<String>,
    /// Only this session: `this` for your own, or the name of another (or how it begins).
    session: Option<String>,
    /// Only calls of this tool.
    tool: Option<String>,
    /// Only calls that ended so: ok, error, refused, failed, internal, cancelled, abandoned, waiting, unknown_tool. Or
    /// only rows of an event: begun, session_started, session_ended, approved, denied, key_refused, key_made,
    /// key_revoked, key_level, config_changed, outbound, upstream, task, link, pruned, hub_started, hub_stopped.
    outcome: Option<String>,
    /// Where an earlier reply ended.
    cursor: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct AuditLog {
    /// Newest first.
    rows: Vec<LogRow>,
    /// There are older rows; they begin here.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct LogRow {
    id: String,
    /// RFC 3339, UTC.
    at: String,
    /// `call` for a call that ended, `begun` for a write that was about to run, and others.
    event: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<String>,
    /// Without what is secret in them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Map<String, Value>>")]
    arguments: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<String>,
    /// Why it was decided so.
    #[serde(skip_serializing_if = "Option::is_none")]
    how: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

#[derive(Debug, Error)]
enum BadQuestion {
    #[error("`limit` is {0}; it may be 1 to {MOST}")]
    Limit(u32),
    #[error("`since` is not a time: {0}")]
    Since(String),
    #[error("`cursor` is not one of an earlier reply")]
    Cursor,
    #[error("no session in the record begins with `{0}`")]
    NoSession(String),
    #[error("several sessions begin with `{0}`; give more of the name")]
    SeveralSessions(String),
    #[error("a sandboxed key sees only the rows of its own session")]
    NotYours,
}

impl Tool<Shelf> for GetAuditLog {
    const NAME: &'static str = "get_audit_log";
    const ACCESS: Access = Access::Read;
    type Reply = AuditLog;

    fn summary(&self) -> String {
        let filters =
            [("session", &self.session), ("tool", &self.tool), ("outcome", &self.outcome), ("since", &self.since)];
        let said = filters.iter().filter_map(|(name, value)| Some(format!(" {name}={}", value.as_ref()?)));
        format!("read the audit record{}", said.collect::<String>())
    }

    fn text(reply: &AuditLog) -> Option<String> {
        let mut text = String::new();
        for row in &reply.rows {
            let _ = writeln!(text, "{}", line(row));
        }
        match (&reply.cursor, reply.rows.is_empty()) {
            (Some(cursor), _) => drop(write!(text, "older rows: cursor={cursor}")),
            (None, true) => text.push_str("no rows fit"),
            (None, false) => text.push_str("no older rows fit"),
        }
        Some(text)
    }

    async fn run(self, Shelf { store, journal }: &Shelf, cx: &CallCx) -> ToolResult<AuditLog> {
        if self.cursor.is_none() {
            // What was done a moment ago is what is asked for most.
            journal.settle().await;
        }
        let limit = match self.limit.unwrap_or(DEFAULT) {
            limit @ 1..=MOST => limit,
            limit => return Err(ToolError::refused(BadQuestion::Limit(limit))),
        };
        let before = self.cursor.as_deref().map(|cursor| from_cursor(cursor).ok_or(BadQuestion::Cursor));
        let before = before.transpose().map_err(ToolError::refused)?;
        let since = self.since.as_deref().map(|since| when::past(since).map_err(BadQuestion::Since));
        let since_ms = since.transpose().map_err(ToolError::refused)?.map(jiff::Timestamp::as_millisecond);
        let session = session(self.session, store, cx).await?;
        let filter = Filter { session, tool: self.tool, outcome: self.outcome, since_ms };
        let found = store.newest(&filter, before, limit + 1).await.map_err(unread)?;

        let (mut rows, mut bytes, mut last) = (Vec::new(), 0, None);
        let fits = |bytes: usize, rows: usize| rows < limit as usize && bytes <= LARGEST;
        for entry in &found {
            bytes += entry.body.len();
            if !rows.is_empty() && !fits(bytes, rows.len()) {
                break;
            }
            let kept =
                Kept::parse(&entry.body).map_err(|source| unread(StoreError::BadRow { pos: entry.pos, source }))?;
            rows.push(shown(kept));
            last = Some(entry.pos);
        }
        let cursor = last.filter(|_| rows.len() < found.len()).map(to_cursor);
        Ok(AuditLog { rows, cursor })
    }
}

/// Whose rows: a sandboxed key has no choice.
async fn session(wanted: Option<String>, store: &Store, cx: &CallCx) -> ToolResult<Option<String>> {
    let own = cx.session.id.to_string();
    match (cx.principal.level_now(), wanted) {
        (_, Some(wanted)) if wanted == "this" || wanted == own => Ok(Some(own)),
        (Level::Sandboxed, None) => Ok(Some(own)),
        (Level::Sandboxed, Some(_)) => {
            Err(ToolError::refused(BadQuestion::NotYours).hint("leave `session` out, or say `this`"))
        }
        (Level::Trusted | Level::Yolo, None) => Ok(None),
        (Level::Trusted | Level::Yolo, Some(wanted)) => match store.session_of(&wanted).await.map_err(unread)? {
            Sessions::One(session) => Ok(Some(session)),
            Sessions::None => Err(ToolError::refused(BadQuestion::NoSession(wanted))),
            Sessions::Several => Err(ToolError::refused(BadQuestion::SeveralSessions(wanted))),
        },
    }
}

fn unread(error: StoreError) -> ToolError {
    ToolError::failed(error).hint("the operator can look with `nexus audit verify` and `nexus audit status`")
}

fn to_cursor(pos: i64) -> String {
    format!("{pos:x}")
}

fn from_cursor(cursor: &str) -> Option<i64> {
    let plain = cursor.bytes().all(|byte| byte.is_ascii_hexdigit());
    i64::from_str_radix(cursor, 16).ok().filter(|pos| plain && *pos > 0)
}

fn shown(row: Kept) -> LogRow {
    let arguments = row.arguments.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
    #[allow(clippy::cast_precision_loss, reason = "nobody counts microseconds beyond a century")]
    let duration_ms = row.duration_us.map(|us| us as f64 / 1_000.0);
    LogRow {
        id: row.id,
        at: row.at,
        event: row.event,
        key: row.principal,
        client: row.client,
        session: row.session,
        tool: row.tool,
        node: row.node,
        summary: row.summary,
        arguments: arguments.filter(Value::is_object),
        decision: row.decision,
        how: row.how,
        outcome: row.outcome,
        duration_ms,
        detail: row.detail,
    }
}

/// A row on one line. Cheap to read; the structured reply has the rest.
fn line(row: &LogRow) -> String {
    let mut line = format!("{} {}", row.at, row.outcome.as_deref().unwrap_or(&row.event));
    if let Some(key) = &row.key {
        let _ = write!(line, " key={key}");
    }
    if let Some(client) = &row.client {
        let _ = write!(line, " client={client}");
    }
    if let Some(tool) = &row.tool {
        let _ = write!(line, " {tool}");
    }
    if let Some(node) = row.node.as_deref().filter(|node| *node != "local") {
        let _ = write!(line, "@{node}");
    }
    match (&row.summary, &row.arguments) {
        (Some(summary), _) => drop(write!(line, ": {summary}")),
        (None, Some(arguments)) => drop(write!(line, ": {}", text::cut(&arguments.to_string(), SHORT))),
        (None, None) => {}
    }
    match (row.decision.as_deref(), row.how.as_deref()) {
        (Some("allowed") | None, None) => {}
        (Some(decision), None) => drop(write!(line, " ({decision})")),
        (decision, Some(how)) => drop(write!(line, " ({}: {how})", decision.unwrap_or("decided"))),
    }
    if let Some(ms) = row.duration_ms {
        let _ = write!(line, " {ms:.0}ms");
    }
    if let Some(detail) = &row.detail {
        let _ = write!(line, " [{detail}]");
    }
    line.replace(['\n', '\r'], " ")
}

pub const TOOLS: &[Entry<Shelf>] = &[Entry::of::<GetAuditLog>()];

/// What the tool reads: the store, and the journal that writes to it.
#[derive(Debug)]
pub struct Shelf {
    pub store: Store,
    pub journal: Arc<Journal>,
}

pub fn tools(shelf: Shelf) -> Result<Family<Shelf>, BadTool> {
    Family::new(Origin::Own(Own::Gate), Arc::new(shelf), &[TOOLS])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_and_anything_else_is_refused() {
        for pos in [1, 4_194_304, i64::MAX] {
            assert_eq!(from_cursor(&to_cursor(pos)), Some(pos));
        }
        for bad in ["", "0", "-5", "+5", "xyz", "ffffffffffffffff", "12 ", "12345678901234567890"] {
            assert_eq!(from_cursor(bad), None, "{bad}");
        }
    }
}
