//! What a message is about: the one that it replies to tells, else where it was said.

use std::sync::Arc;

use tracing::warn;

use super::Bot;
use super::incoming::Message;
use super::poster::MOMENT;
use crate::agents::queue::{Chosen, QueueError};
use crate::agents::task::{Status, Task, TaskId};

/// What a message of the bot tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    pub task: TaskId,
    /// The question that it asks, by the number of its update. Who replies to it answers that one and no later one.
    pub question: Option<i64>,
}

impl From<TaskId> for About {
    fn from(task: TaskId) -> Self {
        Self { task, question: None }
    }
}

/// What a message is about.
#[derive(Debug)]
pub enum Topic {
    Task(Box<Task>, About),
    /// No task of it is running.
    Target(Arc<str>),
    /// The bot serves nobody here.
    Nothing,
}

impl Bot {
    /// What the message is about that is replied to.
    pub(super) async fn replied(&self, message: &Message) -> Result<Option<About>, QueueError> {
        let Some(replied) = message.replied() else { return Ok(None) };
        let ours = replied.from.as_ref().is_none_or(|from| from.is_bot);
        let mut settled = self.posting.clone_receiver();
        loop {
            settled.borrow_and_update();
            // What is being posted right now may be what is replied to, before the store knows of it. Asked before the
            // look: a posting that ends in between is looked at again.
            let busy = self.posting.is_busy();
            let found = self.queue.telegram_task(message.chat.id, replied.message_id).await?;
            if found.is_some() || !ours || !busy {
                return Ok(found.map(|(task, question)| About { task, question }));
            }
            if tokio::time::timeout(MOMENT, settled.changed()).await.is_err() {
                return Ok(None);
            }
        }
    }

    /// The task that is named, or else the one that is replied to.
    pub(super) async fn meant(&self, named: Option<TaskId>, message: &Message) -> Result<Option<TaskId>, QueueError> {
        match named {
            Some(task) => Ok(Some(task)),
            None => Ok(self.replied(message).await?.map(|about| about.task)),
        }
    }

    /// The same, with the question that is replied to.
    pub(super) async fn asked(&self, named: Option<TaskId>, message: &Message) -> Result<Option<About>, QueueError> {
        let replied = self.replied(message).await?;
        Ok(match named {
            Some(task) => Some(replied.filter(|about| about.task == task).unwrap_or(task.into())),
            None => replied,
        })
    }

    /// The task that is replied to, else what runs in the message's topic, else what runs in its chat.
    pub(super) async fn topic(&self, message: &Message) -> Result<Topic, QueueError> {
        if let Some(about) = self.replied(message).await?
            && let Some(task) = self.queue.task(about.task).await?
        {
            return Ok(Topic::Task(Box::new(task), about));
        }
        let chat = message.chat.id;
        let own = match message.topic() {
            Some(topic) => self.topics.target(chat, topic).await?,
            None => None,
        };
        let here: Vec<Arc<str>> = match &own {
            Some(target) => vec![target.clone()],
            None => self.places.targets(chat).map(|(name, _)| name.clone()).collect(),
        };
        let mut running = Vec::new();
        for target in &here {
            running.extend(self.newest(target, &[Status::InProgress]).await?);
            running.extend(self.newest(target, &[Status::Acknowledged, Status::InputRequired]).await?);
        }
        Ok(match (current(running), here.into_iter().next()) {
            (Some(task), _) => {
                let about = task.id.into();
                Topic::Task(Box::new(task), about)
            }
            (None, Some(target)) => Topic::Target(target),
            (None, None) => Topic::Nothing,
        })
    }

    /// The newest task of a target that stands so. There can be thousands, and long ones.
    async fn newest(&self, target: &Arc<str>, status: &[Status]) -> Result<Vec<Task>, QueueError> {
        let (target, status) = (Some(target.clone()), Some(status.to_vec()));
        self.queue.tasks(&Chosen { target, status, before: None, limit: 1 }).await
    }

    /// Whether a task was given to somebody in Telegram.
    pub(super) fn serves(&self, task: &Task) -> bool {
        self.places.home(&task.target).is_some()
    }

    /// A message is about a task: who replies to it means that one.
    pub async fn posted(&self, chat: i64, message: i64, about: impl Into<About>) {
        let About { task, question } = about.into();
        if let Err(error) = self.queue.telegram_sent(chat, message, task, question).await {
            warn!("which Telegram message is about {task} is not kept: {}", nexus_core::Chain(&error));
        }
    }
}

/// The one that somebody talks of who names none: in progress, else the latest.
fn current(running: Vec<Task>) -> Option<Task> {
    running.into_iter().max_by_key(|task| (task.status == Status::InProgress, task.acknowledged, task.id))
}
