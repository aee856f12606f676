//! Looking at tasks, beside whoever writes.

use std::ops::Range;

use super::{CLAIMED, CountRow, Kept, NUMBERS, Numbers, OLDEST_OF, ONE, WAS_CLAIMED, kept, numbers};
use crate::agents::task::{Status, Task, TaskId};
use crate::store::tx::Value;
use crate::store::{Store, StoreError};

const NEWEST: &str = beginnings!("AND number < $2 ORDER BY number DESC LIMIT $3");
const NEWEST_OF: &str =
    beginnings!("AND target = $2 AND status = $3 AND number < $4 AND number >= $5 ORDER BY number DESC LIMIT $6");
const NEWEST_NUMBERS_OF: &str = "SELECT number FROM task WHERE home = $1 AND target = $2 AND status = $3 \
     AND number < $4 ORDER BY number DESC LIMIT $5";
const FIRST_OF: &str = beginnings!("AND target = $2 AND status = $3 ORDER BY number LIMIT $4");
/// What is held without a lease is held by a carrier, whose name begins with its way.
const HELD_OTHERWISE: &str = beginnings!(
    "AND target = $2 AND status = $3 AND lease_ms IS NULL AND claimed_by NOT LIKE $4 ORDER BY number LIMIT $5"
);
const FIRST_WAITING: &str =
    beginnings!("AND target = $2 AND status = 'pending' ORDER BY priority DESC, number LIMIT $3");
const NEXT: &str = tasks!("AND target = $2 AND status = 'pending' ORDER BY priority DESC, number LIMIT $3");
const HELD_BY: &str =
    beginnings!("AND target = $2 AND claimed_by = $3 AND completed_ms IS NULL ORDER BY number LIMIT $4");
const WAS_HELD_BY: &str =
    beginnings!("AND target = $2 AND claimed_by = $3 AND completed_ms >= $4 ORDER BY completed_ms DESC LIMIT $5");
const WAITS: &str = "SELECT number FROM task WHERE home = $1 AND target = $2 AND status = 'pending' LIMIT 1";
const COUNTS: &str = "SELECT target, status, priority, n FROM task_count WHERE home = $1 AND n > 0";

impl Store {
    async fn tasks_found(&self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<Task>, StoreError> {
        Ok(kept(self.find(sql, values).await?)?.into_iter().map(|kept| kept.task).collect())
    }

    pub async fn task(&self, home: &str, id: TaskId) -> Result<Option<Task>, StoreError> {
        Ok(kept(self.find(ONE, &[home.into(), id.0.into()]).await?)?.pop().map(|kept| kept.task))
    }

    /// Newest first, with the beginnings of their words.
    pub async fn newest_tasks(&self, home: &str, before: i64, limit: i64) -> Result<Vec<Task>, StoreError> {
        self.tasks_found(NEWEST, &[home.into(), before.into(), limit.into()]).await
    }

    /// Newest first, of one target and one status, with the beginnings of their words.
    pub async fn newest_tasks_of(
        &self,
        home: &str,
        (target, status): (&str, Status),
        Range { start, end }: Range<i64>,
        limit: i64,
    ) -> Result<Vec<Task>, StoreError> {
        let values = [home.into(), target.into(), status.as_str().into(), end.into(), start.into(), limit.into()];
        self.tasks_found(NEWEST_OF, &values).await
    }

    /// Only their numbers.
    pub async fn newest_numbers_of(
        &self,
        home: &str,
        (target, status): (&str, Status),
        before: i64,
        limit: i64,
    ) -> Result<Vec<i64>, StoreError> {
        let values = [home.into(), target.into(), status.as_str().into(), before.into(), limit.into()];
        let rows: Vec<(i64,)> = self.find(NEWEST_NUMBERS_OF, &values).await?;
        Ok(rows.into_iter().map(|(number,)| number).collect())
    }

    /// Oldest first, of one target and one status, with the beginnings of their words.
    pub async fn first_tasks_of(
        &self,
        home: &str,
        target: &str,
        status: Status,
        limit: i64,
    ) -> Result<Vec<Task>, StoreError> {
        let values = [home.into(), target.into(), status.as_str().into(), limit.into()];
        self.tasks_found(FIRST_OF, &values).await
    }

    /// Of one target and one status: what nobody takes away from its carrier, whose name is not like this.
    pub async fn held_otherwise(
        &self,
        home: &str,
        (target, status): (&str, Status),
        carrier: &str,
        limit: i64,
    ) -> Result<Vec<Task>, StoreError> {
        let values = [home.into(), target.into(), status.as_str().into(), carrier.into(), limit.into()];
        self.tasks_found(HELD_OTHERWISE, &values).await
    }

    /// In the order in which they will be claimed, with the beginnings of their words.
    pub async fn first_waiting(&self, home: &str, target: &str, limit: i64) -> Result<Vec<Task>, StoreError> {
        self.tasks_found(FIRST_WAITING, &[home.into(), target.into(), limit.into()]).await
    }

    /// Oldest first, of one target and one status.
    pub async fn oldest_tasks_of(
        &self,
        home: &str,
        target: &str,
        status: Status,
        limit: i64,
    ) -> Result<Vec<Task>, StoreError> {
        let values = [home.into(), target.into(), status.as_str().into(), limit.into()];
        self.tasks_found(OLDEST_OF, &values).await
    }

    /// In the order in which they will be claimed.
    pub async fn next_tasks(&self, home: &str, target: &str, limit: i64) -> Result<Vec<Task>, StoreError> {
        self.tasks_found(NEXT, &[home.into(), target.into(), limit.into()]).await
    }

    /// Whether a target has a waiting task.
    pub async fn task_waits(&self, home: &str, target: &str) -> Result<bool, StoreError> {
        let rows: Vec<(i64,)> = self.find(WAITS, &[home.into(), target.into()]).await?;
        Ok(!rows.is_empty())
    }

    /// The task of a claim, as [`super::Tx::claimed`].
    pub async fn claimed(&self, home: &str, target: &str, claim: &str) -> Result<Option<Kept>, StoreError> {
        for sql in [CLAIMED, WAS_CLAIMED] {
            let found = kept(self.find(sql, &[home.into(), claim.into(), target.into()]).await?)?.pop();
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The unfinished tasks that somebody has claimed and nobody else since, with the beginnings of their words.
    pub async fn held_by(&self, home: &str, target: &str, by: &str, limit: i64) -> Result<Vec<Kept>, StoreError> {
        kept(self.find(HELD_BY, &[home.into(), target.into(), by.into(), limit.into()]).await?)
    }

    /// The finished ones, the last one first, with the beginnings of their words.
    pub async fn was_held_by(
        &self,
        home: &str,
        (target, by): (&str, &str),
        since_ms: i64,
        limit: i64,
    ) -> Result<Vec<Task>, StoreError> {
        let values = [home.into(), target.into(), by.into(), since_ms.into(), limit.into()];
        self.tasks_found(WAS_HELD_BY, &values).await
    }

    pub async fn task_counts(&self, home: &str) -> Result<Vec<CountRow>, StoreError> {
        self.find(COUNTS, &[home.into()]).await
    }

    pub async fn last_numbers(&self, home: &str) -> Result<Numbers, StoreError> {
        Ok(numbers(&self.find(NUMBERS, &[home.into()]).await?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Db;

    /// An order that another index has can make SQLite go through all tasks.
    #[tokio::test]
    async fn what_a_key_has_is_looked_up_and_not_searched_for() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), None).await.unwrap();
        let Db::Sqlite(db) = &store.db else { panic!("a folder has SQLite") };
        for sql in [HELD_BY, WAS_HELD_BY] {
            let plan = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
            let steps: Vec<(i64, i64, i64, String)> = sqlx::query_as(plan).fetch_all(db).await.unwrap();
            let looks_up =
                |step: &str| step.contains("task_holder (home=? AND target=? AND claimed_by=? AND completed_ms");
            assert!(steps.len() == 1 && looks_up(&steps[0].3), "{steps:?}");
        }
    }
}
