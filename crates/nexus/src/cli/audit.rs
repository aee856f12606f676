//! `nexus audit`: proves the record, shows it, writes it out, and tells how it stands.
//!
//! Reads the store itself, beside a running hub or without one.

mod export;
mod line;
mod status;
mod tail;
mod verify;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use jiff::Timestamp;

use super::{print, put, say};
use crate::config::Loaded;
use crate::store::facts::Sessions;
use crate::store::rows::Filter;
use crate::store::{Store, StoreError};
use crate::when;

#[derive(Debug, Subcommand)]
pub enum Audit {
    /// Prove that no row was changed, removed or moved
    ///
    /// Goes through every row, the hash that chains it to the one before, and the database's own structures, while a hub
    /// may go on writing. Prints what it looked at and whatever does not fit. Exit code 0: the record holds; 1: it does
    /// not, or cannot be read.
    Verify(verify::Verify),
    /// Show the newest rows, and with --follow those to come
    ///
    /// One line a row: local time, outcome or event, key and client, tool and node, what it was about, why it was let
    /// through or not, how long it took, and the beginning of the session's name.
    Tail(tail::Tail),
    /// Write rows out, in the order in which they were written
    Export(export::Export),
    /// Tell how large and how old the record is, and how shipping to Loki goes
    Status(status::Status),
}

impl Audit {
    pub async fn run(self, loaded: Loaded) -> Result<ExitCode> {
        match self {
            Audit::Verify(verify) => verify.run(&loaded).await,
            Audit::Tail(tail) => tail.run(&loaded).await,
            Audit::Export(export) => export.run(&loaded).await,
            Audit::Status(status) => status.run(&loaded).await,
        }
    }
}

/// Which rows.
#[derive(Debug, Args)]
struct Which {
    /// Only this session: its name in the record, or how that begins
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Only calls of this tool
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Only calls that ended so (ok, error, refused, failed, internal, cancelled, abandoned, waiting, unknown_tool), or
    /// rows of this event (begun, session_started, approved, denied, key_refused, hub_started …)
    #[arg(long, value_name = "WORD")]
    outcome: Option<String>,
    /// Only what was written since then: `30m`, `2h`, `7d`, a date or a timestamp
    #[arg(long, value_name = "WHEN", value_parser = when::past)]
    since: Option<Timestamp>,
}

impl Which {
    async fn filter(self, store: &Store) -> Result<Filter> {
        let session = match self.session {
            None => None,
            Some(beginning) => match store.session_of(&beginning).await? {
                Sessions::One(session) => Some(session),
                Sessions::Several => bail!("several sessions begin with `{beginning}`; give more of the name"),
                Sessions::None => bail!("no session in the record begins with `{beginning}`"),
            },
        };
        let since_ms = self.since.map(Timestamp::as_millisecond);
        Ok(Filter { session, tool: self.tool, outcome: self.outcome, since_ms })
    }
}

/// The store of this data folder. Looking does not make one.
async fn open(loaded: &Loaded) -> Result<Store, NotOpen> {
    let url = loaded.config.store.as_ref().map(|url| url.expose());
    if url.is_none() && !loaded.data.join("nexus.db").exists() {
        return Err(NotOpen::Nothing(loaded.data.display().to_string()));
    }
    Ok(Store::open(&loaded.data, url).await?)
}

#[derive(Debug, thiserror::Error)]
enum NotOpen {
    #[error("there is no record in {0}: no hub has run on that data folder")]
    Nothing(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}
