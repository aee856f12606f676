//! `send_message`: a message becomes a task.

use jiff::Timestamp;

use nexus_core::clock;
use nexus_core::prelude::*;

use super::failed;
use super::shown::{in_one_line, on_one_line};
use super::words::{Chosen, Words};
use crate::agents::Bridge;
use crate::agents::queue::{NewTask, QueueError, Sent};
use crate::agents::targets::Target;
use crate::agents::task::{Priority, Status};
use crate::when;

/// Stopped tasks that are named.
const STOPPED: usize = 100;
/// More attempts than this are a loop, not a plan.
const MOST_ATTEMPTS: u32 = 100;

/// Hands a message to a resident agent as a task, and comes back at once with the task's id. The agent works on it by
/// itself; follow it with `pull_updates`.
///
/// Write it as you would to a colleague who knows nothing of this conversation: what is wanted, where, and how you will
/// know that it is done. It is kept safely: once this tool says `queued`, the task is done or you learn why not.
///
/// The same words to the same target are one task until it is finished: then `queued` is false, `reason` is
/// `duplicate` and `id` is the one that is there. So after a lost answer you can simply send again.
///
/// A message that begins with the word URGENT (in capitals) ends whatever the target is doing and comes next. One that
/// begins with STOP ends it, too; STOP alone does nothing else.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendMessage {
    /// What the agent is to do, at most 100,000 bytes.
    message: Words,
    /// Whom it is for: one of `list_targets`; without it, the default target.
    target: Option<String>,
    /// Tasks of a higher priority are done first, those of the same in order of age. Without it, `normal`.
    priority: Option<Priority>,
    /// A task that is not finished by then is given up: `30m`, `2h`, `1d` from now, or a time (RFC 3339).
    deadline: Option<Deadline>,
    /// How often it may be started when its agent falls silent, 1 to 100. Without it the target's, usually once: give
    /// more only for work that may safely be done twice.
    #[schemars(range(min = 1, max = 100))]
    max_attempts: Option<Attempts>,
    /// A name for this message. Sent again under the same name it is the same task, also when that is finished and
    /// whatever it says.
    idempotency_key: Option<Chosen>,
}

/// Checked where it comes in; counted from when the message is sent.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
struct Deadline(String);

#[derive(Debug, Error)]
#[error("a deadline is a time to come: {0}")]
struct BadDeadline(String);

#[derive(Debug, Error)]
#[error("the deadline is over")]
struct Over;

impl TryFrom<String> for Deadline {
    type Error = BadDeadline;

    fn try_from(text: String) -> Result<Self, BadDeadline> {
        when::future(text.trim()).map_err(BadDeadline)?;
        Ok(Self(text.trim().to_owned()))
    }
}

impl Deadline {
    fn at(&self) -> ToolResult<Timestamp> {
        when::future(&self.0).map_err(|_| ToolError::refused(Over).hint("nothing was sent"))
    }
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "u32")]
struct Attempts(u32);

#[derive(Debug, Error)]
#[error("a task may be started 1 to {MOST_ATTEMPTS} times")]
struct BadAttempts;

impl TryFrom<u32> for Attempts {
    type Error = BadAttempts;

    fn try_from(times: u32) -> Result<Self, BadAttempts> {
        if (1..=MOST_ATTEMPTS).contains(&times) { Ok(Self(times)) } else { Err(BadAttempts) }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Delivered {
    queued: bool,
    /// `duplicate`: it is there already.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// The task, new or there already.
    id: String,
    target: String,
    /// 1: it is next. 0: it is done already, as a bare STOP is.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<i64>,
    /// Where the one stands that is there already.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    /// The running tasks that this message ended, the first hundred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    stopped: Vec<String>,
    /// How many more it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped_more: Option<usize>,
}

impl Tool<Bridge> for SendMessage {
    const NAME: &'static str = "send_message";
    const ACCESS: Access = Access::Write;
    /// What the operator reads before they answer. The question shows the whole message below it.
    const LONGEST_SUMMARY: usize = 1_200;
    type Reply = Delivered;

    fn summary(&self) -> String {
        let target = self.target.as_deref().map_or("the default agent".to_owned(), |name| in_one_line(name, 100));
        let priority = self.priority.unwrap_or(Priority::Normal);
        format!("send to {target}, priority {priority}: {}", on_one_line(self.message.as_str()))
    }

    async fn run(self, bridge: &Bridge, cx: &CallCx) -> ToolResult<Delivered> {
        let target = bridge.targets.find(self.target.as_deref())?;
        let deadline = self.deadline.as_ref().map(Deadline::at).transpose()?.or_else(|| usual_deadline(target));
        let task = NewTask {
            target: target.name.clone(),
            content: self.message.into_string(),
            priority: self.priority.unwrap_or(Priority::Normal),
            deadline,
            max_attempts: self.max_attempts.map_or(target.max_attempts, |attempts| attempts.0),
            idempotency_key: self.idempotency_key.map(Chosen::into_string),
            sender: cx.principal.id.as_str().to_owned(),
        };
        match bridge.queue.send(task).await.map_err(failed)? {
            Sent::Queued { id, position, stopped } => {
                cx.note(&id.to_string());
                Ok(Delivered {
                    queued: true,
                    reason: None,
                    id: id.to_string(),
                    target: target.name.to_string(),
                    position: Some(position),
                    status: None,
                    stopped: stopped.iter().take(STOPPED).map(ToString::to_string).collect(),
                    stopped_more: stopped.len().checked_sub(STOPPED).filter(|more| *more > 0),
                })
            }
            Sent::Duplicate { id } => {
                cx.note(&format!("{id}, which is there already"));
                let there = bridge.queue.task(id).await.map_err(failed)?;
                let there = there.ok_or_else(|| failed(QueueError::Unknown(id)))?;
                Ok(Delivered {
                    queued: false,
                    reason: Some("duplicate"),
                    id: id.to_string(),
                    target: there.target.to_string(),
                    position: None,
                    status: Some(there.status),
                    stopped: Vec::new(),
                    stopped_more: None,
                })
            }
        }
    }
}

/// What the target's file says.
fn usual_deadline(target: &Target) -> Option<Timestamp> {
    clock::now().checked_add(target.deadline?).ok()
}
