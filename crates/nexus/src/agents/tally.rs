//! How many tasks there are, for `/health`, which must not wait for the store.

use std::time::Duration;

use futures_util::future::select_all;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::debug;

use super::Bridge;
use super::queue::Topic;
use super::task::Status;

/// Between two counts while much happens.
const BREATH: Duration = Duration::from_secs(1);

/// The numbers of all targets together, as they were a moment ago.
#[derive(Debug, Default)]
pub struct Tally(Mutex<Numbers>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Numbers {
    pending: i64,
    in_progress: i64,
    dead: i64,
}

impl Tally {
    pub fn now(&self) -> Numbers {
        *self.0.lock()
    }

    /// Counts whenever something happens, until it is dropped.
    pub async fn keep(&self, bridge: &Bridge) {
        let topics = bridge.targets.iter().map(|target| Topic::Tasks(target.name.clone()));
        let mut changes: Vec<_> = topics.chain([Topic::Updates]).map(|topic| bridge.queue.listen(&topic)).collect();
        loop {
            match bridge.queue.counts().await {
                Ok(counts) => {
                    let sum = |so: fn(Status) -> bool| {
                        counts.iter().filter(|count| so(count.status)).map(|count| count.n).sum()
                    };
                    *self.0.lock() = Numbers {
                        pending: sum(|status| status == Status::Pending),
                        in_progress: sum(Status::is_running),
                        dead: sum(|status| status == Status::Dead),
                    };
                }
                Err(error) => debug!("the tasks were not counted: {error}"),
            }
            sleep(BREATH).await;
            if !any(&mut changes).await {
                return;
            }
        }
    }
}

/// Waits for the first of them. False: nothing will ever happen again.
async fn any(changes: &mut [watch::Receiver<u64>]) -> bool {
    let (happened, _, _) = select_all(changes.iter_mut().map(|one| Box::pin(one.changed()))).await;
    happened.is_ok()
}
