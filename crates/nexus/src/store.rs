//! The store: one SQLite file in the data folder. The only place with SQL.

use std::fs::TryLockError;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use jiff::Timestamp;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{AssertSqlSafe, FromRow};
use thiserror::Error;

use nexus_core::audit::Row;
use nexus_core::principal::{Level, Patterns};

use crate::private;

#[derive(Debug, Error)]
pub enum StoreError {
    #[error("opening the store in {folder}")]
    Open { folder: String, source: sqlx::Error },
    #[error("bringing the store up to date")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    #[error("the store's lock file")]
    Lock(#[source] std::io::Error),
    #[error("the store did not take it")]
    Query(#[from] sqlx::Error),
    #[error("the key `{name}` in the store has a bad {what}")]
    BadKey { name: String, what: &'static str },
}

/// Cloning is cheap; all clones mean the same file.
#[derive(Clone, Debug)]
pub struct Store {
    db: SqlitePool,
}

/// A key as `nexus key new` made it.
#[derive(Clone, Debug)]
pub struct StoredKey {
    pub name: String,
    pub sha256: [u8; 32],
    pub level: Level,
    pub allow: Patterns,
    pub deny: Patterns,
    pub created: Timestamp,
    pub expires: Option<Timestamp>,
}

impl Store {
    /// Opens the store of a data folder, and makes it if it is not there.
    #[allow(clippy::disallowed_methods, reason = "this is the shim")]
    pub async fn open(folder: &Path) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Open { folder: folder.display().to_string(), source };
        let path = folder.join("nexus.db");
        // The file must be private from its first moment on.
        private::create(&path).map_err(StoreError::Lock)?;
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // A write's row must survive the machine, not only the process.
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(Duration::from_secs(5))
            .statement_cache_capacity(32);
        let db = SqlitePoolOptions::new().max_connections(2).connect_with(options).await.map_err(failed)?;
        // Several doors may start beside each other on a new folder: one migrates, the others wait.
        let lock = private::create(&folder.join("store.lock")).map_err(StoreError::Lock)?;
        while let Err(error) = lock.try_lock() {
            match error {
                TryLockError::WouldBlock => tokio::time::sleep(Duration::from_millis(2)).await,
                TryLockError::Error(error) => return Err(StoreError::Lock(error)),
            }
        }
        sqlx::migrate!().run(&db).await.map_err(StoreError::Migrate)?;
        Ok(Self { db })
    }

    pub async fn close(&self) {
        self.db.close().await;
    }

    pub async fn keys(&self) -> Result<Vec<StoredKey>, StoreError> {
        let rows: Vec<KeyRow> = sqlx::query_as(
            "SELECT name, sha256, level, allow, deny, created_ms, expires_ms FROM api_key ORDER BY name",
        )
        .fetch_all(&self.db)
        .await?;
        rows.into_iter().map(StoredKey::try_from).collect()
    }

    /// False: there is a key of that name already.
    pub async fn add_key(&self, key: &StoredKey) -> Result<bool, StoreError> {
        let added = sqlx::query(
            "INSERT INTO api_key (name, sha256, level, allow, deny, created_ms, expires_ms) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
        )
        .bind(&key.name)
        .bind(hex(&key.sha256))
        .bind(key.level.as_str())
        .bind(joined(&key.allow))
        .bind(joined(&key.deny))
        .bind(key.created.as_millisecond())
        .bind(key.expires.map(Timestamp::as_millisecond))
        .execute(&self.db)
        .await?;
        Ok(added.rows_affected() == 1)
    }

    /// False: there was none of that name.
    pub async fn remove_key(&self, name: &str) -> Result<bool, StoreError> {
        let removed = sqlx::query("DELETE FROM api_key WHERE name = $1").bind(name).execute(&self.db).await?;
        Ok(removed.rows_affected() == 1)
    }

    pub async fn audit_rows(&self) -> Result<i64, StoreError> {
        Ok(sqlx::query_scalar("SELECT COUNT(*) FROM audit").fetch_one(&self.db).await?)
    }

    /// Adds rows to the record, all or none. They are safe when it comes back.
    pub async fn append(&self, rows: &[Row]) -> Result<(), StoreError> {
        let mut transaction = self.db.begin().await?;
        let mut rest = rows;
        while !rest.is_empty() {
            let (length, insert) =
                INSERTS.iter().find(|(length, _)| *length <= rest.len()).unwrap_or(&INSERTS[INSERTS.len() - 1]);
            let (now, later) = rest.split_at(*length);
            let mut query = sqlx::query(AssertSqlSafe(insert.as_str()));
            for row in now {
                query = bind_row(query, row);
            }
            query.execute(&mut *transaction).await?;
            rest = later;
        }
        Ok(transaction.commit().await?)
    }
}

const AUDIT_COLUMNS: [&str; 21] = [
    "id",
    "at_ms",
    "event",
    "session",
    "principal",
    "transport",
    "era",
    "client",
    "call_id",
    "tool",
    "origin",
    "access",
    "node",
    "summary",
    "arguments",
    "digest",
    "decision",
    "how",
    "outcome",
    "duration_us",
    "detail",
];

/// The statements that add rows, and how many each adds: few lengths, so that they stay prepared. The places
/// have no numbers because SQLite looks a numbered one up by going through all of them.
static INSERTS: LazyLock<[(usize, String); 4]> = LazyLock::new(|| {
    let row = format!("({})", ["?"; AUDIT_COLUMNS.len()].join(","));
    [64, 16, 4, 1].map(|rows| {
        let values = vec![row.as_str(); rows].join(",");
        (rows, format!("INSERT INTO audit ({}) VALUES {values}", AUDIT_COLUMNS.join(",")))
    })
});

type Query<'q> = sqlx::query::Query<'q, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>;

fn bind_row<'q>(query: Query<'q>, row: &Row) -> Query<'q> {
    let call = row.call.as_ref();
    query
        .bind(row.id.to_string())
        .bind(row.at.as_millisecond())
        .bind(row.event.as_str())
        .bind(row.session.map(|id| id.to_string()))
        .bind(row.principal.as_ref().map(|id| id.as_str().to_owned()))
        .bind(row.transport.map(|transport| transport.as_str()))
        .bind(row.era.map(|era| era.as_str()))
        .bind(row.client.clone())
        .bind(call.map(|call| call.id.to_string()))
        .bind(call.map(|call| call.tool.to_string()))
        .bind(call.and_then(|call| call.origin.as_ref()).map(ToString::to_string))
        .bind(call.and_then(|call| call.access).map(|access| access.as_str()))
        .bind(call.and_then(|call| call.node.clone()))
        .bind(call.and_then(|call| call.summary.clone()))
        .bind(call.map(|call| call.arguments.to_string()))
        .bind(call.map(|call| hex(&call.digest)))
        .bind(call.and_then(|call| call.decision))
        .bind(call.and_then(|call| call.how))
        .bind(call.and_then(|call| call.outcome))
        .bind(call.and_then(|call| call.duration_us).and_then(|us| i64::try_from(us).ok()))
        .bind(row.detail.clone())
}

#[derive(FromRow)]
struct KeyRow {
    name: String,
    sha256: String,
    level: String,
    allow: String,
    deny: String,
    created_ms: i64,
    expires_ms: Option<i64>,
}

impl TryFrom<KeyRow> for StoredKey {
    type Error = StoreError;

    fn try_from(row: KeyRow) -> Result<Self, StoreError> {
        let name = row.name.clone();
        let bad = |what| StoreError::BadKey { name: name.clone(), what };
        Ok(Self {
            sha256: unhex(&row.sha256).ok_or_else(|| bad("digest"))?,
            level: Level::parse(&row.level).ok_or_else(|| bad("level"))?,
            allow: split(&row.allow).ok_or_else(|| bad("allow list"))?,
            deny: split(&row.deny).ok_or_else(|| bad("deny list"))?,
            created: Timestamp::from_millisecond(row.created_ms).map_err(|_| bad("date"))?,
            expires: row.expires_ms.map(Timestamp::from_millisecond).transpose().map_err(|_| bad("expiry"))?,
            name: row.name,
        })
    }
}

fn joined(patterns: &Patterns) -> String {
    patterns.iter().collect::<Vec<_>>().join(" ")
}

fn split(text: &str) -> Option<Patterns> {
    Patterns::parse(text.split_whitespace().map(str::to_owned)).ok()
}

pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_core::audit::Event;
    use nexus_core::clock;

    fn key(name: &str) -> StoredKey {
        let allow = Patterns::parse(["read_*".to_owned()]).unwrap();
        let sha256 = std::array::from_fn(|i| name.as_bytes()[i % name.len()]);
        StoredKey {
            name: name.into(),
            sha256,
            level: Level::Trusted,
            allow,
            deny: Patterns::default(),
            created: clock::now(),
            expires: None,
        }
    }

    #[tokio::test]
    async fn keys_outlive_the_process_and_names_are_unique() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        assert!(store.add_key(&key("a")).await.unwrap());
        assert!(!store.add_key(&key("a")).await.unwrap());
        store.close().await;

        let store = Store::open(folder.path()).await.unwrap();
        let keys = store.keys().await.unwrap();
        assert_eq!(keys.len(), 1);
        assert_eq!(keys[0].allow, key("a").allow);
        assert!(store.remove_key("a").await.unwrap());
        assert!(!store.remove_key("a").await.unwrap());
    }

    #[tokio::test]
    async fn rows_of_any_number_are_all_kept() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        let rows: Vec<Row> = (0..147).map(|n| Row::new(Event::HubStarted).detail(n)).collect();
        store.append(&rows).await.unwrap();
        store.append(&[]).await.unwrap();
        assert_eq!(store.audit_rows().await.unwrap(), 147);
    }

    #[tokio::test]
    async fn doors_that_start_together_all_get_the_store() {
        let folder = tempfile::tempdir().unwrap();
        let opened = futures_util::future::join_all((0..8).map(|_| Store::open(folder.path()))).await;
        assert!(opened.iter().all(Result::is_ok), "{opened:?}");
    }
}
