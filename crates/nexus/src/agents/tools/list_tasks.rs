//! `list_tasks`: many tasks, a line of each.

use nexus_core::prelude::*;

use super::failed;
use super::shown::{self, TaskLine};
use super::words::Id;
use crate::agents::Bridge;
use crate::agents::queue::Chosen;
use crate::agents::task::Status;

const DEFAULT: i64 = 50;
const MOST: i64 = 200;

/// Lists tasks, newest first, with a line of each; `get_task` has the rest.
///
/// To see what waits: `status: ["pending"]`. What runs: `["acknowledged", "in_progress", "input_required"]`. What was
/// given up: `["dead"]`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListTasks {
    /// Only tasks of this target.
    target: Option<String>,
    /// Only tasks that stand so; without it, all.
    status: Option<Vec<Status>>,
    /// How many, 1 to 200; 50 if not given.
    #[schemars(range(min = 1, max = 200))]
    limit: Option<i64>,
    /// Only tasks older than this one: the `before` of an earlier reply.
    before: Option<Id>,
}

#[derive(Debug, Error)]
#[error("`limit` is {0}; it may be 1 to {MOST}")]
struct BadLimit(i64);

#[derive(Debug, Serialize, JsonSchema)]
pub struct Tasks {
    /// Newest first.
    tasks: Vec<TaskLine>,
    /// There are older ones: give this as `before`.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<String>,
}

impl Tool<Bridge> for ListTasks {
    const NAME: &'static str = "list_tasks";
    const ACCESS: Access = Access::Read;
    type Reply = Tasks;

    fn summary(&self) -> String {
        match &self.target {
            Some(target) => format!("list the tasks of {}", shown::in_one_line(target, 100)),
            None => "list the tasks".to_owned(),
        }
    }

    async fn run(self, bridge: &Bridge, _: &CallCx) -> ToolResult<Tasks> {
        let limit = match self.limit.unwrap_or(DEFAULT) {
            limit @ 1..=MOST => limit,
            limit => return Err(ToolError::refused(BadLimit(limit))),
        };
        let target = self.target.as_deref().map(|name| bridge.targets.find(Some(name))).transpose()?;
        let target = target.map(|target| target.name.clone());
        // Said twice is said once.
        let status = self.status.map(|wanted| Status::ALL.iter().copied().filter(|one| wanted.contains(one)).collect());
        let chosen = Chosen { target, status, before: self.before.map(|id| id.0), limit: limit + 1 };
        let mut found = bridge.queue.tasks(&chosen).await.map_err(failed)?;
        let more = i64::try_from(found.len()).is_ok_and(|found| found > limit);
        if more {
            found.pop();
        }
        let before = found.last().filter(|_| more).map(|last| last.id.to_string());
        Ok(Tasks { tasks: found.iter().map(TaskLine::of).collect(), before })
    }
}
