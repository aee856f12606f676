//! Calls that come while a server is away: they wait a moment, or are told when it is tried again.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::keep::Order;
use super::{Condition, Inner, NEAR, State, Unavailable};
use crate::upstream::client::Client;

/// Calls bring the next try forward, but not more often than that.
pub(super) const HURRY_EVERY: Duration = Duration::from_secs(1);

impl Inner {
    /// The shared connection, once it is there.
    pub(super) async fn soon(&self) -> Result<Client, Unavailable> {
        self.once_there(|_| self.connected()).await
    }

    pub(super) async fn soon_ready(&self) -> Result<(), Unavailable> {
        self.once_there(|condition| condition.state.is_connected().then_some(())).await
    }

    async fn once_there<T>(&self, there: impl Fn(&Condition) -> Option<T>) -> Result<T, Unavailable> {
        let deadline = Instant::now() + self.config.timeout;
        let mut hurried = None;
        let mut condition = self.condition.subscribe();
        loop {
            {
                // What is there is looked for after the change that may have brought it: the next change may never come.
                let now = condition.borrow_and_update();
                if let Some(found) = there(&now) {
                    return Ok(found);
                }
                self.may_wait(&now, &mut hurried)?;
            }
            self.need.notify_one();
            if timeout_at(deadline, condition.changed()).await.is_err() {
                return Err(Unavailable::Connecting { server: self.config.name.clone() });
            }
        }
    }

    /// Whether it is worth waiting for. One that waits is tried now, once for each who asks: `hurried` is how often it
    /// had been tried before.
    fn may_wait(&self, condition: &Condition, hurried: &mut Option<u64>) -> Result<(), Unavailable> {
        let server = self.config.name.clone();
        match &condition.state {
            State::Connecting | State::Ready | State::Degraded { .. } => Ok(()),
            State::Waiting { until, .. } if *until <= nexus_core::clock::now() + NEAR => Ok(()),
            State::Waiting { .. } if *hurried == Some(condition.tries) => Ok(()),
            State::Waiting { .. } if hurried.is_none() && self.hurry(condition.tries) => {
                *hurried = Some(condition.tries);
                Ok(())
            }
            State::Waiting { until, why } => Err(Unavailable::Waiting { server, why: why.clone(), until: *until }),
            State::Stopped { .. } if condition.resting => Ok(()),
            State::Stopped { why } => Err(Unavailable::Stopped { server, why: why.clone() }),
            State::Denied { why } => Err(Unavailable::Denied { server, why: why.clone() }),
        }
    }

    /// Brings the next try forward, after that many. False: that has just been done, and was of no use.
    fn hurry(&self, tries: u64) -> bool {
        let mut hurried = self.hurried.lock();
        if let Some((_, before)) = hurried.filter(|(at, _)| at.elapsed() < HURRY_EVERY) {
            return before == tries;
        }
        *hurried = Some((Instant::now(), tries));
        self.orders.try_send(Order::Check(None)).is_ok()
    }
}
