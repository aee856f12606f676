//! How far each chain has been shipped to Loki, and what Loki would not take.
//!
//! There is a cursor per chain and not one for all: several processes write into one store, and a row may be committed
//! after one with a greater position.

use futures_util::TryStreamExt;
use serde::Deserialize;
use sqlx::FromRow;

use super::body::Kept;
use super::position::{position, written_ms};
use super::rows::{Entry, Filter};
use super::{Store, StoreError};
use nexus_core::clock;

/// Where rows are pushed to, below `LOKI_URL`.
pub const PUSH_PATH: &str = "/loki/api/v1/push";
/// A row is committed within this of the time that its position tells, or its writer has failed: the store waits 5 s.
pub const LATEST_COMMIT_MS: i64 = 60_000;
/// Rows that are looked at for the oldest row that waits, and for the last push that was taken.
const LOOKED_AT: u32 = 2_000;
const PUSHES: u32 = 500;

/// A chain with rows that Loki does not have.
#[derive(Clone, Debug, FromRow)]
pub struct Lagging {
    pub id: String,
    pub started_ms: i64,
    pub head_seq: i64,
    /// Shipped up to here. What is pruned counts as shipped.
    pub shipped_seq: i64,
    pub shipped_pos: i64,
}

impl Lagging {
    pub fn rows(&self) -> i64 {
        self.head_seq - self.shipped_seq
    }

    /// Its first row that waits lies behind this, unless the clock was set back.
    pub fn likely_after(&self) -> i64 {
        self.shipped_pos.max(position(self.started_ms - LATEST_COMMIT_MS) - 1)
    }
}

/// Up to where a chain is shipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shipped {
    pub chain: String,
    pub seq: i64,
    pub pos: i64,
}

/// A row that Loki refused for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    pub pos: i64,
    pub reason: String,
}

/// The state of shipping, for `nexus audit status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shipping {
    /// Rows that Loki does not have yet.
    pub unshipped: i64,
    /// When the oldest of them was written.
    pub oldest_ms: Option<i64>,
    /// Rows that Loki refused for good; the last reason it gave.
    pub aside: i64,
    pub last_reason: Option<String>,
    /// The last push, and the last one that Loki took, as far as the newest rows tell.
    pub last_push: Option<Push>,
    pub last_taken: Option<Push>,
}

/// A push as the record tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    pub at_ms: i64,
    /// `POST http://loki:3100/loki/api/v1/push 204, 1000 rows, 35 kB, 12 ms`
    pub told: String,
}

impl Push {
    pub fn is_taken(&self) -> bool {
        let status = self.told.split(' ').nth(2).unwrap_or_default();
        matches!(status, "200," | "202," | "204,")
    }
}

/// The part of a body that tells whether it is the row of a push.
#[derive(Deserialize)]
struct Outbound<'a> {
    event: &'a str,
    session: Option<&'a str>,
    principal: Option<&'a str>,
    detail: Option<String>,
}

/// What a row says, if it is that of a push to Loki by the hub itself. These rows are not shipped: each push makes one,
/// and shipping it would take another.
pub fn push_told(body: &str) -> Option<String> {
    // The cheap look first: every row that is shipped comes by here.
    if !body.contains(r#""event":"outbound""#) {
        return None;
    }
    let row: Outbound<'_> = serde_json::from_str(body).ok()?;
    let ours = row.event == "outbound" && row.session.is_none() && row.principal.is_none();
    row.detail.filter(|told| ours && tells_of_push(told))
}

/// Whether the words of an outbound request are those of a push.
pub fn tells_of_push(told: &str) -> bool {
    told.strip_prefix("POST ").and_then(|rest| rest.split(' ').next()).is_some_and(|url| url.ends_with(PUSH_PATH))
}

const SHIPPED: &str = "CASE WHEN shipped_seq > pruned_seq THEN shipped_seq ELSE pruned_seq END";
const UPTO: &str = "UPDATE chain SET shipped_seq = $1, shipped_pos = $2 WHERE id = $3 AND shipped_seq < $1";
const SET_ASIDE: &str = "INSERT INTO aside (pos, at_ms, reason) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
const PAGE: &str = "SELECT pos, body FROM audit WHERE pos > $1 ORDER BY pos LIMIT $2";

impl Store {
    /// The chains of this data folder that Loki does not have all of.
    pub async fn lagging(&self, home: &str) -> Result<Vec<Lagging>, StoreError> {
        let lagging = format!(
            "SELECT id, started_ms, head_seq, {SHIPPED} AS shipped_seq, shipped_pos FROM chain \
             WHERE home = $1 AND head_seq > shipped_seq AND head_seq > pruned_seq ORDER BY started_ms"
        );
        Ok(on_db!(self, |db| sqlx::query_as(sqlx::AssertSqlSafe(lagging)).bind(home).fetch_all(db).await?))
    }

    /// Rows behind a position in the order of writing, no more than `rows` and not many more than `bytes`.
    pub async fn page(&self, after: i64, rows: usize, bytes: usize) -> Result<Vec<Entry>, StoreError> {
        let limit = i64::try_from(rows).unwrap_or(i64::MAX);
        let mut page: Vec<Entry> = Vec::new();
        let mut size = 0;
        on_db!(self, |db| {
            let mut coming = sqlx::query_as::<_, Entry>(PAGE).bind(after).bind(limit).fetch(db);
            while size < bytes
                && let Some(entry) = coming.try_next().await?
            {
                size += entry.body.len();
                page.push(entry);
            }
        });
        Ok(page)
    }

    /// Moves the cursors on and sets aside what was refused, both or neither.
    pub async fn shipped(&self, upto: &[Shipped], aside: &[Aside]) -> Result<(), StoreError> {
        let _turn = self.turn().await;
        on_db!(self, |db| {
            let mut transaction = db.begin().await?;
            for Shipped { chain, seq, pos } in upto {
                sqlx::query(UPTO).bind(seq).bind(pos).bind(chain).execute(&mut *transaction).await?;
            }
            for Aside { pos, reason } in aside {
                let set = sqlx::query(SET_ASIDE).bind(pos).bind(clock::now_ms()).bind(reason);
                set.execute(&mut *transaction).await?;
            }
            transaction.commit().await?;
        });
        Ok(())
    }

    /// Rows set aside so far.
    pub async fn aside(&self) -> Result<i64, StoreError> {
        Ok(on_db!(self, |db| sqlx::query_scalar("SELECT COUNT(*) FROM aside").fetch_one(db).await?))
    }

    /// How shipping goes, from what is on disk: any process may ask.
    pub async fn shipping(&self, home: &str) -> Result<Shipping, StoreError> {
        let lagging = self.lagging(home).await?;
        let outbound = Filter { outcome: Some("outbound".to_owned()), ..Filter::default() };
        let pushes = self.newest(&outbound, None, PUSHES).await?;
        let mut pushes = pushes
            .iter()
            .filter_map(|entry| push_told(&entry.body).map(|told| Push { at_ms: written_ms(entry.pos), told }));
        let last_push = pushes.next();
        let last_taken = last_push.clone().filter(Push::is_taken).or_else(|| pushes.find(Push::is_taken));
        let last_reason: Option<String> = on_db!(self, |db| {
            let reason = sqlx::query_scalar("SELECT reason FROM aside ORDER BY at_ms DESC, pos DESC LIMIT 1");
            reason.fetch_optional(db).await?
        });
        Ok(Shipping {
            unshipped: lagging.iter().map(Lagging::rows).sum(),
            oldest_ms: self.oldest_waiting(&lagging).await?,
            aside: self.aside().await?,
            last_reason,
            last_push,
            last_taken,
        })
    }

    /// When the oldest row that waits was written. None also when it is not found soon: then it is one of many.
    async fn oldest_waiting(&self, lagging: &[Lagging]) -> Result<Option<i64>, StoreError> {
        let Some(after) = lagging.iter().map(Lagging::likely_after).min() else { return Ok(None) };
        let page = self.page(after, LOOKED_AT as usize, usize::MAX).await?;
        let waits = |entry: &&Entry| {
            Kept::parse(&entry.body)
                .is_ok_and(|kept| lagging.iter().any(|chain| chain.id == kept.chain && kept.seq > chain.shipped_seq))
        };
        Ok(page.iter().find(waits).map(|entry| written_ms(entry.pos)))
    }
}
