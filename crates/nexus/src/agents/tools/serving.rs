//! Who may serve which target, and which task an agent means.

use jiff::{SignedDuration, Timestamp};

use nexus_core::clock;
use nexus_core::prelude::*;
use nexus_core::principal::Level;
use nexus_core::session::Transport;

use super::failed;
use super::shown::RUNNING;
use crate::agents::Bridge;
use crate::agents::queue::{QueueError, Who};
use crate::agents::targets::Target;
use crate::agents::task::{Status, Task, TaskId};

/// An agent may be at one step for long before it hears that nobody wants it any more.
const LATELY: SignedDuration = SignedDuration::from_hours(24);

#[derive(Debug, Error)]
enum NotServed {
    #[error("this key serves the target `{serves}`, and no other")]
    OtherTarget { serves: String },
    #[error("a sandboxed key serves no target")]
    Sandboxed,
    #[error("{task} is no task of `{target}`, which this key serves")]
    OtherTask { task: TaskId, target: String },
    #[error("no task of `{target}` is running that this key has claimed")]
    NoneRuns { target: String },
    #[error("which task? Several of this key are running: {0}")]
    Several(String),
}

/// What somebody who serves tasks is let do.
fn may_serve(cx: &CallCx) -> ToolResult<Option<&str>> {
    match (cx.principal.serves.as_deref(), cx.principal.level_now()) {
        (Some(target), _) => Ok(Some(target)),
        (None, Level::Trusted | Level::Yolo) => Ok(None),
        (None, Level::Sandboxed) => Err(ToolError::refused(NotServed::Sandboxed)
            .hint("the operator makes a key for it with `nexus key new NAME --target TARGET`")),
    }
}

/// The target whose tasks the caller serves: its key's own, or for a key that may serve any, the one that is named.
pub fn target<'a>(bridge: &'a Bridge, cx: &CallCx, named: Option<&str>) -> ToolResult<&'a Target> {
    match (may_serve(cx)?, named) {
        (Some(own), Some(named)) if own != named => {
            Err(ToolError::refused(NotServed::OtherTarget { serves: own.to_owned() }).hint("leave `target` out"))
        }
        (Some(own), _) => bridge.targets.find(Some(own)),
        (None, named) => bridge.targets.find(named),
    }
}

/// By what right the caller reports. Whoever comes by Telegram or a webhook, or from the hub's own command line, was
/// let in as the one that the task was carried to.
pub fn who(cx: &CallCx, claim: Option<&str>) -> Who {
    match cx.session.transport {
        Transport::Telegram | Transport::Webhook | Transport::Control => Who::Carrier,
        Transport::Stdio | Transport::Http | Transport::Sse => {
            Who::Claimer { claim: claim.map(str::to_owned), by: cx.principal.id.as_str().to_owned() }
        }
    }
}

/// What is said under the same name by the same key is taken once; other keys have names of their own.
pub fn source(cx: &CallCx, source: Option<&str>) -> Option<String> {
    source.map(|source| format!("{}/{source}", cx.principal.id))
}

/// The task of that id, if the caller serves its target.
pub async fn named(bridge: &Bridge, cx: &CallCx, id: TaskId) -> ToolResult<Task> {
    let serves = may_serve(cx)?;
    let task = bridge.queue.task(id).await.map_err(failed)?.ok_or_else(|| failed(QueueError::Unknown(id)))?;
    match serves {
        Some(target) if *task.target != *target => {
            Err(ToolError::refused(NotServed::OtherTask { task: id, target: target.to_owned() }))
        }
        _ => Ok(task),
    }
}

/// The task that is meant: the one that is named, or else the one that the caller speaks of without a name.
pub async fn meant(bridge: &Bridge, cx: &CallCx, id: Option<TaskId>, claim: Option<&str>) -> ToolResult<Task> {
    if let Some(id) = id {
        return named(bridge, cx, id).await;
    }
    let target = target(bridge, cx, None)?;
    unnamed(bridge, cx, target, claim).await?.ok_or_else(|| {
        let error = NotServed::NoneRuns { target: target.name.to_string() };
        ToolError::refused(error).hint("name the task, or take one with `claim_task`")
    })
}

/// The task that the caller speaks of without naming it: the only one that it has there. If it has none, the last one
/// that it had, unless it has ended that itself: so it hears what became of it, and what it did is not lost.
pub async fn unnamed(bridge: &Bridge, cx: &CallCx, target: &Target, claim: Option<&str>) -> ToolResult<Option<Task>> {
    let (queue, name) = (&bridge.queue, &*target.name);
    let mut own = match who(cx, claim) {
        Who::Carrier => queue.first_running(name, RUNNING).await,
        Who::Claimer { claim: Some(claim), .. } => queue.of_claim(name, &claim).await.map(Vec::from_iter),
        Who::Claimer { claim: None, by } => match queue.held_by(name, &by, RUNNING).await {
            Ok(none) if none.is_empty() => taken_from(bridge, target, &by, 1).await,
            held => held,
        },
    }
    .map_err(failed)?;
    // What was put back is spoken of only by who has nothing else.
    if own.iter().any(|task| task.status.is_running()) {
        own.retain(|task| task.status.is_running());
    }
    match own.len() {
        0 | 1 => Ok(own.pop()),
        _ => {
            let names = own.iter().take(10).map(|task| task.id.to_string()).collect::<Vec<_>>().join(", ");
            Err(ToolError::refused(NotServed::Several(names)).hint("give its id as `task`"))
        }
    }
}

/// Of the last tasks that a key had, those that it did not end itself, the last one first.
pub async fn taken_from(bridge: &Bridge, target: &Target, by: &str, most: i64) -> Result<Vec<Task>, QueueError> {
    let since = clock::now().checked_sub(LATELY).unwrap_or(Timestamp::MIN);
    let mut had = bridge.queue.was_held_by(&target.name, by, since, most).await?;
    had.retain(|task| matches!(task.status, Status::Cancelled | Status::Dead));
    Ok(had)
}
