//! Reading the record: newest first with any filter, or in the order of writing.
//!
//! What a filter wants is looked up in `audit_place`: one entry for all rows of a batch that share session, tool and
//! outcome, with their positions. Its two indexes answer every filter in milliseconds, however many rows there are: a
//! filter that leaves tool or outcome open goes through the few pairs of them that exist, newest first, and stops when
//! no other pair can have a newer row.

use sqlx::{AssertSqlSafe, FromRow};

use super::body::Found;
use super::position::{BATCH_SPAN, position};
use super::{Store, StoreError, onward};

/// Which rows are wanted; an empty filter wants all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub session: Option<String>,
    pub tool: Option<String>,
    /// How a call ended, or the event of a row that is no call.
    pub outcome: Option<String>,
    /// Milliseconds since 1970.
    pub since_ms: Option<i64>,
}

impl Filter {
    fn wants_all(&self) -> bool {
        self.session.is_none() && self.tool.is_none() && self.outcome.is_none()
    }

    fn fits(&self, body: &str) -> bool {
        let wants = |wanted: &Option<String>, has: &str| wanted.as_deref().is_none_or(|wanted| wanted == has);
        Found::read(body, |found| {
            wants(&self.session, found.session) && wants(&self.tool, found.tool) && wants(&self.outcome, found.outcome)
        })
        .unwrap_or(false)
    }
}

/// A row as it is kept.
#[derive(Clone, Debug, FromRow)]
pub struct Entry {
    pub pos: i64,
    pub body: String,
}

/// The pairs of tool and outcome that a filter leaves, each with its newest entry before `$1`.
fn pairs(filter: &Filter) -> String {
    let among = if filter.session.is_some() { "session = $2 AND" } else { "" };
    let tools = match filter.tool {
        Some(_) => "SELECT CAST($3 AS TEXT)".to_owned(),
        None => format!(
            "SELECT MIN(tool) FROM audit_place WHERE {among} tool >= '' UNION ALL \
             SELECT (SELECT MIN(tool) FROM audit_place WHERE {among} tool > tools.tool) \
             FROM tools WHERE tools.tool IS NOT NULL"
        ),
    };
    let outcomes = match filter.outcome {
        Some(_) => "SELECT tool, CAST($4 AS TEXT) FROM tools WHERE tool IS NOT NULL".to_owned(),
        None => format!(
            "SELECT tool, (SELECT MIN(outcome) FROM audit_place WHERE {among} audit_place.tool = tools.tool) FROM tools \
             WHERE tool IS NOT NULL UNION ALL \
             SELECT tool, (SELECT MIN(outcome) FROM audit_place WHERE {among} audit_place.tool = pairs.tool \
             AND audit_place.outcome > pairs.outcome) FROM pairs WHERE outcome IS NOT NULL"
        ),
    };
    format!(
        "WITH RECURSIVE tools(tool) AS ({tools}), pairs(tool, outcome) AS ({outcomes}) \
         SELECT tool, outcome, (SELECT MAX(last) FROM audit_place WHERE {among} audit_place.tool = pairs.tool \
         AND audit_place.outcome = pairs.outcome AND last < $1) \
         FROM pairs WHERE outcome IS NOT NULL AND $2 = $2 AND $3 = $3 AND $4 = $4"
    )
}

/// The newest entries of one pair.
fn of_pair(filter: &Filter) -> String {
    let among = if filter.session.is_some() { "session = $6 AND" } else { "$6 = $6 AND" };
    format!(
        "SELECT last, places FROM audit_place WHERE {among} tool = $1 AND outcome = $2 AND last >= $3 AND last < $4 \
         ORDER BY last DESC LIMIT $5"
    )
}

const NEWEST: &str = "SELECT pos, body FROM audit WHERE pos >= $1 AND pos < $2 ORDER BY pos DESC LIMIT $3";
const FOLLOWING: &str = "SELECT pos, body FROM audit WHERE pos > $1 ORDER BY pos LIMIT $2";
const AT: &str = "SELECT pos, body FROM audit WHERE pos IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
const AT_ONCE: usize = 10;

/// Entries, or rows, that are read at once.
const PAGE: i64 = 500;
const ENTRIES: i64 = 50;

type Pair = (String, String, Option<i64>);

/// Positions as an entry keeps them.
pub fn packed(places: &[i64]) -> Vec<u8> {
    places.iter().flat_map(|place| place.to_be_bytes()).collect()
}

pub fn unpacked(places: &[u8]) -> impl Iterator<Item = i64> {
    places.chunks_exact(8).filter_map(|bytes| Some(i64::from_be_bytes(bytes.try_into().ok()?)))
}

impl Store {
    /// The newest rows that fit, newest first; `before` is where an earlier answer ended.
    pub async fn newest(&self, filter: &Filter, before: Option<i64>, limit: u32) -> Result<Vec<Entry>, StoreError> {
        let (from, before) = (filter.since_ms.map_or(0, position), before.unwrap_or(i64::MAX));
        if limit == 0 {
            return Ok(Vec::new());
        }
        if filter.wants_all() {
            return Ok(on_db!(self, |db| {
                let newest = sqlx::query_as(NEWEST).bind(from).bind(before).bind(i64::from(limit));
                newest.fetch_all(db).await?
            }));
        }
        let places = self.newest_places(filter, from, before, usize::try_from(limit).unwrap_or(usize::MAX)).await?;
        self.at(&places).await
    }

    async fn newest_places(
        &self,
        filter: &Filter,
        mut from: i64,
        before: i64,
        most: usize,
    ) -> Result<Vec<i64>, StoreError> {
        // An entry that ends behind `before` may begin in front of it.
        let end = before.saturating_add(BATCH_SPAN);
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let (session, tool, outcome) = (text(&filter.session), text(&filter.tool), text(&filter.outcome));
        let mut pairs: Vec<Pair> = on_db!(self, |db| {
            let pairs = sqlx::query_as(AssertSqlSafe(pairs(filter))).bind(end);
            pairs.bind(&session).bind(&tool).bind(&outcome).fetch_all(db).await?
        });
        pairs.sort_by_key(|(_, _, newest)| std::cmp::Reverse(*newest));
        let of_pair = of_pair(filter);
        let mut found: Vec<i64> = Vec::new();
        for (tool, outcome, newest) in pairs {
            if newest.is_none_or(|newest| newest < from) {
                break;
            }
            let mut end = end;
            loop {
                let entries: Vec<(i64, Vec<u8>)> = on_db!(self, |db| {
                    let entries = sqlx::query_as(AssertSqlSafe(of_pair.clone())).bind(&tool).bind(&outcome).bind(from);
                    entries.bind(end).bind(ENTRIES).bind(&session).fetch_all(db).await?
                });
                let Some((last, _)) = entries.last() else { break };
                end = *last;
                let places = entries.iter().flat_map(|(_, places)| unpacked(places));
                found.extend(places.filter(|place| (from..before).contains(place)));
                found.sort_unstable_by_key(|place| std::cmp::Reverse(*place));
                found.truncate(most);
                // Nothing older than the last of enough rows is wanted any more.
                from = found.get(most.wrapping_sub(1)).copied().unwrap_or(from);
            }
        }
        Ok(found)
    }

    /// The rows at these positions, in their order; those that are gone are left out.
    async fn at(&self, places: &[i64]) -> Result<Vec<Entry>, StoreError> {
        let mut found: Vec<Entry> = Vec::with_capacity(places.len());
        for some in places.chunks(AT_ONCE) {
            let mut entries: Vec<Entry> = on_db!(self, |db| {
                let wanted = (0..AT_ONCE).map(|nth| some.get(nth).or(some.last()).copied().unwrap_or_default());
                let at = wanted.fold(sqlx::query_as(AT), |query, place| query.bind(place));
                at.fetch_all(db).await?
            });
            entries.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.pos));
            found.append(&mut entries);
        }
        Ok(found)
    }

    /// Rows behind a position that fit, in the order of writing.
    pub async fn following(&self, filter: &Filter, after: i64, limit: u32) -> Result<Vec<Entry>, StoreError> {
        let mut after = after.max(filter.since_ms.map_or(-1, |since| position(since) - 1));
        let (most, all) = (usize::try_from(limit).unwrap_or(usize::MAX), filter.wants_all());
        let mut found = Vec::new();
        loop {
            let page: Vec<Entry> =
                on_db!(self, |db| sqlx::query_as(FOLLOWING).bind(after).bind(PAGE).fetch_all(db).await?);
            let Some(last) = page.last() else { return Ok(found) };
            after = onward(after, last.pos)?;
            found.extend(page.into_iter().filter(|entry| all || filter.fits(&entry.body)));
            if found.len() >= most {
                found.truncate(most);
                return Ok(found);
            }
        }
    }

    /// Rows in the record, without counting them one by one.
    pub async fn audit_rows(&self) -> Result<i64, StoreError> {
        const ROWS: &str = "SELECT CAST(COALESCE(SUM(head_seq - pruned_seq), 0) AS BIGINT) FROM chain";
        Ok(on_db!(self, |db| sqlx::query_scalar(ROWS).fetch_one(db).await?))
    }
}
