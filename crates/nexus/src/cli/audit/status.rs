//! `nexus audit status`: the record at a glance.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use comfy_table::{Table, presets};
use jiff::Timestamp;
use nexus_core::clock;
use nexus_system::outbound::SafeUrl;
use serde::Serialize;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::line::shown;
use super::verify::grouped;
use super::{open, print};
use crate::audit::alive;
use crate::cli::one_line;
use crate::config::Loaded;
use crate::hold;
use crate::store::facts::Facts;
use crate::store::ship::{Push, Shipping};

/// A hub that does not answer by then is told of without its own words.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of such an answer.
const LARGEST: u64 = 64 * 1024;

#[derive(Debug, Args)]
pub struct Status {
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Told {
    store: &'static str,
    rows: i64,
    size_bytes: i64,
    oldest: Option<Timestamp>,
    newest: Option<Timestamp>,
    chains: i64,
    open_chains: i64,
    pruned_rows: i64,
    unended_writes: i64,
    keep: String,
    max_size: String,
    /// None: nothing is shipped.
    loki: Option<Loki>,
    /// What the running hub says of its record. None: none runs here, or it does not answer.
    hub: Option<Value>,
}

#[derive(Debug, Serialize)]
struct Loki {
    url: String,
    unshipped: i64,
    oldest_unshipped: Option<Timestamp>,
    lag_s: i64,
    aside: i64,
    last_reason: Option<String>,
    last_push: Option<Tried>,
    last_taken: Option<Tried>,
}

#[derive(Debug, Serialize)]
struct Tried {
    at: Timestamp,
    told: String,
}

impl Status {
    pub async fn run(self, loaded: &Loaded) -> Result<ExitCode> {
        let config = &loaded.config;
        let store = open(loaded).await?;
        let facts = store.facts().await?;
        let url = config.environment.loki_url.as_ref().and_then(|url| SafeUrl::parse(url.as_ref()).ok());
        let loki = match url {
            Some(url) => {
                let home = alive::home(&loaded.data).context("the name of the data folder")?;
                Some(Loki::new(&url, store.shipping(&home).await?))
            }
            None => None,
        };
        store.close().await;
        let Facts { rows, size, oldest_ms, newest_ms, chains, open, pruned, unended } = facts;
        let told = Told {
            store: if config.store.is_some() { "PostgreSQL" } else { "SQLite" },
            rows,
            size_bytes: size,
            oldest: oldest_ms.and_then(moment),
            newest: newest_ms.and_then(moment),
            chains,
            open_chains: open,
            pruned_rows: pruned,
            unended_writes: unended,
            keep: config.audit.keep.to_string(),
            max_size: config.audit.max_size.to_string(),
            loki,
            hub: health(loaded).await,
        };
        match self.json {
            true => print(&format!("{}\n", serde_json::to_string_pretty(&told)?))?,
            false => print(&format!("{}\n", table(&told)))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Loki {
    fn new(url: &SafeUrl, shipping: Shipping) -> Self {
        let Shipping { unshipped, oldest_ms, aside, last_reason, last_push, last_taken } = shipping;
        let tried = |push: Push| moment(push.at_ms).map(|at| Tried { at, told: push.told });
        Self {
            url: url.to_string(),
            unshipped,
            oldest_unshipped: oldest_ms.and_then(moment),
            lag_s: oldest_ms.map_or(0, |oldest| (clock::now_ms() - oldest).max(0) / 1_000),
            aside,
            last_reason,
            last_push: last_push.and_then(tried),
            last_taken: last_taken.and_then(tried),
        }
    }
}

/// What `GET /health` of the hub on this data folder says of the record.
async fn health(loaded: &Loaded) -> Option<Value> {
    let mcp = hold::holder(&loaded.data)?.mcp?;
    let (address, _) = mcp.strip_prefix("http://")?.split_once('/')?;
    let asking = async {
        let mut hub = TcpStream::connect(address).await.ok()?;
        let ask = format!("GET /health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        hub.write_all(ask.as_bytes()).await.ok()?;
        let mut answer = String::new();
        hub.take(LARGEST).read_to_string(&mut answer).await.ok()?;
        let said: Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
        let mut audit = said["audit"].clone();
        audit.as_object_mut()?.insert("ok".to_owned(), said["ok"].clone());
        Some(audit)
    };
    timeout(PATIENCE, asking).await.ok().flatten()
}

fn table(told: &Told) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let count = |number: i64| grouped(number.max(0).unsigned_abs());
    let when = |at: Option<Timestamp>| at.map_or_else(|| "none".to_owned(), |at| format!("{} ({})", full(at), ago(at)));
    let mut add = |name: &str, value: String| {
        table.add_row([name.to_owned(), one_line(&value)]);
    };
    add("store", told.store.to_owned());
    add("rows", count(told.rows));
    add("size", format!("{} kB", count(told.size_bytes / 1_000)));
    add("oldest row", when(told.oldest));
    add("newest row", when(told.newest));
    add("chains", format!("{}, {} of them open", count(told.chains), count(told.open_chains)));
    add("pruned rows", count(told.pruned_rows));
    add("kept", format!("{}, at most {}", told.keep, told.max_size));
    add("writes without an end", count(told.unended_writes));
    match &told.hub {
        Some(hub) => {
            let (state, unwritten, lost) = (hub["ok"] == true, &hub["unwritten"], &hub["lost"]);
            let state = if state { "records" } else { "CANNOT RECORD: writes do not run" };
            add("running hub", format!("{state}; {unwritten} rows unwritten, {lost} lost"));
        }
        None => add("running hub", "none here, or it does not answer".to_owned()),
    }
    match &told.loki {
        None => add("Loki", "not configured (LOKI_URL)".to_owned()),
        Some(loki) => {
            let tried = |tried: &Option<Tried>| {
                tried.as_ref().map_or_else(|| "none".to_owned(), |tried| format!("{} {}", full(tried.at), tried.told))
            };
            add("Loki", loki.url.clone());
            add("  unshipped", count(loki.unshipped));
            add("  oldest of them", when(loki.oldest_unshipped));
            let reason = loki.last_reason.as_deref().map(|reason| format!("; last: {reason}")).unwrap_or_default();
            add("  set aside", format!("{}{reason}", count(loki.aside)));
            add("  last try", tried(&loki.last_push));
            add("  last success", tried(&loki.last_taken));
        }
    }
    table
}

fn moment(ms: i64) -> Option<Timestamp> {
    Timestamp::from_millisecond(ms).ok()
}

fn full(at: Timestamp) -> String {
    shown(at, "%Y-%m-%d %H:%M:%S")
}

fn ago(at: Timestamp) -> String {
    match clock::now().duration_since(at).as_secs().max(0) {
        seconds @ 0..120 => format!("{seconds} s ago"),
        seconds @ 120..7_200 => format!("{} min ago", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h ago", seconds / 3_600),
        seconds => format!("{} days ago", seconds / 86_400),
    }
}
