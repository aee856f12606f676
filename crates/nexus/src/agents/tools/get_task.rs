//! `get_task`: one task, with all that is known of it.

use nexus_core::prelude::*;

use super::failed;
use super::shown::{self, ShownUpdate, cut};
use super::words::Id;
use crate::agents::Bridge;
use crate::agents::queue::QueueError;
use crate::agents::task::{Priority, Status, Task};

const DEFAULT: i64 = 20;
const MOST: i64 = 200;
/// Bytes of the message, and of the result. The sender has the one, and `pull_updates` gives the other whole.
const SHOWN: usize = 40_000;

/// Tells all about one task: where it stands, all its times, its question, its result, and its last updates.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetTask {
    /// The task, for instance `t17`.
    id: Id,
    /// How many of its last updates, 0 to 200; 20 if not given. `pull_updates` with `task` gives all.
    #[schemars(range(min = 0, max = 200))]
    updates: Option<i64>,
}

#[derive(Debug, Error)]
#[error("`updates` is {0}; it may be 0 to {MOST}")]
struct BadNumber(i64);

#[derive(Debug, Serialize, JsonSchema)]
pub struct WholeTask {
    id: String,
    target: String,
    status: Status,
    priority: Priority,
    /// The message.
    content: String,
    /// The key that sent it.
    sender: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<String>,
    /// How often it was started, of `max_attempts`.
    attempts: i64,
    max_attempts: i64,
    /// When it was sent. RFC 3339, UTC, as all times here.
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<String>,
    /// When an agent took it.
    #[serde(skip_serializing_if = "Option::is_none")]
    acknowledged_at: Option<String>,
    /// When the agent first said something of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<String>,
    /// When it ended, however it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<String>,
    /// Who took it: a key, or the channel that carries it.
    #[serde(skip_serializing_if = "Option::is_none")]
    claimed_by: Option<String>,
    /// Until then its agent must have been heard again.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_until: Option<String>,
    /// What its agent asks; `answer_task` answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    question: Option<String>,
    /// The number of the question, for `answer_task`.
    #[serde(skip_serializing_if = "Option::is_none")]
    question_id: Option<i64>,
    /// What its agent said at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i64>,
    /// Why it is dead, cancelled or in error.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The last ones, oldest first.
    updates: Vec<ShownUpdate>,
}

impl Tool<Bridge> for GetTask {
    const NAME: &'static str = "get_task";
    const ACCESS: Access = Access::Read;
    type Reply = WholeTask;

    fn summary(&self) -> String {
        format!("look at the task {}", self.id.0)
    }

    async fn run(self, bridge: &Bridge, _: &CallCx) -> ToolResult<WholeTask> {
        let most = match self.updates.unwrap_or(DEFAULT) {
            most @ 0..=MOST => most,
            most => return Err(ToolError::refused(BadNumber(most))),
        };
        let id = self.id.0;
        let task = bridge.queue.task(id).await.map_err(failed)?.ok_or_else(|| failed(QueueError::Unknown(id)))?;
        let question = question(bridge, &task).await.map_err(failed)?;
        let (mut updates, mut bytes) = (Vec::new(), 0);
        // The newest are wanted most, and come first from the store.
        for update in bridge.queue.last_updates(id, most).await.map_err(failed)? {
            let update = ShownUpdate::of(update, shown::UPDATE);
            bytes += update.size();
            if !updates.is_empty() && bytes > shown::PAGE {
                break;
            }
            updates.push(update);
        }
        updates.reverse();
        Ok(whole(task, question, updates))
    }
}

/// The words of the question that waits for an answer.
pub(super) async fn question(bridge: &Bridge, task: &Task) -> Result<Option<String>, QueueError> {
    let Some(seq) = task.question.filter(|_| task.status == Status::InputRequired) else { return Ok(None) };
    let wanted = crate::agents::queue::Wanted { after: seq - 1, task: Some(task.id), limit: 1, ..Default::default() };
    let found = bridge.queue.updates(&wanted).await?;
    Ok(found.into_iter().find(|update| update.seq == seq).map(|update| cut(&update.content, SHOWN)))
}

fn whole(task: Task, question: Option<String>, updates: Vec<ShownUpdate>) -> WholeTask {
    WholeTask {
        question_id: task.question.filter(|_| question.is_some()),
        id: task.id.to_string(),
        target: task.target.to_string(),
        status: task.status,
        priority: task.priority,
        content: cut(&task.content, SHOWN),
        sender: task.sender,
        idempotency_key: task.idempotency_key,
        attempts: task.attempts,
        max_attempts: task.max_attempts,
        created_at: shown::time(task.created),
        deadline: task.deadline.map(shown::time),
        acknowledged_at: task.acknowledged.map(shown::time),
        started_at: task.started.map(shown::time),
        completed_at: task.completed.map(shown::time),
        claimed_by: task.claimed_by,
        lease_until: task.lease_until.map(shown::time),
        question,
        result: task.result.map(|result| cut(&result, SHOWN)),
        exit_code: task.exit_code,
        reason: task.reason.map(|reason| cut(&reason, SHOWN)),
        updates,
    }
}
