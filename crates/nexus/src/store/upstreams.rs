//! What outlives the program of upstream servers: allowed tools, the protocol they speak, and who was agreed to.

use std::collections::BTreeSet;
use std::path::Path;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use nexus_core::Chain;
use nexus_core::clock;
use nexus_core::name::ServerName;
use nexus_core::session::Era;
use nexus_mcp::upstream::pins::{Memory, MemoryError, Pin};

use super::{Store, StoreError};

/// The part of the store that belongs to the servers of one hub.
#[derive(Clone, Debug)]
pub struct Upstreams {
    store: Store,
    home: String,
}

/// A server of a project folder that somebody has agreed to: the file, the name, and the digest of the entry.
pub type Agreed = (String, String, String);

const PINS: &str =
    "SELECT tool, hash, definition FROM upstream_tool WHERE home = $1 AND server = $2 ORDER BY allowed_ms, tool";
const ALLOW: &str = "
    INSERT INTO upstream_tool (home, server, tool, hash, definition, allowed_ms) VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (home, server, tool) DO UPDATE SET hash = $4, definition = $5, allowed_ms = $6";
const MET: &str = "SELECT 1 FROM upstream_met WHERE home = $1 AND server = $2";
const MEET: &str = "INSERT INTO upstream_met (home, server) VALUES ($1, $2) ON CONFLICT (home, server) DO NOTHING";
const ERA: &str = "SELECT era FROM upstream_era WHERE home = $1 AND server = $2";
const REMEMBER_ERA: &str = "
    INSERT INTO upstream_era (home, server, era) VALUES ($1, $2, $3)
    ON CONFLICT (home, server) DO UPDATE SET era = $3";
const AGREED: &str = "SELECT file, server, sha256 FROM upstream_agreed WHERE home = $1";
const AGREE: &str = "
    INSERT INTO upstream_agreed (home, file, server, sha256, agreed_ms) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (home, file, server) DO UPDATE SET sha256 = $4, agreed_ms = $5";
const DISAGREE: &str = "DELETE FROM upstream_agreed WHERE home = $1 AND server = $2";

impl Upstreams {
    pub fn new(store: Store, home: &str) -> Self {
        Self { store, home: home.to_owned() }
    }

    pub async fn agreed(&self) -> Result<BTreeSet<Agreed>, StoreError> {
        let rows: Vec<Agreed> = on_db!(self.store, |db| sqlx::query_as(AGREED).bind(&self.home).fetch_all(db).await?);
        Ok(rows.into_iter().collect())
    }

    pub async fn agree(&self, file: &Path, server: &str, sha256: &str) -> Result<(), StoreError> {
        let file = file.display().to_string();
        on_db!(self.store, |db| {
            let agree = sqlx::query(AGREE).bind(&self.home).bind(&file).bind(server).bind(sha256);
            agree.bind(clock::now_ms()).execute(db).await?;
        });
        Ok(())
    }

    /// Takes a yes back. False: there was none.
    pub async fn disagree(&self, server: &str) -> Result<bool, StoreError> {
        Ok(on_db!(self.store, |db| {
            sqlx::query(DISAGREE).bind(&self.home).bind(server).execute(db).await?.rows_affected() > 0
        }))
    }

    async fn read_pins(&self, server: &str) -> Result<Vec<Pin>, StoreError> {
        let rows: Vec<(String, String, String)> =
            on_db!(self.store, |db| sqlx::query_as(PINS).bind(&self.home).bind(server).fetch_all(db).await?);
        Ok(rows.into_iter().map(|(tool, hash, definition)| Pin { tool, hash, definition }).collect())
    }

    /// All of them or none: a server that is half known would have the other half held back.
    async fn keep_pins(&self, server: &str, pins: &[Pin]) -> Result<(), StoreError> {
        on_db!(self.store, |db| {
            let mut transaction = db.begin().await?;
            sqlx::query(MEET).bind(&self.home).bind(server).execute(&mut *transaction).await?;
            for pin in pins {
                let allow = sqlx::query(ALLOW).bind(&self.home).bind(server).bind(&pin.tool).bind(&pin.hash);
                allow.bind(&pin.definition).bind(clock::now_ms()).execute(&mut *transaction).await?;
            }
            transaction.commit().await.map_err(StoreError::Commit)?;
        });
        Ok(())
    }

    async fn drop_server(&self, server: &str) -> Result<(), StoreError> {
        on_db!(self.store, |db| {
            for sql in [
                "DELETE FROM upstream_tool WHERE home = $1 AND server = $2",
                "DELETE FROM upstream_met WHERE home = $1 AND server = $2",
                "DELETE FROM upstream_era WHERE home = $1 AND server = $2",
            ] {
                sqlx::query(sql).bind(&self.home).bind(server).execute(db).await?;
            }
        });
        Ok(())
    }

    async fn is_met(&self, server: &str) -> Result<bool, StoreError> {
        let met: Option<i32> =
            on_db!(self.store, |db| sqlx::query_scalar(MET).bind(&self.home).bind(server).fetch_optional(db).await?);
        Ok(met.is_some())
    }

    async fn read_era(&self, server: &str) -> Result<Option<Era>, StoreError> {
        let era: Option<String> =
            on_db!(self.store, |db| sqlx::query_scalar(ERA).bind(&self.home).bind(server).fetch_optional(db).await?);
        Ok(era.and_then(|era| Era::parse(&era)))
    }

    async fn keep_era(&self, server: &str, era: Era) -> Result<(), StoreError> {
        on_db!(self.store, |db| {
            sqlx::query(REMEMBER_ERA).bind(&self.home).bind(server).bind(era.as_str()).execute(db).await?;
        });
        Ok(())
    }
}

fn told(error: &StoreError) -> MemoryError {
    MemoryError(Chain(error).to_string())
}

impl Memory for Upstreams {
    fn pins<'a>(&'a self, server: &'a ServerName) -> BoxFuture<'a, Result<Vec<Pin>, MemoryError>> {
        async move { self.read_pins(server.as_str()).await.map_err(|error| told(&error)) }.boxed()
    }

    fn met<'a>(&'a self, server: &'a ServerName) -> BoxFuture<'a, Result<bool, MemoryError>> {
        async move { self.is_met(server.as_str()).await.map_err(|error| told(&error)) }.boxed()
    }

    fn allow<'a>(&'a self, server: &'a ServerName, pins: Vec<Pin>) -> BoxFuture<'a, Result<(), MemoryError>> {
        async move { self.keep_pins(server.as_str(), &pins).await.map_err(|error| told(&error)) }.boxed()
    }

    fn forget<'a>(&'a self, server: &'a ServerName) -> BoxFuture<'a, Result<(), MemoryError>> {
        async move { self.drop_server(server.as_str()).await.map_err(|error| told(&error)) }.boxed()
    }

    fn era<'a>(&'a self, server: &'a ServerName) -> BoxFuture<'a, Result<Option<Era>, MemoryError>> {
        async move { self.read_era(server.as_str()).await.map_err(|error| told(&error)) }.boxed()
    }

    fn remember_era<'a>(&'a self, server: &'a ServerName, era: Era) -> BoxFuture<'a, Result<(), MemoryError>> {
        async move { self.keep_era(server.as_str(), era).await.map_err(|error| told(&error)) }.boxed()
    }
}
