//! What becomes of a call that waits for a human: how the question reaches them, and how the answer comes back.
//!
//! | mode | client | old era | new era |
//! |---|---|---|---|
//! | `ask` | puts forms to people | `elicitation/create`, then the same call goes on | `input_required`; the retry goes on |
//! | `ask` | does not | the pending reply; `approve_writes` is the yes | the same |
//! | `chat` | any | the same | the same |
//! | `operator` | any | the pending reply; only the command line is the yes | the same |

mod question;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use nexus_core::approval::{Approvals, Mode, Ticket};
use nexus_core::call::Said;
use nexus_core::gate::{About, Answer, By, Why};
use nexus_core::hub::{Looked, Pending, Ready};
use nexus_core::reply::Reply;
use nexus_core::session::Era;

use crate::exchange::{AskError, Exchange};
use crate::seal::Seal;
use crate::version::FIRST_WITH_ELICITATION;
use crate::wire::Params;
use question::{NOT_ASKED, UNANSWERED, answer_of, elicitation, waiting_for};

/// How long a call waits for the human in the old era: below what clients wait for a tool.
pub const PATIENCE: Duration = Duration::from_secs(50);

/// Calls of one session that may wait for a human at once; more are answered with the pending reply.
const MOST_QUEUED: usize = 32;

/// What our own `requestState` begins with. Upstream servers have theirs.
const OURS: &str = "nexus:";

/// What the seal is for.
const PURPOSE: &[&str] = &["approval"];

/// The name of the question in `inputRequests`.
const QUESTION: &str = "approval";

/// Puts questions.
pub(crate) struct Asking {
    approvals: Arc<Approvals>,
    seal: Seal,
    /// Cancelled when the hub is to end: then nobody waits for an answer any more.
    closing: CancellationToken,
    patience: Duration,
}

/// In which way the human is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Through the client, while the call waits.
    Now,
    /// Through the client, with the result; the answer comes with the next try.
    Later,
    /// By the model, in chat.
    Chat,
    /// Not by anyone here: the operator looks at the command line.
    Operator,
}

/// `puts_forms`: the client says that it can ask a human.
fn way(mode: Mode, era: Era, version: Option<&str>, puts_forms: bool) -> Way {
    match (mode, era) {
        (Mode::Operator, _) => Way::Operator,
        (Mode::Chat, _) => Way::Chat,
        (Mode::Ask, Era::Modern) if puts_forms => Way::Later,
        (Mode::Ask, Era::Legacy) if puts_forms && version.is_some_and(|version| version >= FIRST_WITH_ELICITATION) => {
            Way::Now
        }
        (Mode::Ask, Era::Legacy | Era::Modern) => Way::Chat,
    }
}

impl Asking {
    pub(crate) fn new(approvals: Arc<Approvals>, closing: CancellationToken, patience: Duration) -> Self {
        Self { approvals, seal: Seal::random(), closing, patience }
    }

    /// What came with a call beside its arguments. Nothing, almost always.
    pub(crate) fn said(&self, params: &Params<'_>, era: Era) -> Option<Said> {
        if params.request_state.is_none() && params.input_responses.is_none() {
            return None;
        }
        let Some(sealed) = params.request_state.as_deref().and_then(|state| state.strip_prefix(OURS)) else {
            return Some(Said::Strange);
        };
        if era == Era::Legacy {
            return Some(Said::Bad(Why::Unsolicited));
        }
        let opened = self.seal.open(PURPOSE, sealed);
        let Some(ticket) = opened.and_then(|state| state.as_str().and_then(Ticket::parse)) else {
            return Some(Said::Bad(Why::Tampered));
        };
        let answers: Option<Map<String, Value>> =
            params.input_responses.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let heard = answers.as_ref().and_then(|answers| answers.get(QUESTION)).map(answer_of);
        Some(Said::Answer { ticket, heard })
    }

    /// Asks, and gives what the call is answered with.
    pub(crate) async fn ask(&self, pending: Box<Pending>, exchange: &Exchange) -> Reply {
        let version = exchange.peer.version.get().copied();
        match way(self.approvals.mode, exchange.era, version, exchange.capabilities.elicits()) {
            Way::Now => self.now(pending, exchange).await,
            Way::Later => self.later(*pending),
            // The operator has answered in chat: that is what the model says by calling it.
            Way::Chat if pending.about_the_gate() => {
                let answer = if pending.question.about == About::Unlock { Answer::Session } else { Answer::Once };
                match pending.accept(answer, By::Chat).await {
                    Looked::Ready(ready) => ready.run().await,
                    Looked::Over(refused) => refused,
                    Looked::Asks(pending) => self.waiting(*pending, exchange, "chat"),
                }
            }
            Way::Chat => self.waiting(*pending, exchange, "chat"),
            Way::Operator => self.waiting(*pending, exchange, "operator"),
        }
    }

    /// The new era: the question is the result.
    fn later(&self, pending: Pending) -> Reply {
        let ticket = Value::String(pending.ticket().to_string());
        let state = format!("{OURS}{}", self.seal.close(PURPOSE, &ticket));
        let question = json!({ "method": "elicitation/create", "params": elicitation(&pending, &self.approvals) });
        let result =
            json!({ "resultType": "input_required", "inputRequests": { QUESTION: question }, "requestState": state });
        pending.asked("input_required");
        verbatim(&result)
    }

    /// The old era: the call waits for its answer, and for its turn to ask.
    async fn now(&self, pending: Box<Pending>, exchange: &Exchange) -> Reply {
        let session = pending.session().clone();
        let Some(_place) = session.queue(MOST_QUEUED) else { return self.waiting(*pending, exchange, NOT_ASKED) };
        let ends = Instant::now() + self.patience;
        let mut wait = Wait { changes: pending.changes(), ends, closing: &self.closing, exchange };
        // From here on the operator sees it too.
        pending.code();
        let (pending, turn) = match wait.until(pending, exchange.peer.turn_to_ask()).await {
            Waited::Came(pending, turn) => (pending, turn),
            other => return self.end(other, exchange, NOT_ASKED).await,
        };
        // Whoever asked before may have been answered with yes to all.
        let mut looked = pending.look();
        loop {
            let pending = match looked {
                Looked::Asks(pending) => pending,
                Looked::Ready(ready) => {
                    // The next question may be put while this call runs, not before its answer is in force.
                    drop(turn);
                    return ready.run().await;
                }
                Looked::Over(refused) => return refused,
            };
            let params = elicitation(&pending, &self.approvals);
            let (pending, answer) = match wait.until(pending, exchange.ask("elicitation/create", &params)).await {
                Waited::Came(pending, answer) => (pending, answer),
                other => {
                    drop(turn);
                    return self.end(other, exchange, UNANSWERED).await;
                }
            };
            let heard = match answer {
                Ok(answer) => answer_of(&serde_json::from_str(answer.get()).unwrap_or_default()),
                Err(AskError::Gone) => return pending.cancelled(),
                Err(AskError::Refused(_) | AskError::WrongEra) => Err(Why::Unavailable),
            };
            // Who wants to confirm each call of a server is asked about this one next.
            looked = match heard {
                Ok(answer) => pending.accept(answer, By::Client).await,
                Err(why) => Looked::Over(pending.refuse(why)),
            };
        }
    }

    async fn end<T>(&self, waited: Waited<T>, exchange: &Exchange, how: &'static str) -> Reply {
        match waited {
            Waited::Came(pending, _) | Waited::TooLong(pending) => self.waiting(*pending, exchange, how),
            Waited::Settled(ready) => ready.run().await,
            Waited::Over(reply) => reply,
        }
    }

    /// The pending reply: it did not run, and this is what to do.
    fn waiting(&self, pending: Pending, exchange: &Exchange, how: &'static str) -> Reply {
        let body = waiting_for(&pending, &self.approvals, how, exchange);
        pending.asked(how);
        Reply::error_body(&body)
    }
}

/// What a call that waits listens to beside its question.
struct Wait<'a> {
    changes: watch::Receiver<u64>,
    ends: Instant,
    closing: &'a CancellationToken,
    exchange: &'a Exchange,
}

enum Waited<T> {
    Came(Box<Pending>, T),
    /// Allowed in another way: by the operator, or with another call's question.
    Settled(Box<Ready>),
    /// Refused, or nobody wants it any more.
    Over(Reply),
    TooLong(Box<Pending>),
}

impl Wait<'_> {
    async fn until<T>(&mut self, mut pending: Box<Pending>, work: impl Future<Output = T>) -> Waited<T> {
        tokio::pin!(work);
        let session = pending.session().clone();
        loop {
            tokio::select! {
                biased;
                // The client ended it, its lease ran out, or its key was revoked.
                () = session.ended() => return Waited::Over(pending.cancelled()),
                () = self.exchange.cancel.cancelled() => return Waited::Over(pending.cancelled()),
                () = self.exchange.outbox.closed() => return Waited::Over(pending.cancelled()),
                done = &mut work => return Waited::Came(pending, done),
                () = self.closing.cancelled() => return Waited::TooLong(pending),
                () = sleep_until(self.ends) => return Waited::TooLong(pending),
                moved = self.changes.changed() => {
                    pending = match pending.look() {
                        Looked::Asks(pending) => pending,
                        Looked::Ready(ready) => return Waited::Settled(ready),
                        Looked::Over(refused) => return Waited::Over(refused),
                    };
                    if moved.is_err() {
                        return Waited::TooLong(pending);
                    }
                }
            }
        }
    }
}

fn verbatim(result: &Value) -> Reply {
    let raw = to_raw_value(result).unwrap_or_else(|_| RawValue::NULL.to_owned());
    Reply::Verbatim(raw)
}
