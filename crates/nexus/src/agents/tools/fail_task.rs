//! `fail_task`: the agent cannot do it.

use nexus_core::prelude::*;
use nexus_core::tool::Listed;

use super::report::{self, About, Ended};
use super::words::{Chosen, Id, Said};
use crate::agents::Bridge;
use crate::agents::queue::Saying;

/// Reports that a task cannot be done, with the reason.
///
/// Say what you tried, what stands in the way, and in which state you leave things. The task is over with this; if an
/// answer could help, use `ask_operator` instead.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FailTask {
    /// The task; without it, the only one that you have running.
    task: Option<Id>,
    /// Why it cannot be done, at most 100,000 bytes.
    reason: Said,
    /// The exit code, where a program tried it.
    exit_code: Option<i64>,
    /// The name of your claim, where `claim_task` gave one; without it, your key's claim is meant.
    claim: Option<Chosen>,
    /// A name for this report: the same again under the same name is taken once. For callers that repeat what got no
    /// answer.
    source: Option<Chosen>,
}

impl Tool<Bridge> for FailTask {
    const NAME: &'static str = "fail_task";
    const ACCESS: Access = Access::ReadLogged;
    const LISTED: Listed = Listed::Agents;
    type Reply = Ended;

    fn summary(&self) -> String {
        format!("report the failure{}", report::of(self.task))
    }

    async fn run(self, bridge: &Bridge, cx: &CallCx) -> ToolResult<Ended> {
        let about = About { task: self.task, claim: self.claim, source: self.source };
        report::end(bridge, cx, about, Saying::Fail, self.reason.into_string(), self.exit_code).await
    }
}
