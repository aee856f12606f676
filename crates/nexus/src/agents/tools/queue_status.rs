//! `queue_status`: what waits, what runs, and who is there to do it.

use std::collections::BTreeSet;

use jiff::Timestamp;

use nexus_core::clock;
use nexus_core::prelude::*;

use super::failed;
use super::hearing::Hearing;
use super::shown::{self, cut};
use crate::agents::Bridge;
use crate::agents::queue::{Channel, Count, QueueError};
use crate::agents::targets::Target;
use crate::agents::task::{Status, Task};

/// Bytes of the current task.
const SHOWN: usize = 2_000;

/// Tells how many tasks wait and run, what is being worked on, and whether anybody is there to do it.
///
/// The numbers are of all targets together and of each. `deaf` means that nobody takes what is sent there: no worker
/// was heard for two minutes, or a channel has the `trouble` that stands beside it; tasks wait until that is over.
/// `dead` tasks were given up: `list_tasks` with `status: ["dead"]` shows them, `get_task` tells why.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QueueStatus {
    /// Only this target; without it, all.
    target: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Queues {
    /// Tasks that nobody has taken yet.
    pending: i64,
    /// Tasks that somebody has, also those that wait for an answer.
    in_progress: i64,
    /// Updates that the hub has ever had; the number of the last one.
    total_updates: i64,
    /// What the default target (or the one asked for) works on; null if it does nothing.
    current_task: Option<String>,
    /// Tasks that were given up.
    dead: i64,
    /// Seconds since the oldest waiting task was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_pending_s: Option<i64>,
    targets: Vec<TargetStatus>,
    /// What several targets share, such as the Telegram bot.
    channels: Vec<ChannelStatus>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct TargetStatus {
    target: String,
    /// How it is reached: worker, telegram or webhook; `removed` if it is no longer configured.
    way: &'static str,
    pending: i64,
    in_progress: i64,
    /// Of those in progress: tasks that wait for `answer_task`.
    input_required: i64,
    dead: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_task: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_pending_s: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_heard: Option<String>,
    /// Nobody takes what is sent there.
    deaf: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ChannelStatus {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_heard: Option<String>,
    deaf: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
}

impl Tool<Bridge> for QueueStatus {
    const NAME: &'static str = "queue_status";
    const ACCESS: Access = Access::Read;
    type Reply = Queues;

    fn summary(&self) -> String {
        match &self.target {
            Some(target) => format!("look at the queue of {}", shown::in_one_line(target, 100)),
            None => "look at the queues".to_owned(),
        }
    }

    async fn run(self, bridge: &Bridge, _: &CallCx) -> ToolResult<Queues> {
        let only = self.target.as_deref().map(|name| bridge.targets.find(Some(name))).transpose()?;
        look(bridge, only).await.map_err(failed)
    }
}

async fn look(bridge: &Bridge, only: Option<&Target>) -> Result<Queues, QueueError> {
    let queue = &bridge.queue;
    let (counts, channels, now) = (queue.counts().await?, queue.channels().await?, clock::now());
    // A target that was taken out of the file may have left tasks behind.
    let left = counts.iter().filter(|count| count.n > 0 && !count.status.is_finished()).map(|count| &*count.target);
    let names: BTreeSet<&str> = match only {
        Some(target) => [&*target.name].into(),
        None => bridge.targets.iter().map(|target| &*target.name).chain(left).collect(),
    };
    let mut targets = Vec::new();
    for name in names {
        targets.push(target_status(bridge, name, &counts, &channels, now).await?);
    }
    let first = only.or_else(|| bridge.targets.default()).map(|target| &*target.name);
    let current = targets.iter().find(|target| Some(&*target.target) == first);
    let channels = channels.iter().filter(|channel| bridge.targets.get(&channel.name).is_none());
    let sum = |number: fn(&TargetStatus) -> i64| targets.iter().map(number).sum();
    Ok(Queues {
        pending: sum(|target| target.pending),
        in_progress: sum(|target| target.in_progress),
        total_updates: queue.last_update().await?,
        current_task: current.and_then(|target| target.current_task.clone()),
        dead: sum(|target| target.dead),
        oldest_pending_s: targets.iter().filter_map(|target| target.oldest_pending_s).max(),
        channels: channels.map(|channel| channel_status(channel, now)).collect(),
        targets,
    })
}

async fn target_status(
    bridge: &Bridge,
    name: &str,
    counts: &[Count],
    channels: &[Channel],
    now: Timestamp,
) -> Result<TargetStatus, QueueError> {
    let count = |so: fn(Status) -> bool| {
        counts.iter().filter(|count| count.target == name && so(count.status)).map(|count| count.n).sum::<i64>()
    };
    let (pending, in_progress) = (count(|status| status == Status::Pending), count(Status::is_running));
    let target = bridge.targets.get(name);
    let running: Vec<Task> = match in_progress {
        0 => Vec::new(),
        _ => bridge.queue.first_running(name, Hearing::most_running(target)).await?,
    };
    let current = match running.first() {
        Some(first) => bridge.queue.task(first.id).await?,
        None => None,
    };
    let oldest = if pending > 0 { bridge.queue.oldest_pending(name).await? } else { None };
    let gone = Hearing { deaf: true, ..Hearing::default() };
    let hearing = target.map_or(gone, |target| Hearing::of_target(target, channels, &running, now));
    Ok(TargetStatus {
        target: name.to_owned(),
        way: target.map_or("removed", |target| target.way.as_str()),
        pending,
        in_progress,
        input_required: count(|status| status == Status::InputRequired),
        dead: count(|status| status == Status::Dead),
        current_task: current.map(|task| cut(&task.content, SHOWN)),
        oldest_pending_s: oldest.map(|oldest| now.duration_since(oldest).as_secs().max(0)),
        last_heard: hearing.last_heard.map(shown::time),
        deaf: hearing.deaf,
        trouble: hearing.trouble,
    })
}

fn channel_status(channel: &Channel, now: Timestamp) -> ChannelStatus {
    let hearing = Hearing::of_channel(channel, now);
    ChannelStatus {
        name: channel.name.clone(),
        last_heard: hearing.last_heard.map(shown::time),
        deaf: hearing.deaf,
        trouble: hearing.trouble,
    }
}
