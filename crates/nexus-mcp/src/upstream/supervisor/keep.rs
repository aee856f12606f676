//! The life of one server's task: connect, attend, wait, again.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{OptionFuture, join_all};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, warn};

use nexus_core::clock;

use super::Inner;
use super::backoff::Backoff;
use super::establish::{Trouble, close, establish, told};
use super::health::{Answers, NextList, answers};
use super::learn::{self, publish_renamed};
use super::offer;
use super::parts::Happened;
use super::state::State;
use crate::upstream::client::Client;

/// An idle server is asked so often whether it is there.
const PING_EVERY: Duration = Duration::from_secs(30);

/// One that missed a ping is asked again soon.
const PING_AGAIN: Duration = Duration::from_secs(1);

/// Pings missed in a row before the connection is made anew.
const MOST_MISSES: u32 = 2;

const RESTING: &str = "it is started when it is first needed";

/// Told to the task.
#[derive(Debug)]
pub enum Order {
    /// See how it is doing, and say when that is known.
    Check(Option<oneshot::Sender<()>>),
    Reconnect,
}

/// Runs until the server is no longer wanted.
pub async fn keep(inner: Arc<Inner>, orders: mpsc::Receiver<Order>) {
    // Also when this panics: whoever closes it waits for that.
    let _ended = inner.ended.clone().drop_guard();
    let stop = inner.stop.clone();
    let mut keeper = Keeper { inner: inner.clone(), orders, backoff: Backoff::default(), asked: Vec::new() };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = keeper.live() => {}
    }
    inner.becomes(State::Stopped { why: "it was closed".into() });
    let current = inner.current.write().take();
    let all = inner.sessions.take_all().into_iter().chain(current);
    join_all(all.map(|client| async move { close(&client).await })).await;
    // What was being connected when it was closed.
    inner.rest.close();
    inner.rest.wait().await;
}

/// What is known of a connection.
struct Care {
    /// What is wrong with it although it answers.
    fault: Option<String>,
    /// Pings in a row without an answer.
    misses: u32,
    ping_at: Instant,
    lists: NextList,
}

/// What those who gave orders want.
enum Want {
    /// To know how it is doing.
    News,
    /// Another connection.
    Another,
}

struct Keeper {
    inner: Arc<Inner>,
    orders: mpsc::Receiver<Order>,
    backoff: Backoff,
    /// Those who wait to hear how it is doing.
    asked: Vec<oneshot::Sender<()>>,
}

impl Keeper {
    async fn live(&mut self) {
        let met_before = self.recall().await;
        let mut needed = !self.inner.config.lazy;
        if !needed && met_before {
            match self.inner.isolates() {
                true => self.host_sessions().await,
                false => self.rest().await,
            }
            needed = true;
        }
        loop {
            self.inner.becomes(State::Connecting);
            match establish(&self.inner).await {
                Ok((client, fault)) => {
                    self.connected(fault.clone());
                    if self.inner.isolates() {
                        close(&client).await;
                        self.host_sessions().await;
                    } else if needed {
                        *self.inner.current.write() = Some(client.clone());
                        self.now_doing(fault.as_deref());
                        self.lost(&client, fault).await;
                    } else {
                        // It had to be met once to know what it has.
                        close(&client).await;
                        self.rest().await;
                        needed = true;
                    }
                }
                Err(Trouble::Configuration(why)) => {
                    self.inner.becomes(State::Stopped { why });
                    self.answer();
                    self.next_order().await;
                }
                Err(Trouble::Failed(why)) => {
                    self.not_connected(&why);
                    let wait = self.backoff.failed();
                    self.wait(wait, why).await;
                }
            }
        }
    }

    /// What it had when it was last met is offered before it is connected. False: nobody has met it.
    async fn recall(&self) -> bool {
        let inner = &self.inner;
        let pins = match inner.parts.memory.pins(&inner.config.name).await {
            Ok(pins) => pins,
            Err(error) => {
                warn!(upstream = %inner.config.name, "{error}");
                return false;
            }
        };
        let naming = inner.naming.read().clone();
        let offer = offer::recalled(&inner.config, &naming, &inner.parts.names, &pins).await;
        publish_renamed(inner, offer);
        !pins.is_empty()
    }

    /// Until somebody needs it.
    async fn rest(&mut self) {
        self.inner.condition.send_modify(|condition| {
            condition.becomes(State::Stopped { why: RESTING.into() });
            condition.resting = true;
        });
        self.answer();
        loop {
            tokio::select! {
                () = self.inner.need.notified() => return,
                order = self.orders.recv() => match order {
                    Some(Order::Check(reply)) => drop(reply),
                    Some(Order::Reconnect) | None => return,
                },
            }
        }
    }

    fn connected(&self, fault: Option<String>) {
        let name = &self.inner.config.name;
        debug!(upstream = %name, "`{name}` is connected");
        if let Some(fault) = fault {
            warn!(upstream = %name, "`{name}`: {fault}");
        }
        self.inner.parts.witness.happened(name, Happened::Connected);
    }

    /// Told once for each reason, not every half a minute.
    fn not_connected(&self, why: &str) {
        if self.inner.condition.borrow().last_error.as_deref() != Some(why) {
            let name = &self.inner.config.name;
            warn!(upstream = %name, "`{name}` cannot be connected: {why}");
            self.inner.log.note(format_args!("not connected: {why}"));
        }
    }

    fn now_doing(&mut self, fault: Option<&str>) {
        self.inner.becomes(match fault {
            None => State::Ready,
            Some(why) => State::Degraded { why: why.to_owned() },
        });
        self.answer();
    }

    /// Attends to the connection until it is gone, and waits for as long as it takes to try again.
    async fn lost(&mut self, client: &Client, fault: Option<String>) {
        let since = Instant::now();
        let why = told(&self.attend(client, fault).await);
        let name = self.inner.config.name.clone();
        debug!(upstream = %name, "`{name}` is lost: {why}");
        self.inner.log.note(format_args!("lost: {why}"));
        self.inner.current.write().take();
        let wait = self.backoff.lost(since.elapsed());
        self.waits(wait, why.clone());
        self.inner.condition.send_modify(|condition| condition.restarts += 1);
        self.inner.parts.witness.happened(&name, Happened::Lost { why: why.clone() });
        // What is left of it must be gone before another is started: the two may want the same file.
        close(client).await;
        self.wait(wait, why).await;
    }

    fn waits(&self, wait: Duration, why: String) {
        self.inner.becomes(State::Waiting { until: clock::now() + wait, why });
    }

    async fn wait(&mut self, wait: Duration, why: String) {
        self.waits(wait, why);
        self.answer();
        tokio::select! {
            () = sleep(wait) => {}
            () = self.next_order() => {}
        }
    }

    /// Somebody wants it to be tried now. Who asked is told when that is done.
    async fn next_order(&mut self) {
        match self.orders.recv().await {
            Some(Order::Check(reply)) => self.asked.extend(reply),
            Some(Order::Reconnect) => {}
            // The handles are gone; the task is about to be stopped.
            None => std::future::pending().await,
        }
    }

    fn answer(&mut self) {
        for asked in self.asked.drain(..) {
            let _ = asked.send(());
        }
    }

    /// While it is connected. Gives the reason why it no longer is.
    async fn attend(&mut self, client: &Client, fault: Option<String>) -> String {
        let mut care = Care { fault, misses: 0, ping_at: Instant::now() + PING_EVERY, lists: NextList::new() };
        loop {
            let inner = self.inner.clone();
            let list_at: OptionFuture<_> = care.lists.at.map(sleep_until).into();
            let done = tokio::select! {
                error = client.closed() => return error.to_string(),
                () = inner.signals.changed.notified() => {
                    care.lists.wanted();
                    Ok(())
                }
                Some(()) = list_at => self.list(client, &mut care).await,
                // One that is busy with a call need not be asked whether it is there.
                () = sleep_until(care.ping_at) => match client.in_flight() {
                    0 => self.ping(client, &mut care).await,
                    _ if care.misses > 0 => self.ping(client, &mut care).await,
                    _ => {
                        care.ping_at = Instant::now() + PING_EVERY;
                        Ok(())
                    }
                },
                order = self.orders.recv() => match self.all_orders(order) {
                    Want::News => self.ping(client, &mut care).await,
                    Want::Another => return "it is connected anew".into(),
                },
            };
            if let Err(why) = done {
                return why;
            }
        }
    }

    /// What all that was ordered comes to. A hundred calls that fail at once want to know the same.
    fn all_orders(&mut self, first: Option<Order>) -> Want {
        let mut next = first;
        loop {
            match next {
                Some(Order::Check(reply)) => self.asked.extend(reply),
                Some(Order::Reconnect) | None => return Want::Another,
            }
            match self.orders.try_recv() {
                Ok(order) => next = Some(order),
                Err(_) => return Want::News,
            }
        }
    }

    /// Asks whether it is there. The error is that it is not.
    async fn ping(&mut self, client: &Client, care: &mut Care) -> Result<(), String> {
        care.ping_at = Instant::now() + PING_EVERY;
        match answers(client).await {
            Answers::Yes => {
                care.misses = 0;
                if care.fault.is_some() {
                    care.lists.wanted();
                }
                self.now_doing(care.fault.as_deref());
                Ok(())
            }
            Answers::No(why) if care.misses + 1 < MOST_MISSES => {
                care.misses += 1;
                care.ping_at = Instant::now() + PING_AGAIN;
                self.now_doing(Some(&why));
                Ok(())
            }
            Answers::No(why) | Answers::NeverAgain(why) => Err(why),
        }
    }

    /// Asks again what it has. The error is that it is gone.
    async fn list(&mut self, client: &Client, care: &mut Care) -> Result<(), String> {
        let started = Instant::now();
        let learnt = tokio::select! {
            learnt = learn::learn(&self.inner, client) => learnt,
            error = client.closed() => return Err(error.to_string()),
        };
        care.lists.done(started.elapsed());
        care.fault = learnt.unwrap_or_else(|trouble| Some(trouble.why().to_owned()));
        if care.misses == 0 {
            self.now_doing(care.fault.as_deref());
        }
        Ok(())
    }

    /// `isolate`: sessions connect for themselves; here is seen to what is left of them.
    async fn host_sessions(&mut self) {
        self.now_doing(None);
        let mut lists = NextList::new();
        let mut sweep_at = Instant::now() + PING_EVERY;
        loop {
            let inner = self.inner.clone();
            let list_at: OptionFuture<_> = lists.at.map(sleep_until).into();
            tokio::select! {
                () = inner.signals.changed.notified() => lists.wanted(),
                Some(()) = list_at => {
                    let started = Instant::now();
                    if let Some(client) = inner.sessions.any() {
                        let fault = learn::learn(&inner, &client).await.unwrap_or_else(|trouble| Some(trouble.why().into()));
                        self.now_doing(fault.as_deref());
                    }
                    lists.done(started.elapsed());
                }
                () = sleep_until(sweep_at) => {
                    sweep_at = Instant::now() + PING_EVERY;
                    for client in inner.sessions.take_idle() {
                        inner.parts.tasks.spawn("upstream session", async move { close(&client).await });
                    }
                }
                order = self.orders.recv() => match order {
                    Some(Order::Check(reply)) => drop(reply),
                    Some(Order::Reconnect) | None => {
                        let all = inner.sessions.take_all();
                        join_all(all.iter().map(close)).await;
                        return;
                    }
                },
            }
        }
    }
}
