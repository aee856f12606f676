//! What the holder of the data folder puts right when it starts: nexus.yaml may say otherwise than it did.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use nexus_core::Chain;

use super::queue::{Arrived, QueueError};
use super::targets::Target;
use super::task::Task;
use super::{Bridge, telegram, webhook};
use crate::store::Store;

/// After the store has failed.
const PAUSE: Duration = Duration::from_secs(5);

/// What has to be known to put things right.
#[derive(Debug)]
pub struct Opening {
    pub bridge: Arc<Bridge>,
    pub store: Store,
    /// Of the tables about tasks.
    pub home: String,
    /// There is a Telegram bot, or there should be one.
    pub has_bot: bool,
}

impl Opening {
    /// Until it is done, or the holder's work is over.
    pub async fn run(self, over: CancellationToken) {
        over.run_until_cancelled(async {
            while let Err(error) = self.put_right().await {
                if matches!(error, QueueError::Ending) {
                    return;
                }
                warn!(error = %Chain(&error), "tasks of targets that are reached otherwise now still wait; trying again");
                sleep(PAUSE).await;
            }
        })
        .await;
    }

    async fn put_right(&self) -> Result<(), QueueError> {
        let targets = &self.bridge.targets;
        let bot = self.has_bot.then_some(telegram::CHANNEL);
        let known: BTreeSet<&str> = targets.iter().map(|target| &*target.name).chain(bot).collect();
        self.bridge.queue.keep_channels(&known).await?;
        for target in targets.iter() {
            self.take_from_others(target).await?;
        }
        Ok(())
    }

    /// A carried task has no lease. Where its carrier is not the target's any more, nobody would ever give it back.
    async fn take_from_others(&self, target: &Target) -> Result<(), QueueError> {
        let (queue, way) = (&self.bridge.queue, target.way.as_str());
        let mut some = true;
        while std::mem::take(&mut some) {
            for task in queue.carried_otherwise(&target.name, way).await? {
                let by = task.claimed_by.as_deref().unwrap_or_default();
                let why = format!("it was carried by {by}, and {} is reached by {way} now", target.name);
                some |= queue.take_away(&task, self.arrived(&task).await?, why).await?;
            }
        }
        Ok(())
    }

    /// Whoever took a task may have done it. What nobody ever took can be given to others, and costs no attempt.
    async fn arrived(&self, task: &Task) -> Result<Arrived, QueueError> {
        let taken = webhook::was_taken(&self.bridge.queue, task).await?
            && telegram::was_posted(&self.store, &self.home, task).await?;
        Ok(if taken { Arrived::Perhaps } else { Arrived::Never })
    }
}
