//! What somebody said, and what is done about it. Every word becomes a call of a tool, in the name of that user: with
//! the same gate and the same record as any other.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use thiserror::Error;
use tracing::warn;

use nexus_core::session::Transport;
use nexus_core::{Chain, text};

use super::about::{About, Topic};
use super::commands::{Command, HELP};
use super::incoming::{Incoming, Message, What};
use super::once::Deed;
use super::sender::{Say, Unsaid, Worth};
use super::{Bot, words};
use crate::agents::task::{Status, TaskId};
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
    pub message: &'a Message,
    voice: Voice,
    /// The number of the update that brought it.
    pub number: i64,
    /// Taken once under this name, however often it comes.
    source: String,
}

/// Whether words are new, or stand in the place of earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Come {
    New,
    Edited,
}

/// What was said is not kept, since the hub could not: it is to be done again.
#[derive(Debug, Error)]
#[error("what was said is not kept: {0}")]
pub struct NotStored(String);

impl Bot {
    /// Does what an update wants. Comes back when that is stored.
    pub async fn handle(self: &Arc<Self>, update: &Incoming) -> Result<(), NotStored> {
        let number = update.number;
        let (message, come) = match &update.what {
            Some(What::Said(message)) => (message, Come::New),
            Some(What::Edited(message)) => (message, Come::Edited),
            Some(What::Pressed(press)) => {
                self.pressed(press).await;
                return Ok(());
            }
            None => return Ok(()),
        };
        // Telegram says so itself, whoever did it. It is believed of chats that the operator wrote down.
        if let Some(to) = message.moves_to().filter(|_| self.access.listens_to(message.chat.id)) {
            let noted = self.places.note_move(message.chat.id, to).await;
            return noted.map_err(|error| NotStored(Chain(&error).to_string()));
        }
        let Some(from) = &message.from else { return Ok(()) };
        if !self.access.believes(from, &message.chat) {
            return Ok(());
        }
        let source = format!("tg:{}:{number}", self.id);
        let heard = Heard { message, voice: self.voice(from.id), number, source };
        let said = match come {
            Come::New => self.said(&heard).await,
            Come::Edited => self.edited(&heard).await,
        };
        match said {
            Ok(Some(words)) => self.reply(message, words, None),
            Ok(None) => {}
            Err(Refused::Failed(why)) => return Err(NotStored(why)),
            Err(refused) => self.reply(message, words::for_people(&refused.to_string()), None),
        }
        // Not before it is stored: what comes again is done again.
        self.texts.remember(message);
        Ok(())
    }

    /// It is not kept, and never will be: whoever said it is told.
    pub fn lets_go(self: &Arc<Self>, update: &Incoming, why: &NotStored) {
        if let Some(What::Said(message) | What::Edited(message)) = &update.what
            && message.moves_to().is_none()
        {
            self.reply(message, words::for_people(&why.to_string()), None);
        }
    }

    /// The voice of an allowed user; there are no more of them than the operator wrote down.
    fn voice(&self, user: i64) -> Voice {
        let new = || Voice::new(self.hub.clone(), &format!("telegram:{user}"), Transport::Telegram, TOOLS);
        self.voices.lock().entry(user).or_insert_with(new).clone()
    }

    async fn said(self: &Arc<Self>, heard: &Heard<'_>) -> Result<Option<String>, Refused> {
        let message = heard.message;
        let Some(text) = message.words() else {
            return Ok(message.attachment().map(|what| format!("{what} is not carried; only text is")));
        };
        if let Some(command) = self.command(message, text) {
            return self.obey(heard, command).await;
        }
        let mut content = text::clean(text).into_owned();
        if let Some(how) = message.not_their_own() {
            content = format!("({how}) {content}");
        }
        if let Some(what) = message.attachment() {
            content.push_str(&format!("\n({what} was with it, which is not carried)"));
        }
        self.keep(heard, &content, Come::New).await
    }

    /// Other words than before are something that an agent may want to know. They decide nothing: what was decided by
    /// the first ones is done.
    async fn edited(self: &Arc<Self>, heard: &Heard<'_>) -> Result<Option<String>, Refused> {
        let message = heard.message;
        let Some(text) = message.words().filter(|_| !self.texts.is_same(message)) else { return Ok(None) };
        match self.command(message, text) {
            None => self.keep(heard, &format!("(edited) {}", text::clean(text)), Come::Edited).await,
            Some(Command::NotOurs) => Ok(None),
            Some(_) => Ok(Some("a command that is edited is not run; send it again".to_owned())),
        }
    }

    /// None: it is none, or not said by themselves.
    fn command(&self, message: &Message, text: &str) -> Option<Command> {
        if message.not_their_own().is_some() {
            return None;
        }
        let bot = self.name.get().map_or("", String::as_str);
        Command::parse(text, bot, message.replied().is_some())
    }

    /// Words that are no command: an answer, or an update.
    async fn keep(self: &Arc<Self>, heard: &Heard<'_>, content: &str, come: Come) -> Result<Option<String>, Refused> {
        let content = text::cut(content, LONGEST_TEXT);
        if content.trim().is_empty() {
            return Ok(None);
        }
        match self.topic(heard.message).await? {
            Topic::Task(task, about) if !self.serves(&task) => match come {
                Come::New => self.give_answer(heard, about, &content).await,
                Come::Edited => Ok(Some("what is edited answers nothing; send it as a new message".to_owned())),
            },
            Topic::Task(task, _) => {
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
            Command::Cancel { task, reason } => match self.meant(task, heard.message).await? {
                Some(task) => {
                    self.once(heard, task, Deed::Cancel(reason.as_deref())).await?;
                    format!("#{task} is cancelled")
                }
                None => which.to_owned(),
            },
            Command::Retry { task } => match self.meant(task, heard.message).await? {
                Some(task) => {
                    self.once(heard, task, Deed::Retry).await?;
                    format!("#{task} waits again")
                }
                None => which.to_owned(),
            },
            Command::Answer { task, text } => match self.asked(task, heard.message).await? {
                Some(about) => return self.give_answer(heard, about, &text).await,
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
                Topic::Task(task, _) => Some(*task),
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
        self.reply(message, words, task.map(About::from));
        Ok(None)
    }

    /// Answers in the chat, as soon as that goes. A reply that is about a task is remembered as such.
    pub fn reply(self: &Arc<Self>, message: &Message, words: String, about: Option<About>) {
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
                told = bot.tell(say, &words, about, Worth::Minutes) => if let Err(unsaid) = told {
                    warn!("a reply in the Telegram chat {chat} was not sent: {unsaid}");
                },
                () = stop.cancelled() => {}
            }
        });
    }

    /// Says it in as many messages as it takes.
    pub async fn tell(&self, say: Say, words: &str, about: Option<About>, worth: Worth) -> Result<(), Unsaid> {
        let _posting = about.map(|_| self.posting.begin());
        for text in words::bounded(words) {
            let said = self.outbox.say(Say { text, ..say.clone() }, worth).await?;
            if let Some(about) = about {
                self.posted(said.chat, said.message, about).await;
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
