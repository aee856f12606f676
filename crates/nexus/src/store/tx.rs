//! A transaction on whichever database it is, so that long work is written once, and not once for each.

use std::borrow::Cow;

use sqlx::pool::PoolConnection;
use sqlx::postgres::PgRow;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{FromRow, Postgres, Sqlite, Transaction};
use tokio::sync::OwnedSemaphorePermit;

use super::bulk::Bulk;
use super::{Db, Store, StoreError};

/// What stands for a place in a statement.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    Int(Option<i64>),
    Text(Option<&'a str>),
    Bytes(&'a [u8]),
}

/// A row that both databases can give.
pub trait Found: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin {}

impl<T> Found for T where T: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin {}

/// A transaction that changes something. Given up, it changes nothing.
#[derive(Debug)]
pub enum Tx {
    Sqlite(Immediate),
    Postgres(Transaction<'static, Postgres>),
}

/// A transaction of SQLite that may write from its beginning on.
///
/// SQLite ends one by itself after some failures. The library would then count one that is not there for as long as the
/// connection lives, and refuse to begin another in this way: so none of it is told to the library.
#[derive(Debug)]
pub struct Immediate {
    /// None: it has ended.
    connection: Option<PoolConnection<Sqlite>>,
    _turn: Option<OwnedSemaphorePermit>,
}

impl Immediate {
    async fn begin(mut connection: PoolConnection<Sqlite>, turn: Option<OwnedSemaphorePermit>) -> sqlx::Result<Self> {
        if let Err(error) = sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await {
            connection.close_on_drop();
            return Err(error);
        }
        Ok(Self { connection: Some(connection), _turn: turn })
    }

    fn connection(&mut self) -> sqlx::Result<&mut SqliteConnection> {
        self.connection.as_deref_mut().ok_or(sqlx::Error::WorkerCrashed)
    }

    async fn end(mut self, how: &'static str) -> sqlx::Result<()> {
        sqlx::query(how).execute(self.connection()?).await?;
        self.connection = None;
        Ok(())
    }
}

impl Drop for Immediate {
    /// Nobody knows what it has left in the connection.
    fn drop(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.close_on_drop();
        }
    }
}

macro_rules! bound {
    ($query:expr, $values:expr) => {{
        let mut query = $query;
        for value in $values {
            query = match *value {
                Value::Int(number) => query.bind(number),
                Value::Text(text) => query.bind(text.map(without_nul)),
                Value::Bytes(bytes) => query.bind(bytes),
            };
        }
        query
    }};
}

/// PostgreSQL takes no text with a NUL in it, and what agents say is anything.
fn without_nul(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}

impl Store {
    /// Begins to write. On SQLite nobody else writes from here on.
    pub async fn begin(&self) -> Result<Tx, StoreError> {
        Ok(match &self.db {
            Db::Sqlite(db) => {
                let turn = self.turn().await;
                Tx::Sqlite(Immediate::begin(db.acquire().await?, turn).await?)
            }
            Db::Postgres(db) => Tx::Postgres(db.begin().await?),
        })
    }

    pub(super) async fn find<T: Found>(&self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<T>, StoreError> {
        Ok(on_db!(self, |db| bound!(sqlx::query_as(sql), values).fetch_all(db).await?))
    }
}

impl Tx {
    /// How many rows it changed.
    pub(super) async fn execute(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<u64, StoreError> {
        Ok(match self {
            Tx::Sqlite(tx) => bound!(sqlx::query(sql), values).execute(tx.connection()?).await?.rows_affected(),
            Tx::Postgres(tx) => bound!(sqlx::query(sql), values).execute(&mut **tx).await?.rows_affected(),
        })
    }

    pub(super) async fn find<T: Found>(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Vec<T>, StoreError> {
        Ok(match self {
            Tx::Sqlite(tx) => bound!(sqlx::query_as(sql), values).fetch_all(tx.connection()?).await?,
            Tx::Postgres(tx) => bound!(sqlx::query_as(sql), values).fetch_all(&mut **tx).await?,
        })
    }

    /// Adds rows, whose values follow each other.
    pub(super) async fn add(&mut self, bulk: &'static Bulk, values: &[Value<'_>]) -> Result<(), StoreError> {
        let mut rest = values;
        while !rest.is_empty() {
            let (length, sql) = bulk.longest(rest.len() / bulk.columns, self.numbered());
            let (now, later) = rest.split_at((length * bulk.columns).min(rest.len()));
            self.execute(sql, now).await?;
            rest = later;
        }
        Ok(())
    }

    /// PostgreSQL counts the places of a statement. SQLite would look each number up by going through all of them.
    pub(super) fn numbered(&self) -> bool {
        matches!(self, Tx::Postgres(_))
    }

    pub async fn commit(self) -> Result<(), StoreError> {
        match self {
            Tx::Sqlite(tx) => tx.end("COMMIT").await.map_err(StoreError::Commit),
            Tx::Postgres(tx) => tx.commit().await.map_err(StoreError::Commit),
        }
    }

    /// Waits until nothing of it is left: the next one that writes would meet it otherwise.
    pub async fn give_up(self) {
        let _ = match self {
            // Fails where SQLite has done it: then the connection goes.
            Tx::Sqlite(tx) => tx.end("ROLLBACK").await,
            Tx::Postgres(tx) => tx.rollback().await,
        };
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Value::Int(Some(number))
    }
}

impl From<Option<i64>> for Value<'_> {
    fn from(number: Option<i64>) -> Self {
        Value::Int(number)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::Text(Some(text))
    }
}

impl<'a> From<Option<&'a str>> for Value<'a> {
    fn from(text: Option<&'a str>) -> Self {
        Value::Text(text)
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Value::Bytes(bytes)
    }
}
