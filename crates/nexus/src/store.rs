//! The store: SQLite in the data folder, or PostgreSQL. The only place with SQL, and one text of it for both.

use std::fs::TryLockError;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::migrate::{Migration, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::sqlite::{
    SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection};
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::private;

/// The same statements on whichever database it is. The second name is that of the inserts of `inserts.rs`, whose
/// places are written in two ways.
macro_rules! on_db {
    ($store:expr, |$db:ident| $work:expr) => {
        match &$store.db {
            $crate::store::Db::Sqlite($db) => $work,
            $crate::store::Db::Postgres($db) => $work,
        }
    };
    ($store:expr, |$db:ident, $inserts:ident| $work:expr) => {
        match &$store.db {
            Db::Sqlite($db) => {
                let $inserts = &*UNNUMBERED;
                $work
            }
            Db::Postgres($db) => {
                let $inserts = &*NUMBERED;
                $work
            }
        }
    };
}

pub mod body;
mod bulk;
pub mod chain;
pub mod facts;
mod inserts;
mod keys;
pub mod position;
pub mod prune;
pub mod rows;
pub mod sheaf;
pub mod ship;
pub mod tasks;
mod telegram;
pub mod tx;
pub mod upstreams;
pub mod verify;

pub use keys::{RaisedLevel, StoredKey};

#[derive(Debug, Error)]
pub enum StoreError {
    #[error("opening the store in {place}")]
    Open { place: String, source: sqlx::Error },
    #[error("bringing the store up to date")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    #[error("the store's lock file")]
    Lock(#[source] std::io::Error),
    #[error("the store did not take it")]
    Query(#[from] sqlx::Error),
    #[error("the store did not say whether it took it")]
    Commit(#[source] sqlx::Error),
    #[error("somebody else has written to the chain {id}")]
    ForeignChain { id: String },
    #[error("the key `{name}` in the store has a bad {what}")]
    BadKey { name: String, what: &'static str },
    #[error("what follows {pos} in the store is not in order")]
    Disorder { pos: i64 },
    #[error("the audit row at {pos} cannot be read")]
    BadRow { pos: i64, source: serde_json::Error },
    #[error("the task t{number} in the store has a bad {what}")]
    BadTask { number: i64, what: &'static str },
    #[error("somebody else changed the task t{number} at the same time")]
    Raced { number: i64 },
}

impl StoreError {
    /// The same in words, for another who waited for what failed.
    pub fn again(&self) -> Self {
        let same = sqlx::Error::Io(std::io::Error::other(nexus_core::Chain(self).to_string()));
        if matches!(self, StoreError::Commit(_)) { StoreError::Commit(same) } else { StoreError::Query(same) }
    }

    /// The database's own file, or something in it, is not as it was written.
    pub fn is_damage(&self) -> bool {
        use sqlx::Error::{ColumnDecode, Decode};
        use sqlx::migrate::MigrateError::{Execute, ExecuteMigration};

        /// SQLITE_CORRUPT and SQLITE_NOTADB, whatever more they say in their higher bits.
        const DAMAGED: [i64; 2] = [11, 26];
        let damaged = |error: &sqlx::Error| {
            let code = || error.as_database_error()?.code()?.parse::<i64>().ok();
            matches!(error, ColumnDecode { .. } | Decode(_))
                || code().is_some_and(|code| DAMAGED.contains(&(code & 0xff)))
        };
        match self {
            StoreError::Open { source, .. } | StoreError::Query(source) | StoreError::Commit(source) => damaged(source),
            StoreError::Migrate(Execute(source) | ExecuteMigration(source, _)) => damaged(source),
            StoreError::BadRow { .. }
            | StoreError::BadKey { .. }
            | StoreError::BadTask { .. }
            | StoreError::Disorder { .. } => true,
            StoreError::Migrate(_)
            | StoreError::Lock(_)
            | StoreError::ForeignChain { .. }
            | StoreError::Raced { .. } => false,
        }
    }
}

/// Cloning is cheap; all clones mean the same database.
#[derive(Clone, Debug)]
pub struct Store {
    db: Db,
    /// Whose turn it is to write to SQLite, which has one writer at a time: whoever comes while another writes would be
    /// put to sleep for milliseconds, and in no order.
    turn: Arc<Semaphore>,
}

#[derive(Clone, Debug)]
enum Db {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

/// How long one may wait for another process that writes.
const BUSY: Duration = Duration::from_secs(5);

impl Store {
    /// Opens the store of a data folder, or the PostgreSQL at `url`, and makes its tables if they are not there.
    pub async fn open(folder: &Path, url: Option<&str>) -> Result<Self, StoreError> {
        match url {
            Some(url) => Self::postgres(url).await,
            None => Self::sqlite(folder).await,
        }
    }

    #[allow(clippy::disallowed_methods, reason = "this is the shim")]
    async fn sqlite(folder: &Path) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Open { place: folder.display().to_string(), source };
        let path = folder.join("nexus.db");
        // The file must be private from its first moment on.
        private::create(&path).map_err(StoreError::Lock)?;
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // A write's row must survive the machine, not only the process.
            .synchronous(SqliteSynchronous::Full)
            // What retention frees goes back to the disk, bit by bit.
            .auto_vacuum(SqliteAutoVacuum::Incremental)
            // Half of the work of adding rows is writing pages: large ones, kept for longer, are written less often.
            .page_size(16_384)
            .pragma("cache_size", "-8000")
            .pragma("wal_autocheckpoint", "1000")
            .pragma("temp_store", "memory")
            .busy_timeout(BUSY)
            .statement_cache_capacity(128);
        // There is no line that could be cut: to ask a connection whether it is there is a change of threads for nothing.
        let pool = SqlitePoolOptions::new().max_connections(3).test_before_acquire(false);
        let db = pool.connect_with(options).await.map_err(failed)?;
        // Several doors may start beside each other on a new folder: one migrates, the others wait.
        let lock = private::create(&folder.join("store.lock")).map_err(StoreError::Lock)?;
        while let Err(error) = lock.try_lock() {
            match error {
                TryLockError::WouldBlock => tokio::time::sleep(Duration::from_millis(2)).await,
                TryLockError::Error(error) => return Err(StoreError::Lock(error)),
            }
        }
        sqlx::migrate!().run(&db).await.map_err(StoreError::Migrate)?;
        Ok(Self::of(Db::Sqlite(db)))
    }

    #[allow(clippy::disallowed_methods, reason = "this is the shim")]
    async fn postgres(url: &str) -> Result<Self, StoreError> {
        // The error must not hold the URL: there is a password in it.
        let bad = |source| StoreError::Open { place: "PostgreSQL".to_owned(), source };
        let options = PgConnectOptions::from_str(url).map_err(bad)?.application_name("nexus");
        // What the server's own configuration says of this is not enough for a write to rely on.
        let options = options.options([("synchronous_commit", "on")]);
        let place = format!("PostgreSQL at {}:{}", options.get_host(), options.get_port());
        let failed = |source| StoreError::Open { place: place.clone(), source };
        // A pool would try for a while and then say only that it has none; one connection says why.
        options.connect().await.map_err(failed)?.close().await.map_err(failed)?;
        let pool = PgPoolOptions::new().max_connections(4).acquire_timeout(BUSY);
        let db = pool.connect_with(options).await.map_err(failed)?;
        postgres_migrations().run(&db).await.map_err(StoreError::Migrate)?;
        Ok(Self::of(Db::Postgres(db)))
    }

    fn of(db: Db) -> Self {
        Self { db, turn: Arc::new(Semaphore::new(1)) }
    }

    /// Waits until this process may write to SQLite, in the order of asking. Keep it for one transaction and await
    /// nothing else meanwhile. PostgreSQL's writers do not wait for each other.
    async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        match self.db {
            Db::Sqlite(_) => self.turn.clone().acquire_owned().await.ok(),
            Db::Postgres(_) => None,
        }
    }

    pub async fn close(&self) {
        on_db!(self, |db| db.close().await);
    }

    /// Something kept under a name between runs.
    pub async fn remembered(&self, name: &str) -> Result<Option<String>, StoreError> {
        Ok(on_db!(self, |db| {
            sqlx::query_scalar("SELECT value FROM remembered WHERE name = $1").bind(name).fetch_optional(db).await?
        }))
    }

    pub async fn remember(&self, name: &str, value: &str) -> Result<(), StoreError> {
        on_db!(self, |db| {
            let keep = sqlx::query(
                "INSERT INTO remembered (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = $2",
            );
            keep.bind(name).bind(value).execute(db).await?;
        });
        Ok(())
    }
}

/// The same migrations; only a number that SQLite calls INTEGER, as the key of a table, has another name here.
fn postgres_migrations() -> Migrator {
    let mut migrator = sqlx::migrate!();
    for migration in migrator.migrations.to_mut() {
        let sql = migration.sql.as_str().replace("INTEGER PRIMARY KEY", "BIGINT PRIMARY KEY");
        *migration = Migration::new(
            migration.version,
            migration.description.clone(),
            migration.migration_type,
            sqlx::SqlSafeStr::into_sql_str(sqlx::AssertSqlSafe(sql)),
            migration.no_tx,
        );
    }
    migrator
}

pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    push_hex(&mut text, bytes);
    text
}

/// Adds the digits to a text. Every row has a hundred and twenty-eight of them.
pub fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for some in bytes.chunks(32) {
        let mut digits = [0; 64];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(some) {
            pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        text.push_str(std::str::from_utf8(&digits[..2 * some.len()]).unwrap_or_default());
    }
}

/// Only what [`hex`] writes: another spelling of a hash is a change of it.
pub fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(bytes)
}

/// Where a page ends. In a damaged store it may end before it began: whoever goes on from there never comes to an end.
fn onward(after: i64, last: i64) -> Result<i64, StoreError> {
    if last > after { Ok(last) } else { Err(StoreError::Disorder { pos: after }) }
}

#[cfg(test)]
mod bench;
#[cfg(test)]
pub(crate) mod tests;
