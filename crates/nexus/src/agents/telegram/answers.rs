//! Answers to the questions of agents. An answer is to one question: a later one is not answered by what was said to
//! an earlier one.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::about::About;
use super::inbound::Heard;
use super::once::Deed;
use super::{Bot, words};
use crate::agents::queue::{QueueError, Wanted};
use crate::agents::task::{Status, Task};
use crate::agents::voice::Refused;

/// Questions that were answered from a chat, by their numbers, until the notices come to that answer: there nobody
/// needs to be told of it.
#[derive(Debug, Default)]
pub struct Answered(Mutex<HashMap<i64, i64>>);

impl Answered {
    fn note(&self, question: i64, chat: i64) {
        self.0.lock().insert(question, chat);
    }

    /// The chat in which it was answered.
    pub fn take(&self, question: i64) -> Option<i64> {
        self.0.lock().remove(&question)
    }
}

impl Bot {
    /// Gives an answer to the agent, if its question still waits. None: somebody was told already.
    pub(super) async fn give_answer(
        self: &Arc<Self>,
        heard: &Heard<'_>,
        about: About,
        answer: &str,
    ) -> Result<Option<String>, Refused> {
        let id = about.task;
        let Some(task) = self.queue.task(id).await? else { return Err(QueueError::Unknown(id).into()) };
        let deed = Deed::Answer { question: task.question, answer };
        let has_it = Ok(Some(format!("#{id} has your answer")));
        if self.did(heard, id, deed).await? {
            return has_it;
        }
        if task.status != Status::InputRequired {
            return Ok(Some(words::does_not_ask(&task)));
        }
        if let Some(earlier) = about.question.filter(|asked| Some(*asked) != task.question) {
            self.asks_another(heard, &task, earlier).await?;
            return Ok(None);
        }
        // Before it is given: the notices may come to it at once.
        task.question.inspect(|question| self.answered.note(*question, heard.message.chat.id));
        match self.once(heard, id, deed).await {
            Ok(()) => has_it,
            Err(refused) => {
                task.question.and_then(|question| self.answered.take(question));
                Err(refused)
            }
        }
    }

    /// What was answered is not what the task asks now. Who replies to what they are told answers the new question.
    async fn asks_another(self: &Arc<Self>, heard: &Heard<'_>, task: &Task, earlier: i64) -> Result<(), Refused> {
        let Some(question) = task.question else { return Ok(()) };
        let answered = self.store.answer_to(&self.home, task.id, earlier).await?.is_some();
        let wanted = Wanted { after: question - 1, task: Some(task.id), limit: 1, ..Wanted::default() };
        let asked = self.queue.updates(&wanted).await?.pop().map(|update| update.content).unwrap_or_default();
        let about = About { task: task.id, question: Some(question) };
        self.reply(heard.message, words::asks_another(task, answered, &asked), Some(about));
        Ok(())
    }
}
