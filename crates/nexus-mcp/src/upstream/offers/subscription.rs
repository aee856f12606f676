//! Resources that callers want to hear of: each is followed at its server once, for as long as anybody wants to.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use thiserror::Error;
use uuid::Uuid;

use nexus_core::name::ServerName;
use nexus_core::tasks::Tasks;

use crate::upstream::supervisor::Upstream;

/// Resources that are followed at once, over all servers and callers.
const MOST: usize = 10_000;

/// Who is followed, and by how many.
pub(crate) struct Subscriptions {
    counts: Mutex<HashMap<Key, usize>>,
    tasks: Tasks,
}

/// A server, and a URI of its own.
type Key = (ServerName, String);

#[derive(Debug, Error)]
#[error("{MOST} resources are being followed already")]
pub(crate) struct TooMany;

impl std::fmt::Debug for Subscriptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscriptions").field("resources", &self.counts.lock().len()).finish()
    }
}

impl Subscriptions {
    pub(crate) fn new(tasks: Tasks) -> Arc<Self> {
        Arc::new(Self { counts: Mutex::default(), tasks })
    }

    /// Counts one more who follows.
    pub(crate) fn add(self: &Arc<Self>, upstream: &Upstream, uri: &str) -> Result<Subscription, TooMany> {
        let key = (upstream.name().clone(), uri.to_owned());
        let mut counts = self.counts.lock();
        if counts.len() >= MOST && !counts.contains_key(&key) {
            return Err(TooMany);
        }
        *counts.entry(key.clone()).or_default() += 1;
        Ok(Subscription { all: self.clone(), upstream: upstream.clone(), key })
    }

    /// A server is there again and knows nothing of what was followed. Gives the URIs, which may have changed meanwhile.
    pub(crate) async fn renew(&self, upstream: &Upstream) -> Vec<String> {
        let uris = self.of(upstream.name());
        if !uris.is_empty() && !upstream.config().isolate {
            let Ok(client) = upstream.client(Uuid::nil()).await else { return uris };
            for uri in &uris {
                if let Err(error) = client.subscribe(uri).await {
                    upstream.log().note(format_args!("a resource is no longer followed: {error}"));
                }
            }
        }
        uris
    }

    fn of(&self, server: &ServerName) -> Vec<String> {
        let counts = self.counts.lock();
        counts.keys().filter(|(of, _)| of == server).map(|(_, uri)| uri.clone()).collect()
    }

    /// True: nobody follows it any more.
    fn release(&self, key: &Key) -> bool {
        let mut counts = self.counts.lock();
        let Some(count) = counts.get_mut(key) else { return false };
        *count -= 1;
        let last = *count == 0;
        if last {
            counts.remove(key);
        }
        last
    }
}

/// One who follows; no longer when dropped.
#[derive(Debug)]
pub(crate) struct Subscription {
    all: Arc<Subscriptions>,
    upstream: Upstream,
    key: Key,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // A process of one session goes with its session, and all that it followed.
        let tell = self.all.release(&self.key) && self.upstream.is_connected() && !self.upstream.config().isolate;
        if !tell {
            return;
        }
        let (upstream, uri) = (self.upstream.clone(), std::mem::take(&mut self.key.1));
        self.all.tasks.spawn("unsubscribe", async move {
            if let Ok(client) = upstream.client(Uuid::nil()).await {
                // A server that does not listen goes on telling; nobody is told any more.
                let _ = client.unsubscribe(&uri).await;
            }
        });
    }
}
