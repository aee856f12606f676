//! Everything the bot says leaves through one queue: in order for each chat, at Telegram's pace, and silent for as long
//! as Telegram wants.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::warn;

use super::client::{Client, Trouble};
use super::health::Health;
use super::pace::{Pace, Turn};
use super::pause::Pause;
use super::places::Places;

/// Messages that wait to be sent.
const MOST_WAITING: usize = 256;
/// What nobody waits for any more after this long is not sent: an answer to `/status`, say.
const STALE: Duration = Duration::from_secs(600);
/// A token that is not valid may be made valid again.
const SLOW: Duration = Duration::from_secs(60);
const LONGEST_SILENCE: Duration = Duration::from_secs(3_600);

/// What is to be said.
#[derive(Clone, Debug)]
pub struct Say {
    pub chat: i64,
    /// The topic, where the chat is a forum.
    pub topic: Option<i64>,
    pub text: String,
    pub reply_to: Option<i64>,
    /// What stands below it, as Telegram wants it: buttons, or a request to answer.
    pub markup: Option<Value>,
    /// Not a new message: another text for this one.
    pub instead_of: Option<i64>,
}

impl Say {
    pub fn new(chat: i64, text: impl Into<String>) -> Self {
        Self { chat, topic: None, text: text.into(), reply_to: None, markup: None, instead_of: None }
    }
}

/// For how long something is worth saying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// Who asked for it does not wait longer.
    Minutes,
    /// It is told whenever that goes.
    Always,
}

/// Where it stands now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// Another one than asked for, where a group has become another chat.
    pub chat: i64,
    pub message: i64,
    /// The topic is not there any more; it went into the chat itself.
    pub topic_gone: bool,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Unsaid {
    /// The bot was blocked or thrown out, and may be let in again.
    #[error("Telegram says: {0}")]
    Blocked(String),
    #[error("Telegram does not take it: {0}")]
    Never(String),
    #[error("it could not be sent in time")]
    Late,
    #[error("the hub is ending")]
    Ending,
}

#[derive(Debug)]
struct Job {
    say: Say,
    /// None: as long as it takes.
    until: Option<Instant>,
    said: oneshot::Sender<Result<Said, Unsaid>>,
}

impl Job {
    fn is_over(&self) -> bool {
        self.said.is_closed() || self.until.is_some_and(|until| until <= Instant::now())
    }
}

/// Where to say something. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Outbox(mpsc::Sender<Job>);

/// What was handed in and is on its way. Dropped, it is not sent any more, unless it is being sent right now.
pub type OnItsWay = oneshot::Receiver<Result<Said, Unsaid>>;

impl Outbox {
    pub fn new() -> (Self, Inbox) {
        let (outbox, inbox) = mpsc::channel(MOST_WAITING);
        (Self(outbox), Inbox(inbox))
    }

    /// Hands it in, for as long as it takes.
    pub async fn hand_in(&self, say: Say) -> OnItsWay {
        let (said, on_its_way) = oneshot::channel();
        // Nobody sends any more: the other end of what is given back is closed, and tells so.
        let _ = self.0.send(Job { say, until: None, said }).await;
        on_its_way
    }

    /// Says it for as long as it is worth saying.
    pub async fn say(&self, say: Say, worth: Worth) -> Result<Said, Unsaid> {
        if worth == Worth::Always {
            return self.hand_in(say).await.await.unwrap_or(Err(Unsaid::Ending));
        }
        let (said, on_its_way) = oneshot::channel();
        let handing = self.0.send(Job { say, until: Some(Instant::now() + STALE), said });
        match timeout(STALE, handing).await {
            Ok(Ok(())) => on_its_way.await.unwrap_or(Err(Unsaid::Ending)),
            Ok(Err(_)) => Err(Unsaid::Ending),
            Err(_) => Err(Unsaid::Late),
        }
    }
}

/// The other end.
#[derive(Debug)]
pub struct Inbox(mpsc::Receiver<Job>);

/// Sends what is in the inbox.
#[derive(Debug)]
pub struct Sender {
    pub client: Arc<Client>,
    pub health: Arc<Health>,
    pub places: Arc<Places>,
}

impl Sender {
    pub async fn run(self, Inbox(mut inbox): Inbox) {
        let (mut waiting, mut pace) = (VecDeque::<Job>::new(), Pace::default());
        loop {
            while waiting.len() < MOST_WAITING
                && let Ok(job) = inbox.try_recv()
            {
                waiting.push_back(job);
            }
            while let Some(place) = waiting.iter().position(Job::is_over) {
                let job = waiting.remove(place);
                job.map(|job| job.said.send(Err(Unsaid::Late)));
            }
            let turn = pace.turn(waiting.iter().map(|job| self.places.now(job.say.chat)), Instant::now());
            let more = match turn {
                Turn::Now(place) => {
                    if let Some(job) = waiting.remove(place) {
                        self.deliver(job, &mut pace).await;
                    }
                    continue;
                }
                Turn::At(_) if waiting.len() >= MOST_WAITING => None,
                _ => Some(inbox.recv()),
            };
            let later = async {
                match turn {
                    Turn::At(later) => sleep_until(later).await,
                    _ => std::future::pending().await,
                }
            };
            let Some(more) = more else {
                later.await;
                continue;
            };
            tokio::select! {
                job = more => match job {
                    Some(job) => waiting.push_back(job),
                    None => return,
                },
                () = later => {}
            }
        }
    }

    /// Sends one, for as long as somebody waits for it. The whole bot waits meanwhile, so that the order is kept.
    async fn deliver(&self, job: Job, pace: &mut Pace) {
        let (mut say, mut topic_gone) = (job.say.clone(), false);
        let mut pause = Pause::default();
        let said = loop {
            if job.is_over() {
                break Err(Unsaid::Late);
            }
            say.chat = self.places.now(say.chat);
            let sent = self.send(&say).await;
            pace.sent(say.chat, Instant::now());
            let trouble = match sent {
                Ok(message) => {
                    self.health.sends(None).await;
                    break Ok(Said { chat: say.chat, message, topic_gone });
                }
                Err(trouble) => trouble,
            };
            match trouble {
                Trouble::TooMany(silence) => sleep(silence.min(LONGEST_SILENCE)).await,
                Trouble::Refused { moved_to: Some(chat), .. } if chat != say.chat => {
                    self.places.moved(say.chat, chat).await;
                }
                Trouble::Refused { reason, .. } if say.topic.is_some() && is_about_topic(&reason) => {
                    warn!("Telegram has no topic {:?} in chat {} any more: {reason}", say.topic, say.chat);
                    (say.topic, topic_gone) = (None, true);
                }
                Trouble::Refused { reason, .. } => break Err(Unsaid::Never(reason)),
                Trouble::Forbidden(reason) => break Err(Unsaid::Blocked(reason)),
                Trouble::BadToken => {
                    self.health.sends(Some(&trouble)).await;
                    sleep(SLOW).await;
                }
                Trouble::Unreachable(_) | Trouble::Conflict(_) => {
                    self.health.sends(Some(&trouble)).await;
                    sleep(pause.next()).await;
                }
            }
        };
        let _ = job.said.send(said);
    }

    async fn send(&self, say: &Say) -> Result<i64, Trouble> {
        let mut message = json!({
            "chat_id": say.chat,
            "text": say.text,
            "link_preview_options": { "is_disabled": true },
        });
        if let Some(markup) = &say.markup {
            message["reply_markup"] = markup.clone();
        }
        if let Some(known) = say.instead_of {
            message["message_id"] = known.into();
            self.client.edit(&message).await?;
            return Ok(known);
        }
        if let Some(topic) = say.topic {
            message["message_thread_id"] = topic.into();
        }
        if let Some(reply_to) = say.reply_to {
            message["reply_parameters"] = json!({ "message_id": reply_to, "allow_sending_without_reply": true });
        }
        self.client.send(&message).await
    }
}

/// The topic was deleted or closed, or never was.
fn is_about_topic(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    ["message thread not found", "topic_closed", "topic_deleted", "topic_id_invalid"].iter().any(|r| reason.contains(r))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_always_worth_saying_waits_without_end() {
        check(Worth::Always, false).await;
        check(Worth::Minutes, true).await;

        async fn check(worth: Worth, ends: bool) {
            let (outbox, Inbox(mut inbox)) = Outbox::new();
            let said = Ok(Said { chat: 1, message: 2, topic_gone: false });
            let answer = async {
                let job = inbox.recv().await.unwrap();
                assert_eq!(job.until.is_some(), ends, "{worth:?}");
                job.said.send(said.clone()).unwrap();
            };
            let (told, ()) = tokio::join!(outbox.say(Say::new(1, "x"), worth), answer);
            assert_eq!(told, said);
            drop(inbox);
            assert_eq!(outbox.say(Say::new(1, "x"), worth).await, Err(Unsaid::Ending));
        }
    }
}
