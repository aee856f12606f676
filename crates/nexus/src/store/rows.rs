//! Reading the record: newest first with any filter, or in the order of writing.
//!
//! Two indexes answer every filter in milliseconds, however many rows there are: they are ordered by tool and
//! outcome, and by session, tool and outcome. A filter that leaves one of these open goes through the few pairs of
//! tool and outcome that exist, newest first, and stops when no other pair can have a newer row.

use sqlx::{AssertSqlSafe, FromRow};

use super::chain::position;
use super::{Store, StoreError};

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

/// A row as it is kept.
#[derive(Clone, Debug, FromRow)]
pub struct Entry {
    pub pos: i64,
    pub body: String,
}

/// The pairs of tool and outcome that a filter leaves, each with its newest row before `$1`.
fn pairs(filter: &Filter) -> String {
    let among = if filter.session.is_some() { "session = $2 AND" } else { "" };
    let tools = match filter.tool {
        Some(_) => "SELECT CAST($3 AS TEXT)".to_owned(),
        None => format!(
            "SELECT MIN(tool) FROM audit WHERE {among} tool >= '' UNION ALL \
             SELECT (SELECT MIN(tool) FROM audit WHERE {among} tool > tools.tool) FROM tools WHERE tools.tool IS NOT NULL"
        ),
    };
    let outcomes = match filter.outcome {
        Some(_) => "SELECT tool, CAST($4 AS TEXT) FROM tools WHERE tool IS NOT NULL".to_owned(),
        None => format!(
            "SELECT tool, (SELECT MIN(outcome) FROM audit WHERE {among} audit.tool = tools.tool) FROM tools \
             WHERE tool IS NOT NULL UNION ALL \
             SELECT tool, (SELECT MIN(outcome) FROM audit WHERE {among} audit.tool = pairs.tool \
             AND audit.outcome > pairs.outcome) FROM pairs WHERE outcome IS NOT NULL"
        ),
    };
    format!(
        "WITH RECURSIVE tools(tool) AS ({tools}), pairs(tool, outcome) AS ({outcomes}) \
         SELECT tool, outcome, (SELECT MAX(pos) FROM audit WHERE {among} audit.tool = pairs.tool \
         AND audit.outcome = pairs.outcome AND pos < $1) \
         FROM pairs WHERE outcome IS NOT NULL AND $2 = $2 AND $3 = $3 AND $4 = $4"
    )
}

/// Newest rows of one pair.
fn of_pair(filter: &Filter) -> String {
    let among = if filter.session.is_some() { "session = $6 AND" } else { "$6 = $6 AND" };
    format!(
        "SELECT pos, body FROM audit WHERE {among} tool = $1 AND outcome = $2 AND pos >= $3 AND pos < $4 \
         ORDER BY pos DESC LIMIT $5"
    )
}

const NEWEST: &str = "SELECT pos, body FROM audit WHERE pos >= $1 AND pos < $2 ORDER BY pos DESC LIMIT $3";
const FOLLOWING: &str = "SELECT pos, body FROM audit WHERE pos > $1 \
     AND ($2 = '' OR session = $2) AND ($3 = '' OR tool = $3) AND ($4 = '' OR outcome = $4) ORDER BY pos LIMIT $5";

type Pair = (String, String, Option<i64>);

impl Store {
    /// The newest rows that fit, newest first; `before` is where an earlier answer ended.
    pub async fn newest(&self, filter: &Filter, before: Option<i64>, limit: u32) -> Result<Vec<Entry>, StoreError> {
        let (mut from, before) = (filter.since_ms.map_or(0, position), before.unwrap_or(i64::MAX));
        if filter.session.is_none() && filter.tool.is_none() && filter.outcome.is_none() {
            return Ok(on_db!(self, |db| {
                let newest = sqlx::query_as(NEWEST).bind(from).bind(before).bind(i64::from(limit));
                newest.fetch_all(db).await?
            }));
        }
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let (session, tool, outcome) = (text(&filter.session), text(&filter.tool), text(&filter.outcome));
        let mut pairs: Vec<Pair> = on_db!(self, |db| {
            let pairs = sqlx::query_as(AssertSqlSafe(pairs(filter))).bind(before);
            pairs.bind(&session).bind(&tool).bind(&outcome).fetch_all(db).await?
        });
        pairs.sort_by_key(|(_, _, newest)| std::cmp::Reverse(*newest));
        let (of_pair, most) = (of_pair(filter), usize::try_from(limit).unwrap_or(usize::MAX));
        let mut found: Vec<Entry> = Vec::new();
        for (tool, outcome, newest) in pairs {
            if newest.is_none_or(|newest| newest < from) {
                break;
            }
            let more: Vec<Entry> = on_db!(self, |db| {
                let newest = sqlx::query_as(AssertSqlSafe(of_pair.clone())).bind(tool).bind(outcome).bind(from);
                newest.bind(before).bind(i64::from(limit)).bind(&session).fetch_all(db).await?
            });
            found.extend(more);
            found.sort_by_key(|entry| std::cmp::Reverse(entry.pos));
            found.truncate(most);
            // Nothing older than the last of enough rows is wanted any more.
            from = found.get(most.wrapping_sub(1)).map_or(from, |last| last.pos);
        }
        Ok(found)
    }

    /// Rows behind a position that fit, in the order of writing.
    pub async fn following(&self, filter: &Filter, after: i64, limit: u32) -> Result<Vec<Entry>, StoreError> {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let after = after.max(filter.since_ms.map_or(-1, |since| position(since) - 1));
        Ok(on_db!(self, |db| {
            let following = sqlx::query_as(FOLLOWING).bind(after).bind(text(&filter.session)).bind(text(&filter.tool));
            following.bind(text(&filter.outcome)).bind(i64::from(limit)).fetch_all(db).await?
        }))
    }

    /// Rows in the record, without counting them one by one.
    pub async fn audit_rows(&self) -> Result<i64, StoreError> {
        const ROWS: &str = "SELECT CAST(COALESCE(SUM(head_seq - pruned_seq), 0) AS BIGINT) FROM chain";
        Ok(on_db!(self, |db| sqlx::query_scalar(ROWS).fetch_one(db).await?))
    }
}
