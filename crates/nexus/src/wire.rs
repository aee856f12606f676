//! Puts the parts together: store, journal, tools, hub, keys. Both `serve` and `stdio` start here.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use nexus_core::audit::{Event, Row, Sink};
use nexus_core::catalogue::Catalogue;
use nexus_core::hub::{Hub, Policy};
use nexus_core::principal::Level;
use nexus_core::provider::{Origin, Own, Provider};
use nexus_core::tasks::Tasks;
use nexus_core::tool::Family;
use nexus_mcp::conformance::Fixtures;
use nexus_mcp::front::auth::{Keys, Rate};
use nexus_mcp::front::identity;
use nexus_mcp::server::{Extras, Server};
use nexus_tools::{Settings, Toolbox, families};

use crate::audit::Journal;
use crate::config::values::Protocol;
use crate::config::{Config, Env, Loaded};
use crate::keyring::Keyring;
use crate::private;
use crate::store::Store;

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How long calls that are running at the end may take.
const LAST_CALLS: Duration = Duration::from_secs(10);
/// What was cut off may take this long to say so.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
const LAST_ROWS: Duration = Duration::from_secs(5);

/// A hub without doors.
#[derive(Debug)]
pub struct Assembly {
    pub hub: Arc<Hub>,
    pub server: Arc<Server>,
    pub keyring: Arc<Keyring>,
    pub journal: Arc<Journal>,
    pub tasks: Tasks,
    store: Store,
    /// The journal ends after everything that writes to it.
    journal_tasks: Tasks,
    started: Instant,
}

/// Tools that are there only for tests of the protocol and of speed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rig {
    pub conformance: bool,
    pub dummies: usize,
}

/// Starts everything that has no door.
pub async fn assemble(loaded: &Loaded, env: &Env, rig: Rig) -> Result<Assembly> {
    let Loaded { config, data, .. } = loaded;
    private::folder(data).with_context(|| format!("the data folder {}", data.display()))?;
    let store = Store::open(data).await?;
    let journal = Arc::new(Journal::default());
    let (tasks, journal_tasks) = (Tasks::new(), Tasks::new());
    journal_tasks.spawn("journal", journal.clone().write_to(store.clone(), journal_tasks.stopping()));
    count_rows(&store, &journal, &tasks);
    let audit: Arc<dyn Sink> = journal.clone();

    let catalogue = Arc::new(Catalogue::default());
    tasks.spawn("built-in tools", until_stopped(&tasks, catalogue.attach(Arc::new(built_in(config, data, env)?))));
    let mut extras: Option<Arc<dyn Extras>> = None;
    if rig.conformance {
        let fixtures = Fixtures::new(rig.dummies)?;
        tasks.spawn("fixtures", until_stopped(&tasks, catalogue.attach(fixtures.clone())));
        extras = Some(fixtures);
    }

    let policy = Policy {
        read_only: config.server.read_only,
        always_ask: config.approval.always_ask.0.clone(),
        calls_per_session: config.server.limits.calls_per_session.get(),
    };
    let hub = Arc::new(Hub::new(catalogue, audit, policy));
    let closing = CancellationToken::new();
    let server = Arc::new(Server::new(hub.clone(), protocol(config.server.protocol), VERSION, closing, extras));
    let rate =
        Rate { per_second: config.server.rate_limit.per_second.get(), burst: config.server.rate_limit.burst.get() };
    let keyring = Arc::new(Keyring::new(config.clone(), store.clone(), data, Arc::new(Keys::new(rate))));
    keyring.refresh().await?;
    Ok(Assembly { hub, server, keyring, journal, tasks, store, journal_tasks, started: Instant::now() })
}

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
        self.hub.audit.post(Row::new(Event::HubStopped).detail(format!("pid {}", std::process::id())));
        if !self.journal_tasks.finish(LAST_ROWS).await {
            warn!("{} audit rows could not be written", self.journal.unwritten());
        }
        if timeout(LAST_ROWS, self.store.close()).await.is_err() {
            warn!("the store did not close in time");
        }
        calm
    }

    /// What `GET /health` tells: no secrets, cheap.
    pub fn health(&self, sessions: &Arc<identity::Sessions>) -> Box<dyn Fn() -> Value + Send + Sync> {
        let (started, sessions, journal, hub) =
            (self.started, sessions.clone(), self.journal.clone(), self.hub.clone());
        Box::new(move || {
            json!({
                "ok": !journal.is_failing(),
                "version": VERSION,
                "uptime_s": started.elapsed().as_secs(),
                "sessions": sessions.count(),
                "tools": hub.catalogue.specs().len(),
                "computers": 0,
                "upstreams": {},
                "audit": { "rows": journal.rows(), "unwritten": journal.unwritten(), "lost": journal.lost() },
            })
        })
    }
}

/// Counting a long record takes a while; nobody waits for it.
fn count_rows(store: &Store, journal: &Arc<Journal>, tasks: &Tasks) {
    let (store, journal) = (store.clone(), journal.clone());
    let written = journal.rows();
    tasks.spawn("count", async move {
        if let Ok(rows) = store.audit_rows().await {
            journal.count_earlier(u64::try_from(rows).unwrap_or(0).saturating_sub(journal.rows() - written));
        }
    });
}

/// Warns of every key that the gate never asks for.
pub async fn warn_of_yolo(keyring: &Keyring) -> Result<()> {
    for key in keyring.list().await?.iter().filter(|key| key.level == Level::Yolo) {
        warn!(key = key.name, "the key `{}` has the level yolo: its writes run without asking anyone", key.name);
    }
    Ok(())
}

/// The built-in tools as a provider. Also what `nexus docs` describes.
pub fn built_in(config: &Config, data: &Path, env: &Env) -> Result<impl Provider + use<>> {
    let settings = Settings {
        shell: config.shell.program.as_ref().to_owned(),
        output_cap: config.shell.output_cap.get(),
        secret_paths: config.shell.secret_paths.iter().map(|path| path.as_ref().to_owned()).collect(),
        secret_files: secret_files(config, data, env),
        readable_env: config.shell.readable_env.iter().map(|name| name.as_ref().to_owned()).collect(),
        env: env.all().collect(),
        version: VERSION,
        home: env.home(),
        data_dir: Some(data.to_owned()),
        read_only: config.server.read_only,
    };
    Ok(Family::new(Origin::Own(Own::BuiltIn), Arc::new(Toolbox::new(settings)), families())?)
}

/// Files with the hub's own secrets, wherever they lie: `read_file` is free, and must not give them away.
fn secret_files(config: &Config, data: &Path, env: &Env) -> Vec<PathBuf> {
    let ansible = config.ansible.iter().filter_map(|ansible| ansible.ssh_key_path.as_ref());
    let nodes = config.nodes.values().filter_map(|node| node.key.as_ref());
    let telegram = config.agents.telegram.credentials_file.as_ref();
    let named = ansible.chain(nodes).chain(telegram).map(|path| AsRef::<Path>::as_ref(path).to_owned());
    let made = ["key", "nexus.db"].map(|name| data.join(name));
    env.secret_files().into_iter().chain(named).chain(made).collect()
}

fn protocol(protocol: Protocol) -> nexus_mcp::version::Protocol {
    match protocol {
        Protocol::Dual => nexus_mcp::version::Protocol::Dual,
        Protocol::Legacy => nexus_mcp::version::Protocol::Legacy,
        Protocol::Modern => nexus_mcp::version::Protocol::Modern,
    }
}

fn until_stopped<F: Future<Output = ()>>(tasks: &Tasks, work: F) -> impl Future<Output = ()> + use<F> {
    let stop = tasks.stopping();
    async move {
        tokio::select! {
            () = work => {}
            () = stop.cancelled() => {}
        }
    }
}
