//! Keys made with `nexus key new`, and levels that hold for a time.

use jiff::Timestamp;
use sqlx::FromRow;

use nexus_core::principal::{Level, Patterns, SessionPolicy};

use super::{Store, StoreError, hex, unhex};

/// A key as `nexus key new` made it.
#[derive(Clone, Debug)]
pub struct StoredKey {
    pub name: String,
    pub sha256: [u8; 32],
    pub level: Level,
    pub allow: Patterns,
    pub deny: Patterns,
    pub approved: Patterns,
    pub read_only: bool,
    pub session: SessionPolicy,
    pub created: Timestamp,
    pub expires: Option<Timestamp>,
    /// An agent's key: the target it serves.
    pub target: Option<String>,
}

/// A level that holds until then, whatever the key's own is.
#[derive(Clone, Debug)]
pub struct RaisedLevel {
    pub name: String,
    pub sha256: [u8; 32],
    pub level: Level,
    pub until: Timestamp,
}

const ADD: &str = "INSERT INTO api_key \
     (name, sha256, level, allow, deny, approved, read_only, session, created_ms, expires_ms, target) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING";
const ALL: &str = "SELECT name, sha256, level, allow, deny, approved, read_only, session, created_ms, expires_ms, \
     target FROM api_key ORDER BY name";
const RAISE: &str = "INSERT INTO key_level (name, sha256, level, until_ms) VALUES ($1, $2, $3, $4) \
     ON CONFLICT (name) DO UPDATE SET sha256 = $2, level = $3, until_ms = $4";

impl Store {
    pub async fn keys(&self) -> Result<Vec<StoredKey>, StoreError> {
        let rows: Vec<KeyRow> = on_db!(self, |db| sqlx::query_as(ALL).fetch_all(db).await?);
        rows.into_iter().map(StoredKey::try_from).collect()
    }

    /// False: there is a key of that name already.
    pub async fn add_key(&self, key: &StoredKey) -> Result<bool, StoreError> {
        let added = on_db!(self, |db| {
            let add = sqlx::query(ADD).bind(&key.name).bind(hex(&key.sha256)).bind(key.level.as_str());
            let add = add.bind(joined(&key.allow)).bind(joined(&key.deny)).bind(joined(&key.approved));
            let add = add.bind(i64::from(key.read_only)).bind(session_word(key.session));
            let add = add.bind(key.created.as_millisecond()).bind(key.expires.map(Timestamp::as_millisecond));
            add.bind(&key.target).execute(db).await?.rows_affected()
        });
        Ok(added == 1)
    }

    /// False: there was none of that name.
    pub async fn remove_key(&self, name: &str) -> Result<bool, StoreError> {
        Ok(on_db!(self, |db| {
            sqlx::query("DELETE FROM api_key WHERE name = $1").bind(name).execute(db).await?.rows_affected() == 1
        }))
    }

    /// Changes the level of a key for good. False: there is none of that name.
    pub async fn set_level(&self, name: &str, level: Level) -> Result<bool, StoreError> {
        Ok(on_db!(self, |db| {
            let set = sqlx::query("UPDATE api_key SET level = $1 WHERE name = $2").bind(level.as_str()).bind(name);
            set.execute(db).await?.rows_affected() == 1
        }))
    }

    pub async fn raised_levels(&self) -> Result<Vec<RaisedLevel>, StoreError> {
        let rows: Vec<(String, String, String, i64)> = on_db!(self, |db| {
            sqlx::query_as("SELECT name, sha256, level, until_ms FROM key_level").fetch_all(db).await?
        });
        let raised = |(name, sha256, level, until): (String, String, String, i64)| {
            let bad = |what| StoreError::BadKey { name: name.clone(), what };
            Ok(RaisedLevel {
                sha256: unhex(&sha256).ok_or_else(|| bad("digest"))?,
                level: Level::parse(&level).ok_or_else(|| bad("level"))?,
                until: Timestamp::from_millisecond(until).map_err(|_| bad("date"))?,
                name,
            })
        };
        rows.into_iter().map(raised).collect()
    }

    pub async fn raise_level(&self, raised: &RaisedLevel) -> Result<(), StoreError> {
        on_db!(self, |db| {
            let raise = sqlx::query(RAISE).bind(&raised.name).bind(hex(&raised.sha256)).bind(raised.level.as_str());
            raise.bind(raised.until.as_millisecond()).execute(db).await?;
        });
        Ok(())
    }

    /// False: no raised level was there any more.
    pub async fn lower_level(&self, name: &str) -> Result<bool, StoreError> {
        Ok(on_db!(self, |db| {
            sqlx::query("DELETE FROM key_level WHERE name = $1").bind(name).execute(db).await?.rows_affected() == 1
        }))
    }

    /// Forgets a raised level whose time is over, but not one that was raised anew meanwhile.
    pub async fn forget_raise(&self, raised: &RaisedLevel) -> Result<bool, StoreError> {
        Ok(on_db!(self, |db| {
            let forget = sqlx::query("DELETE FROM key_level WHERE name = $1 AND until_ms = $2").bind(&raised.name);
            forget.bind(raised.until.as_millisecond()).execute(db).await?.rows_affected() == 1
        }))
    }
}

#[derive(FromRow)]
struct KeyRow {
    name: String,
    sha256: String,
    level: String,
    allow: String,
    deny: String,
    approved: String,
    read_only: i64,
    session: String,
    created_ms: i64,
    expires_ms: Option<i64>,
    target: Option<String>,
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
            approved: split(&row.approved).ok_or_else(|| bad("list of approved tools"))?,
            read_only: row.read_only != 0,
            session: match row.session.as_str() {
                "auto" => SessionPolicy::Auto,
                "lease" => SessionPolicy::Lease,
                _ => return Err(bad("session policy")),
            },
            created: Timestamp::from_millisecond(row.created_ms).map_err(|_| bad("date"))?,
            expires: row.expires_ms.map(Timestamp::from_millisecond).transpose().map_err(|_| bad("expiry"))?,
            name: row.name,
            target: row.target,
        })
    }
}

fn session_word(policy: SessionPolicy) -> &'static str {
    match policy {
        SessionPolicy::Auto => "auto",
        SessionPolicy::Lease => "lease",
    }
}

fn joined(patterns: &Patterns) -> String {
    patterns.iter().collect::<Vec<_>>().join(" ")
}

fn split(text: &str) -> Option<Patterns> {
    Patterns::parse(text.split_whitespace().map(str::to_owned)).ok()
}
