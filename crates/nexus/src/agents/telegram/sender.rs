//! Everything the bot says leaves through one queue: in order for each chat, at Telegram's pace, and silent for as long
//! as Telegram wants.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tracing::warn;

use super::client::{Client, LONGEST_SILENCE, Trouble};
use super::health::Health;
use super::pace::{Pace, Turn};
use super::pause::Pause;
use super::places::Places;
use super::refusals::{is_about_message, is_about_topic};

/// Messages that wait to be sent.
const MOST_WAITING: usize = 256;
/// What nobody waits for any more after this long is not sent: an answer to `/status`, say.
const STALE: Duration = Duration::from_secs(600);
/// A token that is not valid may be made valid again.
const SLOW: Duration = Duration::from_secs(60);
/// Tries of one message that fails although Telegram answers this bot: then the others have their turn.
const MOST_VAIN: u32 = 6;
/// So much counts a try that Telegram may have taken, since each is then a further copy.
const PERHAPS_TAKEN: u32 = 3;
/// After which it is tried again, at first; each further pause is twice as long.
const AGAIN: Duration = Duration::from_secs(60);
/// How often. That is a quarter of an hour.
const ROUNDS: usize = 4;

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
    /// The bot is not let in, or may not write there. That may change.
    #[error("{0}")]
    Blocked(String),
    /// Telegram answers the bot, but not to this.
    #[error("{0}, again and again")]
    Vain(String),
    #[error("Telegram does not take it: {0}")]
    Never(String),
    #[error("it could not be sent in time")]
    Late,
    #[error("the hub is ending")]
    Ending,
}

impl Unsaid {
    pub fn shut_out(chat: i64, reason: &str) -> Self {
        Unsaid::Blocked(format!("Telegram says: {reason}; is chat_id {chat} right, and may the bot write there?"))
    }
}

/// How far a message is, for both of its ends.
#[derive(Debug, Default)]
struct Course {
    /// Telegram may be taking it right now.
    leaving: AtomicBool,
    withdrawn: AtomicBool,
}

impl Course {
    /// False: nobody wants it any more.
    fn leave(&self) -> bool {
        self.leaving.store(true, Ordering::SeqCst);
        !self.withdrawn.load(Ordering::SeqCst)
    }

    /// True: it may be leaving all the same.
    fn withdraw(&self) -> bool {
        self.withdrawn.store(true, Ordering::SeqCst);
        self.leaving.load(Ordering::SeqCst)
    }
}

#[derive(Debug)]
struct Job {
    say: Say,
    /// None: as long as it takes.
    until: Option<Instant>,
    said: oneshot::Sender<Result<Said, Unsaid>>,
    course: Arc<Course>,
}

impl Job {
    fn new(say: Say, until: Option<Instant>) -> (Self, OnItsWay) {
        let ((said, on_its_way), course) = (oneshot::channel(), Arc::<Course>::default());
        (Self { say, until, said, course: course.clone() }, OnItsWay { said: on_its_way, course })
    }

    fn is_over(&self) -> bool {
        self.said.is_closed()
            || self.course.withdrawn.load(Ordering::SeqCst)
            || self.until.is_some_and(|until| until <= Instant::now())
    }
}

/// Where to say something. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Outbox(mpsc::Sender<Job>);

/// What was handed in and is on its way. Dropped, it is not sent any more, unless it is being sent right now.
#[derive(Debug)]
pub struct OnItsWay {
    said: oneshot::Receiver<Result<Said, Unsaid>>,
    course: Arc<Course>,
}

impl OnItsWay {
    /// What became of it. May be dropped and called again until it has come back.
    pub async fn said(&mut self) -> Result<Said, Unsaid> {
        // Nobody is at the other end any more.
        (&mut self.said).await.unwrap_or(Err(Unsaid::Ending))
    }

    /// Takes it back. True: it may be leaving right now, and what becomes of it is known soon.
    pub fn withdraw(&self) -> bool {
        self.course.withdraw()
    }
}

impl Outbox {
    pub fn new() -> (Self, Inbox) {
        let (outbox, inbox) = mpsc::channel(MOST_WAITING);
        (Self(outbox), Inbox(inbox))
    }

    /// Hands it in, for as long as it takes.
    pub async fn hand_in(&self, say: Say) -> OnItsWay {
        let (job, on_its_way) = Job::new(say, None);
        // Nobody sends any more: the other end of what is given back is closed, and tells so.
        let _ = self.0.send(job).await;
        on_its_way
    }

    /// Says it for as long as it is worth saying.
    pub async fn say(&self, say: Say, worth: Worth) -> Result<Said, Unsaid> {
        let until = (worth == Worth::Minutes).then(|| Instant::now() + STALE);
        let mut pause = AGAIN;
        for _ in 0..ROUNDS {
            let said = self.say_until(say.clone(), until).await;
            if !matches!(said, Err(Unsaid::Vain(_))) || until.is_some_and(|until| until < Instant::now() + pause) {
                return said;
            }
            // The others have their turn meanwhile.
            sleep(pause).await;
            pause *= 2;
        }
        self.say_until(say, until).await
    }

    async fn say_until(&self, say: Say, until: Option<Instant>) -> Result<Said, Unsaid> {
        let Some(until) = until else { return self.hand_in(say).await.said().await };
        let (job, mut on_its_way) = Job::new(say, Some(until));
        match timeout_at(until, self.0.send(job)).await {
            Ok(Ok(())) => on_its_way.said().await,
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

    async fn deliver(&self, job: Job, pace: &mut Pace) {
        let said = self.try_for_long(&job, pace).await;
        if said.is_err() {
            self.health.rests();
        }
        let _ = job.said.send(said);
    }

    /// Sends one, for as long as somebody waits for it. The whole bot waits meanwhile, so that the order is kept; but
    /// not for one that fails although Telegram answers otherwise.
    async fn try_for_long(&self, job: &Job, pace: &mut Pace) -> Result<Said, Unsaid> {
        let (mut say, mut topic_gone) = (job.say.clone(), false);
        let (mut pause, mut vain) = (Pause::default(), 0);
        loop {
            if job.is_over() || !job.course.leave() {
                return Err(Unsaid::Late);
            }
            say.chat = self.places.now(say.chat);
            let sent = self.send(&say).await;
            pace.sent(say.chat, Instant::now());
            let trouble = match sent {
                Ok(message) => {
                    self.health.sends(None).await;
                    return Ok(Said { chat: say.chat, message, topic_gone });
                }
                Err(trouble) => trouble,
            };
            job.course.leaving.store(false, Ordering::SeqCst);
            if job.is_over() {
                return Err(Unsaid::Late);
            }
            match trouble {
                Trouble::TooMany(silence) => {
                    self.health.silent(silence).await;
                    sleep(silence.min(LONGEST_SILENCE)).await;
                }
                Trouble::Refused { moved_to: Some(chat), .. } if chat != say.chat => {
                    self.places.moved(say.chat, chat).await;
                }
                Trouble::Refused { reason, .. } if say.topic.is_some() && is_about_topic(&reason) => {
                    warn!("Telegram has no topic {:?} in chat {} any more: {reason}", say.topic, say.chat);
                    (say.topic, topic_gone) = (None, true);
                }
                Trouble::Refused { reason, .. } if say.instead_of.is_some() || is_about_message(&reason) => {
                    return Err(Unsaid::Never(reason));
                }
                Trouble::Refused { reason, .. } | Trouble::Forbidden(reason) => {
                    return Err(Unsaid::shut_out(say.chat, &reason));
                }
                Trouble::BadToken => {
                    self.health.sends(Some(&trouble)).await;
                    sleep(SLOW).await;
                }
                Trouble::Unreachable(_) | Trouble::Garbled(_) | Trouble::Conflict(_) => {
                    self.health.sends(Some(&trouble)).await;
                    let weight = if matches!(trouble, Trouble::Garbled(_)) { PERHAPS_TAKEN } else { 1 };
                    // Whether it is the way to Telegram or this message: that is asked.
                    vain = if self.client.me().await.is_ok() { vain + weight } else { 0 };
                    if vain >= MOST_VAIN {
                        return Err(Unsaid::Vain(trouble.to_string()));
                    }
                    sleep(pause.next()).await;
                }
            }
        }
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
    #[test]
    fn what_is_taken_back_is_not_sent_or_its_end_is_told() {
        let (job, on_its_way) = Job::new(Say::new(1, "x"), None);
        assert!(!on_its_way.withdraw(), "it was not leaving");
        assert!(job.is_over() && !job.course.leave());
        let (job, on_its_way) = Job::new(Say::new(1, "x"), None);
        assert!(job.course.leave());
        assert!(on_its_way.withdraw(), "it was leaving");
        assert!(job.is_over(), "it is not tried again");
    }
}
