//! What a human who is asked is told of the task that a call names.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::get_task::question;
use super::shown::in_one_line;
use crate::agents::Bridge;
use crate::agents::task::TaskId;

/// Characters of a message, and of a question.
const LONGEST: usize = 300;

pub fn of(bridge: &Arc<Bridge>, id: TaskId) -> Option<BoxFuture<'static, Option<String>>> {
    let bridge = bridge.clone();
    let known = async move {
        let task = bridge.queue.task(id).await.ok()??;
        let words = in_one_line(&task.content, LONGEST);
        let mut known = format!("{id} for {}, {}: “{words}”", task.target, task.status);
        if let Ok(Some(question)) = question(&bridge, &task).await {
            known.push_str(&format!("; it asks: “{}”", in_one_line(&question, LONGEST)));
        }
        Some(known)
    };
    Some(known.boxed())
}
