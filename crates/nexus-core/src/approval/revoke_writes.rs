//! `revoke_writes`: takes back every yes of a session.

use super::Approvals;
use crate::prelude::*;

/// Locks the writes of this session again: everything that was approved in it is taken back.
///
/// Call it when the work that needed writes is done, or when the operator says so. Free for everyone.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeWrites {}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Revoked {
    /// Always `locked`.
    writes: String,
    /// What the next write needs.
    next: String,
}

impl Tool<Approvals> for RevokeWrites {
    const NAME: &'static str = "revoke_writes";
    /// It gives nothing to anyone, so nobody is asked; it is recorded.
    const ACCESS: Access = Access::ReadLogged;
    type Reply = Revoked;

    fn summary(&self) -> String {
        "lock the writes of this session again".to_owned()
    }

    async fn run(self, _: &Approvals, cx: &CallCx) -> ToolResult<Revoked> {
        cx.session.grants.lock().revoke();
        let next = "The next write of this session waits for the operator again.".to_owned();
        Ok(Revoked { writes: "locked".to_owned(), next })
    }
}
