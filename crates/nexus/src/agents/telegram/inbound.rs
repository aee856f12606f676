//! What somebody said, and what is done about it. Every word becomes a call of a tool, in the name of that user: with
//! the same gate and the same record as any other.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use thiserror::Error;
use tracing::warn;

use nexus_core::session::Transport;
use nexus_core::text;

use super::commands::{Command, HELP};
use super::incoming::{Incoming, Message, What};
use super::once::Deed;
use super::sender::{Say, Unsaid, Worth};
use super::{Bot, words};
use crate::agents::queue::{Chosen, QueueError};
use crate::agents::task::{Status, Task, TaskId};
use crate::agents::voice::{Refused, Voice};

/// All that a Telegram user may call.
const TOOLS: [&str; 9] = [
    "post_update",
    "complete_task",
    "fail_task",
    "answer_task",
    "cancel_task",
    "retry_task",
    "send_message",
    "queue_status",
    "list_tasks",
];
/// Telegram's own limit is lower.
const LONGEST_TEXT: usize = 20_000;

/// One message, with what is known of it.
#[derive(Debug)]
pub(super) struct Heard<'a> {
    message: &'a Message,
    voice: Voice,
    /// The number of the update that brought it.
    pub number: i64,
    /// Taken once under this name, however often it comes.
    source: String,
}

/// What a message is about.
#[derive(Debug)]
enum Topic {
    Task(Box<Task>),
    /// No task of it is running.
    Target(Arc<str>),
    /// The bot serves nobody here.
    Nothing,
}

/// What was said is not kept, since the hub could not: it is to be done again.
#[derive(Debug, Error)]
#[error("what was said is not kept: {0}")]
pub struct NotStored(String);

impl Bot {
    /// Does what an update wants. Comes back when that is stored.
    pub async fn handle(self: &Arc<Self>, update: &Incoming) -> Result<(), NotStored> {
        let number = update.number;
        let (message, edited) = match &update.what {
            Some(What::Said(message)) => (message, false),
            Some(What::Edited(message)) => (message, true),
            Some(What::Pressed(press)) => {
                self.pressed(press).await;
                return Ok(());
            }
            None => return Ok(()),
        };
        let Some(from) = &message.from else { return Ok(()) };
        if !self.access.believes(from, &message.chat) {
            return Ok(());
        }
        if let Some(to) = message.migrate_to_chat_id {
            self.places.moved(message.chat.id, to).await;
            return Ok(());
        }
        let source = format!("tg:{}:{number}", self.id);
        let heard = Heard { message, voice: self.voice(from.id), number, source };
        let said = match edited {
            true => self.edited(&heard).await,
            false => self.said(&heard).await,
        };
        match said {
            Ok(Some(words)) => self.reply(message, words, None),
            Ok(None) => {}
            Err(Refused::Failed(why)) => return Err(NotStored(why)),
            Err(refused) => self.reply(message, refused.to_string(), None),
        }
        Ok(())
    }

    /// It is not kept, and never will be: whoever said it is told.
    pub fn lets_go(self: &Arc<Self>, update: &Incoming, why: &NotStored) {
        if let Some(What::Said(message) | What::Edited(message)) = &update.what {
            self.reply(message, why.to_string(), None);
        }
    }

    /// The voice of an allowed user; there are no more of them than the operator wrote down.
    fn voice(&self, user: i64) -> Voice {
        let new = || Voice::new(self.hub.clone(), &format!("telegram:{user}"), Transport::Telegram, TOOLS);
        self.voices.lock().entry(user).or_insert_with(new).clone()
    }

    async fn said(self: &Arc<Self>, heard: &Heard<'_>) -> Result<Option<String>, Refused> {
        let message = heard.message;
        let Some(text) = message.text.as_deref().or(message.caption.as_deref()) else {
            return Ok(message.attachment().map(|what| format!("{what} is not carried; only text is")));
        };
        if !message.is_forwarded()
            && let Some(command) = Command::parse(text, self.name.get().map_or("", String::as_str))
        {
            return self.obey(heard, command).await;
        }
        let mut content = text::clean(text).into_owned();
        if message.is_forwarded() {
            content = format!("(forwarded) {content}");
        }
        if let Some(what) = message.attachment() {
            content.push_str(&format!("\n({what} was with it, which is not carried)"));
        }
        self.keep(heard, &content).await
    }

    async fn edited(self: &Arc<Self>, heard: &Heard<'_>) -> Result<Option<String>, Refused> {
        let Some(text) = heard.message.text.as_deref().or(heard.message.caption.as_deref()) else { return Ok(None) };
        if Command::parse(text, self.name.get().map_or("", String::as_str)).is_some() {
            return Ok(Some("a command that is edited is not run; send it again".to_owned()));
        }
        self.keep(heard, &format!("(edited) {}", text::clean(text))).await
    }

    /// Words that are no command: an answer, or an update.
    async fn keep(&self, heard: &Heard<'_>, content: &str) -> Result<Option<String>, Refused> {
        let content = text::cut(content, LONGEST_TEXT);
        if content.trim().is_empty() {
            return Ok(None);
        }
        match self.topic(heard.message).await? {
            Topic::Task(task) if !self.serves(&task) => {
                let answer = Deed::Answer(&content);
                if task.status == Status::InputRequired || self.did(heard, task.id, answer).await? {
                    self.once(heard, task.id, answer).await?;
                    return Ok(Some(format!("#{} has your answer", task.id)));
                }
                Ok(Some(format!(
                    "#{} is {} and does not wait for an answer; /send {} makes a new task",
                    task.id,
                    task.status.as_str().replace('_', " "),
                    task.target
                )))
            }
            Topic::Task(task) => {
                let (id, target) = (task.id.to_string(), &*task.target);
                let args = json!({ "target": target, "task": id, "content": content, "source": heard.source });
                let kept = heard.call("post_update", args).await?;
                let over = kept["status"].as_str().and_then(Status::parse).filter(|status| status.is_finished());
                Ok(over.map(|status| format!("kept, but #{id} is {status}")))
            }
            Topic::Target(target) => {
                let args = json!({ "target": *target, "content": content, "source": heard.source, "kind": "note" });
                heard.call("post_update", args).await?;
                Ok(None)
            }
            Topic::Nothing => Ok(Some(format!("no agent is served in this chat.\n\n{HELP}"))),
        }
    }

    async fn obey(self: &Arc<Self>, heard: &Heard<'_>, command: Command) -> Result<Option<String>, Refused> {
        let which = "which task? Reply to it, or give its id: t5";
        Ok(Some(match command {
            Command::Help => HELP.to_owned(),
            Command::Unknown => format!("there is no such command.\n\n{HELP}"),
            Command::NotOurs => return Ok(None),
            Command::Usage(usage) => format!("it goes like this: {usage}"),
            Command::Status => words::status(&heard.call("queue_status", json!({})).await?),
            Command::Tasks { target } => {
                let mut args = json!({ "limit": 15 });
                if let Some(target) = target {
                    args["target"] = target.into();
                }
                words::tasks(&heard.call("list_tasks", args).await?)
            }
            Command::Send { target, text } => return self.send_task(heard, &target, &text).await,
            Command::Cancel { task, reason } => match self.replied(task, heard.message).await? {
                Some(task) => {
                    self.once(heard, task, Deed::Cancel(reason.as_deref())).await?;
                    format!("#{task} is cancelled")
                }
                None => which.to_owned(),
            },
            Command::Retry { task } => match self.replied(task, heard.message).await? {
                Some(task) => {
                    self.once(heard, task, Deed::Retry).await?;
                    format!("#{task} waits again")
                }
                None => which.to_owned(),
            },
            Command::Answer { task, text } => match self.replied(task, heard.message).await? {
                Some(task) => {
                    self.once(heard, task, Deed::Answer(&text)).await?;
                    format!("#{task} has your answer")
                }
                None => which.to_owned(),
            },
            Command::Done { task, text } => self.end(heard, task, "complete_task", "result", &text).await?,
            Command::Fail { task, text } => self.end(heard, task, "fail_task", "reason", &text).await?,
        }))
    }

    /// A task of this chat is over, says whoever it was given to.
    async fn end(
        &self,
        heard: &Heard<'_>,
        task: Option<TaskId>,
        tool: &str,
        name: &str,
        text: &str,
    ) -> Result<String, Refused> {
        let task = match task {
            Some(task) => self.queue.task(task).await?,
            None => match self.topic(heard.message).await? {
                Topic::Task(task) => Some(*task),
                Topic::Target(_) | Topic::Nothing => None,
            },
        };
        let Some(task) = task else { return Ok("which task? Reply to it, or give its id: t5".to_owned()) };
        if !self.serves(&task) {
            return Ok(format!("#{} was not given to anybody here; {} has it. /cancel ends it", task.id, task.target));
        }
        let mut args = json!({ "task": task.id.to_string(), "source": heard.source });
        if !text.is_empty() {
            args[name] = text::clean(text).into();
        }
        let ended = heard.call(tool, args).await?;
        Ok(format!("#{} is {}", task.id, ended["status"].as_str().unwrap_or("kept").replace('_', " ")))
    }

    /// A new task. What becomes of it is told where it was sent from: its key says where that is.
    async fn send_task(
        self: &Arc<Self>,
        heard: &Heard<'_>,
        target: &str,
        text: &str,
    ) -> Result<Option<String>, Refused> {
        let message = heard.message;
        let origin =
            super::notices::Origin { chat: message.chat.id, topic: message.topic(), message: message.message_id };
        let key = origin.key(self.id);
        let args = json!({ "target": target, "message": text::clean(text), "idempotency_key": key });
        let sent = heard.call("send_message", args).await?;
        let (task, words) = words::sent(&sent);
        if let Some(task) = task {
            // A reply to one's own message is about the task, too.
            self.posted(message.chat.id, message.message_id, task).await;
        }
        self.reply(message, words, task);
        Ok(None)
    }

    /// The task that is named, or else the one that is replied to.
    async fn replied(&self, named: Option<TaskId>, message: &Message) -> Result<Option<TaskId>, QueueError> {
        match named {
            Some(task) => Ok(Some(task)),
            None => self.about(message).await,
        }
    }

    /// The task of the message that is replied to.
    async fn about(&self, message: &Message) -> Result<Option<TaskId>, QueueError> {
        let Some(replied) = &message.reply_to_message else { return Ok(None) };
        let ours = replied.from.as_ref().is_none_or(|from| from.is_bot);
        let mut settled = self.posting.clone_receiver();
        loop {
            settled.borrow_and_update();
            // What is being posted right now may be what is replied to, before the store knows of it. Asked before the
            // look: a posting that ends in between is looked at again.
            let busy = self.posting.is_busy();
            let found = self.queue.telegram_task(message.chat.id, replied.message_id).await?;
            if found.is_some() || !ours || !busy {
                return Ok(found);
            }
            if tokio::time::timeout(super::poster::MOMENT, settled.changed()).await.is_err() {
                return Ok(None);
            }
        }
    }

    /// What a message is about: the task that it replies to, else what runs in its topic, else what runs in its chat.
    async fn topic(&self, message: &Message) -> Result<Topic, QueueError> {
        if let Some(task) = self.about(message).await?
            && let Some(task) = self.queue.task(task).await?
        {
            return Ok(Topic::Task(Box::new(task)));
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
            (Some(task), _) => Topic::Task(Box::new(task)),
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
    fn serves(&self, task: &Task) -> bool {
        self.places.home(&task.target).is_some()
    }

    /// A message is about a task: who replies to it means that one.
    pub async fn posted(&self, chat: i64, message: i64, task: TaskId) {
        if let Err(error) = self.queue.telegram_sent(chat, message, task).await {
            warn!("which Telegram message is about {task} is not kept: {}", nexus_core::Chain(&error));
        }
    }

    /// Answers in the chat, as soon as that goes. A reply that is about a task is remembered as such.
    pub fn reply(self: &Arc<Self>, message: &Message, words: String, task: Option<TaskId>) {
        let Ok(place) = self.replies.clone().try_acquire_owned() else {
            return warn!("too many replies wait to be sent to Telegram; one is left out");
        };
        let say = Say { topic: message.topic(), reply_to: Some(message.message_id), ..Say::new(message.chat.id, "") };
        let bot = self.clone();
        self.tasks.spawn("a reply in Telegram", async move {
            let _place = place;
            let stop = bot.tasks.stopping();
            let chat = say.chat;
            tokio::select! {
                told = bot.tell(say, &words, task, Worth::Minutes) => if let Err(unsaid) = told {
                    warn!("a reply in the Telegram chat {chat} was not sent: {unsaid}");
                },
                () = stop.cancelled() => {}
            }
        });
    }

    /// Says it in as many messages as it takes.
    pub async fn tell(&self, say: Say, words: &str, task: Option<TaskId>, worth: Worth) -> Result<(), Unsaid> {
        let _posting = task.map(|_| self.posting.begin());
        for text in words::bounded(words) {
            let said = self.outbox.say(Say { text, ..say.clone() }, worth).await?;
            if let Some(task) = task {
                self.posted(said.chat, said.message, task).await;
            }
        }
        Ok(())
    }
}

impl Heard<'_> {
    pub async fn call(&self, tool: &str, args: Value) -> Result<Value, Refused> {
        let args = match args {
            Value::Object(args) => args,
            _ => Map::new(),
        };
        self.voice.call(tool, args).await
    }
}

/// The one that somebody talks of who names none: in progress, else the latest.
fn current(running: Vec<Task>) -> Option<Task> {
    running.into_iter().max_by_key(|task| (task.status == Status::InProgress, task.acknowledged, task.id))
}
