//! What an agent says of a task, brought to the queue.

use nexus_core::prelude::*;

use super::words::{Chosen, Id};
use super::{failed, serving};
use crate::agents::Bridge;
use crate::agents::queue::{Report, Reported, Saying};
use crate::agents::task::{Status, TaskId};

/// Which task is meant, and by what right it is spoken of.
#[derive(Debug)]
pub struct About {
    pub task: Option<Id>,
    pub claim: Option<Chosen>,
    pub source: Option<Chosen>,
}

/// How a report of an end was taken.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Ended {
    task: String,
    /// Where the task stands now. If it ended otherwise before, for instance `cancelled`, it stays so.
    status: Status,
    /// The number of the update that was made of it.
    update: i64,
}

/// Says it of the task that is meant.
pub async fn report(
    bridge: &Bridge,
    cx: &CallCx,
    about: About,
    saying: Saying,
    content: String,
    exit_code: Option<i64>,
) -> ToolResult<(TaskId, Reported)> {
    let claim = about.claim.as_ref().map(Chosen::as_str);
    let task = serving::meant(bridge, cx, about.task.map(|id| id.0), claim).await?.id;
    cx.note(&task.to_string());
    let report = Report {
        task,
        who: serving::who(cx, claim),
        saying,
        content,
        exit_code,
        source: serving::source(cx, about.source.as_ref().map(Chosen::as_str)),
    };
    Ok((task, bridge.queue.report(report).await.map_err(failed)?))
}

/// The same where it is the agent's last word.
pub async fn end(
    bridge: &Bridge,
    cx: &CallCx,
    about: About,
    saying: Saying,
    content: String,
    exit_code: Option<i64>,
) -> ToolResult<Ended> {
    let (task, reported) = report(bridge, cx, about, saying, content, exit_code).await?;
    Ok(Ended { task: task.to_string(), status: reported.status, update: reported.seq })
}

/// ` of t17`, where it is known.
pub fn of(task: Option<Id>) -> String {
    task.map(|task| format!(" of {}", task.0)).unwrap_or_default()
}
