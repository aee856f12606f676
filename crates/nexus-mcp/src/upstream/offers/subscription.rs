//! Resources that callers want to hear of: each is followed at its server once, for as long as anybody wants to.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thiserror::Error;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use nexus_core::name::ServerName;
use nexus_core::tasks::Tasks;

use crate::upstream::supervisor::{Upstream, Visibility};

/// Resources that are followed at once, over all servers and callers.
const MOST: usize = 10_000;

/// Who is followed, and by how many.
pub(crate) struct Subscriptions {
    counts: Mutex<HashMap<Key, usize>>,
    tasks: Tasks,
}

/// All together: a server that takes its time with each must not keep the hub busy for hours.
const RENEWING: Duration = Duration::from_secs(30);

/// A server as one key or everybody sees it, and a URI of its own: what one key follows at its private server is nothing
/// to another key's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    server: ServerName,
    visibility: Visibility,
    uri: String,
}

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
        let (server, visibility) = (upstream.name().clone(), upstream.visibility().clone());
        let key = Key { server, visibility, uri: uri.to_owned() };
        let mut counts = self.counts.lock();
        if counts.len() >= MOST && !counts.contains_key(&key) {
            return Err(TooMany);
        }
        *counts.entry(key.clone()).or_default() += 1;
        Ok(Subscription { all: self.clone(), upstream: upstream.clone(), key })
    }

    /// A server is there again and knows nothing of what was followed. Tells `changed` the URIs, which may have changed
    /// meanwhile. Whoever asks does not wait for the server; dropping what comes back ends it.
    pub(crate) fn renew(
        self: &Arc<Self>,
        upstream: &Upstream,
        changed: impl Fn(&str) + Send + 'static,
    ) -> Option<DropGuard> {
        let uris = self.of(upstream);
        if uris.is_empty() {
            return None;
        }
        let (over, stop, upstream) = (CancellationToken::new(), self.tasks.stopping(), upstream.clone());
        let guard = over.clone().drop_guard();
        self.tasks.spawn("renewed subscriptions", async move {
            tokio::select! {
                renewed = timeout(RENEWING, subscribe_again(&upstream, &uris)) => if renewed.is_err() {
                    upstream.log().note("some resources are no longer followed: it takes too long");
                },
                () = over.cancelled() => return,
                () = stop.cancelled() => return,
            }
            uris.iter().for_each(|uri| changed(uri));
        });
        Some(guard)
    }

    fn of(&self, upstream: &Upstream) -> Vec<String> {
        let is_its = |key: &&Key| key.server == *upstream.name() && key.visibility == *upstream.visibility();
        self.counts.lock().keys().filter(is_its).map(|key| key.uri.clone()).collect()
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

/// Not with a process of one session, which has gone with all that it followed.
async fn subscribe_again(upstream: &Upstream, uris: &[String]) {
    if upstream.config().isolate {
        return;
    }
    let Ok(client) = upstream.client(Uuid::nil()).await else { return };
    for uri in uris {
        if let Err(error) = client.subscribe(uri).await {
            upstream.log().note(format_args!("a resource is no longer followed: {error}"));
        }
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
        let (upstream, uri) = (self.upstream.clone(), std::mem::take(&mut self.key.uri));
        self.all.tasks.spawn("unsubscribe", async move {
            if let Ok(client) = upstream.client(Uuid::nil()).await {
                // A server that does not listen goes on telling; nobody is told any more.
                let _ = client.unsubscribe(&uri).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tokio::time::Instant;

    use nexus_core::principal::PrincipalId;

    use super::*;
    use crate::upstream::names::Naming;
    use crate::upstream::pins::InMemory;
    use crate::upstream::supervisor::Parts;
    use crate::upstream::supervisor::tests::fake::{Fake, Fakes, stdio};

    async fn private(fake: &Fake, owner: &str) -> Upstream {
        let mut config = stdio("x");
        config.timeout = Duration::from_secs(3600);
        let parts = Parts::new(Fakes::new([("x", fake.clone())]), Arc::new(InMemory::default()), Tasks::new());
        let (naming, owner) = (Naming::new(&config.name, None), Visibility::Private(PrincipalId::new(owner)));
        let upstream = Upstream::start(config, owner, naming, Arc::default(), parts);
        upstream.ready().await.unwrap();
        upstream
    }

    #[tokio::test(start_paused = true)]
    async fn what_one_key_follows_at_its_own_server_is_not_followed_at_anothers() {
        let fake = Fake::with_tools([]);
        let (mine, yours) = (private(&fake, "me").await, private(&fake, "you").await);
        let subscriptions = Subscriptions::new(Tasks::new());
        let followed = subscriptions.add(&mine, "a://b").unwrap();
        assert_eq!(subscriptions.of(&mine), ["a://b"]);
        assert!(subscriptions.of(&yours).is_empty());
        assert!(subscriptions.renew(&yours, |uri| panic!("{uri}")).is_none());
        drop(followed);
        assert!(subscriptions.of(&mine).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_takes_its_time_with_subscriptions_has_half_a_minute_for_all_of_them() {
        let fake = Fake::with_tools([]);
        let upstream = private(&fake, "me").await;
        fake.conduct.lock().deaf = true;
        let subscriptions = Subscriptions::new(Tasks::new());
        let _followed: Vec<_> = (0..3).map(|n| subscriptions.add(&upstream, &format!("a://{n}")).unwrap()).collect();
        let (told, mut heard) = mpsc::unbounded_channel();
        let begun = Instant::now();
        let _renewing = subscriptions.renew(&upstream, move |uri| told.send(uri.to_owned()).unwrap());
        for _ in 0..3 {
            heard.recv().await.unwrap();
        }
        assert_eq!(begun.elapsed().as_secs(), RENEWING.as_secs());
    }
}
