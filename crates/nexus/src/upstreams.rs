//! The upstream servers of a running hub: what mcp.json says of them is read, kept current and put into force.

mod attach;
mod farewell;
pub mod orders;
mod watch;
mod witness;

use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use tracing::{error, info, warn};

use nexus_core::audit::Sink;
use nexus_core::catalogue::Catalogue;
use nexus_core::tasks::Tasks;
use nexus_mcp::upstream::config::Source;
use nexus_mcp::upstream::offers::Offers;
use nexus_mcp::upstream::registry::{Agreement, Entry, Registry, Standard};
use nexus_mcp::upstream::supervisor::Parts;

pub use farewell::Farewell;

use crate::config::mcp::{self, Places, Reading};
use crate::config::{Env, Loaded};
use crate::logins::Logins;
use crate::store::Store;
use crate::store::upstreams::{Agreed, Upstreams as Kept};
use witness::Recorder;

/// Who starts servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The holder of the data folder: they run from the start.
    Holder,
    /// A door beside it: each is started when somebody behind this door needs it.
    Beside,
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
            turn: Semaphore::new(1),
        }))
    }

    /// Gives their tools to the catalogue, and keeps them as the files say until the hub ends.
    pub fn start(self: &Arc<Self>, role: Role, catalogue: &Arc<Catalogue>, tasks: &Tasks) {
        if self.role.set(role).is_err() {
            return;
        }
        let attaching = attach::attach(self.registry.clone(), self.offers.clone(), catalogue.clone(), tasks.clone());
        let stop = tasks.stopping();
        tasks.spawn("upstream tools", async move {
            tokio::select! {
                () = attaching => {}
                () = stop.cancelled() => {}
            }
        });
        tasks.spawn("mcp.json", watch::watch(self.clone(), tasks.stopping()));
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
        let entries = reading.servers.values().map(|server| self.entry(server, &agreed)).collect();
        *self.reading.lock() = Arc::new(reading);
        self.registry.apply(entries).await;
        Ok(())
    }

    fn entry(&self, server: &mcp::Server, agreed: &std::collections::BTreeSet<Agreed>) -> Entry {
        let mut config = server.config.clone();
        config.lazy |= self.role.get() == Some(&Role::Beside);
        let yes = || agreed.contains(&agreement(server));
        let agreement = match &config.source {
            Source::Project { .. } if !yes() => Agreement::Missing,
            Source::Project { .. } | Source::Home { .. } | Source::Program => Agreement::Given,
        };
        Entry { config, agreement }
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
