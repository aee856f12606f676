//! A call's row, from its start to its end, whatever that end is.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::approval::{Code, Facts};
use crate::arguments::Arguments;
use crate::audit::{CallRow, Event, NotRecorded, Row, Sink};
use crate::call::{CallCx, CallKey};
use crate::catalogue::Found;
use crate::error::ToolError;
use crate::gate::{About, Why};
use crate::name::ServerName;
use crate::provider::{Intent, Origin};
use crate::redact;
use crate::reply::Reply;
use crate::text;
use crate::tool::{Access, Hidden, ToolSpec};

/// Characters of a summary that the record keeps. The arguments are there in full.
const LONGEST_SUMMARY: usize = 2_100;

/// Characters of arguments in the question to a human. With it they get them whole.
const MOST_ARGUMENTS: usize = 4_000;

/// A call's row while the call goes on. Dropped before its end, it is recorded as abandoned.
pub(super) struct Record {
    audit: Arc<dyn Sink>,
    cx: CallCx,
    started: Instant,
    pub(super) arguments: Arguments,
    pub(super) row: CallRow,
    /// None: no tool of ours.
    spec: Option<Arc<ToolSpec>>,
    /// The summary as a human is to see it, where the row keeps only a part.
    whole: Option<String>,
    pub(super) detail: Option<String>,
    /// The operator wants this tool's output as it is.
    pub(super) unredacted: bool,
    /// It is a write, and may have run.
    begun: bool,
    ended: bool,
}

impl Record {
    pub(super) fn start(audit: Arc<dyn Sink>, cx: &CallCx, tool: &str, args: Arguments, found: Option<&Found>) -> Self {
        let tree = args.tree();
        let secret: &[String] = found.map_or(&[], |found| &found.spec.secret_fields);
        let fields = tree.as_deref().and_then(Value::as_object);
        let kept = fields.map_or(Value::Null, |fields| Value::Object(redact::arguments(fields, secret)));
        let row = CallRow {
            id: cx.id,
            // A client may send any name: what is no tool of ours is kept short and printable.
            tool: match found {
                Some(found) => found.spec.name.as_str().into(),
                None => redact::beginning(&text::clean(&text::cut(tool, 64))).into(),
            },
            origin: found.map(|found| found.provider.origin().clone()),
            access: None,
            node: None,
            summary: None,
            arguments: kept.to_string().into(),
            digest: args.digest_of(tree.as_deref()),
            decision: None,
            how: None,
            outcome: None,
            duration_us: None,
        };
        drop(tree);
        Self {
            audit,
            cx: cx.clone(),
            started: Instant::now(),
            arguments: args,
            row,
            spec: found.map(|found| found.spec.clone()),
            whole: None,
            detail: None,
            unredacted: false,
            begun: false,
            ended: false,
        }
    }

    pub(super) fn intended(&mut self, intent: &dyn Intent) {
        self.row.access = Some(intent.access());
        // The arguments as the record has them, without secrets.
        let arguments = intent.tells_arguments().then(|| text::cut(&self.row.arguments, MOST_ARGUMENTS));
        let with_arguments = |mut summary: String| {
            if let Some(arguments) = &arguments {
                summary.push_str(": ");
                summary.push_str(&text::clean(arguments));
            }
            summary
        };
        let (said, longest) = (intent.summary(), intent.longest_summary());
        let said = text::clean(&said);
        // Hidden before it is cut: the half of a secret looks like nothing.
        let summary = redact::text(&said);
        // Who decides must see what would run: where more than a plain value is hidden, only the hub's own secrets are.
        if intent.access() == Access::Write && summary != said && hides_syntax(&said, &summary) {
            self.whole = Some(with_arguments(text::cut(&redact::own_values(&said), longest).into_owned()));
        }
        let summary = with_arguments(text::cut(&summary, longest).into_owned());
        self.row.summary = Some(match summary.char_indices().nth(LONGEST_SUMMARY) {
            None => summary,
            Some((at, _)) => {
                let kept = format!("{} … and {} characters more", &summary[..at], summary[at..].chars().count());
                self.whole.get_or_insert(summary);
                kept
            }
        });
        self.row.node = intent.node().map(ToString::to_string);
    }

    /// What was looked up for the human who decides.
    pub(super) fn learned(&mut self, known: &str) {
        let known = redact::text(&text::clean(known)).into_owned();
        for summary in [&mut self.whole, &mut self.row.summary].into_iter().flatten() {
            summary.push_str(" (");
            summary.push_str(&text::cut(&known, LONGEST_SUMMARY));
            summary.push(')');
        }
    }

    /// What would happen, whole, as the one who decides has to see it.
    pub(super) fn summary(&self) -> &str {
        self.whole.as_deref().or(self.row.summary.as_deref()).unwrap_or_default()
    }

    /// The arguments as the operator may see them, as JSON: more of them than the row keeps.
    pub(super) fn whole_arguments(&self) -> Arc<str> {
        let secret: &[String] = self.spec.as_ref().map_or(&[], |spec| &spec.secret_fields);
        match self.arguments.tree().as_deref().and_then(Value::as_object) {
            Some(fields) => Value::Object(redact::whole_arguments(fields, secret)).to_string().into(),
            None => self.row.arguments.clone(),
        }
    }

    /// The upstream server it is about.
    pub(super) fn server(&self) -> Option<ServerName> {
        match &self.row.origin {
            Some(Origin::Upstream(server)) => Some(server.clone()),
            Some(Origin::Own(_)) | None => None,
        }
    }

    /// What a yes would be about.
    pub(super) fn in_full(&self, about: &About, intent: &dyn Intent) -> String {
        match about {
            About::Connect(server) => {
                let known = intent.introduction().map(|known| format!(", {known}")).unwrap_or_default();
                format!("first use of the upstream server {server}{known}. Wanted: {}", self.summary())
            }
            _ => self.summary().to_owned(),
        }
    }

    /// The question as the desk keeps it.
    pub(super) fn facts(&self, about: About, intent: &dyn Intent) -> Facts {
        Facts {
            call: self.call(),
            session: self.cx.session.clone(),
            principal: self.cx.principal.id.clone(),
            client: self.cx.client_name.clone(),
            tool: self.row.tool.clone(),
            node: self.row.node.clone(),
            summary: self.in_full(&about, intent),
            arguments: self.whole_arguments(),
            about,
        }
    }

    /// A yes that waits for this call is not to be left behind.
    pub(super) fn forget_once(&self) {
        self.cx.session.grants.lock().forget_once(&self.call());
    }

    pub(super) fn session(&self) -> Uuid {
        self.cx.session.id
    }

    /// The very call it is about.
    pub(super) fn call(&self) -> CallKey {
        CallKey::of(&self.row.tool, &self.row.digest)
    }

    /// A digest of who calls what, where: an answer to one is not an answer to another.
    pub(super) fn bound(&self) -> [u8; 32] {
        let id = &self.cx.principal.id;
        let digest = Sha256::new()
            .chain_update(self.call().as_bytes())
            .chain_update(self.cx.session.id.as_bytes())
            .chain_update(id.stamp())
            .chain_update(id.as_str());
        digest.finalize().into()
    }

    /// Comes back when it is recorded. What cannot be recorded does not happen. A write of our own waits for the disk;
    /// a call of another server, which may be a write and mostly is none, is noted so that it outlives the hub.
    pub(super) async fn begin(&mut self) -> Result<(), NotRecorded> {
        self.begun = true;
        let row = Row { call: Some(self.row.clone()), ..Row::about(Event::Begun, &self.cx) };
        match self.row.origin {
            Some(Origin::Upstream(_)) => self.audit.noted(row),
            Some(Origin::Own(_)) | None => self.audit.durable(row).await,
        }
    }

    /// With the `code` under which the operator may still allow it, where there is one.
    pub(super) fn refused(mut self, why: Why, code: Option<&Code>) -> Reply {
        self.row.decision = Some("refused");
        self.row.how = Some(why.as_str());
        self.end("refused");
        let mut hint = why.hint().to_owned();
        if let Some(code) = code {
            let when = if why == Why::ServerDenied { "to take that back" } else { "if nobody has seen the question" };
            let _ = write!(
                hint,
                "; {when}, they can run `nexus approve {code}` at the hub's command line, then call again"
            );
        }
        let body = json!({ "error": { "kind": "refused", "why": why.told(), "message": why.message(), "hint": hint, "code": code } });
        Reply::error(format!("{}\nhint: {hint}", why.message()), &body)
    }

    /// The reply as the caller may see it. The row says when not everything was looked at.
    pub(super) fn shown(&mut self, reply: Reply) -> Reply {
        if !self.unredacted {
            return redact::reply(reply);
        }
        // A tool that never redacts says so where it is described; here it would stand in every row.
        if self.spec.as_ref().is_none_or(|spec| spec.hidden == Hidden::Secrets) {
            self.detail.get_or_insert_with(|| "output not redacted".to_owned());
        }
        redact::own_values_of_reply(reply)
    }

    pub(super) fn cancelled(mut self) -> Reply {
        let message = if self.detail.as_deref() == Some(super::HUB_ENDED) {
            "cancelled: the hub ended before it did"
        } else {
            "cancelled by the caller"
        };
        self.end("cancelled");
        let hint =
            self.begun.then_some("it may have happened all the same, in part or whole: look before you repeat it");
        let shown = hint.map_or_else(|| message.to_owned(), |hint| format!("{message}\nhint: {hint}"));
        let body = json!({ "error": { "kind": "cancelled", "message": message, "hint": hint } });
        Reply::error(shown, &body)
    }

    pub(super) fn failed(mut self, error: ToolError) -> Reply {
        self.detail = Some(error.to_string());
        self.end(error.kind());
        error.into_reply()
    }

    pub(super) fn end(&mut self, outcome: &'static str) {
        self.ended = true;
        self.row.outcome = Some(outcome);
        self.row.duration_us = u64::try_from(self.started.elapsed().as_micros()).ok();
        // Nobody looks at the row here any more: what it owns goes with it.
        let call = CallRow {
            origin: self.row.origin.take(),
            node: self.row.node.take(),
            summary: self.row.summary.take(),
            tool: self.row.tool.clone(),
            arguments: self.row.arguments.clone(),
            ..self.row
        };
        let detail = match (self.cx.noted.get(), self.detail.take()) {
            (Some(noted), Some(detail)) => Some(format!("{noted}; {detail}")),
            (Some(noted), None) => Some(noted.to_string()),
            (None, detail) => detail,
        };
        self.audit.post(Row { call: Some(call), detail, ..Row::about(Event::Call, &self.cx) });
    }
}

/// Whether something that a shell would act on has been hidden, or it cannot be told what was.
fn hides_syntax(said: &str, shown: &str) -> bool {
    let acts = |hidden: &str| {
        let lines = hidden.contains('\n') && !hidden.starts_with("-----BEGIN");
        lines || hidden.contains("$(") || hidden.contains([';', '|', '&', '<', '>', '`'])
    };
    let mut pieces = shown.split(redact::HIDDEN);
    let Some(mut rest) = pieces.next().and_then(|first| said.strip_prefix(first)) else { return true };
    for piece in pieces {
        let at = if piece.is_empty() { Some(rest.len()) } else { rest.find(piece) };
        let Some(at) = at.filter(|at| !acts(&rest[..*at])) else { return true };
        rest = &rest[at + piece.len()..];
    }
    !rest.is_empty()
}

impl Drop for Record {
    fn drop(&mut self) {
        if !self.ended {
            self.end("abandoned");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_about_hides_values_and_not_commands() {
        check("echo --password=hunter2hunter2 done", false);
        check("mysql -u root --password=hunter2hunter2", false);
        check("token: hunter2hunter2; rm -rf /srv", true);
        check("ssh host \"PASSWORD=hunter2;rm -rf /srv\"", true);
        check("Cookie: a=b | tee /etc/passwd", true);

        #[track_caller]
        fn check(said: &str, acts: bool) {
            let shown = redact::text(said);
            assert!(!acts || shown == said || hides_syntax(said, &shown), "{said} is shown as {shown}");
            assert!(acts || !hides_syntax(said, &shown), "{said} is shown as {shown}");
        }
        assert!(hides_syntax("a b", "c"), "what does not fit together is shown");
        assert!(hides_syntax("x secret y", "x [redacted]z"));
    }
}
