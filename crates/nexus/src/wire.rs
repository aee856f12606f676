//! Puts the parts together: store, journal, tools, hub, keys. Both `serve` and `stdio` start here.

mod ending;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use nexus_core::approval;
use nexus_core::audit::{Event, Nowhere, Row, Sink};
use nexus_core::catalogue::Catalogue;
use nexus_core::hub::{Hub, Policy};
use nexus_core::principal::Level;
use nexus_core::provider::{Origin, Own, Provider};
use nexus_core::redact;
use nexus_core::tasks::Tasks;
use nexus_core::tool::{Family, Listed};
use nexus_link::Links;
use nexus_mcp::conformance::Fixtures;
use nexus_mcp::front::auth::{Keys, Rate};
use nexus_mcp::front::identity;
use nexus_mcp::server::{Extras, Server};
use nexus_tools::{Settings, Toolbox, families};

use crate::agents::opening::Opening;
use crate::agents::webhook::{self, Hooks};
use crate::agents::{self, Bridge, Queue, Targets, telegram};
use crate::audit::Journal;
use crate::audit::alive::{self, Alive};
use crate::audit::configuration;
use crate::audit::log;
use crate::audit::loki::{Loki, Shipper, Standing};
use crate::audit::notes::Notes;
use crate::audit::upkeep::{Retention, Upkeep};
use crate::config::env::EnvVar;
use crate::config::values::{ApprovalMode, Protocol, Text};
use crate::config::{Config, Env, Loaded};
use crate::control::Behind;
use crate::keyring::Keyring;
use crate::links::{self, Doorway};
use crate::private;
use crate::store::Store;
use crate::store::chain::Chain;
use crate::upstreams::{Farewell, Role, Upstreams};

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A hub without doors.
#[derive(Debug)]
pub struct Assembly {
    pub hub: Arc<Hub>,
    pub server: Arc<Server>,
    pub keyring: Arc<Keyring>,
    pub journal: Arc<Journal>,
    pub tasks: Tasks,
    pub upstreams: Arc<Upstreams>,
    pub agents: Arc<Bridge>,
    pub links: Arc<Links>,
    /// Computers stay linked until the calls that go to them have ended.
    link_tasks: Tasks,
    /// The queue's writer ends after the calls that write to it.
    agent_tasks: Tasks,
    /// Servers end after the calls that go to them.
    upstream_tasks: Tasks,
    store: Store,
    /// The journal ends after everything that writes to it.
    journal_tasks: Tasks,
    /// Cancelled when this process no longer does the background work of its data folder.
    pub background: CancellationToken,
    home: String,
    /// Where shipping to Loki stands, and who does it: the holder, where there is a Loki.
    standing: Arc<Standing>,
    shipper: OnceLock<Arc<Shipper>>,
    _alive: Alive,
    started: Instant,
}

/// Tools that are there only for tests of the protocol and of speed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rig {
    pub conformance: bool,
    pub dummies: usize,
    /// Calls are not recorded: to measure what recording costs.
    pub unrecorded: bool,
}

/// Starts everything that has no door.
pub async fn assemble(loaded: &Loaded, env: &Env, rig: Rig) -> Result<Assembly> {
    let Loaded { config, data, .. } = loaded;
    private::folder(data).with_context(|| format!("the data folder {}", data.display()))?;
    learn_secrets(config, env);
    let store = Store::open(data, config.store.as_ref().map(|url| url.expose())).await?;
    let journal = Arc::new(Journal::default());
    let (tasks, upstream_tasks, journal_tasks) = (Tasks::new(), Tasks::new(), Tasks::new());
    let (agent_tasks, link_tasks) = (Tasks::new(), Tasks::new());
    let home = alive::home(data).context("the name of the data folder")?;
    let chain = Chain::new(&home);
    let alive = Alive::declare(data, &chain.id).context("the lock of this process")?;
    journal.note_in(Notes::open(data, &chain.id).context("the notes of this process")?);
    journal_tasks.spawn("journal", journal.clone().write_to(store.clone(), chain, journal_tasks.stopping()));
    count_rows(&store, &journal, &tasks);
    let audit: Arc<dyn Sink> = if rig.unrecorded { Arc::new(Nowhere) } else { journal.clone() };

    let catalogue = Arc::new(Catalogue::default());
    tasks.spawn("built-in tools", until_stopped(&tasks, catalogue.attach(Arc::new(built_in(config, data, env)?))));
    let upstreams = Upstreams::new(loaded, env, &store, &home, audit.clone(), &upstream_tasks)?;
    let managing = Arc::new(nexus_mcp::upstream::tools::tools(&upstreams.registry)?);
    tasks.spawn("tools about upstreams", until_stopped(&tasks, catalogue.attach(managing)));
    let links = Links::new(links::settings(config), audit.clone());
    let link_tools = Arc::new(nexus_link::tools::tools(&links)?);
    tasks.spawn("tools about computers", until_stopped(&tasks, catalogue.attach(link_tools)));
    let mut extras: Arc<dyn Extras> = upstreams.offers.clone();
    if rig.conformance {
        let fixtures = Fixtures::new(rig.dummies)?;
        tasks.spawn("fixtures", until_stopped(&tasks, catalogue.attach(fixtures.clone())));
        extras = fixtures;
    }

    let policy = Policy {
        read_only: config.server.read_only,
        always_ask: config.approval.always_ask.0.clone(),
        mode: approval_mode(config.approval.mode),
        unredacted: config.audit.unredacted_tools.0.clone(),
        calls_per_session: config.server.limits.calls_per_session.get(),
    };
    tell_of_unredacted(&policy, &*audit);
    let hub = Arc::new(Hub::new(catalogue, audit, policy));
    let gate_tools = Arc::new(approval::tools(hub.approvals.clone())?);
    tasks.spawn("gate tools", until_stopped(&tasks, hub.catalogue.attach(gate_tools)));
    let log = Arc::new(log::tools(log::Shelf { store: store.clone(), journal: journal.clone() })?);
    tasks.spawn("the record's tool", until_stopped(&tasks, hub.catalogue.attach(log)));
    let closing = CancellationToken::new();
    let queue = Queue::start(store.clone(), &agents::short(&home), data, &agent_tasks);
    let queue = queue.context("the queue of the agents")?;
    queue.record_to(hub.audit.clone());
    let agents = Arc::new(Bridge::new(queue, Targets::of(&config.agents), closing.clone()));
    let agent_tools = Arc::new(agents::tools::tools(&agents)?);
    tasks.spawn("tools about tasks", until_stopped(&tasks, hub.catalogue.attach(agent_tools)));
    let server = Arc::new(Server::new(hub.clone(), protocol(config.server.protocol), VERSION, closing, Some(extras)));
    let rate =
        Rate { per_second: config.server.rate_limit.per_second.get(), burst: config.server.rate_limit.burst.get() };
    let keyring = Arc::new(Keyring::new(config.clone(), store.clone(), data, Arc::new(Keys::new(rate))));
    keyring.refresh().await?;
    Ok(Assembly {
        hub,
        server,
        keyring,
        journal,
        tasks,
        upstreams,
        agents,
        links,
        link_tasks,
        agent_tasks,
        upstream_tasks,
        store,
        journal_tasks,
        background: CancellationToken::new(),
        home,
        standing: Arc::default(),
        shipper: OnceLock::new(),
        _alive: alive,
        started: Instant::now(),
    })
}

impl Assembly {
    /// Starts what only the holder of the data folder does.
    pub async fn start_background(&self, loaded: &Loaded) {
        let audit = &loaded.config.audit;
        let upkeep = Upkeep {
            data: loaded.data.clone(),
            home: self.home.clone(),
            store: self.store.clone(),
            journal: self.journal.clone(),
            retention: Retention { keep: audit.keep.0, max_size: audit.max_size.0 },
            ships: loaded.config.environment.loki_url.is_some(),
        };
        self.tasks.spawn("upkeep of the record", until_stopped(&self.tasks, upkeep.run(self.background.clone())));
        let levels = self.keyring.clone().let_levels_fall(self.journal.clone(), self.background.clone());
        self.tasks.spawn("levels for a time", until_stopped(&self.tasks, levels));
        if loaded.config.store.is_some() {
            let follow = self.keyring.clone().follow_others(self.background.clone());
            self.tasks.spawn("keys of other hubs", until_stopped(&self.tasks, follow));
        }
        let (config, home) = (loaded.config.clone(), self.home.clone());
        let (store, journal) = (self.store.clone(), self.journal.clone());
        self.tasks.spawn("changes of configuration", async move {
            if let Err(error) = configuration::record_changes(&config, &home, &store, &*journal).await {
                warn!("whether the configuration has changed was not recorded: {error:#}");
            }
        });
        let (bridge, keep) = (self.agents.clone(), loaded.config.agents.keep.0);
        let tend = bridge.queue.clone().tend(keep, self.background.clone());
        self.tasks.spawn("upkeep of the queue", until_stopped(&self.tasks, tend));
        let opening = Opening {
            has_bot: telegram::is_expected(&loaded.config, &bridge.targets),
            bridge: bridge.clone(),
            store: self.store.clone(),
            home: agents::short(&self.home),
        };
        self.tasks.spawn("changes of targets", until_stopped(&self.tasks, opening.run(self.background.clone())));
        let over = self.background.clone();
        let counting = async move {
            over.run_until_cancelled(bridge.tally.keep(&bridge)).await;
        };
        self.tasks.spawn("numbers of tasks", until_stopped(&self.tasks, counting));
        if let Some(hooks) = self.hooks(&loaded.config) {
            hooks.start(&self.hub, &self.tasks, &self.background);
        }
        telegram::start(&loaded.config, self.telegram_world()).await;
        self.ship(&loaded.config);
        self.upstreams.start(Role::Holder, &self.hub.catalogue, &self.tasks).await;
    }

    /// Those who carry out what comes in at the control socket.
    pub fn behind_the_socket(&self) -> Behind {
        Behind {
            keyring: self.keyring.clone(),
            hub: self.hub.clone(),
            upstreams: self.upstreams.clone(),
            links: self.links.clone(),
        }
    }

    /// Lets computers in, as the holder of the data folder. Gives where.
    pub fn open_links(&self, doorway: Doorway, loaded: &Loaded) -> io::Result<Option<SocketAddr>> {
        links::start(&self.links, doorway, loaded, &self.link_tasks, self.background.clone())
    }

    /// The targets that tasks are posted to, and that post back.
    pub fn hooks(&self, config: &Config) -> Option<Arc<Hooks>> {
        webhook::hooks(&self.agents, config.environment.webhook_secret.as_ref(), &self.hub)
    }

    fn telegram_world(&self) -> telegram::World {
        telegram::World {
            hub: self.hub.clone(),
            bridge: self.agents.clone(),
            store: self.store.clone(),
            home: agents::short(&self.home),
            audit: self.journal.clone(),
            tasks: self.tasks.clone(),
            background: self.background.clone(),
        }
    }

    /// Where sessions are recorded; upstream servers hear from it when one ends.
    pub fn sessions_record(&self) -> Arc<dyn Sink> {
        Arc::new(Farewell { audit: self.journal.clone(), registry: self.upstreams.registry.clone() })
    }

    /// Ships the record where there is a Loki. A client that cannot be made does not keep the hub from starting.
    fn ship(&self, config: &Config) {
        let Some(url) = &config.environment.loki_url else { return };
        let text = |text: &Text| text.as_ref().to_owned();
        let labels = config.loki.audit_labels.iter().map(|(name, value)| (name.as_ref(), value.as_ref()));
        let login = (config.environment.loki_user.as_ref().map(text), config.environment.loki_password.clone());
        let loki = Loki::new(url.as_ref(), login, config.loki.tenant.as_ref().map(text), labels, self.journal.clone());
        let loki = match loki {
            Ok(loki) => loki,
            Err(error) => return error!("the audit record is not shipped: {}", nexus_core::Chain(&error)),
        };
        let (store, home, standing) = (self.store.clone(), self.home.clone(), self.standing.clone());
        let shipper = Shipper::new(store, home, loki, self.journal.clone(), standing, self.background.clone());
        let shipper = self.shipper.get_or_init(|| Arc::new(shipper)).clone();
        self.tasks.spawn("shipping to Loki", shipper.run(self.tasks.stopping()));
    }

    /// What `GET /health` tells: no secrets, cheap.
    pub fn health(&self, sessions: &Arc<identity::Sessions>) -> Box<dyn Fn() -> Value + Send + Sync> {
        let (started, sessions, journal, hub) =
            (self.started, sessions.clone(), self.journal.clone(), self.hub.clone());
        let (standing, upstreams, agents) = (self.standing.clone(), self.upstreams.clone(), self.agents.clone());
        let links = self.links.clone();
        Box::new(move || {
            let links = links::health(&links);
            json!({
                "ok": !journal.is_failing(),
                "version": VERSION,
                "uptime_s": started.elapsed().as_secs(),
                "sessions": sessions.count(),
                "tools": hub.catalogue.specs().iter().filter(|spec| spec.listed == Listed::Everyone).count(),
                "computers": links["computers"],
                "links": links,
                "upstreams": upstreams.health(),
                "agents": agents.tally.now(),
                "audit": {
                    "rows": journal.rows(),
                    "unwritten": journal.unwritten(),
                    "lost": journal.lost(),
                    "unshipped": standing.unshipped(),
                    "aside": standing.aside(),
                    "lag_s": standing.lag_s(),
                },
            })
        })
    }
}

/// From here on no secret of the hub's own is shown, stored or logged, whatever it stands in. Keys are learnt where
/// they are made and read.
fn learn_secrets(config: &Config, env: &Env) {
    let store = config.store.as_ref().and_then(|url| url.password().map(str::to_owned));
    let variables = env.secrets().filter(|(variable, _)| *variable != EnvVar::NexusStore);
    let variables = variables.map(|(variable, secret)| (variable.name(), secret.expose().to_owned()));
    let store = store.map(|password| ("the password of the store", password));
    for (name, secret) in variables.chain(store) {
        if redact::can_be_learnt(&secret) {
            redact::learn([secret]);
        } else {
            warn!("{name} is too short to be known by its value: it is hidden only where something announces it");
        }
    }
}

/// The operator wants some output as it is: the record says so at every start.
fn tell_of_unredacted(policy: &Policy, audit: &dyn Sink) {
    if policy.unredacted.is_empty() {
        return;
    }
    let tools = policy.unredacted.iter().collect::<Vec<_>>().join(", ");
    warn!("the output of these tools is not redacted: {tools}");
    audit.post(Row::new(Event::Unredacted).detail(tools));
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
    for key in keyring.list().await?.iter().filter(|key| key.raised.unwrap_or(key.level) == Level::Yolo) {
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
        approval: approval_mode(config.approval.mode),
        unredacted: config.audit.unredacted_tools.0.clone(),
    };
    Ok(Family::new(Origin::Own(Own::BuiltIn), Arc::new(Toolbox::new(settings)), families())?)
}

/// Files with the hub's own secrets, wherever they lie: `read_file` is free, and must not give them away.
fn secret_files(config: &Config, data: &Path, env: &Env) -> Vec<PathBuf> {
    let ansible = config.ansible.iter().filter_map(|ansible| ansible.ssh_key_path.as_ref());
    let nodes = config.nodes.values().filter_map(|node| node.key.as_ref());
    let telegram = config.agents.telegram.credentials_file.as_ref();
    let webhooks = config.agents.targets.values().filter_map(|target| target.webhook.as_ref()?.secret_file.as_ref());
    let named = ansible.chain(nodes).chain(telegram).chain(webhooks).map(|path| AsRef::<Path>::as_ref(path).to_owned());
    let made = ["key", "nexus.db"].map(|name| data.join(name));
    env.secret_files().into_iter().chain(named).chain(made).collect()
}

fn approval_mode(mode: ApprovalMode) -> approval::Mode {
    match mode {
        ApprovalMode::Ask => approval::Mode::Ask,
        ApprovalMode::Chat => approval::Mode::Chat,
        ApprovalMode::Operator => approval::Mode::Operator,
    }
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
