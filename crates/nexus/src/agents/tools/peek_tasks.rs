//! `peek_tasks`: what waits and what runs, and the heartbeat of a worker.

use nexus_core::prelude::*;
use nexus_core::tool::Listed;

use super::claim_task::waiting;
use super::vigil::Vigil;
use super::words::{Chosen as Name, Wait};
use super::{failed, serving, shown};
use crate::agents::Bridge;
use crate::agents::queue::{Held, QueueError, Topic};
use crate::agents::targets::Target;
use crate::agents::task::{Priority, Status, Task};

/// Claims of one beat: more than any worker runs at once.
const MOST_CLAIMS: usize = 64;
const NEXT: i64 = 10;
/// Of so many tasks that a key had last, those are worth a word that were taken from it.
const MOST_HAD: i64 = 20;

/// Looks at your target's queue without taking anything: what waits, what runs, and what was taken from you lately.
///
/// Call it between two steps of your work: it also shows that you are there. A task in `running` whose `holds` is false
/// is not yours, or no longer wanted of you (cancelled, given up, or somebody else has it): if you work on it, stop. A
/// message in `next` that begins with STOP or URGENT has ended what was running: claim it now. Anything else waits for
/// its turn.
///
/// With `wait_seconds` and without `claims` it comes back as soon as something waits. With `claims`, for programs: it
/// renews the leases of these claims, and comes back as soon as one of them no longer holds; one that nobody knows is
/// missing in `running`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PeekTasks {
    /// For keys that may serve any target: which one; without it, the default.
    target: Option<String>,
    /// Names of your claims, at most 64: only these are in `running`, and their leases are renewed.
    #[schemars(length(max = 64))]
    claims: Option<Claims>,
    /// How many seconds to wait for a change, 0 to 60; without it, 0.
    #[schemars(range(min = 0, max = 60))]
    wait_seconds: Option<Wait>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<Name>")]
#[schemars(with = "Vec<String>")]
struct Claims(Vec<String>);

#[derive(Debug, Error)]
#[error("at most {MOST_CLAIMS} claims fit, and these are {0}")]
struct TooMany(usize);

impl TryFrom<Vec<Name>> for Claims {
    type Error = TooMany;

    fn try_from(names: Vec<Name>) -> Result<Self, TooMany> {
        if names.len() > MOST_CLAIMS {
            return Err(TooMany(names.len()));
        }
        let mut claims: Vec<String> = names.into_iter().map(Name::into_string).collect();
        claims.sort_unstable();
        claims.dedup();
        Ok(Self(claims))
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Peeked {
    /// How many tasks wait.
    waiting: i64,
    /// The first of them, in the order in which they will be taken.
    next: Vec<NextTask>,
    running: Vec<RunningTask>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct NextTask {
    id: String,
    priority: Priority,
    first_line: String,
    created_at: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct RunningTask {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<String>,
    status: Status,
    /// Why it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// You have claimed it, and are to go on with it.
    holds: bool,
}

impl Tool<Bridge> for PeekTasks {
    const NAME: &'static str = "peek_tasks";
    const ACCESS: Access = Access::ReadLogged;
    const LISTED: Listed = Listed::Agents;
    type Reply = Peeked;

    fn summary(&self) -> String {
        match &self.claims {
            Some(claims) => format!("renew {} claims", claims.0.len()),
            None => "look at the queue".to_owned(),
        }
    }

    async fn run(self, bridge: &Bridge, cx: &CallCx) -> ToolResult<Peeked> {
        let target = serving::target(bridge, cx, self.target.as_deref())?;
        let wait = self.wait_seconds.unwrap_or_default();
        let mut vigil = Vigil::new(bridge, cx, &Topic::Tasks(target.name.clone()), wait, "a change");
        loop {
            let (running, news) = match &self.claims {
                Some(Claims(claims)) => beat(bridge, target, claims).await.map_err(failed)?,
                None => {
                    let running = running(bridge, cx, target).await.map_err(failed)?;
                    (running, waiting(bridge, target).await.map_err(failed)? > 0)
                }
            };
            if news || !vigil.goes_on().await {
                return peeked(bridge, target, running).await.map_err(failed);
            }
        }
    }
}

async fn peeked(bridge: &Bridge, target: &Target, running: Vec<RunningTask>) -> Result<Peeked, QueueError> {
    let next = bridge.queue.first_waiting(&target.name, NEXT).await?;
    Ok(Peeked { waiting: waiting(bridge, target).await?, next: next.iter().map(next_task).collect(), running })
}

/// Where these claims stand, and whether one of them no longer holds. Whoever has none waits for none.
async fn beat(bridge: &Bridge, target: &Target, claims: &[String]) -> Result<(Vec<RunningTask>, bool), QueueError> {
    let held = bridge.queue.beat(&target.name, claims).await?;
    let news = held.len() < claims.len() || held.iter().any(|one| !one.holds);
    Ok((held.into_iter().map(held_task).collect(), news))
}

/// What runs on a target, and what was taken from this key.
async fn running(bridge: &Bridge, cx: &CallCx, target: &Target) -> Result<Vec<RunningTask>, QueueError> {
    let key = cx.principal.id.as_str();
    bridge.queue.seen(&target.name, key).await?;
    let mut tasks = bridge.queue.first_running(&target.name, shown::RUNNING).await?;
    tasks.extend(serving::taken_from(bridge, target, key, MOST_HAD).await?);
    Ok(tasks.into_iter().map(|task| running_task(task, key)).collect())
}

fn next_task(task: &Task) -> NextTask {
    NextTask {
        id: task.id.to_string(),
        priority: task.priority,
        first_line: shown::first_line(&task.content),
        created_at: shown::time(task.created),
    }
}

fn running_task(task: Task, key: &str) -> RunningTask {
    let holds = task.status.is_running() && task.claimed_by.as_deref() == Some(key);
    RunningTask { id: task.id.to_string(), claim: task.claim, status: task.status, reason: task.reason, holds }
}

fn held_task(held: Held) -> RunningTask {
    let Held { claim, task, status, reason, holds } = held;
    RunningTask { id: task.to_string(), claim: Some(claim), status, reason, holds }
}
