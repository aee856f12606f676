//! `nexus key`: makes, lists and revokes keys, through the running hub where there is one.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::Subcommand;
use comfy_table::{Table, presets};
use jiff::Timestamp;

use nexus_core::principal::{Level, SessionPolicy};
use nexus_mcp::front::auth::{Keys, Rate};

use super::record::Record;
use super::{print, say};
use crate::config::Loaded;
use crate::control::{self, Answer, Order};
use crate::hold;
use crate::keyring::{Keyring, Listed, NewKey};
use crate::when;

#[derive(Debug, Subcommand)]
pub enum Key {
    /// Make a key. It is printed once and kept only as a digest
    New {
        /// Lower-case letters, digits, `-` and `_`
        name: String,
        /// sandboxed: reads only; trusted: writes ask; yolo: nothing asks
        #[arg(long, default_value = "trusted", value_parser = level)]
        level: Level,
        /// Tools it may use, as patterns such as `read_*` (may be given several times)
        #[arg(long, default_value = "*", value_name = "PATTERN")]
        allow: Vec<String>,
        /// Tools it may not use, even when allowed
        #[arg(long, value_name = "PATTERN")]
        deny: Vec<String>,
        /// Writes that need no approval with this key, as patterns
        #[arg(long, value_name = "PATTERN")]
        approved: Vec<String>,
        /// Refuse every write
        #[arg(long)]
        read_only: bool,
        /// `lease`: all of its calls share one session, for clients that open a session per call
        #[arg(long, default_value = "auto", value_parser = session, value_name = "POLICY")]
        session: SessionPolicy,
        /// Make it an agent's key, which serves the tasks of this target and can do nothing else
        #[arg(long, value_name = "TARGET")]
        target: Option<String>,
        /// When it ends: `30d`, `12h`, or a date
        #[arg(long, value_name = "WHEN", value_parser = when::future)]
        expires: Option<Timestamp>,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// List all keys and where they come from
    List {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Change a key's level, at once: for good, or for a time after which it falls back by itself
    Level {
        /// Its name
        name: String,
        /// sandboxed: reads only; trusted: writes ask; yolo: nothing asks
        #[arg(value_parser = level)]
        level: Level,
        /// For how long: `30m`, `12h`
        #[arg(long = "for", value_name = "TIME", value_parser = when::future)]
        until: Option<Timestamp>,
    },
    /// Take a key out of force, at once
    Revoke {
        /// Its name
        name: String,
    },
}

impl Key {
    pub async fn run(self, loaded: Loaded) -> Result<ExitCode> {
        let levelled = match &self {
            Key::Level { level, until, .. } => {
                let until = until.map_or_else(String::new, |until| format!(" until {}", local(until)));
                Some(format!("{}{until}", level.as_str()))
            }
            _ => None,
        };
        let json = matches!(&self, Key::New { json: true, .. } | Key::List { json: true });
        let (order, name) = match self {
            Key::New { name, level, allow, deny, approved, read_only, session, target, expires, .. } => {
                let new = NewKey { name, level, allow, deny, approved, read_only, session, expires, target };
                let name = new.name.clone();
                (Order::KeyNew(new), name)
            }
            Key::Level { name, level, until } => (Order::KeyLevel { name: name.clone(), level, until }, name),
            Key::List { .. } => (Order::KeyList, String::new()),
            Key::Revoke { name } => (Order::KeyRevoke(name.clone()), name),
        };
        match carry_out(&loaded, order).await? {
            Answer::Key(key) if json => print(&format!("{}\n", serde_json::json!({ "name": name, "key": key })))?,
            Answer::Key(key) => {
                say(&format!("The key `{name}`, shown once:"));
                print(&format!("{key}\n"))?;
            }
            Answer::Keys(keys) if json => print(&format!("{}\n", serde_json::to_string_pretty(&keys)?))?,
            Answer::Keys(keys) => print(&format!("{}\n", table(&keys)))?,
            Answer::Done => say(&match levelled {
                Some(level) => format!("The key `{name}` is {level}."),
                None => format!("The key `{name}` is revoked."),
            }),
            Answer::Failed(why) | Answer::NoSuchCode(why) => bail!(why),
            Answer::Waiting(_)
            | Answer::Approved(..)
            | Answer::Denied(_)
            | Answer::Mcp(_)
            | Answer::Links(_)
            | Answer::Replied(_) => {
                bail!("the running hub answers something else")
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Asks the running hub, so that it takes effect at once; without one, does it here.
async fn carry_out(loaded: &Loaded, order: Order) -> Result<Answer> {
    if hold::holder(&loaded.data).is_some() {
        return control::ask(&loaded.data, &order).await;
    }
    let record = Record::open(loaded).await?;
    let keys = Arc::new(Keys::new(Rate { per_second: 1, burst: 1 }));
    let keyring = Keyring::new(loaded.config.clone(), record.store.clone(), &loaded.data, keys);
    let answer = control::carry_out(order, &keyring, &*record.journal).await;
    record.close().await;
    Ok(answer)
}

fn table(keys: &[Listed]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["key", "level", "from", "tools", "expires"]);
    for key in keys {
        let from = serde_json::to_value(key.source)
            .ok()
            .and_then(|source| source.as_str().map(str::to_owned))
            .unwrap_or_default();
        let denied = if key.deny.is_empty() { String::new() } else { format!(" but not {}", key.deny.join(" ")) };
        let expires = key.expires.map_or_else(|| "never".to_owned(), |expires| expires.to_string());
        table.add_row([key.name.clone(), level_of(key), from, format!("{}{denied}", key.allow.join(" ")), expires]);
    }
    table
}

/// Its level, what narrows or widens it, and how long a raised one holds.
fn level_of(key: &Listed) -> String {
    let mut words = vec![match (key.raised, key.raised_until) {
        (Some(raised), Some(until)) => {
            format!("{} until {}, then {}", raised.as_str(), local(until), key.level.as_str())
        }
        _ => key.level.as_str().to_owned(),
    }];
    if key.read_only {
        words.push("read-only".to_owned());
    }
    if !key.approved.is_empty() {
        words.push(format!("approved: {}", key.approved.join(" ")));
    }
    if key.session == SessionPolicy::Lease {
        words.push("one lease".to_owned());
    }
    if let Some(target) = &key.target {
        words.push(format!("serves {target}"));
    }
    words.join(", ")
}

/// A time to the second, as clocks show it.
fn local(point: Timestamp) -> String {
    point.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

fn session(text: &str) -> Result<SessionPolicy, String> {
    match text {
        "auto" => Ok(SessionPolicy::Auto),
        "lease" => Ok(SessionPolicy::Lease),
        _ => Err("auto or lease".to_owned()),
    }
}

fn level(text: &str) -> Result<Level, String> {
    Level::parse(text).ok_or_else(|| "one of sandboxed, trusted, yolo".to_owned())
}
