//! `claim_task`: an agent takes the next task.

use std::time::Duration;

use nexus_core::clock;
use nexus_core::prelude::*;
use nexus_core::tool::{Hidden, Listed};

use super::vigil::Vigil;
use super::words::{Chosen, Wait};
use super::{failed, serving, shown};
use crate::agents::Bridge;
use crate::agents::queue::{Claim, Lease, QueueError, Topic};
use crate::agents::targets::Target;
use crate::agents::task::{Priority, Status, Task};

/// Takes the next task of your target: the most urgent one, and of these the oldest. From then on it is yours.
///
/// Do what its `content` says, tell how it goes with `post_update`, ask with `ask_operator`, and end it with
/// `complete_task` or `fail_task`. Take one at a time unless you can work on several. `task` is null when nothing
/// waits; give `wait_seconds` and call again and again to be there when something comes.
///
/// A task whose agent says nothing for too long is taken from it. If the answer to this call gets lost, the task is
/// yours all the same: `peek_tasks` shows it as running with the name of its claim, and `claim_task` with that name as
/// `claim` gives it to you again.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimTask {
    /// For keys that may serve any target: which one; without it, the default.
    target: Option<String>,
    /// How many seconds to wait for a task if there is none, 0 to 60; without it, 0.
    #[schemars(range(min = 0, max = 60))]
    wait_seconds: Option<Wait>,
    /// A name for your claim that nobody else uses, for callers that repeat what got no answer: as long as a task that
    /// was claimed under it is not finished, the same name gives that task again and no other. Without it the hub makes
    /// one up.
    claim: Option<Chosen>,
    /// For programs that call `peek_tasks` with their claims all the time: the task is taken from you when you are not
    /// heard for so many seconds, 10 to 3600. Without it the target's own, longer time holds, and you may be silent
    /// while a question of yours waits for its answer.
    #[schemars(range(min = 10, max = 3600))]
    lease_seconds: Option<LeaseSeconds>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "u64")]
#[schemars(with = "u64")]
struct LeaseSeconds(u64);

#[derive(Debug, Error)]
#[error("a lease is 10 to 3600 seconds")]
struct BadLease;

impl TryFrom<u64> for LeaseSeconds {
    type Error = BadLease;

    fn try_from(seconds: u64) -> Result<Self, BadLease> {
        if (10..=3600).contains(&seconds) { Ok(Self(seconds)) } else { Err(BadLease) }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Claimed {
    /// Null: nothing waits.
    task: Option<TakenTask>,
    /// How many more wait. Missing if that could not be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<i64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct TakenTask {
    id: String,
    /// What is to be done.
    content: String,
    priority: Priority,
    /// 1 at the first time. More: somebody before you has begun it and fell silent; look what is done already.
    attempt: i64,
    max_attempts: i64,
    created_at: String,
    /// It must be finished by then.
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<String>,
    /// The key that sent it.
    sender: String,
    /// The name of your claim.
    claim: String,
}

impl Tool<Bridge> for ClaimTask {
    const NAME: &'static str = "claim_task";
    const ACCESS: Access = Access::ReadLogged;
    const LISTED: Listed = Listed::Agents;
    /// The agent needs the message as it was sent.
    const HIDDEN: Hidden = Hidden::OwnSecrets;
    type Reply = Claimed;

    fn summary(&self) -> String {
        let target = self.target.as_deref().map(|name| format!(" of {}", shown::in_one_line(name, 100)));
        format!("take the next task{}", target.unwrap_or_default())
    }

    async fn run(self, bridge: &Bridge, cx: &CallCx) -> ToolResult<Claimed> {
        let target = serving::target(bridge, cx, self.target.as_deref())?;
        let claim = Claim {
            target: target.name.clone(),
            claim: self.claim.map_or_else(|| clock::new_id().to_string(), Chosen::into_string),
            by: cx.principal.id.as_str().to_owned(),
            lease: match self.lease_seconds {
                Some(seconds) => Lease::Beats(Duration::from_secs(seconds.0)),
                None => Lease::Speaks(target.lease),
            },
        };
        let wait = self.wait_seconds.unwrap_or_default();
        let mut vigil = Vigil::new(bridge, cx, &Topic::Tasks(target.name.clone()), wait, "a task");
        let task = loop {
            let task = bridge.queue.claim(claim.clone()).await.map_err(failed)?;
            if task.is_some() || !vigil.goes_on().await {
                break task;
            }
        };
        if let Some(task) = &task {
            cx.note(&task.id.to_string());
        }
        // The task is the caller's: nothing that comes after may take it away from the reply.
        let waiting = waiting(bridge, target).await.ok();
        Ok(Claimed { task: task.map(|task| taken(task, claim.claim)), waiting })
    }
}

/// How many tasks of a target wait.
pub async fn waiting(bridge: &Bridge, target: &Target) -> Result<i64, QueueError> {
    let counts = bridge.queue.counts().await?;
    let pending = counts.iter().filter(|count| *count.target == *target.name && count.status == Status::Pending);
    Ok(pending.map(|count| count.n).sum())
}

fn taken(task: Task, claim: String) -> TakenTask {
    TakenTask {
        id: task.id.to_string(),
        content: task.content,
        priority: task.priority,
        attempt: task.attempts,
        max_attempts: task.max_attempts,
        created_at: shown::time(task.created),
        deadline: task.deadline.map(shown::time),
        sender: task.sender,
        claim,
    }
}
