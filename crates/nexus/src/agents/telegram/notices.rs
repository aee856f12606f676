//! Tells chats what became of tasks: those that were posted there, and those that were sent from there with `/send`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use nexus_core::Chain;

use super::Bot;
use super::about::About;
use super::pause::Pause;
use super::sender::{Say, Unsaid, Worth};
use super::words::{self, Whom};
use crate::agents::queue::{QueueError, Topic, Wanted};
use crate::agents::task::{Kind, Task, TaskId};

/// In whose name is kept how far it has read. No key can have it.
const READER: &str = "telegram:notices";
/// What comes within this is looked at together.
const GATHER: Duration = Duration::from_millis(100);
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Where nothing of interest happens, how far it has read is kept this often.
const KEEP_PLACE: Duration = Duration::from_secs(60);

/// Where a task was sent from. It stands in the task's own key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub chat: i64,
    pub topic: Option<i64>,
    pub message: i64,
}

impl Origin {
    /// The same message is the same task, however often Telegram delivers it.
    pub fn key(self, bot: i64) -> String {
        format!("tg:{bot}:{}:{}:{}", self.chat, self.topic.unwrap_or_default(), self.message)
    }

    /// None: it was not sent by one of our users.
    fn of(task: &Task, bot: i64) -> Option<Self> {
        let key = task.idempotency_key.as_deref().filter(|_| task.sender.starts_with("telegram:"))?;
        let mut parts = key.strip_prefix(&format!("tg:{bot}:"))?.split(':').map(|part| part.parse().ok());
        let (chat, topic, message) = (parts.next()??, parts.next()??, parts.next()??);
        Some(Self { chat, topic: Some(topic).filter(|topic| *topic != 0), message })
    }
}

#[derive(Debug)]
pub struct Notices {
    bot: Arc<Bot>,
    /// The last update that was looked at.
    read: i64,
    kept: (i64, Instant),
}

impl Notices {
    pub fn new(bot: Arc<Bot>) -> Self {
        Self { bot, read: 0, kept: (0, Instant::now()) }
    }

    /// Runs until it is dropped.
    pub async fn run(mut self) {
        let mut updates = self.bot.queue.listen(&Topic::Updates);
        let mut pause = Pause::default();
        while let Err(error) = self.begin().await {
            warn!("what happens to tasks is not told in Telegram: {}", Chain(&error));
            sleep(pause.next()).await;
        }
        loop {
            updates.borrow_and_update();
            match self.catch_up().await {
                Ok(()) => {
                    pause.reset();
                    let _ = timeout(LOOK_AGAIN, updates.changed()).await;
                    sleep(GATHER).await;
                }
                Err(error) => {
                    warn!("what happens to tasks is not told in Telegram: {}", Chain(&error));
                    sleep(pause.next()).await;
                }
            }
        }
    }

    /// A bot that is new does not tell what happened before it came.
    async fn begin(&mut self) -> Result<(), QueueError> {
        self.read = match self.bot.queue.bookmark(READER, None, None).await? {
            Some(read) => read,
            None => self.bot.queue.last_update().await?,
        };
        self.keep_place().await
    }

    async fn catch_up(&mut self) -> Result<(), QueueError> {
        loop {
            let upto = self.bot.queue.last_update().await?;
            let happened = self.bot.store.happened(&self.bot.home, self.read, upto).await?;
            let Some((last, ..)) = happened.last() else {
                self.read = self.read.max(upto);
                if self.kept.0 != self.read && self.kept.1.elapsed() > KEEP_PLACE {
                    self.keep_place().await?;
                }
                return Ok(());
            };
            let last = *last;
            for (seq, task, kind) in happened {
                if let Some(kind) = Kind::parse(&kind) {
                    self.tell(seq, TaskId(task), kind).await?;
                }
            }
            self.read = last;
        }
    }

    async fn keep_place(&mut self) -> Result<(), QueueError> {
        self.bot.queue.move_bookmark(READER, None, None, self.read).await?;
        self.kept = (self.read, Instant::now());
        Ok(())
    }

    /// Tells whoever is concerned, once in a chat.
    async fn tell(&mut self, seq: i64, id: TaskId, kind: Kind) -> Result<(), QueueError> {
        let question = match kind {
            Kind::Question => Some(seq),
            Kind::Answer => self.bot.store.question_of(&self.bot.home, id.0, seq).await?,
            _ => None,
        };
        let answered_in = question.filter(|_| kind == Kind::Answer).and_then(|asked| self.bot.answered.take(asked));
        let Some(task) = self.bot.queue.task(id).await? else { return Ok(()) };
        let agent = self.agent(&task, kind).await?;
        let told = [agent.as_ref().map(|say| say.chat), answered_in];
        let sender = self.sender(&task, kind, question).await?.filter(|say| !told.contains(&Some(say.chat)));
        if agent.is_none() && sender.is_none() {
            return Ok(());
        }
        let wanted = Wanted { after: seq - 1, limit: 1, ..Wanted::default() };
        let update = self.bot.queue.updates(&wanted).await?.pop().filter(|update| update.seq == seq);
        let Some(update) = update else { return Ok(()) };
        for (whom, say) in [(Whom::Agent, agent), (Whom::Sender, sender)] {
            if let Some(say) = say
                && let Some(words) = words::notice(&task, kind, &update.content, whom)
            {
                self.post(say, &words, About { task: id, question }).await;
            }
        }
        self.read = seq;
        self.keep_place().await
    }

    async fn post(&self, say: Say, words: &str, about: About) {
        let chat = say.chat;
        match self.bot.tell(say, words, Some(about), Worth::Always).await {
            Ok(()) => {}
            Err(unsaid @ (Unsaid::Never(_) | Unsaid::Blocked(_) | Unsaid::Vain(_))) => {
                warn!("what became of {} is not told in the Telegram chat {chat}: {unsaid}", about.task);
            }
            // The hub ends; it is told when it is back.
            Err(Unsaid::Late | Unsaid::Ending) => std::future::pending().await,
        }
    }

    /// Where those are told who were given the task.
    async fn agent(&self, task: &Task, kind: Kind) -> Result<Option<Say>, QueueError> {
        if matches!(kind, Kind::Answer | Kind::Cancelled | Kind::Dead)
            && let Some((chat, _)) = self.bot.places.home(&task.target)
            // Nobody there knows of a task that was never posted.
            && let Some(message) = self.bot.posted_as(task.id, chat).await?
        {
            let topic = self.bot.topics.of(&task.target).await;
            return Ok(Some(Say { topic, reply_to: Some(message), ..Say::new(chat, "") }));
        }
        Ok(None)
    }

    /// Where whoever sent it is told. A chat that the operator has taken off the list hears no more.
    async fn sender(&self, task: &Task, kind: Kind, question: Option<i64>) -> Result<Option<Say>, QueueError> {
        let Some(Origin { chat, topic, message }) = Origin::of(task, self.bot.id) else { return Ok(None) };
        if !self.bot.access.may_be_told(chat) {
            return Ok(None);
        }
        let chat = self.bot.places.now(chat);
        let reply_to = match question.filter(|_| kind == Kind::Answer) {
            Some(question) => self.bot.store.asked(&self.bot.home, task.id.0, chat, question).await?,
            None => None,
        };
        let markup = (kind == Kind::Question).then(|| json!({ "force_reply": true, "selective": true }));
        Ok(Some(Say { topic, reply_to: reply_to.or(Some(message)), markup, ..Say::new(chat, "") }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_where_a_task_came_from() {
        let origin = Origin { chat: -100_123, topic: Some(7), message: 42 };
        assert_eq!(origin.key(5), "tg:5:-100123:7:42");
        let mut task = words::tests::some_task("x");
        task.idempotency_key = Some(origin.key(5));
        assert_eq!(Origin::of(&task, 5), None, "anybody may choose such a key");
        task.sender = "telegram:9".to_owned();
        assert_eq!(Origin::of(&task, 5), Some(origin));
        assert_eq!(Origin::of(&task, 6), None, "another bot cannot speak there");
        task.idempotency_key = Some(Origin { topic: None, ..origin }.key(5));
        assert_eq!(Origin::of(&task, 5), Some(Origin { topic: None, ..origin }));
    }
}
