//! Waiting for something to happen in the queue.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use nexus_core::call::{CallCx, Progress};

use super::words::Wait;
use crate::agents::Bridge;
use crate::agents::queue::Topic;

/// Between two words to the caller, who would otherwise take the call for dead. What is waited for is looked at again
/// then, too: a word from another process can get lost.
const A_WORD: Duration = Duration::from_secs(5);

/// A call that looks, and looks again when something has changed. Made before the first look, so that nothing is missed.
#[derive(Debug)]
pub struct Vigil<'a> {
    changes: watch::Receiver<u64>,
    closing: &'a CancellationToken,
    cx: &'a CallCx,
    what: &'static str,
    wait: Wait,
    since: Instant,
    next_word: Instant,
}

impl<'a> Vigil<'a> {
    /// `what` tells the caller what they wait for.
    pub fn new(bridge: &'a Bridge, cx: &'a CallCx, topic: &Topic, wait: Wait, what: &'static str) -> Self {
        let changes = bridge.queue.listen(topic);
        let since = Instant::now();
        Self { changes, closing: &bridge.closing, cx, what, wait, since, next_word: since }
    }

    /// Comes back when another look is worth it. False: the time is over, the hub ends, or the key is out of force.
    pub async fn goes_on(&mut self) -> bool {
        let end = self.since + self.wait.time();
        if Instant::now() >= end || self.closing.is_cancelled() {
            return false;
        }
        if Instant::now() >= self.next_word {
            self.say();
        }
        let worth_it = tokio::select! {
            biased;
            () = self.closing.cancelled() => false,
            () = changed(&mut self.changes) => true,
            () = sleep_until(end.min(self.next_word)) => Instant::now() < end,
        };
        worth_it && self.may_still_call()
    }

    /// A key that was revoked meanwhile gets nothing more.
    fn may_still_call(&self) -> bool {
        self.cx.client.principal_now(&self.cx.principal).is_some()
    }

    /// Tells the caller that it waits: at first, and then now and again.
    fn say(&mut self) {
        let total = Some(self.wait.time().as_secs_f64());
        let done = self.since.elapsed().as_secs_f64();
        self.cx.progress(Progress { done, total, message: Some(format!("waiting for {}", self.what)) });
        self.next_word = Instant::now() + A_WORD;
    }
}

/// A queue that says nothing more leaves it to the clock.
async fn changed(changes: &mut watch::Receiver<u64>) {
    if changes.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
