//! `nexus serve`: the daemon.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;
use tracing::{info, warn};

use nexus_core::audit::{Event, Row, Sink};
use nexus_core::principal::{Level, Principal};
use nexus_mcp::front::address::Network;
use nexus_mcp::front::updates::Updates;
use nexus_mcp::front::{Front, Keyless, Settings, door, identity};

use super::say;
use crate::agents::webhook;
use crate::config::{Config, Env, Loaded};
use crate::control;
use crate::hold::{self, Claim, Holder, Lock};
use crate::links::{Before, Doorway};
use crate::private;
use crate::upstreams::Offered;
use crate::wire::{self, Assembly, Rig};

/// How long another process may take to give the data folder up.
const GIVING_WAY: Duration = Duration::from_secs(5);

#[derive(Debug, Default, Args)]
pub struct Serve {
    /// Serve the fixtures of the conformance suite, and let loopback in without a key
    #[arg(long, hide = true)]
    conformance: bool,
    /// With --conformance: this many more tools, for measuring listings
    #[arg(long, hide = true, default_value_t = 0)]
    dummies: usize,
    /// With --conformance: do not record calls, to measure what recording costs
    #[arg(long, hide = true, requires = "conformance")]
    unrecorded: bool,
}

impl Serve {
    pub async fn run(self, loaded: Loaded, env: &Env) -> Result<ExitCode> {
        let Loaded { config, data, .. } = &loaded;
        if self.conformance && !config.server.http_host.is_loopback() {
            bail!("--conformance lets anyone in without a key: it serves loopback only");
        }
        if let Some(faults) = webhook::faults(config) {
            return Err(faults.into());
        }
        private::folder(data).with_context(|| format!("the data folder {}", data.display()))?;
        let (mut lock, before) = claim(data).await?;
        let mut signals = Signals::new()?;
        raise_open_files();
        let assembly = wire::assemble(
            &loaded,
            env,
            Rig { conformance: self.conformance, dummies: self.dummies, unrecorded: self.unrecorded },
        )
        .await?;
        wire::warn_of_yolo(&assembly.keyring).await?;

        let listener = listen(config).await?;
        let address = listener.local_addr()?;
        let doorway = Doorway::open(config, before).await?;
        // Behind everything that can fail: a key is shown once.
        let new_key = first_key(&assembly, config).await?;
        let front = self.front(&assembly, config, address);
        control::listen(data, None, assembly.behind_the_socket(), &assembly.tasks).context("the control socket")?;
        assembly.journal.post(Row::new(Event::HubStarted).detail(format!("{address}, pid {}", std::process::id())));
        let links = assembly.open_links(doorway, &loaded).context("the listener for computers")?;
        assembly.start_background(&loaded).await;
        assembly.upstreams.offered(Offered::Known).await;
        announce(&mut lock, address, links, new_key.as_deref(), &loaded)?;

        let serving = assembly.tasks.spawn("door", door::serve(front, listener));
        signals.any().await;
        info!("ending; calls in flight have 10 s, a second signal ends at once");
        let calm = tokio::select! {
            calm = assembly.end() => calm,
            () = signals.any() => {
                warn!("ended at once");
                false
            }
        };
        serving.abort();
        drop(lock);
        Ok(if calm { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn front(&self, assembly: &Assembly, config: &Config, address: SocketAddr) -> Arc<Front> {
        let server = &config.server;
        let limits = identity::Limits {
            sessions: server.limits.sessions.get(),
            session_idle: server.limits.session_idle.0,
            lease_idle: server.limits.lease_idle.0,
        };
        let mut hosts: Vec<String> = server.allowed_hosts.iter().map(ToString::to_string).collect();
        hosts.extend(server.public_url.as_ref().and_then(|url| url.host()).map(|host| host.to_string()));
        if !address.ip().is_unspecified() {
            hosts.push(match address.ip() {
                IpAddr::V4(ip) => ip.to_string(),
                IpAddr::V6(ip) => format!("[{ip}]"),
            });
        }
        let mut origins: Vec<String> = server.allowed_origins.iter().map(|origin| origin.as_ref().to_owned()).collect();
        origins.extend(server.public_url.as_ref().and_then(|url| origin_of(url.as_ref())));
        let settings = Settings {
            hosts,
            origins,
            proxies: server.trusted_proxies.iter().filter_map(|net| Network::parse(net.as_ref()).ok()).collect(),
            keyless: self
                .conformance
                .then(|| Keyless::Loopback(Arc::new(Principal::new("conformance", Level::Trusted)))),
        };
        let sessions = Arc::new(identity::Sessions::new(assembly.sessions_record(), limits));
        let health = assembly.health(&sessions);
        let keys = assembly.keyring.keys.clone();
        let front = Front::new(assembly.server.clone(), keys, sessions, assembly.tasks.clone(), settings, health);
        let hooks = assembly.hooks(config).map(|hooks| hooks as Arc<dyn Updates>);
        Arc::new(front.with_updates(hooks))
    }
}

/// Becomes the holder of the data folder. A `nexus stdio` that holds it only because it came first gives way.
async fn claim(data: &Path) -> Result<(Lock, Before)> {
    let asking = async {
        let mut before = Before::Nobody;
        loop {
            match hold::claim(data)? {
                Claim::Mine(lock) => return Ok((lock, before)),
                Claim::Taken(Holder { pid, mcp: Some(mcp) }) => {
                    bail!("process {pid} serves this data folder already, at {mcp}")
                }
                Claim::Taken(_) => {
                    before = Before::GivenWay;
                    let _ = control::ask(data, &control::Order::GiveWay).await;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    };
    match timeout(GIVING_WAY, asking).await {
        Ok(claimed) => claimed,
        Err(_) => bail!(
            "another process holds the data folder {} and does not give way; end it, or use another --data",
            data.display()
        ),
    }
}

/// `https://hub.example/nexus` comes from the origin `https://hub.example`.
fn origin_of(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    Some(format!("{scheme}://{}", rest.split('/').next()?))
}

/// Makes a key at the first start. Beyond loopback the operator must have chosen one.
async fn first_key(assembly: &Assembly, config: &Config) -> Result<Option<String>> {
    if !assembly.keyring.is_empty().await? {
        return Ok(None);
    }
    if let Some(fault) = config.keyless_listener() {
        return Err(fault.into());
    }
    let key = assembly.keyring.generate()?;
    assembly.keyring.refresh().await?;
    Ok(Some(key))
}

async fn listen(config: &Config) -> Result<TcpListener> {
    let address = SocketAddr::new(config.server.http_host, config.server.http_port);
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(listener),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            bail!(
                "{address} is taken by another program; MCP_PORT=3000 nexus serves on another port, MCP_PORT=0 on any free one"
            )
        }
        Err(error) => Err(error).with_context(|| format!("listening on {address}")),
    }
}

/// Says where it serves: to the lock file, and as the one line that scripts wait for.
fn announce(
    lock: &mut Lock,
    address: SocketAddr,
    links: Option<SocketAddr>,
    new_key: Option<&str>,
    loaded: &Loaded,
) -> Result<()> {
    // Whoever reads it is on this machine: an address that stands for all is no address to call.
    let reachable = match address.ip() {
        ip if !ip.is_unspecified() => address,
        IpAddr::V4(_) => SocketAddr::from(([127, 0, 0, 1], address.port())),
        IpAddr::V6(_) => SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, address.port())),
    };
    let mcp = format!("http://{reachable}/mcp");
    lock.announce(&Holder { pid: std::process::id(), mcp: Some(mcp.clone()) })?;
    if let Some(key) = new_key {
        say(&welcome(&mcp, key, loaded));
    }
    say(&ready(reachable, links, std::process::id()));
    Ok(())
}

/// Computers dial in from elsewhere: they are told what is listened on, as it is.
fn ready(mcp: SocketAddr, links: Option<SocketAddr>, pid: u32) -> String {
    let links = links.map(|address| format!(" links=ws://{address}/")).unwrap_or_default();
    format!("nexus ready mcp=http://{mcp}/mcp sse=http://{mcp}/sse{links} pid={pid}")
}

/// The first start: the key, once, and how to use it.
fn welcome(mcp: &str, key: &str, loaded: &Loaded) -> String {
    let kept = loaded.data.join("key");
    // Its door must be one to this hub's data, wherever the client starts it.
    let file = loaded.file.as_ref().and_then(|file| std::path::absolute(file).ok());
    let places = [Some(("--data", loaded.data.clone())), file.map(|file| ("--config", file))];
    let flags = places.into_iter().flatten().flat_map(|(flag, path)| [flag.to_owned(), path.display().to_string()]);
    let args = serde_json::Value::from_iter(["stdio".to_owned()].into_iter().chain(flags));
    let program = std::env::current_exe().map_or_else(|_| "nexus".into(), |path| path.display().to_string());
    format!(
        r#"
A key was made for this hub. It is shown once, and kept in {kept}:

    {key}

Claude Code:
    claude mcp add --transport http nexus {mcp} --header "Authorization: Bearer {key}"

Claude Desktop (claude_desktop_config.json; it starts its own door, no key needed):
    {{ "mcpServers": {{ "nexus": {{ "command": "{program}", "args": {args} }} }} }}

opencode (opencode.json):
    {{ "mcp": {{ "nexus": {{ "type": "remote", "url": "{mcp}", "headers": {{ "Authorization": "Bearer {key}" }} }} }} }}

Codex (~/.codex/config.toml; export NEXUS_KEY={key}):
    [mcp_servers.nexus]
    url = "{mcp}"
    bearer_token_env_var = "NEXUS_KEY"

At this terminal:
    nexus tools
    nexus call list_directory '{{"path": "/"}}'
"#,
        kept = kept.display(),
    )
}

/// A connection is an open file; the usual limit of 1024 is for other programs.
pub fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        warn!(%error, "the limit on open files could not be raised");
    }
}

/// The signals that end the program.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// Heard and not heeded: a file that may not grow (`ulimit -f`) is for whoever writes to it to deal with.
    _too_large: Signal,
}

impl Signals {
    pub fn new() -> Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            _too_large: signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
        })
    }

    pub async fn any(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_says_where_everything_is() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert_eq!(
            ready(at("127.0.0.1:8765"), Some(at("0.0.0.0:3001")), 4711),
            "nexus ready mcp=http://127.0.0.1:8765/mcp sse=http://127.0.0.1:8765/sse links=ws://0.0.0.0:3001/ pid=4711"
        );
        assert_eq!(
            ready(at("[::1]:8765"), Some(at("[::]:3001")), 1),
            "nexus ready mcp=http://[::1]:8765/mcp sse=http://[::1]:8765/sse links=ws://[::]:3001/ pid=1"
        );
        assert_eq!(
            ready(at("127.0.0.1:1"), None, 1),
            "nexus ready mcp=http://127.0.0.1:1/mcp sse=http://127.0.0.1:1/sse pid=1"
        );
    }
}
