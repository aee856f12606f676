//! `cancel_task`: nobody wants it any more.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use nexus_core::prelude::*;

use super::shown::{Now, on_one_line};
use super::words::{Id, Said};
use super::{failed, known};
use crate::agents::Bridge;

/// Ends a task, whether it waits or runs. An agent that works on it is told at once and stops.
///
/// What it did until then stays done. Updates that it still sends are kept, and change nothing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelTask {
    /// The task, for instance `t17`.
    id: Id,
    /// Why; the agent and the record are told.
    reason: Option<Said>,
}

impl Tool<Bridge> for CancelTask {
    const NAME: &'static str = "cancel_task";
    const ACCESS: Access = Access::Write;
    const LONGEST_SUMMARY: usize = 300;
    type Reply = Now;

    fn summary(&self) -> String {
        let reason = self.reason.as_ref().map(|reason| format!(": {}", on_one_line(reason.as_str())));
        format!("cancel the task {}{}", self.id.0, reason.unwrap_or_default())
    }

    fn background(&self, bridge: &Arc<Bridge>) -> Option<BoxFuture<'static, Option<String>>> {
        known::of(bridge, self.id.0)
    }

    async fn run(self, bridge: &Bridge, cx: &CallCx) -> ToolResult<Now> {
        let by = &cx.principal.id;
        let why = match self.reason {
            Some(reason) => format!("cancelled by {by}: {}", reason.as_str()),
            None => format!("cancelled by {by}"),
        };
        bridge.queue.cancel(self.id.0, why).await.map(Now::of).map_err(failed)
    }
}
