//! `get_session_info`: tells a model where it is, who it is there, and what a write will take.

use nexus_core::approval::Mode;
use nexus_core::clock;
use nexus_core::gate::Writes;
use nexus_core::principal::Level;

use crate::prelude::*;

/// Tells who you are to this hub, what you may do, and what a write will need.
///
/// Call it first when you are unsure whether a tool that changes something will be asked about, allowed or refused.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetSessionInfo {}

#[derive(Debug, Serialize, JsonSchema)]
pub struct SessionInfo {
    /// The name of the key you use.
    principal: String,
    level: Level,
    /// Every write is refused, whatever else is said here.
    read_only: bool,
    /// The session's name in the hub's records.
    session: String,
    /// When the session began (RFC 3339).
    started: String,
    /// The hub's clock (RFC 3339).
    now: String,
    transport: String,
    /// Which kind of protocol this call spoke: `legacy` or `modern`.
    era: String,
    /// What your client calls itself.
    client: Option<String>,
    writes: WritesNow,
    /// How a human is asked: `ask` through your client where it can, `chat` by you, `operator` only outside of your reach.
    approval: String,
    /// Tools (`*` for any run of characters) whose writes are allowed to your key for good.
    always_approved: Vec<String>,
    /// What happens when you call a tool that changes something.
    a_write_needs: String,
    /// Nodes you may name in `node`.
    nodes: Vec<String>,
    /// The hub's version.
    version: String,
}

/// Whether a human has approved this session's writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WritesNow {
    Locked,
    Approved,
}

impl Tool<Toolbox> for GetSessionInfo {
    const NAME: &'static str = "get_session_info";
    const ACCESS: Access = Access::Read;
    type Reply = SessionInfo;

    fn summary(&self) -> String {
        "tell about this session".to_owned()
    }

    async fn run(self, env: &Toolbox, cx: &CallCx) -> ToolResult<SessionInfo> {
        let (principal, session) = (&cx.principal, &cx.session);
        let writes = match session.grants.lock().writes {
            Writes::Locked => WritesNow::Locked,
            Writes::Approved => WritesNow::Approved,
        };
        let read_only = env.settings.read_only || principal.read_only;
        Ok(SessionInfo {
            principal: principal.id.to_string(),
            level: principal.level_now(),
            read_only,
            session: session.id.to_string(),
            started: session.started.to_string(),
            now: clock::now().to_string(),
            transport: session.transport.as_str().to_owned(),
            era: cx.era.as_str().to_owned(),
            client: cx.client_name.as_deref().map(str::to_owned),
            writes,
            approval: env.settings.approval.as_str().to_owned(),
            always_approved: principal.approved.iter().map(str::to_owned).collect(),
            a_write_needs: what_a_write_needs(read_only, principal.level_now(), writes, env.settings.approval)
                .to_owned(),
            nodes: env.node_names().into_iter().map(str::to_owned).collect(),
            version: env.settings.version.to_owned(),
        })
    }
}

/// The gate's table in words; the gate decides, this only foretells.
fn what_a_write_needs(read_only: bool, level: Level, writes: WritesNow, mode: Mode) -> &'static str {
    match (read_only, level, writes) {
        (true, _, _) => "nothing helps: this hub or this key is read-only, every write is refused",
        (false, Level::Sandboxed, _) => "nothing helps: this key is sandboxed, every write is refused",
        (false, Level::Yolo, _) => "nothing: every write runs at once and is recorded, so be sure",
        (false, Level::Trusted, WritesNow::Approved) => {
            "nothing more: a human has approved this session's writes (some tools may still ask each time)"
        }
        (false, Level::Trusted, WritesNow::Locked) => match mode {
            Mode::Ask => {
                "a human's approval: the first write asks for it, or answers `approval_required` and says how to get it"
            }
            Mode::Chat => "a human's approval: ask them in chat, and call `approve_writes` when they say yes",
            Mode::Operator => "the operator's approval at the hub's command line: the first write gives a code for it",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_only_is_told_before_anything_else() {
        for level in Level::ALL {
            for writes in [WritesNow::Locked, WritesNow::Approved] {
                assert!(what_a_write_needs(true, level, writes, Mode::Ask).contains("read-only"));
            }
        }
        assert!(what_a_write_needs(false, Level::Trusted, WritesNow::Locked, Mode::Ask).contains("approval"));
    }
}
