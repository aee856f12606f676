//! Proves the record: goes through every row and every chain, and names whatever does not fit.

use std::collections::{BTreeMap, HashMap};

use futures_util::TryStreamExt;
use serde::Deserialize;
use sqlx::{FromRow, Row as _};

use super::body::{self, Hash, Kept};
use super::chain::{Link, genesis};
use super::{Db, Store, StoreError, hex, unhex};

/// Rows read at once.
const PAGE: i64 = 4_096;
/// Findings that are kept word by word; the others are counted.
const MOST_FINDINGS: usize = 200;

/// What came of it.
#[derive(Debug, Default)]
pub struct Verified {
    pub rows: u64,
    pub chains: usize,
    /// Rows that retention has taken away, with a row that vouches for each part.
    pub pruned: i64,
    pub findings: Vec<String>,
    pub further: usize,
}

impl Verified {
    pub fn holds(&self) -> bool {
        self.findings.is_empty()
    }

    fn find(&mut self, finding: String) {
        if self.findings.len() < MOST_FINDINGS {
            self.findings.push(finding);
        } else {
            self.further += 1;
        }
    }
}

#[derive(Debug, FromRow)]
struct ChainRow {
    id: String,
    home: String,
    started_ms: i64,
    previous_id: String,
    previous_seq: i64,
    previous_hash: String,
    head_seq: i64,
    head_hash: String,
    pruned_seq: i64,
    pruned_hash: String,
    pruned_by_chain: String,
    pruned_by_seq: i64,
}

/// How far a chain has been followed.
struct Walk {
    row: ChainRow,
    seq: i64,
    /// None: what came before is unknown, and has been reported.
    hash: Option<Hash>,
    /// Rows that others rely on: their hash, or the words with which they vouch.
    wanted: BTreeMap<i64, Option<String>>,
}

/// The part of a body that says where it belongs. Borrowed: the common row has no escapes in these.
#[derive(Deserialize)]
struct Place<'a> {
    chain: &'a str,
    seq: i64,
    event: &'a str,
    session: Option<&'a str>,
    tool: Option<&'a str>,
    outcome: Option<&'a str>,
}

#[derive(Debug, FromRow)]
struct Stored {
    pos: i64,
    session: String,
    tool: String,
    outcome: String,
    body: String,
}

const CHAINS: &str = "SELECT id, home, started_ms, previous_id, previous_seq, previous_hash, head_seq, head_hash, \
     pruned_seq, pruned_hash, pruned_by_chain, pruned_by_seq FROM chain";
const ROWS: &str = "SELECT pos, session, tool, outcome, body FROM audit WHERE pos > $1 ORDER BY pos LIMIT $2";

impl Store {
    /// Goes through everything as it is at one moment. `progress` is told how many rows are done.
    pub async fn verify(&self, mut progress: impl FnMut(u64)) -> Result<Verified, StoreError> {
        let mut verified = Verified::default();
        on_db!(self, |db| {
            // Others go on writing: this sees the store as it was at the first look.
            let mut moment = match &self.db {
                Db::Sqlite(_) => db.begin().await?,
                Db::Postgres(_) => db.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?,
            };
            let chains: Vec<ChainRow> = sqlx::query_as(CHAINS).fetch_all(&mut *moment).await?;
            let mut walks = begin(chains, &mut verified);
            let mut after = None;
            loop {
                let before = after;
                let from = before.unwrap_or(i64::MIN);
                let mut page = sqlx::query(ROWS).bind(from).bind(PAGE).fetch(&mut *moment);
                loop {
                    let row = match page.try_next().await.map_err(StoreError::from) {
                        Ok(Some(row)) => row,
                        Ok(None) => break,
                        Err(error) if error.is_damage() => {
                            verified.find(unreadable(after, &error));
                            return Ok(verified);
                        }
                        Err(error) => return Err(error),
                    };
                    after = Some(row.try_get(0)?);
                    match Stored::from_row(&row) {
                        Ok(stored) => check_row(&stored, &mut walks, &mut verified),
                        Err(error) => verified.find(unreadable(after, &error.into())),
                    }
                }
                drop(page);
                if after == before {
                    break;
                }
                progress(verified.rows);
            }
            moment.rollback().await?;
            end(&walks, &mut verified);
        });
        Ok(verified)
    }

    /// What SQLite finds wrong with its own file: damaged pages, and indexes that hide rows.
    pub async fn integrity(&self) -> Result<Vec<String>, StoreError> {
        let Db::Sqlite(db) = &self.db else { return Ok(Vec::new()) };
        let said: Vec<String> = sqlx::query_scalar("PRAGMA integrity_check(20)").fetch_all(db).await?;
        Ok(said.into_iter().filter(|line| line != "ok").collect())
    }
}

fn unreadable(at: Option<i64>, error: &StoreError) -> String {
    let place = at.map_or_else(|| "the record's beginning".to_owned(), |pos| format!("the row at {pos}"));
    format!("{place}, or what follows it, cannot be read: {}", nexus_core::Chain(error))
}

fn begin(chains: Vec<ChainRow>, verified: &mut Verified) -> HashMap<String, Walk> {
    verified.chains = chains.len();
    let mut wanted: HashMap<String, BTreeMap<i64, Option<String>>> = HashMap::new();
    for row in &chains {
        // The last row that the next chain saw must be there, or pruned.
        if !row.previous_id.is_empty() {
            wanted.entry(row.previous_id.clone()).or_default().entry(row.previous_seq).or_insert(None);
        }
        if row.pruned_seq > 0 {
            let mark = Link { chain: row.id.clone(), seq: row.pruned_seq, hash: row.pruned_hash.clone() };
            let words = Some(mark.vouched());
            wanted.entry(row.pruned_by_chain.clone()).or_default().insert(row.pruned_by_seq, words);
        }
        verified.pruned += row.pruned_seq;
    }
    let walks: HashMap<String, Walk> = chains
        .into_iter()
        .map(|row| {
            let previous =
                Link { chain: row.previous_id.clone(), seq: row.previous_seq, hash: row.previous_hash.clone() };
            let (seq, hash) = match row.pruned_seq {
                0 => (0, Some(genesis(&row.id, &row.home, row.started_ms, &previous))),
                seq => (seq, unhex(&row.pruned_hash)),
            };
            let wanted = wanted.remove(&row.id).unwrap_or_default();
            (row.id.clone(), Walk { seq, hash, wanted, row })
        })
        .collect();
    for (missing, _) in wanted {
        verified.find(format!("chain {missing} is missing: another chain refers to it"));
    }
    for walk in walks.values() {
        let Link { chain, seq, hash } = Link {
            chain: walk.row.previous_id.clone(),
            seq: walk.row.previous_seq,
            hash: walk.row.previous_hash.clone(),
        };
        // A pruned row's hash is known only where it was the last one.
        if let Some(before) = walks.get(&chain)
            && before.row.pruned_seq == seq
            && before.row.pruned_hash != hash
        {
            verified.find(format!("chain {} began behind another row {seq} of chain {chain}", walk.row.id));
        }
    }
    walks
}

fn check_row(stored: &Stored, walks: &mut HashMap<String, Walk>, verified: &mut Verified) {
    verified.rows += 1;
    let Stored { pos, body, .. } = stored;
    let owned;
    let place = match serde_json::from_str::<Place<'_>>(body) {
        Ok(place) => place,
        Err(_) => {
            owned = match Kept::parse(body) {
                Ok(kept) => kept,
                Err(_) => return verified.find(format!("the row at {pos} is not a row any more: it was changed")),
            };
            Place {
                chain: &owned.chain,
                seq: owned.seq,
                event: &owned.event,
                session: owned.session.as_deref(),
                tool: owned.tool.as_deref(),
                outcome: owned.outcome.as_deref(),
            }
        }
    };
    let Place { chain, seq, event, session, tool, outcome } = place;
    let Some(walk) = walks.get_mut(chain) else {
        return verified.find(format!("the row at {pos} belongs to chain {chain}, which does not exist"));
    };
    if seq <= walk.row.pruned_seq {
        // Pruned and not yet deleted.
        verified.rows -= 1;
        return;
    }
    let repeated = (session.unwrap_or_default(), tool.unwrap_or_default(), outcome.unwrap_or(event));
    if repeated != (stored.session.as_str(), stored.tool.as_str(), stored.outcome.as_str()) {
        verified.find(format!("row {seq} of chain {chain} (at {pos}): the columns differ from the row"));
    }
    if seq <= walk.seq {
        return verified
            .find(format!("row {seq} of chain {chain} (at {pos}) is out of order: it came after {}", walk.seq));
    }
    if seq > walk.seq + 1 {
        verified.find(match (walk.seq + 1, seq - 1) {
            (first, last) if first == last => format!("row {first} of chain {chain} is missing"),
            (first, last) => format!("rows {first} to {last} of chain {chain} are missing"),
        });
        walk.hash = None;
    }
    walk.seq = seq;
    let before = walk.hash.unwrap_or_default();
    let Some((says, should)) = body::check(&before, *pos, body) else {
        walk.hash = None;
        return verified.find(format!("row {seq} of chain {chain} (at {pos}) was changed: it has no hash"));
    };
    if walk.hash.is_some() && says != should {
        verified.find(format!("row {seq} of chain {chain} (at {pos}) was changed, or the one before it"));
    }
    walk.hash = Some(says);
    if let Some(words) = walk.wanted.remove(&seq)
        && let Some(words) = words
        && !(event == "pruned" && Kept::parse(body).is_ok_and(|kept| kept.detail.as_deref() == Some(&words)))
    {
        verified.find(format!("row {seq} of chain {chain} does not vouch for what was pruned: {words}"));
    }
}

fn end(walks: &HashMap<String, Walk>, verified: &mut Verified) {
    for (chain, walk) in walks {
        if walk.seq < walk.row.head_seq {
            let (first, last) = (walk.seq + 1, walk.row.head_seq);
            verified.find(format!("rows {first} to {last}, the newest of chain {chain}, are missing"));
        } else if walk.seq > walk.row.head_seq || walk.hash.is_some_and(|hash| hex(&hash) != walk.row.head_hash) {
            verified.find(format!("the end of chain {chain} is not the one that was recorded"));
        }
        for (seq, words) in walk.wanted.iter().filter(|(seq, _)| **seq > walk.row.pruned_seq) {
            let why = words.as_deref().unwrap_or("the next chain began behind it");
            verified.find(format!("row {seq} of chain {chain} is missing: {why}"));
        }
    }
}
