//! Nodes: the machines tools work on. A command is an argument list, bounded in time and size.

mod argv;
mod capture;
mod environment;
mod exec;

use std::sync::Arc;
use std::time::Duration;

use nexus_core::call::CallCx;
use tokio_util::sync::CancellationToken;

pub use argv::Argv;
pub use capture::Captured;
pub use environment::Environment;
pub use exec::{End, ExecError, Finished, Glance};

/// A machine a tool can work on.
#[derive(Clone, Debug)]
pub enum Node {
    /// The one the hub runs on, and the variables its commands get.
    Local(Arc<Environment>),
}

impl Node {
    pub fn name(&self) -> &str {
        match self {
            Node::Local(_) => "local",
        }
    }

    /// Runs a command to its end, or to the end of its limits.
    pub async fn exec(&self, argv: &Argv, limits: Limits) -> Result<Finished, ExecError> {
        self.exec_watched(argv, limits, &mut |_| {}).await
    }

    /// The same, and tells now and then how it goes: at most four times a second.
    pub async fn exec_watched(
        &self,
        argv: &Argv,
        limits: Limits,
        watch: &mut (dyn FnMut(Glance<'_>) + Send),
    ) -> Result<Finished, ExecError> {
        match self {
            Node::Local(environment) => exec::run(environment, argv, limits, watch).await,
        }
    }
}

/// How long a command may take, how much of its output is kept, and what ends it early.
#[derive(Clone, Debug)]
pub struct Limits {
    time: Duration,
    spool: usize,
    cancel: CancellationToken,
}

impl Limits {
    /// A minute, 8 MiB of each stream, and the call's cancellation.
    pub fn of(cx: &CallCx) -> Self {
        Self { time: Duration::from_secs(60), spool: 8 << 20, cancel: cx.cancel.clone() }
    }

    #[must_use]
    pub fn time(self, time: Duration) -> Self {
        Self { time, ..self }
    }

    /// Bytes kept of each stream. Of more, the middle is counted and dropped.
    #[must_use]
    pub fn spool(self, spool: usize) -> Self {
        Self { spool, ..self }
    }
}
