//! Which messages are there already: by their words, or by a key that their sender chose.

use std::sync::LazyLock;

use crate::agents::task::TaskId;
use crate::store::StoreError;
use crate::store::bulk::Bulk;
use crate::store::tx::{Found, Tx, Value};

static SAME_WORDS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::list(
        "SELECT number, content_hash FROM task WHERE home = # AND target = # AND completed_ms IS NULL \
         AND content_hash IN (#)",
    )
});
static SAME_KEY: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::list("SELECT number, idempotency_key FROM task WHERE home = # AND sender = # AND idempotency_key IN (#)")
});
static OTHER_KEY: LazyLock<Bulk> = LazyLock::new(|| {
    let at = "home = # AND sender = # AND idempotency_key IN (#)";
    Bulk::list(&format!("SELECT task, idempotency_key FROM task_other_key WHERE {at}"))
});
static ADD_OTHER_KEY: LazyLock<Bulk> =
    LazyLock::new(|| Bulk::rows("task_other_key (home, sender, idempotency_key, task)", 4, "", ""));

impl Tx {
    /// Unfinished tasks of a target with one of these hashes.
    pub async fn same_words(
        &mut self,
        home: &str,
        target: &str,
        hashes: &[&[u8]],
    ) -> Result<Vec<(i64, Vec<u8>)>, StoreError> {
        let hashes: Vec<Value<'_>> = hashes.iter().map(|hash| Value::Bytes(hash)).collect();
        self.look_up(&SAME_WORDS, [home.into(), target.into()], &hashes).await
    }

    /// Tasks that a sender means by these keys, finished ones too.
    pub async fn same_key(
        &mut self,
        home: &str,
        sender: &str,
        keys: &[&str],
    ) -> Result<Vec<(i64, String)>, StoreError> {
        let keys: Vec<Value<'_>> = keys.iter().map(|key| (*key).into()).collect();
        let mut found = self.look_up(&SAME_KEY, [home.into(), sender.into()], &keys).await?;
        found.extend(self.look_up(&OTHER_KEY, [home.into(), sender.into()], &keys).await?);
        Ok(found)
    }

    /// From now on these senders mean these tasks by these keys.
    pub async fn add_keys(&mut self, home: &str, keys: &[(&str, &str, TaskId)]) -> Result<(), StoreError> {
        let values: Vec<Value<'_>> = keys
            .iter()
            .flat_map(|(sender, key, task)| -> [Value<'_>; 4] {
                [home.into(), (*sender).into(), (*key).into(), task.0.into()]
            })
            .collect();
        self.add(&ADD_OTHER_KEY, &values).await
    }

    async fn look_up<T: Found>(
        &mut self,
        bulk: &'static Bulk,
        fixed: [Value<'_>; 2],
        list: &[Value<'_>],
    ) -> Result<Vec<T>, StoreError> {
        let (mut found, mut rest) = (Vec::new(), list);
        while let Some(last) = rest.last() {
            let (length, sql) = bulk.enough(rest.len(), self.numbered());
            let (now, later) = rest.split_at(length.min(rest.len()));
            let filled = now.iter().chain(std::iter::repeat(last)).take(length);
            let values: Vec<Value<'_>> = fixed.iter().chain(filled).copied().collect();
            found.extend(self.find(sql, &values).await?);
            rest = later;
        }
        Ok(found)
    }
}
