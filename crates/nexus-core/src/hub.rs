//! The path of a call, on one page.
//!
//! ```text
//! catalogue.find → provider.intend → gate.decide → audit.begin → intent.run(permit) → audit.end
//! ```
//!
//! Every door, the command line and the REPL come through [`Hub::call`]; there is no second path.
//! The end is recorded also when the tool panics, the caller cancels or the future is dropped.

mod record;

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::Value;
use thiserror::Error;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::arguments::Arguments;
use crate::audit::Sink;
use crate::call::{Call, CallCx};
use crate::catalogue::{Catalogue, Found};
use crate::error::ToolError;
use crate::gate::{Answer, Asker, Decision, Gate, Permit, Question};
use crate::name::NodeName;
use crate::principal::Patterns;
use crate::provider::Intent;
use crate::reply::Reply;
use crate::tasks::panic_text;
use crate::tool::Access;
use record::Record;

/// Where every call goes.
pub struct Hub {
    pub catalogue: Arc<Catalogue>,
    pub audit: Arc<dyn Sink>,
    /// Cancelled when the hub ends and will wait no longer: calls that still run end as cancelled.
    pub ending: CancellationToken,
    gate: Gate,
    policy: Policy,
}

/// What the operator has set for all keys.
#[derive(Clone, Debug)]
pub struct Policy {
    pub read_only: bool,
    pub always_ask: Patterns,
    /// Calls one session may have running at once.
    pub calls_per_session: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self { read_only: false, always_ask: Patterns::default(), calls_per_session: 64 }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("catalogue", &self.catalogue).finish_non_exhaustive()
    }
}

/// The tool does not exist, or not for this key.
#[derive(Debug, Error)]
#[error("unknown tool: {0}")]
pub struct UnknownTool(pub String);

#[derive(Debug, Error)]
#[error("{most} calls of this session are still running")]
struct TooManyCalls {
    most: usize,
}

#[derive(Debug, Error)]
#[error("a call of `{tool}` wants {wanted}, above the {most} its tool declares")]
struct AboveMost {
    tool: String,
    wanted: &'static str,
    most: &'static str,
}

/// What became of a call.
#[derive(Debug)]
pub enum Outcome {
    Done(Reply),
    /// A human has to say yes first.
    Ask(Box<Pending>),
}

impl Hub {
    pub fn new(catalogue: Arc<Catalogue>, audit: Arc<dyn Sink>, policy: Policy) -> Self {
        Self { catalogue, audit, ending: CancellationToken::new(), gate: Gate, policy }
    }

    /// The path.
    pub async fn call(&self, call: Call) -> Result<Outcome, UnknownTool> {
        let Call { tool, args, cx } = call;
        if let Some(backlog) = self.audit.backlog() {
            backlog.await;
        }
        let found = self.catalogue.find(&tool, &cx.principal);
        let mut record = Record::start(self.audit.clone(), &cx, &tool, args, found.as_ref());
        let Some(Found { spec, provider }) = found else {
            record.end("unknown_tool");
            return Err(UnknownTool(tool));
        };
        let session = cx.session.clone();
        let most = self.policy.calls_per_session;
        let Some(_place) = session.enter(most) else {
            let error = ToolError::refused(TooManyCalls { most }).hint("wait for one of them to end");
            return Ok(Outcome::Done(record.failed(error)));
        };

        let intent = match provider.intend(&spec.name, &record.arguments) {
            Ok(intent) => intent,
            Err(error) => return Ok(Outcome::Done(record.failed(error))),
        };
        let access = intent.access();
        record.intended(&*intent);
        if access > spec.most {
            let (wanted, most) = (access.as_str(), spec.most.as_str());
            return Ok(Outcome::Done(record.failed(ToolError::internal(AboveMost { tool, wanted, most }))));
        }

        let decision = {
            let grants = session.grants.lock();
            let asker = Asker {
                level: cx.principal.level,
                read_only: self.policy.read_only || cx.principal.read_only,
                approved: cx.principal.approved.matches(spec.name.as_str()),
                always_ask: self.policy.always_ask.matches(spec.name.as_str()),
                grants: &grants,
            };
            self.gate.decide(&asker, provider.origin(), access)
        };
        Ok(match decision {
            Decision::Allow(permit) => Outcome::Done(run(intent, permit, cx, record, &self.ending).await),
            Decision::Ask(question) => {
                Outcome::Ask(Box::new(Pending { question, intent, cx, record, ending: self.ending.clone() }))
            }
            Decision::Refuse(why) => Outcome::Done(record.refused(why)),
        })
    }
}

/// A call that waits for a human's answer. Dropped without one, it did not happen.
pub struct Pending {
    pub question: Question,
    intent: Box<dyn Intent>,
    cx: CallCx,
    record: Record,
    ending: CancellationToken,
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("question", &self.question).field("tool", &self.tool()).finish_non_exhaustive()
    }
}

impl Pending {
    pub fn tool(&self) -> &str {
        &self.record.row.tool
    }

    pub fn summary(&self) -> &str {
        self.record.row.summary.as_deref().unwrap_or_default()
    }

    pub fn node(&self) -> Option<&NodeName> {
        self.intent.node()
    }

    pub fn arguments(&self) -> &Arguments {
        &self.record.arguments
    }

    /// The arguments as a human or a record may see them.
    pub fn shown_arguments(&self) -> Value {
        serde_json::from_str(&self.record.row.arguments).unwrap_or_default()
    }

    /// The question was put to someone; this call ends here, and the next one may be answered.
    pub fn asked(mut self) {
        self.record.row.decision = Some("asked");
        self.record.end("waiting");
    }

    /// Goes on with the answer: runs the call, or refuses it.
    pub async fn settle(self, answer: Answer) -> Reply {
        let Self { question, intent, cx, mut record, ending } = self;
        record.row.how = Some(match answer {
            Answer::Once => "once",
            Answer::Session => "session",
            Answer::No => "no",
        });
        let about = question.about.clone();
        match question.settle(answer) {
            Ok(permit) => {
                if answer == Answer::Session {
                    cx.session.grants.lock().extend(&about);
                }
                let session = cx.session.clone();
                // Its place was given back while the human thought; it is not refused for that now.
                let _place = session.enter(usize::MAX);
                run(intent, permit, cx, record, &ending).await
            }
            Err(why) => record.refused(why),
        }
    }
}

/// How long a cancelled write may take to end by itself: a command gets SIGTERM before SIGKILL.
const GRACE: Duration = Duration::from_secs(3);

/// Records a write durably, then runs the intent until it ends, panics or is cancelled.
async fn run(
    intent: Box<dyn Intent>,
    permit: Permit,
    cx: CallCx,
    mut record: Record,
    ending: &CancellationToken,
) -> Reply {
    record.row.decision = Some("allowed");
    let cancelled = cx.cancel.clone();
    if cancelled.is_cancelled() {
        return record.cancelled();
    }
    let writes = intent.access() == Access::Write;
    if writes && let Err(error) = record.begin().await {
        warn!("a write was not run: {error}");
        let error =
            ToolError::failed(error).hint("nothing was changed; the operator should look at the hub's disk and store");
        return record.failed(error);
    }
    if cancelled.is_cancelled() {
        return record.cancelled();
    }
    let grace = if writes { GRACE } else { Duration::ZERO };
    let running = AssertUnwindSafe(async { intent.run(permit, cx).await }).catch_unwind();
    tokio::pin!(running);
    let ended = tokio::select! {
        biased;
        ended = &mut running => Some(ended),
        // A write that has begun is told, and may still end in order; a read is dropped where it is.
        () = cancelled.cancelled() => timeout(grace, running).await.ok(),
        () = ending.cancelled() => {
            record.detail = Some("the hub ended".to_owned());
            None
        }
    };
    match ended {
        Some(Ok(Ok(reply))) => {
            record.end(if reply.is_error() { "error" } else { "ok" });
            reply
        }
        // A tool that noticed the cancellation itself has failed for no other reason.
        Some(Ok(Err(_))) if cancelled.is_cancelled() => record.cancelled(),
        Some(Ok(Err(error))) => record.failed(error),
        Some(Err(panic)) => {
            let (incident, reply) = ToolError::panicked(&record.row.tool, panic_text(&*panic));
            record.detail = Some(format!("panicked, incident {incident}"));
            record.end("internal");
            reply
        }
        None => record.cancelled(),
    }
}
