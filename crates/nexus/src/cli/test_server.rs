//! `nexus test-server`: a small MCP server of three tools, to try clients and hubs with.
//!
//! The doors and the protocol are the hub's own, in both eras; there is no data folder, no key and no record.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use nexus_core::audit::Nowhere;
use nexus_core::catalogue::Catalogue;
use nexus_core::hub::{Hub, Policy};
use nexus_core::principal::{Level, Patterns, Principal};
use nexus_core::provider::{Origin, Own};
use nexus_core::session::{Session, SessionKey, Transport};
use nexus_core::tasks::Tasks;
use nexus_core::tool::{Entry, Family};
use nexus_mcp::front::auth::{Keys, Rate};
use nexus_mcp::front::{Front, Keyless, Settings, door, identity, stdio};
use nexus_mcp::server::Server;
use nexus_mcp::version::Protocol;

use super::say;
use super::serve::Signals;
use crate::wire::VERSION;

mod add;
mod echo;
mod get_time;

const TOOLS: &[Entry<()>] = &[Entry::of::<echo::Echo>(), Entry::of::<get_time::GetTime>(), Entry::of::<add::Add>()];

/// How long calls that are running at the end may take.
const LAST_CALLS: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub struct TestServer {
    /// Serve over HTTP instead of stdin and stdout: a port on loopback, or address and port
    #[arg(long, value_name = "ADDR")]
    http: Option<Address>,
}

/// Where to listen: `9000` is a port on loopback, 0 any free one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Address(SocketAddr);

#[derive(Debug, Error, PartialEq, Eq)]
#[error("`{0}` is neither a port such as 9000 nor an address such as 127.0.0.1:9000")]
struct BadAddress(String);

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        if let Ok(port) = text.parse::<u16>() {
            return Ok(Self(SocketAddr::from(([127, 0, 0, 1], port))));
        }
        let text = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        let text = text.strip_suffix("/mcp").unwrap_or(text);
        let address = text.strip_prefix("localhost:").map_or_else(|| text.into(), |port| format!("127.0.0.1:{port}"));
        address.parse().map(Self).map_err(|_| BadAddress(text.to_owned()))
    }
}

impl TestServer {
    pub async fn run(self) -> Result<ExitCode> {
        let mut signals = Signals::new()?;
        let tasks = Tasks::new();
        let server = server(&tasks)?;
        match self.http {
            None => {
                let serving = stdio::serve(
                    server,
                    tasks.clone(),
                    caller(),
                    Arc::new(Session::open(SessionKey::Stdio, Transport::Stdio)),
                    tokio::io::stdin(),
                    tokio::io::stdout(),
                );
                tokio::select! {
                    served = serving => served.context("answering on stdout")?,
                    () = signals.any() => {}
                }
            }
            Some(Address(address)) => {
                let listener = TcpListener::bind(address).await.with_context(|| format!("listening on {address}"))?;
                let address = listener.local_addr()?;
                let front = front(server.clone(), &tasks, address);
                say(&format!("nexus test-server ready http://{address}/mcp"));
                tasks.spawn("door", door::serve(front, listener));
                signals.any().await;
                server.closing.cancel();
            }
        }
        tasks.finish(LAST_CALLS).await;
        Ok(ExitCode::SUCCESS)
    }
}

fn caller() -> Arc<Principal> {
    Arc::new(Principal::new("anyone", Level::Trusted))
}

fn server(tasks: &Tasks) -> Result<Arc<Server>> {
    let catalogue = Arc::new(Catalogue::default());
    let family = Family::new(Origin::Own(Own::BuiltIn), Arc::new(()), &[TOOLS])?;
    let (attached, stop) = (catalogue.attach(Arc::new(family)), tasks.stopping());
    tasks.spawn("tools", async move {
        tokio::select! {
            () = attached => {}
            () = stop.cancelled() => {}
        }
    });
    // An echo is what was said, whatever it looks like.
    let policy = Policy { unredacted: Patterns::all(), ..Policy::default() };
    let hub = Arc::new(Hub::new(catalogue, Arc::new(Nowhere), policy));
    let server = Server::new(hub, Protocol::Dual, VERSION, CancellationToken::new(), None);
    Ok(Arc::new(server.introduced("nexus-test-server", "Three small tools to try a client or a hub with.")))
}

fn front(server: Arc<Server>, tasks: &Tasks, address: SocketAddr) -> Arc<Front> {
    let principal = caller();
    // Whoever names another address than loopback wants it to be called from there.
    let keyless = if address.ip().is_loopback() { Keyless::Loopback(principal) } else { Keyless::Anyone(principal) };
    let settings = Settings { hosts: Vec::new(), origins: Vec::new(), proxies: Vec::new(), keyless: Some(keyless) };
    let keys = Arc::new(Keys::new(Rate { per_second: 1, burst: 1 }));
    let sessions = Arc::new(identity::Sessions::new(Arc::new(Nowhere), identity::Limits::default()));
    let health = Box::new(|| json!({ "ok": true, "version": VERSION }));
    Arc::new(Front::new(server, keys, sessions, tasks.clone(), settings, health))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_port_is_one_on_loopback() {
        check("9000", Some("127.0.0.1:9000"));
        check("0", Some("127.0.0.1:0"));
        check("0.0.0.0:9000", Some("0.0.0.0:9000"));
        check("[::1]:9000", Some("[::1]:9000"));
        check("localhost:9000", Some("127.0.0.1:9000"));
        check("http://127.0.0.1:9000/mcp", Some("127.0.0.1:9000"));
        check("70000", None);
        check("host.lan:9000", None);
        check("", None);

        #[track_caller]
        fn check(text: &str, expected: Option<&str>) {
            let address = text.parse::<Address>().ok().map(|Address(address)| address.to_string());
            assert_eq!(address.as_deref(), expected, "{text}");
        }
    }
}
