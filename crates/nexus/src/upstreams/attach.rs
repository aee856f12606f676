//! Gives the tools of servers to the catalogue as servers come, and takes them away as they go.

use std::sync::Arc;

use tracing::error;

use nexus_core::catalogue::Catalogue;
use nexus_core::provider::Provider;
use nexus_core::tasks::Tasks;
use nexus_mcp::upstream::offers::Offers;
use nexus_mcp::upstream::registry::Registry;
use nexus_mcp::upstream::supervisor::Upstream;

struct Attached {
    upstream: Upstream,
    provider: Arc<dyn Provider>,
}

/// Runs until the registry is gone.
pub async fn attach(registry: Registry, offers: Arc<Offers>, catalogue: Arc<Catalogue>, tasks: Tasks) {
    let mut changes = registry.changes();
    let mut attached: Vec<Attached> = Vec::new();
    loop {
        changes.mark_unchanged();
        let there = registry.all();
        attached.retain(|old| {
            let stays = there.iter().any(|upstream| upstream.is(&old.upstream));
            if !stays {
                catalogue.detach_one(&old.provider);
            }
            stays
        });
        for upstream in there {
            if attached.iter().any(|known| known.upstream.is(&upstream)) {
                continue;
            }
            match offers.provide(upstream.clone()) {
                Ok(provider) => {
                    let provider: Arc<dyn Provider> = provider;
                    let keeping = catalogue.attach(provider.clone());
                    let stop = tasks.stopping();
                    tasks.spawn("tools of an upstream", async move {
                        tokio::select! {
                            () = keeping => {}
                            () = stop.cancelled() => {}
                        }
                    });
                    attached.push(Attached { upstream, provider });
                }
                Err(error) => error!("the tools of `{}` cannot be offered: {error}", upstream.name()),
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}
