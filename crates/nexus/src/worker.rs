//! The worker: serves a target from the agent's machine. Claims tasks, runs a command for each, tells the hub what it
//! says and how it ends.
//!
//! All that is said to the hub is said by the tools that any agent has. Each claim has a name that is chosen before it
//! is made, each report a name of its own: what has to be said again, because an answer was lost, happens once.

mod backoff;
mod beat;
mod command;
mod errand;
mod lines;
mod link;
mod outbox;
mod questions;
pub mod socket;
mod tail;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use uuid::Uuid;

use nexus_core::tasks::Tasks;

use self::backoff::Backoff;
use self::beat::{Beat, Why};
use self::errand::Errand;
use self::link::{Link, PATIENCE};
use self::socket::Folder;
use crate::config::env::Secret;

pub use self::command::{Command, Input};
pub use self::link::Place;

/// How long the hub may wait with its answer when there is no task.
const CLAIMING: Duration = Duration::from_secs(60);

/// An answer without a task that came sooner: the hub ends, perhaps.
const TOO_SOON: Duration = Duration::from_millis(500);

/// When the worker ends: for the last reports, beyond what the commands have to end.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// When the worker ends: for a look whether a claim was given that nobody heard of.
const LAST_LOOK: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Settings {
    pub target: String,
    pub place: Place,
    pub key: Secret,
    /// Tasks at a time.
    pub parallel: usize,
    /// How long the hub keeps a task for a worker that it does not hear.
    pub lease: Duration,
    /// Where the sockets go, if the user has a folder for such things.
    pub runtime: Option<PathBuf>,
    pub command: Command,
}

#[derive(Debug)]
pub struct Worker {
    settings: Settings,
    link: Link,
    beat: Beat,
    sockets: Folder,
    /// Whose turn it is to wait for a task: a key has only so many calls at a time, and reports are among them.
    turn: Semaphore,
    /// Cancelled when the worker is to end.
    stopping: CancellationToken,
}

impl Worker {
    pub fn new(settings: Settings, tasks: &Tasks, stopping: CancellationToken) -> Result<Arc<Self>> {
        let link = Link::new(settings.place.clone(), settings.key.clone(), tasks.clone());
        let beat = Beat::new(&settings.target, settings.lease);
        let sockets = Folder::make(settings.runtime.clone()).context("making a folder for sockets")?;
        Ok(Arc::new(Self { settings, link, beat, sockets, turn: Semaphore::new(1), stopping }))
    }

    /// Serves until it is told to stop, and then until what runs has ended.
    pub async fn run(self: Arc<Self>, tasks: &Tasks) -> Result<()> {
        let target = &self.settings.target;
        let url = tokio::select! {
            greeted = self.link.greet(target) => {
                greeted.map_err(|refused| anyhow!("the target `{target}` cannot be served: {refused}"))?
            }
            () = self.stopping.cancelled() => return Ok(()),
        };
        let many = match self.settings.parallel {
            1 => "one task at a time".to_owned(),
            many => format!("{many} tasks at a time"),
        };
        info!("connected to {url}; serving `{target}`, {many}");
        let beating = self.clone();
        let beat = tasks.spawn("heartbeat", async move { beating.beat.run(&beating.link).await });
        let places: Vec<_> = (0..self.settings.parallel)
            .map(|_| {
                let worker = self.clone();
                tasks.spawn("place", async move { worker.serve().await })
            })
            .collect();
        for place in places {
            let _ = place.await;
        }
        beat.abort();
        Ok(())
    }

    /// One place: a task after the other.
    async fn serve(&self) {
        while let Some(errand) = self.claim().await {
            let kept = self.beat.keep(&errand.claim);
            let overdue = async {
                self.stopping.cancelled().await;
                kept.stop.now(Why::Worker);
                sleep(self.settings.command.grace * 2 + LAST_WORDS).await;
            };
            tokio::select! {
                () = self.carry_out(&errand, &kept.stop) => {}
                () = overdue => warn!("the hub has not heard how {} ended", errand.task),
            }
        }
    }

    /// The next task. None: the worker ends.
    async fn claim(&self) -> Option<Errand> {
        let _turn = self.turn.acquire().await.ok().filter(|_| !self.stopping.is_cancelled())?;
        let (mut refusals, mut said) = (Backoff::default(), None);
        loop {
            // Chosen before it is sent: asked again under the same name, the hub gives the same task.
            let claim = Uuid::new_v4().to_string();
            let arguments = json!({
                "target": self.settings.target, "claim": claim,
                "wait_seconds": CLAIMING.as_secs(), "lease_seconds": self.settings.lease.as_secs(),
            });
            let asked = Instant::now();
            let reply = tokio::select! {
                biased;
                () = self.stopping.cancelled() => {
                    let _ = timeout(LAST_LOOK, self.give_up(&claim)).await;
                    return None;
                }
                reply = self.link.call("claim_task", &arguments, CLAIMING + PATIENCE) => reply,
            };
            let pause = match reply {
                Ok(reply) => match Errand::read(&reply, &claim) {
                    Some(errand) => return Some(errand),
                    None if asked.elapsed() < TOO_SOON => TOO_SOON,
                    None => continue,
                },
                Err(refused) => {
                    if said.replace(refused.clone()).as_ref() != Some(&refused) {
                        warn!("the hub gives no task: {refused}; trying again until it does");
                    }
                    refusals.next()
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = self.stopping.cancelled() => return None,
            }
        }
    }

    /// The claim may have been given in the very moment in which nobody listened any more.
    async fn give_up(&self, claim: &str) {
        let claims = json!({ "target": self.settings.target, "claims": [claim] });
        let Ok(heard) = self.link.call("peek_tasks", &claims, PATIENCE).await else { return };
        for given in heard["running"].as_array().into_iter().flatten().filter(|one| one["holds"] == true) {
            let reason = "the worker was stopped before it began";
            let report = json!({ "task": given["id"], "claim": claim, "reason": reason });
            let _ = self.link.call("fail_task", &report, PATIENCE).await;
        }
    }
}
