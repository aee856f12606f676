//! Posts the tasks of a target into its chat, in order, as they come.
//!
//! A note in the store says which task is being posted, and how many of its messages Telegram has taken. It is there
//! before the task is claimed: whenever the hub dies, it goes on with the message that comes next. Only a message that
//! Telegram took while the hub died, before that could be noted, is posted a second time.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::warn;

use nexus_core::Chain;

use super::client::{LONGEST_SILENCE, Trouble};
use super::pause::Pause;
use super::sender::{Said, Say, Unsaid};
use super::topics::NoTopic;
use super::{Bot, words};
use crate::agents::queue::{Claim, Lease, QueueError, Topic};
use crate::agents::targets::Target;
use crate::agents::task::{Status, Task, TaskId};
use crate::store::{Store, StoreError};

/// Between Telegram's answer and the store's.
pub const MOMENT: Duration = Duration::from_secs(5);
/// Nobody needs to tell of a new task for it to be found.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// A chat that does not let the bot in is tried again, after this at first.
const SHUT: Duration = Duration::from_secs(60);
const LONGEST_SHUT: Duration = Duration::from_secs(600);
/// Tasks are claimed in this name. No key can have it.
const CARRIER: &str = "telegram:bot";

/// Whether something is being posted right now.
#[derive(Debug, Default)]
pub struct Posting {
    /// The task, of what is posted for the first time.
    busy: Mutex<Vec<Option<TaskId>>>,
    settled: watch::Sender<u64>,
}

impl Posting {
    pub fn is_busy(&self) -> bool {
        !self.busy.lock().is_empty()
    }

    /// Moves when the store knows of a message that was posted.
    pub fn clone_receiver(&self) -> watch::Receiver<u64> {
        self.settled.subscribe()
    }

    /// Until what it gives is dropped.
    pub fn begin(&self) -> Busy<'_> {
        self.begin_with(None)
    }

    fn begin_with(&self, task: Option<TaskId>) -> Busy<'_> {
        self.busy.lock().push(task);
        Busy(self, task)
    }

    fn has(&self, task: TaskId) -> bool {
        self.busy.lock().contains(&Some(task))
    }
}

/// Something is being posted.
#[derive(Debug)]
pub struct Busy<'a>(&'a Posting, Option<TaskId>);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        {
            let mut busy = self.0.busy.lock();
            if let Some(place) = busy.iter().position(|task| *task == self.1) {
                busy.swap_remove(place);
            }
        }
        self.0.settled.send_modify(|count| *count += 1);
    }
}

/// Why a task was not posted.
#[derive(Debug)]
enum NotPosted {
    /// It is not to be done any more.
    Over,
    /// It is not known where it belongs.
    NotNow(Trouble),
    Unsaid(Unsaid),
    Queue(QueueError),
}

impl From<QueueError> for NotPosted {
    fn from(error: QueueError) -> Self {
        NotPosted::Queue(error)
    }
}

impl From<StoreError> for NotPosted {
    fn from(error: StoreError) -> Self {
        NotPosted::Queue(error.into())
    }
}

impl From<NoTopic> for NotPosted {
    fn from(why: NoTopic) -> Self {
        match why {
            NoTopic::NotNow(trouble) => NotPosted::NotNow(trouble),
            NoTopic::Shut(unsaid) => NotPosted::Unsaid(unsaid),
            NoTopic::Store(error) => error.into(),
        }
    }
}

/// Posts for one target.
#[derive(Debug)]
pub struct Poster {
    bot: Arc<Bot>,
    target: Arc<str>,
}

impl Poster {
    pub fn new(bot: Arc<Bot>, target: &Target) -> Self {
        Self { bot, target: target.name.clone() }
    }

    /// Runs until it is dropped.
    pub async fn run(self) {
        let mut changes = self.bot.queue.listen(&Topic::Tasks(self.target.clone()));
        if self.bot.places.home(&self.target).is_none() {
            let told = "it has no chat: write its chat_id into nexus.yaml, or into the credentials file";
            warn!("tasks of {} are not posted: {told}", self.target);
            self.bot.queue.heard(&self.target, Some(told.to_owned())).await;
            return;
        }
        // What was wrong with it before this start may have been mended.
        self.bot.queue.heard(&self.target, self.bot.places.trouble(&self.target)).await;
        let (mut pause, mut shut, mut passing) = (Pause::default(), SHUT, None);
        loop {
            changes.borrow_and_update();
            let posted = match self.resume().await {
                Ok(()) => self.post_all().await,
                Err(error) => Err(error),
            };
            match posted {
                Ok(()) => {
                    pause.reset();
                    shut = SHUT;
                    if passing.take().is_some() {
                        self.bot.queue.heard(&self.target, self.bot.places.trouble(&self.target)).await;
                    }
                    let _ = timeout(LOOK_AGAIN, changes.changed()).await;
                }
                Err(NotPosted::Unsaid(unsaid)) => {
                    self.is_in_trouble(unsaid.to_string()).await;
                    passing = None;
                    sleep(shut).await;
                    shut = (shut * 2).min(LONGEST_SHUT);
                }
                Err(NotPosted::NotNow(Trouble::TooMany(silence))) => {
                    self.bot.health.silent(silence).await;
                    sleep(silence.min(LONGEST_SILENCE)).await;
                }
                Err(NotPosted::NotNow(trouble)) => {
                    if passing.as_ref() != Some(&trouble) {
                        self.is_in_trouble(trouble.to_string()).await;
                        passing = Some(trouble);
                    }
                    sleep(pause.next()).await;
                }
                Err(NotPosted::Over) => {}
                Err(NotPosted::Queue(error)) => {
                    warn!("tasks of {} are not posted to Telegram: {}", self.target, Chain(&error));
                    sleep(pause.next()).await;
                }
            }
        }
    }

    async fn is_in_trouble(&self, told: String) {
        warn!("tasks of {} are not posted: {told}", self.target);
        self.bot.queue.heard(&self.target, Some(told)).await;
    }

    /// Goes on where it was when the hub ended.
    async fn resume(&self) -> Result<(), NotPosted> {
        let Some((id, sent)) = self.bot.store.remembered(&self.note()).await?.as_deref().and_then(parse_note) else {
            return Ok(());
        };
        match self.bot.queue.task(id).await? {
            Some(task) if self.is_ours(&task) => self.post(&task, sent).await,
            // It was not claimed any more, or is over.
            _ => self.remember(None).await,
        }
    }

    async fn post_all(&self) -> Result<(), NotPosted> {
        while let Some(next) = self.bot.queue.next(&self.target, 1).await?.pop() {
            // What cannot be carried now is not taken out of the queue.
            self.bot.health.able_to_send().await;
            self.bot.topics.find(&self.target).await?;
            self.remember(Some((next.id, 0))).await?;
            let claim = Claim {
                target: self.target.clone(),
                claim: claim_of(next.id),
                by: CARRIER.to_owned(),
                lease: Lease::Held,
            };
            match self.bot.queue.claim_this(next.id, claim).await? {
                Some(task) => self.post(&task, 0).await?,
                // Cancelled in this moment, or somebody else has it.
                None => self.remember(None).await?,
            }
        }
        Ok(())
    }

    /// Posts what is left of a claimed task. What Telegram will never take is given up; what it does not take now
    /// goes back into the queue, unless some of it is out.
    async fn post(&self, task: &Task, sent: usize) -> Result<(), NotPosted> {
        let posted = self.say(task, sent).await;
        match &posted {
            Ok(()) => self.bot.queue.heard(&self.target, self.bot.places.trouble(&self.target)).await,
            Err(NotPosted::Over) => {}
            Err(NotPosted::Unsaid(Unsaid::Never(why))) => {
                self.bot.queue.give_up(task.id, format!("Telegram does not take it: {why}")).await?;
            }
            Err(NotPosted::Unsaid(_)) if self.is_begun(task.id).await? => return posted,
            Err(NotPosted::Unsaid(_)) => self.bot.queue.give_back(task.id, &claim_of(task.id)).await?,
            // It is still claimed; the note says where to go on.
            Err(NotPosted::Queue(_) | NotPosted::NotNow(_)) => return posted,
        }
        self.remember(None).await?;
        match posted {
            Err(NotPosted::Over | NotPosted::Unsaid(Unsaid::Never(_))) => Ok(()),
            posted => posted,
        }
    }

    async fn say(&self, task: &Task, sent: usize) -> Result<(), NotPosted> {
        for (nth, text) in words::task(task).into_iter().enumerate().skip(sent) {
            let Some((chat, _)) = self.bot.places.home(&self.target) else { return Ok(()) };
            let topic = self.bot.topics.find(&self.target).await?;
            let busy = self.bot.posting.begin_with(Some(task.id));
            let (said, wanted) = self.carry(task.id, Say { topic, ..Say::new(chat, text) }, nth).await?;
            self.bot.posted(said.chat, said.message, task.id).await;
            self.remember(Some((task.id, nth + 1))).await?;
            drop(busy);
            if said.topic_gone {
                self.bot.topics.gone(&self.target).await;
            }
            if !wanted {
                return Err(NotPosted::Over);
            }
        }
        Ok(())
    }

    /// Says it, unless the task is cancelled before its first message is out. False: it is cancelled, but Telegram was
    /// taking it then, and it stands there now.
    async fn carry(&self, task: TaskId, say: Say, nth: usize) -> Result<(Said, bool), NotPosted> {
        let (mut changes, mut wanted) = (self.bot.queue.listen(&Topic::Tasks(self.target.clone())), true);
        if nth == 0 && self.is_over(task).await {
            return Err(NotPosted::Over);
        }
        let mut on_its_way = self.bot.outbox.hand_in(say).await;
        loop {
            tokio::select! {
                said = on_its_way.said() => return match said {
                    Ok(said) => Ok((said, wanted)),
                    // The task stays as it is, and the note says where to go on.
                    Err(Unsaid::Ending) => std::future::pending().await,
                    Err(_) if !wanted => Err(NotPosted::Over),
                    Err(unsaid) => Err(NotPosted::Unsaid(unsaid)),
                },
                changed = changes.changed(), if nth == 0 && wanted => {
                    if changed.is_ok() && self.is_over(task).await {
                        wanted = false;
                        if !on_its_way.withdraw() {
                            return Err(NotPosted::Over);
                        }
                    }
                }
            }
        }
    }

    /// What the store does not tell is not over: it is posted, and what became of it is told there.
    async fn is_over(&self, task: TaskId) -> bool {
        let found = self.bot.queue.task(task).await;
        found.is_ok_and(|task| !task.is_some_and(|task| self.is_ours(&task)))
    }

    /// Whether some of its messages are out.
    async fn is_begun(&self, task: TaskId) -> Result<bool, NotPosted> {
        let note = self.bot.store.remembered(&self.note()).await?;
        Ok(note.as_deref().and_then(parse_note).is_some_and(|(posting, sent)| posting == task && sent > 0))
    }

    fn is_ours(&self, task: &Task) -> bool {
        task.status.is_running() && task.claim.as_deref() == Some(&*claim_of(task.id))
    }

    /// Which task is being posted, and how many of its messages are out.
    async fn remember(&self, posting: Option<(TaskId, usize)>) -> Result<(), NotPosted> {
        let note = posting.map(|(task, sent)| format!("{task} {sent}")).unwrap_or_default();
        Ok(self.bot.store.remember(&self.note(), &note).await?)
    }

    fn note(&self) -> String {
        note_of(&self.bot.home, &self.target)
    }
}

impl Bot {
    /// The first message about a task in a chat. One that is on its way is waited for.
    pub async fn posted_as(&self, task: TaskId, chat: i64) -> Result<Option<i64>, StoreError> {
        let mut settled = self.posting.clone_receiver();
        loop {
            settled.borrow_and_update();
            // Asked before the look: what is out in between is found.
            let on_its_way = self.posting.has(task);
            let found = self.store.posted(&self.home, task.0, chat).await?;
            if found.is_some() || !on_its_way {
                return Ok(found);
            }
            let _ = settled.changed().await;
        }
    }
}

/// Whether something of a running task may be in its chat. True of what the bot has not claimed.
pub async fn was_posted(store: &Store, home: &str, task: &Task) -> Result<bool, StoreError> {
    if task.status != Status::Acknowledged || task.claimed_by.as_deref() != Some(CARRIER) {
        return Ok(true);
    }
    let note = store.remembered(&note_of(home, &task.target)).await?;
    Ok(note.as_deref().and_then(parse_note) != Some((task.id, 0)))
}

fn note_of(home: &str, target: &str) -> String {
    format!("telegram:posting:{home}:{target}")
}

/// Always the same for a task: a claim whose answer was lost is found again.
fn claim_of(task: TaskId) -> String {
    format!("{CARRIER}:{task}")
}

fn parse_note(note: &str) -> Option<(TaskId, usize)> {
    let (task, sent) = note.split_once(' ')?;
    Some((task.parse().ok()?, sent.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_tells_where_to_go_on() {
        assert_eq!(parse_note("t5 2"), Some((TaskId(5), 2)));
        assert_eq!(parse_note(""), None);
    }
}
