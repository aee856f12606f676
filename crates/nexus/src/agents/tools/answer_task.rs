//! `answer_task`: an agent has asked.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use nexus_core::prelude::*;

use super::get_task::question;
use super::shown::{Now, in_one_line, on_one_line};
use super::words::{Id, Words};
use super::{failed, known};
use crate::agents::Bridge;
use crate::agents::queue::QueueError;

/// Characters of the question that waits, for whoever has answered another.
const QUESTION: usize = 300;

/// Answers the question of an agent whose task is `input_required`. The agent gets the answer at once and goes on.
///
/// `get_task` has the question and its number, as do the updates of the kind `question`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerTask {
    /// The task, for instance `t17`.
    id: Id,
    /// What the agent is to know, at most 100,000 bytes.
    answer: Words,
    /// Which question: the `question_id` of `get_task`, or the id of the update that asks it. If another one waits by
    /// then, nothing is answered.
    question_id: i64,
}

impl Tool<Bridge> for AnswerTask {
    const NAME: &'static str = "answer_task";
    const ACCESS: Access = Access::Write;
    const LONGEST_SUMMARY: usize = 1_200;
    type Reply = Now;

    fn summary(&self) -> String {
        let (question, answer) = (self.question_id, on_one_line(self.answer.as_str()));
        format!("answer the question {question} of the task {}: {answer}", self.id.0)
    }

    fn background(&self, bridge: &Arc<Bridge>) -> Option<BoxFuture<'static, Option<String>>> {
        known::of_question(bridge, self.id.0, self.question_id)
    }

    async fn run(self, bridge: &Bridge, cx: &CallCx) -> ToolResult<Now> {
        let (answer, by) = (self.answer.into_string(), cx.principal.id.as_str());
        match bridge.queue.answer(self.id.0, self.question_id, answer, by).await {
            Ok(task) => Ok(Now::of(task)),
            Err(error) => Err(not_answered(bridge, error).await),
        }
    }
}

/// Whoever answers another question is told which one waits.
async fn not_answered(bridge: &Bridge, error: QueueError) -> ToolError {
    let QueueError::Conflict { task, .. } = error else { return failed(error) };
    let waits = match bridge.queue.task(task).await {
        Ok(Some(task)) => question(bridge, &task).await.ok().flatten().zip(task.question),
        _ => None,
    };
    let error = failed(error);
    match waits {
        Some((words, number)) => error.hint(format!(
            "nothing was answered; the question {number} waits, with `question_id` {number}: “{}”",
            in_one_line(&words, QUESTION)
        )),
        None => error,
    }
}
