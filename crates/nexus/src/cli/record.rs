//! The record, for a command that does something itself: each process writes a chain of its own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};

use nexus_core::tasks::Tasks;

use crate::audit::Journal;
use crate::audit::alive::{self, Alive};
use crate::config::Loaded;
use crate::private;
use crate::store::Store;
use crate::store::chain::Chain;

const LAST_ROWS: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Record {
    pub store: Store,
    pub journal: Arc<Journal>,
    writing: Tasks,
    _alive: Alive,
}

impl Record {
    pub async fn open(loaded: &Loaded) -> Result<Self> {
        private::folder(&loaded.data).with_context(|| format!("the data folder {}", loaded.data.display()))?;
        let store = Store::open(&loaded.data, loaded.config.store.as_ref().map(|url| url.expose())).await?;
        let (journal, writing) = (Arc::new(Journal::default()), Tasks::new());
        let chain = Chain::new(&alive::home(&loaded.data)?);
        let alive = Alive::declare(&loaded.data, &chain.id)?;
        writing.spawn("journal", journal.clone().write_to(store.clone(), chain, writing.stopping()));
        Ok(Self { store, journal, writing, _alive: alive })
    }

    /// Comes back when what was recorded is kept.
    pub async fn close(self) {
        self.writing.finish(LAST_ROWS).await;
        self.store.close().await;
    }
}
