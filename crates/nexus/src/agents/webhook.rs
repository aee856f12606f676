//! Webhook targets: tasks are posted to a program, and what it says of them comes back, both signed by the Standard
//! Webhooks scheme.
//!
//! To the tools its agent is like any other with a key of its own; the signature takes the place of the key.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tracing::{error, warn};

use nexus_core::hub::Hub;
use nexus_core::session::Transport;
use nexus_core::tasks::Tasks;
use nexus_mcp::front::auth::{Bucket, Rate};
use nexus_system::outbound::SafeUrl;
use tokio_util::sync::CancellationToken;

use super::targets::{Targets, Way};
use super::voice::Voice;
use super::{Bridge, Queue};
use crate::config::Config;
use crate::config::env::Secret;
use crate::config::faults::{Faults, Problem};

mod carrier;
mod incoming;
mod letter;
mod post;
mod sign;

use carrier::Carrier;
pub use carrier::was_taken;
use post::Post;
use sign::Signer;

/// What an agent may do by its signature.
const TOOLS: [&str; 4] = ["post_update", "ask_operator", "complete_task", "fail_task"];

/// A target's agent may say this much; the hub's other work goes on beside it.
const RATE: Rate = Rate { per_second: 50, burst: 500 };

/// All webhook targets that have a secret.
#[derive(Debug)]
pub struct Hooks {
    all: BTreeMap<Arc<str>, Arc<Hook>>,
    /// For those who name a target that there is not.
    nobody: Signer,
}

/// One webhook target.
pub struct Hook {
    target: Arc<str>,
    url: SafeUrl,
    signer: Signer,
    voice: Voice,
    queue: Arc<Queue>,
    allowance: Bucket,
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook").field("target", &self.target).field("url", &self.url).finish_non_exhaustive()
    }
}

/// Webhook targets that cannot sign. Only `nexus check` and a starting hub ask: the secret may be nobody else's business.
pub fn faults(config: &Config) -> Option<Faults> {
    let (mut faults, targets) = (Faults::default(), Targets::of(&config.agents));
    let common = config.environment.webhook_secret.as_ref();
    for target in targets.iter() {
        let Way::Webhook { secret_file, .. } = &target.way else { continue };
        if let Err(problem) = Signer::of(secret_file.as_deref(), common) {
            let what = format!("the webhook target `{}`: {problem}", target.name);
            faults.start(Problem::new(what).hint(problem.hint()));
        }
    }
    (!faults.is_empty()).then_some(faults)
}

/// Those of the targets that are webhooks. None: there are none.
pub fn hooks(bridge: &Bridge, common: Option<&Secret>, hub: &Arc<Hub>) -> Option<Arc<Hooks>> {
    let mut all = BTreeMap::new();
    for target in bridge.targets.iter() {
        let Way::Webhook { url, secret_file } = &target.way else { continue };
        let name = &target.name;
        let (signer, url) = match (Signer::of(secret_file.as_deref(), common), SafeUrl::parse(url)) {
            (Ok(signer), Ok(url)) => (signer, url),
            (Err(problem), _) => {
                error!(target = %name, "tasks for {name} wait: {problem} (hint: {})", problem.hint());
                continue;
            }
            (_, Err(problem)) => {
                error!(target = %name, "tasks for {name} wait: its url is {problem}");
                continue;
            }
        };
        let hook = Hook {
            target: name.clone(),
            url,
            signer,
            voice: Voice::of_agent(hub.clone(), &agent(name), Transport::Webhook, name, TOOLS),
            queue: bridge.queue.clone(),
            allowance: Bucket::new(RATE),
        };
        all.insert(name.clone(), Arc::new(hook));
    }
    let nobody = Signer::of_nobody().ok()?;
    (!all.is_empty()).then(|| Arc::new(Hooks { all, nobody }))
}

/// The name under which a target's agent is recorded.
fn agent(target: &str) -> String {
    format!("webhook:{target}")
}

impl Hooks {
    /// Carries tasks until the hub ends, or `over` is cancelled: the work of the holder.
    pub fn start(&self, hub: &Hub, tasks: &Tasks, over: &CancellationToken) {
        for hook in self.all.values() {
            let (target, queue) = (hook.target.clone(), hook.queue.clone());
            let post =
                Post::to(target.clone(), hook.url.clone(), hook.signer.clone(), queue.clone(), hub.audit.clone());
            let post = match post {
                Ok(post) => Arc::new(post),
                Err(error) => {
                    warn!(%target, "tasks for {target} wait: {}", nexus_core::Chain(&error));
                    continue;
                }
            };
            let carrier = Carrier::new(target.clone(), agent(&target), queue, post);
            let (ending, over, stop) = (tasks.stopping(), over.clone(), CancellationToken::new());
            let told = stop.clone();
            tasks.spawn("webhook", async move {
                let stopped = async {
                    tokio::select! {
                        () = ending.cancelled() => {}
                        () = over.cancelled() => {}
                    }
                    told.cancel();
                };
                tokio::join!(stopped, carrier.run(stop));
            });
        }
    }
}
