//! A call that waits for a human's answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::record::Record;
use super::{Hub, Rules, run};
use crate::approval::{Approvals, Code, Facts, Ticket};
use crate::arguments::Arguments;
use crate::audit::NotRecorded;
use crate::call::CallCx;
use crate::clock;
use crate::error::ToolError;
use crate::gate::{About, Answer, By, Decision, Permit, Question, Why};
use crate::name::NodeName;
use crate::provider::{Intent, Origin, Own};
use crate::reply::Reply;
use crate::session::Session;

/// How long a question waits for what else is known of its matter.
const BACKGROUND: Duration = Duration::from_secs(2);

/// A call that waits for a human's answer. Dropped without one, it did not happen.
pub struct Pending {
    pub question: Question,
    intent: Box<dyn Intent>,
    cx: CallCx,
    record: Record,
    approvals: Arc<Approvals>,
    rules: Arc<Rules>,
    ending: CancellationToken,
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("question", &self.question).field("tool", &self.tool()).finish_non_exhaustive()
    }
}

impl Pending {
    pub(super) fn new(question: Question, intent: Box<dyn Intent>, cx: CallCx, record: Record, hub: &Hub) -> Self {
        let (approvals, rules, ending) = (hub.approvals.clone(), hub.rules.clone(), hub.ending.clone());
        Self { question, intent, cx, record, approvals, rules, ending }
    }

    pub fn tool(&self) -> &str {
        &self.record.row.tool
    }

    pub fn summary(&self) -> &str {
        self.record.summary()
    }

    pub fn node(&self) -> Option<&NodeName> {
        self.intent.node()
    }

    pub fn session(&self) -> &Arc<Session> {
        &self.cx.session
    }

    /// What a human should know of the server that is to be used for the first time.
    pub fn introduction(&self) -> Option<String> {
        self.intent.introduction()
    }

    /// It is a tool of the gate itself, which does nothing but ask.
    pub fn about_the_gate(&self) -> bool {
        self.record.row.origin == Some(Origin::Own(Own::Gate))
    }

    pub fn arguments(&self) -> &Arguments {
        &self.record.arguments
    }

    /// The arguments as a human or a record may see them.
    pub fn shown_arguments(&self) -> Value {
        serde_json::from_str(&self.record.row.arguments).unwrap_or_default()
    }

    /// Puts the question where the operator finds it, under this code.
    pub fn code(&self) -> Code {
        self.approvals.put(self.facts())
    }

    /// What the answer must bring back with it, when it comes with another try.
    pub fn ticket(&self) -> Ticket {
        self.approvals.ticket(&self.code(), self.record.bound())
    }

    /// Moves when somebody has answered something; [`Pending::look`] tells whether it was this.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.approvals.changes()
    }

    /// The decision as it is now: the key, its level and what was granted may have changed while it waited. None: the
    /// session is over or the key gone.
    fn decide(&mut self) -> Option<Decision> {
        self.cx.principal = self.cx.client.principal_now(&self.cx.principal)?;
        if self.cx.session.is_over() {
            return None;
        }
        let origin = self.record.row.origin.as_ref()?;
        let (cx, tool, call) = (&self.cx, self.tool(), || self.record.call());
        Some(self.rules.decide(&cx.principal, &cx.session, tool, origin, &*self.intent, call))
    }

    /// Its question is no longer to be answered.
    fn close(&self) {
        self.record.forget_once();
        self.approvals.answered(self.cx.session.id, &self.record.call());
    }

    /// Looks again, whether somebody has answered meanwhile in another way.
    pub fn look(mut self: Box<Self>) -> Looked {
        let (permit, by) = match self.decide() {
            None => return Looked::Over(self.cancelled()),
            Some(Decision::Refuse(why)) => return Looked::Over(self.refuse(why)),
            Some(Decision::Allow(permit)) => (permit, None),
            Some(Decision::Ask(question)) => {
                let once = self.cx.session.grants.lock().take_once(&self.record.call(), clock::monotonic_ms());
                let Some(by) = once else {
                    // Who wants to see each call of a server has answered the question before this one.
                    self.question = question;
                    return Looked::Asks(self);
                };
                match question.settle(Answer::Once) {
                    Ok(permit) => (permit, Some(by)),
                    Err(why) => return Looked::Over(self.refuse(why)),
                }
            }
        };
        self.close();
        let Self { intent, mut cx, mut record, ending, .. } = *self;
        record.row.how = by.map(|by| by.how(Answer::Once));
        cx.answered = by;
        Looked::Ready(Box::new(Ready { intent, permit, cx, record, ending }))
    }

    /// Looks up what else is known of its matter, for whoever is going to be asked. They may have answered meanwhile.
    pub(super) async fn learn(mut self: Box<Self>) -> Looked {
        let Some(background) = self.intent.background() else { return Looked::Asks(self) };
        if let Ok(Some(known)) = timeout(BACKGROUND, background).await {
            self.record.learned(&known);
        }
        self.look()
    }

    /// The question was put to someone, `how` says in which way; this call ends here, and the next one may be
    /// answered.
    pub fn asked(mut self, how: &'static str) {
        self.record.row.decision = Some("asked");
        self.record.row.how = Some(how);
        self.record.end("waiting");
    }

    /// The caller no longer wants to know, or may not. Who answers the question later is told so where its session is
    /// over.
    pub fn cancelled(self) -> Reply {
        self.record.cancelled()
    }

    /// Ends without a yes. After a clear no the question is over; otherwise the operator may still allow it.
    pub fn refuse(self, why: Why) -> Reply {
        match why {
            Why::Declined | Why::Dismissed | Why::Unavailable => {
                let code = self.code();
                self.record.refused(why, Some(&code))
            }
            _ => {
                if why == Why::Denied && matches!(self.question.about, About::Connect(_)) {
                    self.approvals.deny_server(self.facts(), By::Client);
                }
                self.close();
                self.record.refused(why, None)
            }
        }
    }

    /// Takes the answer. What it gives to the session is recorded and in force before the call itself runs. Where
    /// the key or its level no longer allows it, no answer does.
    pub async fn accept(mut self: Box<Self>, answer: Answer, by: By) -> Looked {
        match self.decide() {
            None => return Looked::Over(self.cancelled()),
            Some(Decision::Refuse(why)) => return Looked::Over(self.refuse(why)),
            Some(Decision::Allow(_) | Decision::Ask(_)) => {}
        }
        if answer == Answer::Each && self.question.about.offers().contains(&answer) {
            return self.ask_each(by).await;
        }
        match self.take(answer, by).await {
            Ok(ready) => Looked::Ready(ready),
            Err(refused) => Looked::Over(refused),
        }
    }

    /// The server may be used, and its calls are asked about one by one: this one is the first.
    async fn ask_each(self: Box<Self>, by: By) -> Looked {
        if let Err(error) = self.approvals.extend(self.facts(), Answer::Each, by).await {
            return Looked::Over(self.record.failed(not_approved(error)));
        }
        self.look()
    }

    async fn take(self, answer: Answer, by: By) -> Result<Box<Ready>, Reply> {
        self.close();
        let facts = (answer == Answer::Session).then(|| self.facts());
        let Self { question, intent, mut cx, mut record, approvals, ending, .. } = self;
        let permit = match question.settle(answer) {
            Ok(permit) => permit,
            Err(why) => return Err(record.refused(why, None)),
        };
        record.row.how = Some(by.how(answer));
        cx.answered = Some(by);
        if let Some(facts) = facts
            && let Err(error) = approvals.extend(facts, answer, by).await
        {
            return Err(record.failed(not_approved(error)));
        }
        Ok(Box::new(Ready { intent, permit, cx, record, ending }))
    }

    fn facts(&self) -> Facts {
        self.record.facts(self.question.about.clone(), &*self.intent)
    }

    /// What a yes is about, in full: also which server would be used for the first time, and what that is.
    pub fn in_full(&self) -> String {
        self.record.in_full(&self.question.about, &*self.intent)
    }
}

fn not_approved(error: NotRecorded) -> ToolError {
    ToolError::failed(error).hint("nothing was approved; the operator should look at the hub's disk and store")
}

/// What came of another look at a call that waits.
#[derive(Debug)]
pub enum Looked {
    /// Nobody has answered.
    Asks(Box<Pending>),
    /// Somebody has allowed it.
    Ready(Box<Ready>),
    /// Somebody has said no.
    Over(Reply),
}

/// A call that has its permit and has not run yet.
pub struct Ready {
    intent: Box<dyn Intent>,
    permit: Permit,
    cx: CallCx,
    record: Record,
    ending: CancellationToken,
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ready").field("tool", &self.record.row.tool).finish_non_exhaustive()
    }
}

impl Ready {
    pub async fn run(self: Box<Self>) -> Reply {
        let Self { intent, permit, cx, record, ending } = *self;
        let session = cx.session.clone();
        // Its place was given back while the human thought; it is not refused for that now.
        let _place = session.enter(usize::MAX);
        run(intent, permit, cx, record, &ending).await
    }
}
