//! `retry_task`: it is to be done after all.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use nexus_core::prelude::*;

use super::shown::Now;
use super::words::Id;
use super::{failed, known};
use crate::agents::Bridge;

/// Puts a finished task (complete, in error, cancelled or dead) back into its queue, to be done from the start.
///
/// What its agent did before may be done again: look at its updates first. It keeps its id and its updates.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryTask {
    /// The task, for instance `t17`.
    id: Id,
}

impl Tool<Bridge> for RetryTask {
    const NAME: &'static str = "retry_task";
    const ACCESS: Access = Access::Write;
    type Reply = Now;

    fn summary(&self) -> String {
        format!("do the task {} again", self.id.0)
    }

    fn background(&self, bridge: &Arc<Bridge>) -> Option<BoxFuture<'static, Option<String>>> {
        known::of(bridge, self.id.0)
    }

    async fn run(self, bridge: &Bridge, cx: &CallCx) -> ToolResult<Now> {
        bridge.queue.retry(self.id.0, cx.principal.id.as_str()).await.map(Now::of).map_err(failed)
    }
}
