//! How a hub ends: everything that others still wait for first, the record last.

use std::time::Duration;

use tokio::time::timeout;
use tracing::warn;

use nexus_core::audit::{Event, Row};

use super::Assembly;

/// How long calls that are running at the end may take.
const LAST_CALLS: Duration = Duration::from_secs(10);
/// What was cut off may take this long to say so.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// Computers are told that the hub ends, and have three seconds to hear it.
const LAST_LINKS: Duration = Duration::from_secs(4);
/// Upstream servers are told to end, then killed, which takes half of this.
const LAST_SERVERS: Duration = Duration::from_secs(8);
/// What was given to the queue is written in one go.
const LAST_TASKS: Duration = Duration::from_secs(5);
const LAST_ROWS: Duration = Duration::from_secs(5);

impl Assembly {
    /// Ends the hub: streams first, then calls in flight, then the record. False: some calls did not end in time.
    pub async fn end(&self) -> bool {
        self.server.closing.cancel();
        let calm = self.tasks.finish(LAST_CALLS).await;
        if !calm {
            let (running, waited) = (self.tasks.running(), LAST_CALLS.as_secs());
            warn!("{running} calls or connections did not end within {waited} s; they are cut off");
            self.hub.ending.cancel();
            self.tasks.finish(LAST_ANSWERS).await;
        }
        if !self.link_tasks.finish(LAST_LINKS).await {
            warn!("some computers were cut off without a word");
        }
        if !self.agent_tasks.finish(LAST_TASKS).await {
            warn!("the queue of the agents was not written to its end");
        }
        if timeout(LAST_SERVERS, self.upstreams.registry.close_all()).await.is_err() {
            warn!("some upstream servers did not end in time; they are killed");
        }
        self.upstream_tasks.finish(LAST_ANSWERS).await;
        let stopped = Row::new(Event::HubStopped).detail(format!("pid {}", std::process::id()));
        match self.shipper.get() {
            // It ships what is written, so the last rows are waited for; its own row comes behind them.
            Some(shipper) => {
                let _ = timeout(LAST_ROWS, self.hub.audit.durable(stopped)).await;
                shipper.last().await;
            }
            None => self.hub.audit.post(stopped),
        }
        if !self.journal_tasks.finish(LAST_ROWS).await {
            warn!("{} audit rows could not be written", self.journal.unwritten());
        }
        if timeout(LAST_ROWS, self.store.close()).await.is_err() {
            warn!("the store did not close in time");
        }
        calm
    }
}
