//! Proves the record: goes through every row and every chain, and names whatever does not fit.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};

use futures_util::TryStreamExt;
use nexus_core::Chain;
use sqlx::{FromRow, Row as _};

use super::body::{self, Found, Hash, Kept, Place};
use super::chain::{Link, genesis};
use super::rows::unpacked;
use super::{Db, Store, StoreError, hex, onward, unhex};

/// Rows read at once.
const PAGE: i64 = 1_000;
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
    listed_seq: i64,
    closed_ms: Option<i64>,
    pruned_seq: i64,
    pruned_hash: String,
    pruned_by_chain: String,
    pruned_by_seq: i64,
}

/// What another chain says of a row.
enum Want {
    /// The next chain began behind this hash.
    Hash(String),
    /// It vouches for a pruned part, in these words.
    Words(String),
}

/// How far a chain has been followed.
struct Walk {
    row: ChainRow,
    seq: i64,
    /// None: what came before is unknown, and has been reported.
    hash: Option<Hash>,
    /// Rows that others rely on.
    wanted: BTreeMap<i64, Vec<Want>>,
}

#[derive(Clone, Copy)]
struct Stored<'a> {
    pos: i64,
    body: &'a str,
}

/// A page of rows in one text: how many, and each with its place. Handed over one by one by the database's thread, they
/// would take longer to come than to be checked.
///
/// Between the two the greatest body: SQLite joins bytes that are not marked as text to the text all the same, but
/// holds them for greater than any text.
type Pack = (i64, Option<String>, Option<String>);

/// What parts place and body, and row and row: no body has these, because JSON writes them in another way.
const WITHIN: &str = "\u{1f}";
const BETWEEN: &str = "\u{1e}";

/// None: not all of its rows can be read, or not in their order.
fn rows_behind(after: i64, (count, _, text): &Pack) -> Option<Vec<Stored<'_>>> {
    let rows = text.as_deref().unwrap_or_default().split(BETWEEN).map(|row| {
        let (pos, body) = row.split_once(WITHIN)?;
        Some(Stored { pos: pos.parse().ok()?, body })
    });
    let rows = rows.collect::<Option<Vec<_>>>()?;
    let in_order = rows.is_sorted_by(|a, b| a.pos < b.pos) && rows.first().is_some_and(|first| first.pos > after);
    (usize::try_from(*count) == Ok(rows.len()) && in_order).then_some(rows)
}

/// The rows that share session, tool and outcome: how many, and the sum of their positions.
#[derive(Default)]
struct Tally {
    count: i64,
    sum: i64,
    first: i64,
}

/// Whether every row can be found by what it says, and nothing else is.
#[derive(Default)]
struct Tallies {
    keys: RandomState,
    by_key: HashMap<u64, Tally>,
    /// The oldest row that is not pruned.
    oldest: Option<i64>,
}

impl Tallies {
    fn row(&mut self, found: Found<'_>, pos: i64) {
        let tally = self.by_key.entry(self.keys.hash_one(found)).or_default();
        if tally.count == 0 {
            tally.first = pos;
        }
        (tally.count, tally.sum) = (tally.count + 1, tally.sum.wrapping_add(pos));
        self.oldest.get_or_insert(pos);
    }

    fn entry(&mut self, found: Found<'_>, last: i64, places: &[u8], verified: &mut Verified) {
        let oldest = self.oldest.unwrap_or(i64::MAX);
        let tally = self.by_key.entry(self.keys.hash_one(found)).or_default();
        // Places of pruned rows stay in an entry as long as one of its rows does.
        for place in unpacked(places).filter(|place| *place >= oldest) {
            (tally.count, tally.sum) = (tally.count - 1, tally.sum.wrapping_sub(place));
        }
        if unpacked(places).last() != Some(last) || !places.len().is_multiple_of(8) {
            verified.find(format!("the entry at {last}, by which rows are found, was changed"));
        }
    }

    fn end(&self, verified: &mut Verified) {
        // Rows that are missing or changed are missed here too; they have been named.
        for tally in self.by_key.values().filter(|_| verified.findings.is_empty()) {
            if tally.count != 0 || tally.sum != 0 {
                let first = tally.first;
                let what = "are not found by their session, tool and outcome, or others are found with them";
                return verified.find(format!("rows like the one at {first} {what}"));
            }
        }
    }
}

const CHAINS: &str = "SELECT id, home, started_ms, previous_id, previous_seq, previous_hash, head_seq, head_hash, \
     listed_seq, closed_ms, pruned_seq, pruned_hash, pruned_by_chain, pruned_by_seq FROM chain";
const ROWS: &str = "SELECT pos, body FROM audit WHERE pos > $1 ORDER BY pos LIMIT $2";
const PACK: &str = "SELECT COUNT(*), MAX(body), string_agg(CAST(pos AS TEXT) || $3 || body, $4) \
     FROM (SELECT pos, body FROM audit WHERE pos > $1 ORDER BY pos LIMIT $2) AS page";
const ENTRIES: &str =
    "SELECT last, session, tool, outcome, places FROM audit_place WHERE last > $1 ORDER BY last LIMIT $2";

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
            let mut tallies = Tallies::default();
            let mut after = i64::MIN;
            macro_rules! pack {
                () => {
                    sqlx::query_as::<_, Pack>(PACK).bind(after).bind(PAGE).bind(WITHIN).bind(BETWEEN)
                };
            }
            let mut read = pack!().fetch_one(&mut *moment).await;
            loop {
                let pack = match read.map_err(StoreError::from) {
                    Ok((0, ..)) => break,
                    Ok(pack) => Some(pack),
                    Err(error) if error.is_damage() => None,
                    Err(error) => return Err(error),
                };
                if let Some(rows) = pack.as_ref().and_then(|pack| rows_behind(after, pack)) {
                    after = rows.last().map_or(after, |last| last.pos);
                    // The next page is read while this one is checked.
                    let checking = async {
                        rows.iter().for_each(|row| check_row(*row, &mut walks, &mut tallies, &mut verified));
                    };
                    (read, ()) = tokio::join!(pack!().fetch_one(&mut *moment), checking);
                } else {
                    // One row after the other tells which it is.
                    let before = after;
                    let mut page = sqlx::query(ROWS).bind(after).bind(PAGE).fetch(&mut *moment);
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
                        after = row.try_get(0)?;
                        match row.try_get(1) {
                            Ok(body) => {
                                check_row(Stored { pos: after, body }, &mut walks, &mut tallies, &mut verified);
                            }
                            Err(error) => verified.find(unreadable(after, &error.into())),
                        }
                    }
                    drop(page);
                    if let Err(error) = onward(before, after) {
                        verified.find(unreadable(before, &error));
                        return Ok(verified);
                    }
                    read = pack!().fetch_one(&mut *moment).await;
                }
                progress(verified.rows);
            }
            end(&walks, &mut verified);
            let mut after = i64::MIN;
            loop {
                let entries = sqlx::query_as(ENTRIES).bind(after).bind(PAGE).fetch_all(&mut *moment).await;
                let entries: Vec<(i64, String, String, String, Vec<u8>)> = match entries.map_err(StoreError::from) {
                    Ok(entries) => entries,
                    Err(error) if error.is_damage() => {
                        verified.find(format!("the entries by which rows are found cannot be read: {}", Chain(&error)));
                        break;
                    }
                    Err(error) => return Err(error),
                };
                let Some((last, ..)) = entries.last() else { break };
                after = match onward(after, *last) {
                    Ok(last) => last,
                    Err(error) => {
                        verified.find(format!("the entries by which rows are found cannot be read: {error}"));
                        break;
                    }
                };
                for (last, session, tool, outcome, places) in &entries {
                    tallies.entry(Found { session, tool, outcome }, *last, places, &mut verified);
                }
            }
            tallies.end(&mut verified);
            moment.rollback().await?;
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

fn unreadable(at: i64, error: &StoreError) -> String {
    format!("the row at {at}, or what follows it, cannot be read: {}", Chain(error))
}

fn begin(chains: Vec<ChainRow>, verified: &mut Verified) -> HashMap<String, Walk> {
    verified.chains = chains.len();
    let mut wanted: HashMap<String, BTreeMap<i64, Vec<Want>>> = HashMap::new();
    for row in &chains {
        // The last row that the next chain saw must be there, or pruned.
        if !row.previous_id.is_empty() {
            let rows = wanted.entry(row.previous_id.clone()).or_default();
            rows.entry(row.previous_seq).or_default().push(Want::Hash(row.previous_hash.clone()));
        }
        if row.pruned_seq > 0 {
            let mark = Link { chain: row.id.clone(), seq: row.pruned_seq, hash: row.pruned_hash.clone() };
            let rows = wanted.entry(row.pruned_by_chain.clone()).or_default();
            rows.entry(row.pruned_by_seq).or_default().push(Want::Words(mark.vouched()));
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
    walks
}

fn check_row(stored: Stored<'_>, walks: &mut HashMap<String, Walk>, tallies: &mut Tallies, verified: &mut Verified) {
    verified.rows += 1;
    if Place::read(stored.body, |place| check_place(stored, place, walks, tallies, verified)).is_none() {
        verified.find(format!("the row at {} is not a row any more: it was changed", stored.pos));
    }
}

fn check_place(
    Stored { pos, body }: Stored<'_>,
    place: &Place<'_>,
    walks: &mut HashMap<String, Walk>,
    tallies: &mut Tallies,
    verified: &mut Verified,
) {
    let Place { chain, seq, event, .. } = *place;
    let Some(walk) = walks.get_mut(chain) else {
        return verified.find(format!("the row at {pos} belongs to chain {chain}, which does not exist"));
    };
    if seq <= walk.row.pruned_seq {
        // Pruned and not yet deleted.
        verified.rows -= 1;
        return;
    }
    if seq <= walk.row.listed_seq {
        tallies.row(place.found(), pos);
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
    let Some((says, should)) = body::check(&before, pos, body) else {
        walk.hash = None;
        return verified.find(format!("row {seq} of chain {chain} (at {pos}) was changed: it has no hash"));
    };
    if walk.hash.is_some() && says != should {
        verified.find(format!("row {seq} of chain {chain} (at {pos}) was changed, or the one before it"));
    }
    walk.hash = Some(says);
    for want in walk.wanted.remove(&seq).unwrap_or_default() {
        match want {
            Want::Hash(hash) if hash != hex(&says) => {
                verified.find(format!("row {seq} of chain {chain} is not the one that the next chain began behind"));
            }
            Want::Words(words)
                if event != "pruned" || !Kept::parse(body).is_ok_and(|kept| kept.detail.as_ref() == Some(&words)) =>
            {
                verified.find(format!("row {seq} of chain {chain} does not vouch for what was pruned: {words}"));
            }
            Want::Hash(_) | Want::Words(_) => {}
        }
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
        if walk.row.closed_ms.is_some() && walk.row.listed_seq < walk.row.head_seq {
            let first = walk.row.listed_seq + 1;
            verified.find(format!("rows from {first} on of chain {chain} are not found by session, tool and outcome"));
        }
        for (seq, want) in walk.wanted.iter().flat_map(|(seq, wants)| wants.iter().map(move |want| (seq, want))) {
            match want {
                // Its hash is known only if it was the last one that was pruned.
                Want::Hash(hash) if *seq <= walk.row.pruned_seq => {
                    if *seq == walk.row.pruned_seq && *hash != walk.row.pruned_hash {
                        verified.find(format!(
                            "row {seq} of chain {chain} was not the one that the next chain began behind"
                        ));
                    }
                }
                Want::Hash(_) => {
                    verified.find(format!("row {seq} of chain {chain} is missing: the next chain began behind it"));
                }
                Want::Words(words) => {
                    verified.find(format!("row {seq} of chain {chain} is missing: it vouches for {words}"));
                }
            }
        }
    }
}
