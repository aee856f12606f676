//! `post_update`: what an agent says while it works.

use nexus_core::prelude::*;
use nexus_core::tool::Listed;

use super::report::{self, About};
use super::words::{Chosen, Id, Said};
use super::{failed, serving};
use crate::agents::Bridge;
use crate::agents::queue::Saying;
use crate::agents::task::{Kind, Status};

/// Tells whoever sent the task how it goes. They read it at once, if they follow.
///
/// Post at every step: one or two sentences on what you did, what you found, what comes next. It also shows that you
/// are there: a task whose agent says nothing for too long is taken from it.
///
/// If `stop` is true in the reply, nobody wants the task any more: stop working on it at once.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PostUpdate {
    /// What you have to say, at most 100,000 bytes.
    content: Said,
    /// The task; without it, the only one that you have, or else the one that was taken from you last. If there is
    /// none, the update belongs to no task.
    task: Option<Id>,
    /// The name of your claim, where `claim_task` gave one; without it, your key's claim is meant.
    claim: Option<Chosen>,
    /// A name for this update: the same again under the same name is taken once. For callers that repeat what got no
    /// answer.
    source: Option<Chosen>,
    /// For keys that may serve any target: whose update it is, where it belongs to no task.
    target: Option<String>,
    /// `progress` (if not given) is a step of the work; `note` is something beside it.
    kind: Option<Sort>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Sort {
    #[default]
    Progress,
    Note,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Posted {
    /// The number of the update.
    update: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<String>,
    /// Where the task stands now.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    /// Nobody wants the task any more: stop working on it.
    stop: bool,
}

impl Tool<Bridge> for PostUpdate {
    const NAME: &'static str = "post_update";
    const ACCESS: Access = Access::ReadLogged;
    const LISTED: Listed = Listed::Agents;
    type Reply = Posted;

    fn summary(&self) -> String {
        format!("post an update{}", report::of(self.task))
    }

    async fn run(mut self, bridge: &Bridge, cx: &CallCx) -> ToolResult<Posted> {
        let (saying, kind) = match self.kind.unwrap_or_default() {
            Sort::Progress => (Saying::Progress, Kind::Progress),
            Sort::Note => (Saying::Note, Kind::Note),
        };
        if self.task.is_none() {
            let target = serving::target(bridge, cx, self.target.as_deref())?;
            let claim = self.claim.as_ref().map(Chosen::as_str);
            match serving::unnamed(bridge, cx, target, claim).await? {
                Some(task) => self.task = Some(Id(task.id)),
                None => {
                    let source = serving::source(cx, self.source.as_ref().map(Chosen::as_str));
                    let noted = bridge.queue.note(&target.name, kind, self.content.into_string(), source).await;
                    return Ok(Posted { update: noted.map_err(failed)?, task: None, status: None, stop: false });
                }
            }
        }
        let about = About { task: self.task, claim: self.claim, source: self.source };
        let (task, reported) = report::report(bridge, cx, about, saying, self.content.into_string(), None).await?;
        Ok(Posted {
            update: reported.seq,
            task: Some(task.to_string()),
            status: Some(reported.status),
            stop: reported.status.is_finished(),
        })
    }
}
