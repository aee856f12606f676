//! A store with many tasks in it, for measurements.

use crate::store::{Db, Store};

/// Every task has words of its own, and two updates if it is finished.
const TASKS: &str = "
    WITH RECURSIVE n (i) AS (SELECT $3 UNION ALL SELECT i + 1 FROM n WHERE i < $4)
    INSERT INTO task (home, number, target, content, content_hash, priority, status, sender, max_attempts, attempts,
        created_ms, acknowledged_ms, completed_ms, claim, claimed_by, result)
    SELECT $1, i, $2, 'look at the disk of node ' || i || ' and tell what takes the space', randomblob(32), 1,
        CASE WHEN i <= $5 THEN 'complete' ELSE 'pending' END, 'model', 1, CASE WHEN i <= $5 THEN 1 ELSE 0 END,
        1700000000000 + i, CASE WHEN i <= $5 THEN 1700000000000 + i END, CASE WHEN i <= $5 THEN 1700000000000 + i END,
        CASE WHEN i <= $5 THEN 'claim-' || i END, CASE WHEN i <= $5 THEN 'worker' END,
        CASE WHEN i <= $5 THEN 'half of it is logs' END
    FROM n";
const UPDATES: &str = "
    INSERT INTO task_update (home, seq, task, target, kind, content, created_ms, peak_ms)
    SELECT home, 2 * number + k, number, target, CASE WHEN k = 0 THEN 'acknowledged' ELSE 'complete' END,
        'half of it is logs', created_ms, created_ms
    FROM task, (SELECT 0 AS k UNION ALL SELECT 1) AS twice
    WHERE home = $1 AND number >= $2 AND number <= $3 AND completed_ms IS NOT NULL ORDER BY number, k";
const COUNTS: &str = "INSERT INTO task_count (home, target, status, priority, n) SELECT home, target, status, priority, \
     COUNT(*) FROM task WHERE home = $1 GROUP BY home, target, status, priority";
const NUMBERS: &str = "INSERT INTO agent_number (home, name, n) SELECT $1, 'task', MAX(number) FROM task WHERE home = $1 \
     UNION ALL SELECT $1, 'update', MAX(seq) FROM task_update WHERE home = $1";
const AT_ONCE: i64 = 50_000;

impl Store {
    pub async fn fill(&self, home: &str, target: &str, finished: i64, open: i64) {
        let Db::Sqlite(db) = &self.db else { panic!("only SQLite is measured") };
        let all = finished + open;
        for first in (1..=all).step_by(usize::try_from(AT_ONCE).unwrap()) {
            let last = all.min(first + AT_ONCE - 1);
            let tasks = sqlx::query(TASKS).bind(home).bind(target).bind(first).bind(last).bind(finished);
            tasks.execute(db).await.unwrap();
            sqlx::query(UPDATES).bind(home).bind(first).bind(last).execute(db).await.unwrap();
        }
        sqlx::query(COUNTS).bind(home).execute(db).await.unwrap();
        sqlx::query(NUMBERS).bind(home).execute(db).await.unwrap();
        sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(db).await.unwrap();
    }
}
