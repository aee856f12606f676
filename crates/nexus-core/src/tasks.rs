//! Background work: every task has a name, is told to stop by one token and is waited for at the end.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::error;

/// Starts tasks and ends them. Cloning is cheap; all clones mean the same set.
#[derive(Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("running", &self.tracker.len()).finish()
    }
}

impl Tasks {
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a task. If it panics, that is logged under its name and ends only that task.
    #[allow(clippy::disallowed_methods, reason = "this is the shim")]
    pub fn spawn<F>(&self, name: &'static str, work: F) -> JoinHandle<Option<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tracker.spawn(async move {
            match AssertUnwindSafe(work).catch_unwind().await {
                Ok(output) => Some(output),
                Err(panic) => {
                    error!(task = name, "the task `{name}` panicked: {}", panic_text(&*panic));
                    None
                }
            }
        })
    }

    /// Cancelled when the program is to end.
    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// How many are running now.
    pub fn running(&self) -> usize {
        self.tracker.len()
    }

    /// Tells all tasks to stop and waits for them, for as long as `patience`. False: some still ran.
    pub async fn finish(&self, patience: Duration) -> bool {
        self.stop.cancel();
        self.tracker.close();
        tokio::time::timeout(patience, self.tracker.wait()).await.is_ok()
    }
}

/// The text of a caught panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no text)")
}
