//! `answer_task`: an agent has asked.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use nexus_core::prelude::*;

use super::shown::{Now, in_one_line};
use super::words::{Id, Words};
use super::{failed, known};
use crate::agents::Bridge;

/// Answers the question of an agent whose task is `input_required`. The agent gets the answer at once and goes on.
///
/// `get_task` has the question, as do the updates of the kind `question`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerTask {
    /// The task, for instance `t17`.
    id: Id,
    /// What the agent is to know, at most 100,000 bytes.
    answer: Words,
    /// Which question: the number of its update, or the `question_id` of `get_task`. If another one waits by then,
    /// nothing is answered. Without it, whichever waits.
    question_id: Option<i64>,
}

impl Tool<Bridge> for AnswerTask {
    const NAME: &'static str = "answer_task";
    const ACCESS: Access = Access::Write;
    type Reply = Now;

    fn summary(&self) -> String {
        format!("answer the question of the task {}: {}", self.id.0, in_one_line(self.answer.as_str(), 1_000))
    }

    fn background(&self, bridge: &Arc<Bridge>) -> Option<BoxFuture<'static, Option<String>>> {
        known::of(bridge, self.id.0)
    }

    async fn run(self, bridge: &Bridge, cx: &CallCx) -> ToolResult<Now> {
        let (answer, by) = (self.answer.into_string(), cx.principal.id.as_str());
        let answered = bridge.queue.answer(self.id.0, self.question_id, answer, by).await;
        answered.map(Now::of).map_err(failed)
    }
}
