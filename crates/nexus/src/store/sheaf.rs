//! How rows are found: entries that hold the places of rows of about the same time with one session, tool and outcome.
//!
//! Entries may come a moment after their rows: a write waits for its row, and nobody waits for an entry. What a killed
//! process did not list is listed by the next one.

use std::collections::HashMap;
use std::sync::Arc;

use nexus_core::audit::Row;
use uuid::Uuid;

use super::body::Place;
use super::inserts::{NUMBERED, UNNUMBERED};
use super::position::{position, written_ms};
use super::rows::Entry;
use super::ship::LATEST_COMMIT_MS;
use super::{Db, Store, StoreError, onward};

/// When appended rows become findable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    Now,
    Later,
}

/// A row that is written and cannot be found yet.
#[derive(Debug)]
pub struct Unlisted {
    session: Option<Uuid>,
    tool: Option<Arc<str>>,
    outcome: &'static str,
    pub pos: i64,
}

impl Unlisted {
    pub fn of(row: &Row, pos: i64) -> Self {
        let call = row.call.as_ref();
        let outcome = call.and_then(|call| call.outcome).unwrap_or_else(|| row.event.as_str());
        Self { session: row.session, tool: call.map(|call| call.tool.clone()), outcome, pos }
    }
}

/// What rows are found by, and their positions in order.
pub struct Sheaf {
    pub session: String,
    pub tool: String,
    pub outcome: String,
    pub places: Vec<i64>,
}

/// Rows that lie further apart have entries of their own, even if the store refused them together.
fn moment(pos: i64) -> i64 {
    written_ms(pos) >> 16
}

pub fn sheaves<'a>(rows: impl IntoIterator<Item = &'a Unlisted>) -> Vec<Sheaf> {
    type Key<'a> = (Option<Uuid>, Option<&'a str>, &'a str, i64);
    let mut known: HashMap<Key<'_>, usize> = HashMap::new();
    let mut sheaves: Vec<Sheaf> = Vec::new();
    for Unlisted { session, tool, outcome, pos } in rows {
        let nth = *known.entry((*session, tool.as_deref(), outcome, moment(*pos))).or_insert_with(|| {
            sheaves.push(Sheaf {
                session: session.map(|id| id.to_string()).unwrap_or_default(),
                tool: tool.as_deref().unwrap_or_default().to_owned(),
                outcome: (*outcome).to_owned(),
                places: Vec::new(),
            });
            sheaves.len() - 1
        });
        sheaves[nth].places.push(*pos);
    }
    sheaves
}

pub const LISTED: &str = "UPDATE chain SET listed_seq = $1, listed_pos = $2 WHERE id = $3";

/// Adds entries within a transaction.
macro_rules! insert_sheaves {
    ($transaction:ident, $inserts:ident, $sheaves:expr) => {
        let mut rest = $sheaves.into_iter();
        while rest.len() > 0 {
            let (length, insert) = $crate::store::inserts::longest(&$inserts.sheaves, rest.len());
            let mut query = sqlx::query(sqlx::AssertSqlSafe(insert.as_str()));
            for sheaf in rest.by_ref().take(*length) {
                query = query.bind(sheaf.places.last().copied()).bind(sheaf.session).bind(sheaf.tool);
                query = query.bind(sheaf.outcome).bind($crate::store::rows::packed(&sheaf.places));
            }
            query.execute(&mut *$transaction).await?;
        }
    };
}
pub(super) use insert_sheaves;

const PAGE: i64 = 500;

impl Store {
    /// Lists what a process has written and did not list, which nobody else does any more.
    pub async fn relist(&self, chain: &str) -> Result<(), StoreError> {
        let ends: Option<(i64, i64, i64, i64)> = on_db!(self, |db| {
            let ends = sqlx::query_as("SELECT started_ms, listed_seq, listed_pos, head_seq FROM chain WHERE id = $1");
            ends.bind(chain).fetch_optional(db).await?
        });
        let Some((started_ms, listed, listed_pos, head)) = ends.filter(|(_, listed, _, head)| listed < head) else {
            return Ok(());
        };
        let mut after = listed_pos.max(position(started_ms - LATEST_COMMIT_MS) - 1);
        let mut sheaves: HashMap<(String, String, String, i64), Vec<i64>> = HashMap::new();
        let (mut seq, mut last) = (listed, listed_pos);
        while seq < head {
            let page: Vec<Entry> = on_db!(self, |db| {
                let page = sqlx::query_as("SELECT pos, body FROM audit WHERE pos > $1 ORDER BY pos LIMIT $2");
                page.bind(after).bind(PAGE).fetch_all(db).await?
            });
            let Some(end) = page.last() else { break };
            after = onward(after, end.pos)?;
            for Entry { pos, body } in &page {
                Place::read(body, |place| {
                    if place.chain == chain && place.seq > listed {
                        let found = place.found();
                        let (session, tool) = (found.session.to_owned(), found.tool.to_owned());
                        let key = (session, tool, found.outcome.to_owned(), moment(*pos));
                        sheaves.entry(key).or_default().push(*pos);
                        (seq, last) = (place.seq, *pos);
                    }
                });
            }
        }
        let sheaves: Vec<Sheaf> = sheaves
            .into_iter()
            .map(|((session, tool, outcome, _), places)| Sheaf { session, tool, outcome, places })
            .collect();
        let _turn = self.turn().await;
        on_db!(self, |db, inserts| {
            let mut transaction = db.begin().await?;
            sqlx::query(LISTED).bind(seq).bind(last).bind(chain).execute(&mut *transaction).await?;
            insert_sheaves!(transaction, inserts, sheaves);
            transaction.commit().await?;
        });
        Ok(())
    }
}
