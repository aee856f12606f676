//! `approve_writes`: unlocks the session's writes, once the operator has said yes.

use super::{Approvals, Code, NotSettled, Scope};
use crate::gate::Writes;
use crate::prelude::*;
use crate::principal::Level;

/// Unlocks the writes of this session. Call it only after the operator has said yes to you, in this conversation.
///
/// Where the hub can ask the operator itself, it does, and this waits for their answer. With a `code` it allows only
/// the one waiting call that was answered with that code; then make that call again. `revoke_writes` locks again.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApproveWrites {
    /// The `code` of one waiting call: allow that call alone, once.
    pub code: Option<String>,
    /// With the code of a call to an upstream server: `once` (that call), `session` (every tool of that server, this
    /// session) or `each` (the server may be used, and every call is asked about).
    pub scope: Option<Scope>,
    /// What the writes are for, in one line; the operator reads it.
    pub reason: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Approved {
    writes: State,
    /// What to do next, and for how long this holds.
    next: String,
}

/// What may be written now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// Every write of this session runs, until it ends or `revoke_writes` is called.
    Approved,
    /// The one call of that code may be made again, once.
    Once,
    /// Nothing is ever locked for this key.
    Free,
    /// A human must say yes to the next write.
    Locked,
}

/// Characters of a reason that people read.
const LONGEST_REASON: usize = 200;

impl Tool<Approvals> for ApproveWrites {
    const NAME: &'static str = "approve_writes";
    const ACCESS: Access = Access::Write;
    type Reply = Approved;

    fn summary(&self) -> String {
        let what = match &self.code {
            Some(code) => {
                let code = Code::typed(code);
                match self.scope.unwrap_or(Scope::Once) {
                    Scope::Once => format!("allow the waiting call {code} once"),
                    Scope::Session => format!("allow every tool of the server that {code} is about, this session"),
                    Scope::Each => format!("allow the use of the server that {code} is about, and ask about each call"),
                }
            }
            None => "unlock all writes of this session".to_owned(),
        };
        match self.reason.as_deref().map(str::trim).filter(|reason| !reason.is_empty()) {
            Some(reason) => format!("{what}; the model's reason: {}", crate::text::cut(reason, LONGEST_REASON)),
            None => what,
        }
    }

    /// A call that is to be confirmed every time is not let through by an approved session.
    fn always_asks(&self) -> bool {
        self.code.is_some()
    }

    async fn run(self, approvals: &Approvals, cx: &CallCx) -> ToolResult<Approved> {
        // What is free needs no yes, and a yes would outlive the level that made it free.
        let free = cx.principal.level_now() == Level::Yolo;
        if let Some(code) = self.code.as_deref().filter(|_| !free) {
            let scope = self.scope.unwrap_or(Scope::Once);
            let allowed = approvals.allow(&Code::typed(code), &cx.session, cx.answered, scope).await;
            let allowed = allowed.map_err(NotSettled::into_error)?;
            let then = match scope {
                Scope::Once => "it runs once",
                Scope::Session => "it runs, and so does every other tool of that server in this session",
                Scope::Each => "it has a question of its own, as has every call of that server",
            };
            let next = format!("Call `{}` again with the same arguments; {then}.", allowed.tool);
            let writes = match (scope, cx.session.grants.lock().writes) {
                (Scope::Once, _) => State::Once,
                (Scope::Session | Scope::Each, Writes::Approved) => State::Approved,
                (Scope::Session | Scope::Each, Writes::Locked) => State::Locked,
            };
            return Ok(Approved { writes, next });
        }
        let (writes, next) = match (free, cx.session.grants.lock().writes) {
            (true, _) => (State::Free, "This key needs no approval: just make the call."),
            (false, Writes::Approved) => (
                State::Approved,
                "Writes of this session run until it ends, it is idle for long, or `revoke_writes` is called. \
                 Make the call again.",
            ),
            // Taken back while this ran.
            (false, Writes::Locked) => (State::Locked, "The writes of this session are locked again."),
        };
        Ok(Approved { writes, next: next.to_owned() })
    }
}
