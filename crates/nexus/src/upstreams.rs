//! The upstream servers of a running hub: what mcp.json says of them is read, kept current and put into force.

mod attach;
mod farewell;
pub mod orders;
mod watch;
mod witness;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::future::join_all;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{error, info, warn};

use nexus_core::audit::Sink;
use nexus_core::catalogue::Catalogue;
use nexus_core::tasks::Tasks;
use nexus_mcp::upstream::config::Source;
use nexus_mcp::upstream::offers::Offers;
use nexus_mcp::upstream::pins::Memory;
use nexus_mcp::upstream::registry::{Agreement, Entry, Faulty, Registry, Standard};
use nexus_mcp::upstream::supervisor::{Parts, State, Upstream};

pub use farewell::Farewell;

use crate::config::mcp::{self, Places, Reading};
use crate::config::{Env, Loaded};
use crate::logins::Logins;
use crate::store::Store;
use crate::store::upstreams::{Agreed, Upstreams as Kept};
use witness::Recorder;

/// How long a start waits for tools of servers.
const FIRST_LISTING: Duration = Duration::from_secs(2);

/// Who starts servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The holder of the data folder: they run from the start.
    Holder,
    /// A door beside it: each is started when somebody behind this door needs it.
    Beside,
}

/// Whose tools are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// Of servers that were met before, whether they can be reached now or not.
    Known,
    All,
}

/// All servers, with everything that keeps them current.
pub struct Upstreams {
    pub registry: Registry,
    pub offers: Arc<Offers>,
    kept: Kept,
    places: Places,
    allow_private: Vec<String>,
    env: Env,
    audit: Arc<dyn Sink>,
    role: OnceLock<Role>,
    reading: Mutex<Arc<Reading>>,
    /// Those of which it was said that they wait for a yes.
    waiting: Mutex<BTreeSet<String>>,
    /// What was read is put into force in the order of reading.
    turn: Semaphore,
}

impl std::fmt::Debug for Upstreams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstreams").field("registry", &self.registry).finish_non_exhaustive()
    }
}

impl Upstreams {
    /// None of them is started before [`start`](Self::start).
    pub fn new(
        loaded: &Loaded,
        env: &Env,
        store: &Store,
        home: &str,
        audit: Arc<dyn Sink>,
        tasks: &Tasks,
    ) -> Result<Arc<Self>> {
        let kept = Kept::new(store.clone(), home);
        let logins = Arc::new(Logins::new(&loaded.data, audit.clone(), tasks.clone()));
        let connectors = Standard::new(tasks.clone()).recorded(audit.clone()).with_credentials(logins);
        let mut parts = Parts::new(Arc::new(connectors), Arc::new(kept.clone()), tasks.clone());
        parts.witness = Arc::new(Recorder::new(audit.clone()));
        Ok(Arc::new(Self {
            registry: Registry::new(parts),
            offers: Offers::new(tasks.clone()),
            kept,
            places: Places::of(&loaded.config, env).context("the working folder")?,
            allow_private: mcp::allow_private(&loaded.config),
            env: env.clone(),
            audit,
            role: OnceLock::new(),
            reading: Mutex::default(),
            waiting: Mutex::default(),
            turn: Semaphore::new(1),
        }))
    }

    /// Gives their tools to the catalogue, and keeps them as the files say until the hub ends. Comes back when what the
    /// files say is in force.
    pub async fn start(self: &Arc<Self>, role: Role, catalogue: &Arc<Catalogue>, tasks: &Tasks) {
        if self.role.set(role).is_err() {
            return;
        }
        // So far only our own tools are there.
        let own = catalogue.specs();
        self.registry.reserve(own.iter().flat_map(|spec| spec.aliases.iter().chain([&spec.name]).cloned()));
        let attaching = attach::attach(self.registry.clone(), self.offers.clone(), catalogue.clone(), tasks.clone());
        let stop = tasks.stopping();
        tasks.spawn("upstream tools", async move {
            tokio::select! {
                () = attaching => {}
                () = stop.cancelled() => {}
            }
        });
        let watch = watch::Watch::begin(self.clone()).await;
        tasks.spawn("mcp.json", watch.run(tasks.stopping()));
    }

    /// Waits a moment until the first listing has their tools: whoever lists once, at the start, sees them.
    pub async fn offered(&self, whose: Offered) {
        let all = self.registry.all();
        let waiting = all.iter().map(|upstream| async move {
            if whose == Offered::Known && !self.is_known(upstream).await {
                return;
            }
            let (mut offers, mut conditions) = (upstream.offers(), upstream.conditions());
            tokio::select! {
                _ = offers.wait_for(|offer| !offer.tools.is_empty()) => {}
                _ = conditions.wait_for(|now| !matches!(now.state, State::Connecting)) => {}
            }
            upstream.is_offered().await;
        });
        // One that takes longer comes with a notification.
        let _ = timeout(FIRST_LISTING, join_all(waiting)).await;
    }

    async fn is_known(&self, upstream: &Upstream) -> bool {
        self.kept.pins(upstream.name()).await.is_ok_and(|pins| !pins.is_empty())
    }

    /// Reads all files and puts them into force.
    pub async fn refresh(&self) -> Result<()> {
        let _turn = self.turn.acquire().await?;
        let (places, allow_private, env) = (self.places.clone(), self.allow_private.clone(), self.env.clone());
        let mut reading = tokio::task::spawn_blocking(move || mcp::read(&places, &allow_private, &env)).await?;
        let agreed = self.kept.agreed().await.context("who was agreed to")?;
        let last = self.reading.lock().clone();
        reading.keep(&last);
        tell(&reading, &last);
        let entries: Vec<Entry> = reading.servers.values().map(|server| self.entry(server, &agreed)).collect();
        self.tell_of_waiting(&entries);
        self.registry.note_faulty(faulty(&reading));
        *self.reading.lock() = Arc::new(reading);
        self.registry.apply(entries).await;
        Ok(())
    }

    fn entry(&self, server: &mcp::Server, agreed: &BTreeSet<Agreed>) -> Entry {
        let mut config = server.config.clone();
        config.lazy |= self.role.get() == Some(&Role::Beside);
        let yes = || agreed.contains(&agreement(server));
        let agreement = match &config.source {
            Source::Project { .. } if !yes() => Agreement::Missing,
            Source::Project { .. } | Source::Home { .. } | Source::Program => Agreement::Given,
        };
        Entry { config, agreement }
    }

    /// Warns of servers that wait for a yes, when there is another one.
    fn tell_of_waiting(&self, entries: &[Entry]) {
        let waits = |entry: &&Entry| {
            entry.agreement == Agreement::Missing && entry.config.enabled && entry.config.endpoint.is_some()
        };
        let now: BTreeSet<String> = entries.iter().filter(waits).map(|entry| entry.config.name.to_string()).collect();
        let before = std::mem::replace(&mut *self.waiting.lock(), now.clone());
        if now.difference(&before).next().is_none() {
            return;
        }
        let (names, first) = (now.iter().map(String::as_str).collect::<Vec<_>>().join(", "), now.first());
        let first = first.map_or("NAME", String::as_str);
        warn!(
            "servers of a project folder wait for your yes: {names}; `nexus mcp connect {first}` shows the entry first"
        );
    }

    /// What `/health` says of them.
    pub fn health(&self) -> Value {
        let mut upstreams = Map::new();
        for status in self.registry.statuses(None) {
            let told = json!({ "state": status.state, "tools": status.tools, "held": status.held.len() });
            upstreams.entry(status.name).or_insert(told);
        }
        for name in self.reading.lock().broken.keys() {
            upstreams.entry(name.as_str()).or_insert_with(|| json!({ "state": "faulty", "tools": 0, "held": 0 }));
        }
        Value::Object(upstreams)
    }
}

fn agreement(server: &mcp::Server) -> Agreed {
    (server.file.display().to_string(), server.config.name.to_string(), server.digest.clone())
}

/// Entries of which nothing runs.
fn faulty(reading: &Reading) -> Vec<Faulty> {
    let unused = reading.broken.iter().filter(|(name, _)| !reading.servers.contains_key(*name));
    let faulty = unused.map(|(name, broken)| Faulty {
        name: name.clone(),
        why: broken.why.clone(),
        source: format!("{}:{}", broken.file.display(), broken.line),
    });
    faulty.collect()
}

/// Logs what is new of what is wrong.
fn tell(reading: &Reading, last: &Reading) {
    for fault in reading.faults.iter().filter(|fault| !last.faults.contains(fault)) {
        error!("{fault}");
    }
    for warning in reading.warnings.iter().filter(|warning| !last.warnings.contains(warning)) {
        warn!("{warning}");
    }
    if reading.faults.is_empty() && !last.faults.is_empty() {
        info!("mcp.json has no faults any more");
    }
}
