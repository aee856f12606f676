//! Taking rows away from the old end, so that what is left can still be proved.

use std::collections::BTreeMap;

use sqlx::FromRow;

use super::body::Kept;
use super::chain::Mark;
use super::{Db, Store, StoreError, onward};

const PAGE: i64 = 4_096;
/// Rows deleted in one transaction: writers wait no longer than that takes.
const AT_ONCE: i64 = 500;
/// Bytes that a row's frame and its part of an index entry take, roughly.
const FRAME_OF_SQLITE: i64 = 60;
const FRAME_OF_POSTGRES: i64 = 300;

/// What a cut takes away.
#[derive(Debug, Default)]
pub struct Cut {
    pub rows: u64,
    /// Those of them that Loki does not have, if there is one.
    pub unshipped: u64,
    /// The last row of each chain that goes.
    pub marks: Vec<Mark>,
}

const OLD: &str = "SELECT pos, body FROM audit WHERE pos > $1 AND pos < $2 ORDER BY pos LIMIT $3";
const DELETE: &str = "DELETE FROM audit WHERE pos IN (SELECT pos FROM audit WHERE pos < $1 ORDER BY pos LIMIT $2)";

const DELETE_ENTRIES: &str =
    "DELETE FROM audit_place WHERE last IN (SELECT last FROM audit_place WHERE last < $1 ORDER BY last LIMIT $2)";

#[derive(FromRow)]
struct ChainEnd {
    id: String,
    shipped_seq: i64,
    pruned_seq: i64,
    pruned_hash: String,
    pruned_by_chain: String,
    pruned_by_seq: i64,
}

const CHAINS: &str = "SELECT id, shipped_seq, pruned_seq, pruned_hash, pruned_by_chain, pruned_by_seq FROM chain";

impl Store {
    /// What lies before a position.
    pub async fn cut(&self, before: i64) -> Result<Cut, StoreError> {
        let chains: Vec<ChainEnd> = on_db!(self, |db| sqlx::query_as(CHAINS).fetch_all(db).await?);
        let mut marks: BTreeMap<String, (i64, String)> =
            chains.iter().map(|chain| (chain.id.clone(), (chain.pruned_seq, String::new()))).collect();
        let mut rows = 0;
        let mut after = i64::MIN;
        loop {
            let page: Vec<(i64, String)> =
                on_db!(self, |db| sqlx::query_as(OLD).bind(after).bind(before).bind(PAGE).fetch_all(db).await?);
            let Some((last, _)) = page.last() else { break };
            after = onward(after, *last)?;
            for (pos, body) in &page {
                let kept = Kept::parse(body).map_err(|source| StoreError::BadRow { pos: *pos, source })?;
                let mark = marks.entry(kept.chain).or_default();
                // Rows at or before the present mark are gone already, but for the deleting.
                if kept.seq > mark.0 {
                    *mark = (kept.seq, kept.hash);
                    rows += 1;
                }
            }
        }
        let unshipped = chains.iter().filter_map(|chain| {
            let (seq, _) = marks.get(&chain.id)?;
            u64::try_from(seq - chain.shipped_seq.max(chain.pruned_seq)).ok()
        });
        let unshipped = unshipped.sum();
        // A row that vouches and goes itself needs another in its place: no pruned part is without a word for it.
        let orphans: Vec<Mark> = chains
            .iter()
            .filter(|chain| chain.pruned_seq > 0 && marks.get(&chain.id).is_none_or(|(_, hash)| hash.is_empty()))
            .filter(|chain| marks.get(&chain.pruned_by_chain).is_some_and(|(seq, _)| *seq >= chain.pruned_by_seq))
            .map(|chain| Mark { chain: chain.id.clone(), seq: chain.pruned_seq, hash: chain.pruned_hash.clone() })
            .collect();
        let marks = marks.into_iter().filter(|(_, (_, hash))| !hash.is_empty());
        let marks = marks.map(|(chain, (seq, hash))| Mark { chain, seq, hash }).chain(orphans);
        Ok(Cut { rows, unshipped, marks: marks.collect() })
    }

    /// Deletes a few of the rows before a position. False: none is left.
    pub async fn delete_before(&self, before: i64) -> Result<bool, StoreError> {
        let _turn = self.turn().await;
        let deleted =
            on_db!(self, |db| sqlx::query(DELETE).bind(before).bind(AT_ONCE).execute(db).await?.rows_affected());
        // An entry with a row that stays stays whole: what is gone is not found by it.
        let entries = on_db!(self, |db| {
            sqlx::query(DELETE_ENTRIES).bind(before).bind(AT_ONCE).execute(db).await?.rows_affected()
        });
        if deleted + entries == 0 {
            on_db!(self, |db| {
                sqlx::query("DELETE FROM aside WHERE pos < $1").bind(before).execute(db).await?;
            });
        }
        if let Db::Sqlite(db) = &self.db {
            sqlx::query("PRAGMA incremental_vacuum(500)").execute(db).await?;
        }
        Ok(deleted + entries > 0)
    }

    /// Bytes the record takes, roughly. The files tell nothing of it: other things lie in them, and those of PostgreSQL
    /// do not shrink when rows go. The newest and the oldest rows tell how long one is.
    pub async fn size(&self) -> Result<i64, StoreError> {
        const AVERAGE: &str = "SELECT CAST(COALESCE(AVG(LENGTH(body)), 0) AS BIGINT) FROM ( \
             SELECT body FROM (SELECT body FROM audit ORDER BY pos DESC LIMIT 500) AS newest UNION ALL \
             SELECT body FROM (SELECT body FROM audit ORDER BY pos LIMIT 500) AS oldest) AS sample";
        let average: i64 = on_db!(self, |db| sqlx::query_scalar(AVERAGE).fetch_one(db).await?);
        let frame = match &self.db {
            Db::Sqlite(_) => FRAME_OF_SQLITE,
            Db::Postgres(_) => FRAME_OF_POSTGRES,
        };
        Ok(self.audit_rows().await? * (average + frame))
    }

    /// The position of the nth row from the old end; the last one's if there are fewer.
    pub async fn nth_position(&self, nth: i64) -> Result<i64, StoreError> {
        const NTH: &str =
            "SELECT CAST(COALESCE(MAX(pos), 0) AS BIGINT) FROM (SELECT pos FROM audit ORDER BY pos LIMIT $1) AS old";
        Ok(on_db!(self, |db| sqlx::query_scalar(NTH).bind(nth).fetch_one(db).await?))
    }
}
