//! The chain of one process: every row it writes holds a hash over the one before, and the store knows the last.

use std::borrow::Borrow;
use std::collections::HashSet;

use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, Row as _};
use uuid::Uuid;

use nexus_core::audit::{Event, Row};
use nexus_core::clock;
use nexus_core::tool::Access;

use super::body::{self, Hash};
use super::inserts::{NUMBERED, UNNUMBERED, longest};
use super::position::Stamp;
use super::sheaf::{LISTED, List, Unlisted, insert_sheaves, sheaves};
use super::{Db, Store, StoreError, hex, unhex};

/// The end of a chain as somebody saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    pub chain: String,
    pub seq: i64,
    pub hash: String,
}

/// How far a chain is pruned.
pub type Mark = Link;

impl Link {
    /// What a row says that vouches for a pruned part.
    pub fn vouched(&self) -> String {
        format!("chain {} up to row {}, hash {}", self.chain, self.seq, self.hash)
    }
}

/// The chain that this process writes. It is in the store from its first row on.
#[derive(Debug)]
pub struct Chain {
    pub id: String,
    home: String,
    started_ms: i64,
    previous: Option<Link>,
    seq: i64,
    hash: Hash,
    stamp: Stamp,
    /// Written rows that cannot be found by session, tool and outcome yet.
    unlisted: Vec<Unlisted>,
    /// What is in the store is not quite what `unlisted` says: it is to be looked up there.
    relist: bool,
    /// Batches that were sent since the last one that is known to be written. One of them may be written too.
    doubts: Vec<Doubt>,
    /// Writes whose beginning was sent to the store: their end takes it out of the list of those that may have been
    /// abandoned. The beginning of a short call to another server never comes here.
    begun: HashSet<Uuid>,
}

/// A batch of which it is not known whether it was written.
#[derive(Clone, Debug)]
struct Doubt {
    seq: i64,
    hash: Hash,
    rows: Vec<Uuid>,
    /// Writes that end in it.
    ended: Vec<Uuid>,
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Appended {
    Written,
    /// A batch that seemed to fail is in the store, with these rows; nothing of this one is.
    Earlier(Vec<Uuid>),
}

/// The hash a chain begins with: it ties the chain to its own start and to the chain before it.
pub fn genesis(id: &str, home: &str, started_ms: i64, previous: &Link) -> Hash {
    let Link { chain, seq, hash } = previous;
    Sha256::digest(format!("nexus audit 1\n{id}\n{home}\n{started_ms}\n{chain}\n{seq}\n{hash}")).into()
}

impl Chain {
    pub fn new(home: &str) -> Self {
        Self {
            id: clock::new_id().to_string(),
            home: home.to_owned(),
            started_ms: clock::now_ms(),
            previous: None,
            seq: 0,
            hash: Hash::default(),
            stamp: Stamp::new(),
            unlisted: Vec::new(),
            relist: false,
            doubts: Vec::new(),
            begun: HashSet::new(),
        }
    }

    /// Whether something is left for [`Store::list`].
    pub fn has_unlisted(&self) -> bool {
        self.relist || !self.unlisted.is_empty()
    }

    /// The rows as they will be kept, and where the chain ends with them.
    fn prepare(&mut self, rows: &[&Row]) -> (Vec<Prepared>, i64, Hash) {
        let now = clock::now_ms();
        let (mut seq, mut hash) = (self.seq, self.hash);
        let prepared = rows
            .iter()
            .map(|row| {
                seq += 1;
                let pos = self.stamp.next(now);
                let (body, next) = body::write(row, &self.id, seq, pos, &hash);
                hash = next;
                Prepared { pos, body }
            })
            .collect();
        (prepared, seq, hash)
    }
}

struct Prepared {
    pos: i64,
    body: String,
}

const OPEN: &str = "INSERT INTO chain (id, home, started_ms, previous_id, previous_seq, previous_hash, head_seq, head_hash) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING";
const ADVANCE: &str = "UPDATE chain SET head_seq = $1, head_hash = $2 WHERE id = $3 AND head_seq = $4";
const END: &str = "DELETE FROM begun WHERE call_id IN ($1, $2, $3, $4, $5, $6, $7, $8)";
const ENDED_AT_ONCE: usize = 8;
const MARK: &str = "UPDATE chain SET pruned_seq = $1, pruned_hash = $2, pruned_by_chain = $3, pruned_by_seq = $4 \
     WHERE id = $5 AND pruned_seq <= $1";
const NEWEST: &str = "SELECT id, head_seq, head_hash FROM chain ORDER BY started_ms DESC, id DESC LIMIT 1";

/// The write that has ended with this row and whose beginning is in the store: from this chain, or from that of a
/// process which is gone.
fn ended_write(row: &Row, begun: &HashSet<Uuid>) -> Option<Uuid> {
    let call = row.call.as_ref().filter(|_| row.event == Event::Call)?;
    let ended = call.access == Some(Access::Write) && call.decision == Some("allowed");
    (ended && (call.outcome == Some("abandoned") || begun.contains(&call.id))).then_some(call.id)
}

impl Store {
    /// Adds rows to the record, all or none. They are safe when it comes back.
    pub async fn append<R: Borrow<Row>>(
        &self,
        chain: &mut Chain,
        rows: &[R],
        list: List,
    ) -> Result<Appended, StoreError> {
        self.append_marked(chain, rows, &[], list).await
    }

    /// The same for rows that vouch for pruned parts: the marks are set with them.
    pub async fn append_marked<R: Borrow<Row>>(
        &self,
        chain: &mut Chain,
        rows: &[R],
        marks: &[Mark],
        list: List,
    ) -> Result<Appended, StoreError> {
        if rows.is_empty() {
            return Ok(Appended::Written);
        }
        if chain.previous.is_none() {
            let previous = self.newest_chain().await?;
            chain.hash = genesis(&chain.id, &chain.home, chain.started_ms, &previous);
            chain.previous = Some(previous);
        }
        let rows: Vec<&Row> = rows.iter().map(Borrow::borrow).collect();
        let first = chain.seq + 1;
        let (prepared, seq, hash) = chain.prepare(&rows);
        let fresh = rows.iter().zip(&prepared).map(|(row, prepared)| Unlisted::of(row, prepared.pos));
        let fresh: Vec<Unlisted> = fresh.collect();
        let list = if chain.relist { List::Later } else { list };
        let written_up_to = prepared.last().map_or(0, |row| row.pos);
        let begun = rows.iter().filter(|row| row.event == Event::Begun);
        chain.begun.extend(begun.filter_map(|row| Some(row.call.as_ref()?.id)));
        let ended: Vec<Uuid> = rows.iter().filter_map(|row| ended_write(row, &chain.begun)).collect();
        // Also if nobody waits for the end of this: then the next batch finds out.
        let ids = rows.iter().map(|row| row.id).collect();
        chain.doubts.push(Doubt { seq, hash, rows: ids, ended: ended.clone() });
        let turn = self.turn().await;
        let written = on_db!(self, |db, inserts| {
            async {
                let mut transaction = db.begin().await?;
                let moved = if chain.seq == 0 {
                    let Link { chain: previous, seq: previous_seq, hash: previous_hash } =
                        chain.previous.clone().unwrap_or_default();
                    let open = sqlx::query(OPEN).bind(&chain.id).bind(&chain.home).bind(chain.started_ms);
                    let open = open.bind(previous).bind(previous_seq).bind(previous_hash).bind(seq).bind(hex(&hash));
                    open.execute(&mut *transaction).await?
                } else {
                    let advance = sqlx::query(ADVANCE).bind(seq).bind(hex(&hash)).bind(&chain.id).bind(chain.seq);
                    advance.execute(&mut *transaction).await?
                };
                if moved.rows_affected() != 1 {
                    return Err(StoreError::ForeignChain { id: chain.id.clone() });
                }
                for (mark, nth) in marks.iter().zip(first..) {
                    let set = sqlx::query(MARK).bind(mark.seq).bind(&mark.hash).bind(&chain.id);
                    set.bind(nth).bind(&mark.chain).execute(&mut *transaction).await?;
                }
                let begun = rows.iter().zip(&prepared).filter(|(row, _)| row.event == Event::Begun);
                let begun: Vec<(String, i64)> = begun
                    .filter_map(|(row, prepared)| Some((row.call.as_ref()?.id.to_string(), prepared.pos)))
                    .collect();
                let mut rest = begun.into_iter();
                while rest.len() > 0 {
                    let (length, insert) = longest(&inserts.begun, rest.len());
                    let mut query = sqlx::query(AssertSqlSafe(insert.as_str()));
                    for (call, pos) in rest.by_ref().take(*length) {
                        query = query.bind(call).bind(&chain.id).bind(pos);
                    }
                    query.execute(&mut *transaction).await?;
                }
                for some in ended.chunks(ENDED_AT_ONCE) {
                    let ids = (0..ENDED_AT_ONCE).map(|nth| some.get(nth).or(some.last()).map(Uuid::to_string));
                    ids.fold(sqlx::query(END), |query, id| query.bind(id)).execute(&mut *transaction).await?;
                }
                let mut rest = prepared.into_iter();
                while rest.len() > 0 {
                    let (length, insert) = longest(&inserts.rows, rest.len());
                    let mut query = sqlx::query(AssertSqlSafe(insert.as_str()));
                    for row in rest.by_ref().take(*length) {
                        query = query.bind(row.pos).bind(row.body);
                    }
                    query.execute(&mut *transaction).await?;
                }
                if list == List::Now {
                    insert_sheaves!(transaction, inserts, sheaves(chain.unlisted.iter().chain(&fresh)));
                    let listed = sqlx::query(LISTED).bind(seq).bind(written_up_to).bind(&chain.id);
                    listed.execute(&mut *transaction).await?;
                }
                // From here on an error may mean either: that it was written, and that it was not.
                transaction.commit().await.map_err(StoreError::Commit)
            }
            .await
        });
        drop(turn);
        match written {
            Ok(()) => {
                (chain.seq, chain.hash) = (seq, hash);
                chain.doubts.clear();
                ended.iter().for_each(|call| _ = chain.begun.remove(call));
                match list {
                    List::Now => chain.unlisted.clear(),
                    List::Later => chain.unlisted.extend(fresh),
                }
                Ok(Appended::Written)
            }
            Err(error) => {
                chain.stamp.choose_tag();
                if !matches!(error, StoreError::Commit(_)) {
                    chain.doubts.pop();
                }
                if matches!(error, StoreError::ForeignChain { .. }) {
                    return self.settle_doubts(chain, error).await;
                }
                Err(error)
            }
        }
    }

    /// The chain does not end where it did: one of the batches whose fate was unknown is in the store.
    async fn settle_doubts(&self, chain: &mut Chain, otherwise: StoreError) -> Result<Appended, StoreError> {
        let head = self.head(&chain.id).await?;
        let written = chain.doubts.iter().position(|doubt| head == Some((doubt.seq, doubt.hash)));
        let Some(nth) = written else { return Err(otherwise) };
        let Doubt { seq, hash, rows, ended } = chain.doubts.swap_remove(nth);
        ended.iter().for_each(|call| _ = chain.begun.remove(call));
        (chain.seq, chain.hash, chain.relist) = (seq, hash, true);
        chain.doubts.clear();
        Ok(Appended::Earlier(rows))
    }

    /// Makes the rows that were appended with [`List::Later`] found by session, tool and outcome.
    pub async fn list(&self, chain: &mut Chain) -> Result<(), StoreError> {
        if chain.relist {
            self.relist(&chain.id).await?;
            chain.unlisted.clear();
            chain.relist = false;
            return Ok(());
        }
        let Some(last) = chain.unlisted.last().map(|row| row.pos) else { return Ok(()) };
        // Until it is known to be done: then the store is asked what is.
        chain.relist = true;
        let _turn = self.turn().await;
        on_db!(self, |db, inserts| {
            let mut transaction = db.begin().await?;
            sqlx::query(LISTED).bind(chain.seq).bind(last).bind(&chain.id).execute(&mut *transaction).await?;
            insert_sheaves!(transaction, inserts, sheaves(&chain.unlisted));
            transaction.commit().await?;
        });
        chain.unlisted.clear();
        chain.relist = false;
        Ok(())
    }

    async fn newest_chain(&self) -> Result<Link, StoreError> {
        on_db!(self, |db| {
            let newest = sqlx::query(NEWEST).fetch_optional(db).await?;
            Ok(match newest {
                Some(row) => Link { chain: row.try_get(0)?, seq: row.try_get(1)?, hash: row.try_get(2)? },
                None => Link::default(),
            })
        })
    }

    async fn head(&self, chain: &str) -> Result<Option<(i64, Hash)>, StoreError> {
        let head: Option<(i64, String)> = on_db!(self, |db| {
            sqlx::query_as("SELECT head_seq, head_hash FROM chain WHERE id = $1").bind(chain).fetch_optional(db).await?
        });
        Ok(head.and_then(|(seq, hash)| Some((seq, unhex(&hash)?))))
    }

    /// The process ends in order and writes no more.
    pub async fn close_chain(&self, id: &str) -> Result<(), StoreError> {
        on_db!(self, |db| {
            // Writes that have not ended are for the next process to name: it looks at chains that are not closed.
            let close = sqlx::query(
                "UPDATE chain SET closed_ms = $1 WHERE id = $2 AND NOT EXISTS (SELECT 1 FROM begun WHERE chain = $2)",
            );
            close.bind(clock::now_ms()).bind(id).execute(db).await?;
        });
        Ok(())
    }

    /// Chains of this data folder that nobody has closed: of running processes, and of dead ones.
    pub async fn open_chains(&self, home: &str) -> Result<Vec<String>, StoreError> {
        Ok(on_db!(self, |db| {
            let open = sqlx::query_scalar("SELECT id FROM chain WHERE home = $1 AND closed_ms IS NULL");
            open.bind(home).fetch_all(db).await?
        }))
    }

    /// The rows of writes that this chain began and did not end.
    pub async fn unended(&self, chain: &str) -> Result<Vec<String>, StoreError> {
        Ok(on_db!(self, |db| {
            let begun = sqlx::query_scalar(
                "SELECT audit.body FROM begun JOIN audit ON audit.pos = begun.pos WHERE begun.chain = $1 ORDER BY begun.pos",
            );
            begun.bind(chain).fetch_all(db).await?
        }))
    }
}

#[cfg(test)]
impl Chain {
    pub fn clone_for_tests(&self) -> Self {
        let stamp = Stamp { tag: self.stamp.tag, ms: self.stamp.ms, count: self.stamp.count };
        let (id, home, previous) = (self.id.clone(), self.home.clone(), self.previous.clone());
        let (started_ms, seq, hash) = (self.started_ms, self.seq, self.hash);
        let (unlisted, doubts) = (Vec::new(), self.doubts.clone());
        Self {
            id,
            home,
            previous,
            stamp,
            started_ms,
            seq,
            hash,
            unlisted,
            relist: false,
            doubts,
            begun: HashSet::new(),
        }
    }

    /// This chain, if nobody had told how the batch ended with which it became `later`.
    pub fn unsure_of(self, later: &Self, rows: Vec<Uuid>) -> Self {
        let doubts = vec![Doubt { seq: later.seq, hash: later.hash, rows, ended: Vec::new() }];
        Self { doubts, stamp: later.clone_for_tests().stamp, ..self }
    }

    /// Gives the position next that the other gives next.
    pub fn in_step_with(self, other: &mut Self) -> Self {
        use super::position::{COUNT_BITS, TAG_BITS, position};
        other.stamp.ms = position(clock::now_ms() + 3_600_000) >> (TAG_BITS + COUNT_BITS);
        Self { stamp: other.clone_for_tests().stamp, ..self }
    }
}
