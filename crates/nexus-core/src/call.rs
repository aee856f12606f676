//! A call on its way in, and what a running tool knows of it.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::approval::Ticket;
use crate::arguments::Arguments;
use crate::gate::{Answer, By, Why};
use crate::principal::Principal;
use crate::redact;
use crate::session::{Era, Session};
use crate::text;

/// One call, as a front door hands it to the hub.
#[derive(Debug)]
pub struct Call {
    pub tool: String,
    pub args: Arguments,
    /// What came back with it, where an earlier try was answered with a question.
    pub said: Option<Said>,
    pub cx: CallCx,
}

/// What a call brings with it beside its arguments: an answer, or something that wants to be one.
#[derive(Clone, Debug)]
pub enum Said {
    /// The ticket of a question of ours. `heard` is none when no answer came with it: then it is put again.
    Answer { ticket: Ticket, heard: Option<Result<Answer, Why>> },
    /// It has the form of ours and is none.
    Bad(Why),
    /// Nothing of ours. A provider that asks its callers itself may know what it is.
    Strange,
}

/// One very call: a tool and its arguments. Equal for equal calls, however they were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallKey([u8; 32]);

impl CallKey {
    pub fn of(tool: &str, arguments: &[u8; 32]) -> Self {
        // The digest has a fixed length, so no two pairs run together to the same bytes.
        Self(Sha256::new().chain_update(arguments).chain_update(tool).finalize().into())
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
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
    /// Through whom a human said yes to it, where one was asked.
    pub answered: Option<By>,
    /// What the record says of what came of it, beside how it ended.
    pub noted: Arc<OnceLock<Box<str>>>,
}

impl CallCx {
    /// Gives the record a few words on what came of the call. The first ones count.
    pub fn note(&self, words: &str) {
        self.noted.get_or_init(|| redact::text(&text::clean(words)).into());
    }

    /// Tells the caller how far the work has come. Costs nothing when it did not ask.
    pub fn progress(&self, mut step: Progress) {
        step.message = step.message.map(|message| redact::text(&message).into_owned());
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

    /// The caller as their key is in force now, which a call that waited looks at again. None: it no longer is.
    fn principal_now(&self, then: &Arc<Principal>) -> Option<Arc<Principal>> {
        Some(then.clone())
    }
}

/// A caller that listens to nothing.
#[derive(Debug)]
pub struct Deaf;

impl Client for Deaf {
    fn progress(&self, _: Progress) {}
}
