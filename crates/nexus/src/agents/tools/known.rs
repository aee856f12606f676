//! What a human who is asked is told of the task that a call names.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::get_task::question;
use super::shown::in_one_line;
use crate::agents::Bridge;
use crate::agents::task::{Task, TaskId};

/// Characters of a message, and of a question.
const LONGEST: usize = 300;

/// Where it stands, what it is about, and what it asks.
pub fn of(bridge: &Arc<Bridge>, id: TaskId) -> Option<BoxFuture<'static, Option<String>>> {
    let bridge = bridge.clone();
    let known = async move {
        let task = bridge.queue.task(id).await.ok()??;
        let asks = asks(&bridge, &task).await.unwrap_or_default();
        Some(format!("{}{asks}", about(&task)))
    };
    Some(known.boxed())
}

/// The same for an answer, which is to one question and no other.
pub fn of_question(bridge: &Arc<Bridge>, id: TaskId, question: i64) -> Option<BoxFuture<'static, Option<String>>> {
    let bridge = bridge.clone();
    let known = async move {
        let task = bridge.queue.task(id).await.ok()??;
        let asks = match task.question == Some(question) {
            true => asks(&bridge, &task).await,
            false => None,
        };
        let asks = asks.unwrap_or_else(|| format!("; no question {question} of it waits for an answer"));
        Some(format!("{}{asks}", about(&task)))
    };
    Some(known.boxed())
}

fn about(task: &Task) -> String {
    format!("{} for {}, {}: “{}”", task.id, task.target, task.status, in_one_line(&task.content, LONGEST))
}

async fn asks(bridge: &Bridge, task: &Task) -> Option<String> {
    let question = question(bridge, task).await.ok()??;
    Some(format!("; it asks: “{}”", in_one_line(&question, LONGEST)))
}
