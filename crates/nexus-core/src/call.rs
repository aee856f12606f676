//! A call on its way in, and what a running tool knows of it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::arguments::Arguments;
use crate::principal::Principal;
use crate::session::{Era, Session};

/// One call, as a front door hands it to the hub.
#[derive(Debug)]
pub struct Call {
    pub tool: String,
    pub args: Arguments,
    pub cx: CallCx,
}

/// Who calls, in which session, and how to reach them while the tool runs.
#[derive(Clone)]
pub struct CallCx {
    pub id: Uuid,
    pub principal: Arc<Principal>,
    pub session: Arc<Session>,
    pub era: Era,
    /// What the client of this call says it is. Shown, never believed.
    pub client_name: Option<Arc<str>>,
    /// Cancelled when the caller no longer wants the answer. The hub drops the tool's future then.
    pub cancel: CancellationToken,
    pub client: Arc<dyn Client>,
}

impl CallCx {
    /// Tells the caller how far the work has come. Costs nothing when it did not ask.
    pub fn progress(&self, step: Progress) {
        self.client.progress(step);
    }
}

impl fmt::Debug for CallCx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallCx").field("id", &self.id).field("principal", &self.principal.id).finish_non_exhaustive()
    }
}

/// How far a call has come.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Grows with every report.
    pub done: f64,
    pub total: Option<f64>,
    pub message: Option<String>,
}

/// The far end of a call, as far as the core cares. The front door knows more of it.
pub trait Client: Any + Send + Sync {
    fn progress(&self, step: Progress);
}

/// A caller that listens to nothing.
#[derive(Debug)]
pub struct Deaf;

impl Client for Deaf {
    fn progress(&self, _: Progress) {}
}
