//! What is too old to keep of tasks and what was said of them.

use crate::store::StoreError;
use crate::store::tx::Tx;

use super::{Kept, kept};
use crate::agents::task::TaskId;

const OLD: &str = tasks!("AND completed_ms < $2 ORDER BY completed_ms LIMIT $3");
const DROP_UPDATES: &str = "DELETE FROM task_update WHERE home = $1 AND seq IN \
     (SELECT seq FROM task_update WHERE home = $1 AND task = $2 ORDER BY seq LIMIT $3)";
/// What belongs to no task.
const DROP_NOTES: &str = "DELETE FROM task_update WHERE home = $1 AND seq IN \
     (SELECT seq FROM task_update WHERE home = $1 AND created_ms < $2 AND task IS NULL ORDER BY created_ms LIMIT $3)";
const DROP_KEYS: &str = "DELETE FROM task_other_key WHERE home = $1 AND task = $2";
const DROP_MESSAGES: &str = "DELETE FROM telegram_message WHERE home = $1 AND task = $2";
const DROP_BOOKMARKS: &str = "DELETE FROM bookmark WHERE home = $1 AND task = $2";
const DROP_TASK: &str = "DELETE FROM task WHERE home = $1 AND number = $2";

impl Tx {
    /// Tasks that were finished before a moment, oldest first.
    pub async fn old_tasks(&mut self, home: &str, before_ms: i64, most: i64) -> Result<Vec<Kept>, StoreError> {
        kept(self.find(OLD, &[home.into(), before_ms.into(), most.into()]).await?)
    }

    /// How many of a task's updates are gone now, of at most so many.
    pub async fn drop_updates(&mut self, home: &str, id: TaskId, most: i64) -> Result<i64, StoreError> {
        let gone = self.execute(DROP_UPDATES, &[home.into(), id.0.into(), most.into()]).await?;
        Ok(i64::try_from(gone).unwrap_or(most))
    }

    pub async fn drop_notes(&mut self, home: &str, before_ms: i64, most: i64) -> Result<i64, StoreError> {
        let gone = self.execute(DROP_NOTES, &[home.into(), before_ms.into(), most.into()]).await?;
        Ok(i64::try_from(gone).unwrap_or(most))
    }

    /// Without its updates, which are gone before.
    pub async fn drop_task(&mut self, home: &str, id: TaskId) -> Result<(), StoreError> {
        for sql in [DROP_KEYS, DROP_MESSAGES, DROP_BOOKMARKS, DROP_TASK] {
            self.execute(sql, &[home.into(), id.0.into()]).await?;
        }
        Ok(())
    }
}
