//! `complete_task`: the agent is done.

use nexus_core::prelude::*;
use nexus_core::tool::Listed;

use super::report::{self, About, Ended};
use super::words::{Chosen, Id, Said};
use crate::agents::Bridge;
use crate::agents::queue::Saying;

/// Reports that a task is done, with the result for whoever sent it.
///
/// The result is all that they may read: say what was done, what came of it, and what is left. Look at `status` in the
/// reply: if the task was ended otherwise before, for instance `cancelled`, it stays so and the result is only kept.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompleteTask {
    /// The task; without it, the only one that you have running.
    task: Option<Id>,
    /// What came of it, at most 100,000 bytes.
    result: Option<Said>,
    /// The exit code, where a program did it.
    exit_code: Option<i64>,
    /// The name of your claim, where `claim_task` gave one; without it, your key's claim is meant.
    claim: Option<Chosen>,
    /// A name for this report: the same again under the same name is taken once. For callers that repeat what got no
    /// answer.
    source: Option<Chosen>,
}

impl Tool<Bridge> for CompleteTask {
    const NAME: &'static str = "complete_task";
    const ACCESS: Access = Access::ReadLogged;
    const LISTED: Listed = Listed::Agents;
    type Reply = Ended;

    fn summary(&self) -> String {
        format!("report the completion{}", report::of(self.task))
    }

    async fn run(self, bridge: &Bridge, cx: &CallCx) -> ToolResult<Ended> {
        let about = About { task: self.task, claim: self.claim, source: self.source };
        let result = self.result.map(Said::into_string).unwrap_or_default();
        report::end(bridge, cx, about, Saying::Complete, result, self.exit_code).await
    }
}
