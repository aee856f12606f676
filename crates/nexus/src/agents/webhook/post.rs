//! Posting to one target: what an answer means, and when it is tried again.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use nexus_core::audit::Sink;
use nexus_core::{clock, text};
use nexus_system::outbound::{Answer, Bounds, Outbound, OutboundError, SafeUrl};

use super::letter::Letter;
use super::sign::Signer;
use crate::agents::Queue;
use crate::wire::VERSION;

/// Requests to one target at once.
pub const PLACES: usize = 8;

const BOUNDS: Bounds = Bounds { connecting: Duration::from_secs(5), whole: Duration::from_secs(30), answer: 4 * 1024 };
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Who asks for more than this has forgotten us.
const LONGEST_ASKED: Duration = Duration::from_secs(3600);
/// Characters of what the other side says that are kept.
const LONGEST_REASON: usize = 300;

/// The way to one target. All of its letters share the pauses that the target needs.
#[derive(Debug)]
pub struct Post {
    target: Arc<str>,
    out: Outbound,
    signer: Signer,
    queue: Arc<Queue>,
    places: Semaphore,
    standing: watch::Sender<Standing>,
}

/// Where posting stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standing {
    /// The target wants to be left alone until then.
    pub closed_until: Option<Instant>,
    /// Failures of the target since it last answered.
    failures: u32,
    /// Letters that wait for another try of their own. They hold up nobody.
    pub resting: usize,
}

impl Standing {
    pub fn is_open(&self) -> bool {
        self.closed_until.is_none_or(|until| until <= Instant::now())
    }
}

/// What became of a letter.
#[derive(Debug, PartialEq, Eq)]
pub enum Delivery {
    Taken,
    /// It will not be taken, however often it is sent.
    Refused(String),
    /// Its time was over, and this was the last that was heard.
    Late(String),
    /// It was called back.
    Stopped(Gone),
}

/// Whether the other side may have got something of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    No,
    Perhaps,
}

#[derive(Debug, PartialEq, Eq)]
enum Came {
    Taken,
    Refused(String),
    NotNow { why: String, asked: Option<Duration>, whose: Whose },
}

/// Whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// The others may fare better.
    Letter,
    /// None would be taken now.
    Target,
}

impl Post {
    pub fn to(
        target: Arc<str>,
        url: SafeUrl,
        signer: Signer,
        queue: Arc<Queue>,
        audit: Arc<dyn Sink>,
    ) -> Result<Self, OutboundError> {
        let out = Outbound::to(url, &format!("nexus/{VERSION}"), BOUNDS, audit)?;
        let (places, standing) = (Semaphore::new(PLACES), watch::Sender::default());
        Ok(Self { target, out, signer, queue, places, standing })
    }

    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Sends it until it is taken or refused, its time is over (after a try at least), or it is called back. A request
    /// that is on its way is not broken off: nobody would know what became of it.
    pub async fn deliver(&self, letter: &Letter, until: Timestamp, back: &CancellationToken) -> Delivery {
        let (mut failures, mut gone, mut last) = (0, Gone::No, None::<String>);
        loop {
            let place = tokio::select! {
                biased;
                () = back.cancelled() => return Delivery::Stopped(gone),
                place = self.place() => place,
            };
            // The hub may have been away for all that time: that it was not reached is known after a try.
            if let Some(why) = last.take_if(|_| clock::now() >= until) {
                return Delivery::Late(why);
            }
            gone = Gone::Perhaps;
            let came = self.once(letter).await;
            drop(place);
            let (why, asked, whose) = match came {
                Came::Taken => {
                    self.reopen();
                    self.queue.heard(&self.target, None).await;
                    return Delivery::Taken;
                }
                Came::Refused(why) => {
                    self.reopen();
                    // Whoever refuses a task has heard it.
                    self.queue.heard(&self.target, None).await;
                    return Delivery::Refused(why);
                }
                Came::NotNow { why, asked, whose } => (why, asked, whose),
            };
            self.queue.heard(&self.target, Some(why.clone())).await;
            failures += 1;
            let rest = match whose {
                Whose::Target => self.close(asked),
                Whose::Letter => pause(failures, asked),
            };
            if clock::now() + SignedDuration::try_from(rest).unwrap_or(SignedDuration::MAX) >= until {
                return Delivery::Late(why);
            }
            last = Some(why);
            if whose == Whose::Letter {
                let _resting = Resting::begin(&self.standing);
                tokio::select! {
                    () = back.cancelled() => return Delivery::Stopped(gone),
                    () = sleep(rest) => {}
                }
            }
        }
    }

    /// A place among those who are sent now, in the order of asking, once the target is to be called.
    async fn place(&self) -> Option<tokio::sync::SemaphorePermit<'_>> {
        loop {
            let closed = self.standing.borrow().closed_until;
            if let Some(until) = closed {
                sleep_until(until).await;
            }
            let place = self.places.acquire().await.ok();
            // Somebody before us may have found the target gone.
            if self.standing.borrow().is_open() {
                return place;
            }
        }
    }

    async fn once(&self, letter: &Letter) -> Came {
        let now = clock::now().as_second();
        let asking = self
            .out
            .post(letter.body.clone(), letter.what.clone())
            .header("content-type", "application/json")
            .header("webhook-id", &letter.id)
            .header("webhook-timestamp", &now.to_string())
            .header("webhook-signature", &self.signer.sign(&letter.id, now, &letter.body));
        match asking.send().await {
            Ok(answer) => meaning(&answer),
            Err(error) => Came::NotNow { why: error.reason(), asked: None, whose: Whose::Target },
        }
    }

    fn reopen(&self) {
        self.standing.send_if_modified(|standing| {
            standing.failures = 0;
            standing.closed_until.take().is_some()
        });
    }

    /// Nobody is sent for a while; how long. Those who were on their way together are one failure.
    fn close(&self, asked: Option<Duration>) -> Duration {
        let mut rest = Duration::ZERO;
        self.standing.send_modify(|standing| {
            let now = Instant::now();
            if standing.is_open() {
                standing.failures = standing.failures.saturating_add(1);
                standing.closed_until = Some(now + pause(standing.failures, asked));
            }
            rest = standing.closed_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        });
        rest
    }
}

/// A letter that waits on its own, for as long as this lives.
struct Resting<'a>(&'a watch::Sender<Standing>);

impl<'a> Resting<'a> {
    fn begin(standing: &'a watch::Sender<Standing>) -> Self {
        standing.send_modify(|standing| standing.resting += 1);
        Self(standing)
    }
}

impl Drop for Resting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|standing| standing.resting -= 1);
    }
}

/// Twice as long each time, and off the plain doubling by chance, so that many do not come back together.
fn pause(failures: u32, asked: Option<Duration>) -> Duration {
    let whole = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(LONGEST_PAUSE);
    let chance = f64::from(Uuid::new_v4().as_fields().0) / f64::from(u32::MAX);
    whole.mul_f64(0.5 + chance / 2.0).max(asked.unwrap_or_default().min(LONGEST_ASKED))
}

fn meaning(answer: &Answer) -> Came {
    let Answer { status, body, retry_after } = answer;
    let said = text::clean(body);
    let said = text::cut(said.trim(), LONGEST_REASON).replace(['\n', '\r', '\t', '\u{2028}', '\u{2029}'], " ");
    let said = if said.is_empty() { format!("HTTP {status}") } else { format!("HTTP {status}: {said}") };
    let whose = match *status {
        200..300 => return Came::Taken,
        429 | 503 => Whose::Target,
        // These are about the letter itself. All else may pass: a proxy answers 404 while the agent behind it starts,
        // and 401 or 403 until somebody has mended its secret.
        400 | 410 | 413 | 415 | 422 => return Came::Refused(format!("it answers {said}")),
        _ => Whose::Letter,
    };
    Came::NotNow { why: format!("it answers {said}"), asked: *retry_after, whose }
}

#[cfg(test)]
mod tests;
