//! The path of a call, on one page.
//!
//! ```text
//! catalogue.find → provider.intend → gate.decide → audit.begin → intent.run(permit) → audit.end
//! ```
//!
//! Where the gate asks, the call stops as a [`Pending`] until somebody has answered.
//! Every door, the command line and the REPL come through [`Hub::call`]; there is no second path.
//! The end is recorded also when the tool panics, the caller cancels or the future is dropped.

mod pending;
mod record;

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use thiserror::Error;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::approval::{Approvals, Code, Mode};
use crate::audit::Sink;
use crate::call::{Call, CallCx, CallKey, Said};
use crate::catalogue::{Catalogue, Found};
use crate::error::ToolError;
use crate::gate::{About, Answer, Asker, By, Decision, Gate, Permit, Why};
use crate::principal::{Patterns, Principal};
use crate::provider::{Intent, Origin, Own, Provider};
use crate::reply::Reply;
use crate::session::Session;
use crate::tasks::panic_text;
use crate::tool::{Access, Hidden};
pub use pending::{Looked, Pending, Ready};
use record::Record;

/// Where every call goes.
pub struct Hub {
    pub catalogue: Arc<Catalogue>,
    pub audit: Arc<dyn Sink>,
    /// Cancelled when the hub ends and will wait no longer: calls that still run end as cancelled.
    pub ending: CancellationToken,
    /// The questions that wait for a human.
    pub approvals: Arc<Approvals>,
    rules: Arc<Rules>,
}

/// What a decision takes, also when it is made again for a call that waited.
struct Rules {
    gate: Gate,
    policy: Policy,
}

impl Rules {
    fn decide(
        &self,
        principal: &Principal,
        session: &Session,
        tool: &str,
        origin: &Origin,
        intent: &dyn Intent,
        call: impl FnOnce() -> CallKey,
    ) -> Decision {
        // Who may unlock writes is not a matter of patterns over tool names.
        let about_the_gate = *origin == Origin::Own(Own::Gate);
        let grants = session.grants.lock();
        let asker = Asker {
            level: principal.level_now(),
            read_only: self.policy.read_only || principal.read_only,
            approved: !about_the_gate && principal.approved.matches(tool),
            always_ask: intent.always_asks() || (!about_the_gate && self.policy.always_ask.matches(tool)),
            denied: grants.denies(call),
            connects: intent.server().is_some() && !intent.wants_all(),
            grants: &grants,
        };
        self.gate.decide(&asker, origin, intent.access())
    }
}

/// What the operator has set for all keys.
#[derive(Clone, Debug)]
pub struct Policy {
    pub read_only: bool,
    pub always_ask: Patterns,
    pub mode: Mode,
    /// Tools whose output is shown as it is, but for the hub's own secrets.
    pub unredacted: Patterns,
    /// Calls one session may have running at once.
    pub calls_per_session: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            read_only: false,
            always_ask: Patterns::default(),
            mode: Mode::Ask,
            unredacted: Patterns::default(),
            calls_per_session: 64,
        }
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

/// What the record could not keep does not run, whatever the tool makes of it.
#[derive(Debug, Error)]
#[error("the arguments are not an object that can be recorded")]
struct NotAnObject;

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
        let approvals = Arc::new(Approvals::new(policy.mode, audit.clone()));
        let rules = Arc::new(Rules { gate: Gate, policy });
        Self { catalogue, audit, ending: CancellationToken::new(), approvals, rules }
    }

    /// The path.
    pub async fn call(&self, call: Call) -> Result<Outcome, UnknownTool> {
        let Call { tool, args, said, cx } = call;
        if let Some(backlog) = self.audit.backlog() {
            backlog.await;
        }
        let found = self.catalogue.find(&tool, &cx.principal);
        let mut record = Record::start(self.audit.clone(), &cx, &tool, args, found.as_ref());
        let Some(Found { spec, provider }) = found else {
            record.end("unknown_tool");
            return Err(UnknownTool(tool));
        };
        record.unredacted =
            spec.hidden == Hidden::OwnSecrets || self.rules.policy.unredacted.matches(spec.name.as_str());
        let session = cx.session.clone();
        let most = self.rules.policy.calls_per_session;
        let Some(_place) = session.enter(most) else {
            let error = ToolError::refused(TooManyCalls { most }).hint("wait for one of them to end");
            return Ok(Outcome::Done(record.failed(error)));
        };

        let intent = match provider.intend(&spec.name, &record.arguments) {
            Ok(intent) => intent,
            Err(error) => return Ok(Outcome::Done(record.failed(error))),
        };
        if record.arguments.tree().is_none() {
            return Ok(Outcome::Done(record.failed(ToolError::refused(NotAnObject))));
        }
        let access = intent.access();
        record.intended(&*intent);
        if let Some(server) = intent.server() {
            record.row.origin = Some(Origin::Upstream(server.clone()));
        }
        if access > spec.most {
            let (wanted, most) = (access.as_str(), spec.most.as_str());
            return Ok(Outcome::Done(record.failed(ToolError::internal(AboveMost { tool, wanted, most }))));
        }

        let heard = match said.map(|said| self.hear(said, &*provider, &record)).transpose() {
            Ok(heard) => heard.flatten(),
            Err(why) => return Ok(Outcome::Done(record.refused(why, None))),
        };
        let name = spec.name.as_str();
        let origin = &record.row.origin.clone().unwrap_or_else(|| provider.origin().clone());
        let decision = self.rules.decide(&cx.principal, &session, name, origin, &*intent, || record.call());
        if matches!(decision, Decision::Ask(_))
            && let Err(error) = self.approvals.worth_asking(origin, &record.arguments, &session)
        {
            return Ok(Outcome::Done(record.failed(error)));
        }
        Ok(match (decision, heard) {
            (Decision::Refuse(Why::ServerDenied), _) => {
                let code = record.server().map(|server| {
                    let about = About::Connect(server);
                    self.approvals.put_denied(record.facts(about, &*intent))
                });
                Outcome::Done(record.refused(Why::ServerDenied, code.as_ref()))
            }
            (Decision::Refuse(why), _) => Outcome::Done(record.refused(why, None)),
            (Decision::Ask(question), Some(Heard { answer: Err(Why::Denied), .. })) => {
                Outcome::Done(Pending::new(question, intent, cx, record, self).refuse(Why::Denied))
            }
            (_, Some(Heard { answer: Err(why), code })) => Outcome::Done(self.unanswered(record, why, &code)),
            (Decision::Allow(permit), _) => Outcome::Done(run(intent, permit, cx, record, &self.ending).await),
            (Decision::Ask(question), heard) => {
                let pending = Box::new(Pending::new(question, intent, cx, record, self));
                let looked = match heard {
                    Some(Heard { answer: Ok(answer), .. }) => Box::pin(pending.accept(answer, By::Client)).await,
                    _ => pending.look(),
                };
                // Only for whoever is still to be asked: an answer that is there must not get lost meanwhile.
                let looked = match looked {
                    Looked::Asks(pending) => pending.learn().await,
                    other => other,
                };
                match looked {
                    Looked::Asks(pending) => Outcome::Ask(pending),
                    Looked::Ready(ready) => Outcome::Done(Box::pin(ready.run()).await),
                    Looked::Over(refused) => Outcome::Done(refused),
                }
            }
        })
    }

    /// What a human has answered to an earlier try of this call; none when they have not. What is no answer to a
    /// question of ours is refused, also where nothing would have been asked.
    fn hear(&self, said: Said, provider: &dyn Provider, record: &Record) -> Result<Option<Heard>, Why> {
        match said {
            Said::Strange if provider.asks() => Ok(None),
            Said::Strange => Err(Why::Unsolicited),
            Said::Bad(why) => Err(why),
            // Only in this mode is a client's word an answer.
            Said::Answer { .. } if self.approvals.mode != Mode::Ask => Err(Why::Unsolicited),
            Said::Answer { ticket, heard } => {
                let code = self.approvals.redeem(&ticket, &record.bound())?;
                Ok(heard.map(|answer| Heard { answer, code }))
            }
        }
    }

    /// An answer that was no yes. After a clear no the question is over; otherwise the operator may still allow it.
    fn unanswered(&self, record: Record, why: Why, code: &Code) -> Reply {
        if why == Why::Denied {
            record.forget_once();
            self.approvals.answered(record.session(), &record.call());
            return record.refused(why, None);
        }
        record.refused(why, Some(code))
    }
}

/// A human's answer to an earlier try of a call, or why there is none.
struct Heard {
    answer: Result<Answer, Why>,
    code: Code,
}

/// Why a call was cut off that nobody cancelled.
const HUB_ENDED: &str = "the hub ended";

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
    record.row.how = record.row.how.or(permit.how());
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
            record.detail = Some(HUB_ENDED.to_owned());
            None
        }
    };
    match ended {
        Some(Ok(Ok(reply))) => {
            let reply = record.shown(reply);
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
