//! Who says yes, and what waits for it: every question that was put to a human has its place on one desk.
//!
//! A question leaves the desk when it is answered, when its time is over, or when its session is gone. What the
//! operator says at the command line comes through [`Approvals::approve`] and [`Approvals::deny`]; what a client
//! brings back comes with the next try of the call, and the hub looks here whether it was ever asked.

mod approve_writes;
mod desk;
mod revoke_writes;
mod ticket;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;
use tokio::sync::watch;
use uuid::Uuid;

use crate::arguments::Arguments;
use crate::audit::{Event, NotRecorded, Row, Sink};
use crate::call::CallKey;
use crate::clock;
use crate::error::ToolError;
use crate::gate::{About, Answer, By, Why, Writes};
use crate::provider::{Origin, Own};
use crate::session::Session;
use crate::tool::{BadTool, Entry, Family};

pub use approve_writes::ApproveWrites;
pub(crate) use desk::Facts;
use desk::{Desk, Standing, Waiting};
pub use revoke_writes::RevokeWrites;
pub use ticket::{Code, Ticket};

/// How a human is asked (`approval.mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Through the client where it can, else in chat.
    #[default]
    Ask,
    /// The model asks in chat.
    Chat,
    /// Only at the hub's own command line.
    Operator,
}

impl Mode {
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Ask => "ask",
            Mode::Chat => "chat",
            Mode::Operator => "operator",
        }
    }
}

/// How long a code can be approved, and an approval of one call waits for that call.
pub const CODE_LIFE: Duration = Duration::from_secs(15 * 60);

/// How long an answer that the client brings back counts.
pub const TICKET_LIFE: Duration = Duration::from_secs(5 * 60);

/// A question as the operator sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Shown {
    pub code: Code,
    pub asked: Timestamp,
    /// The key that the call came with.
    pub key: String,
    pub client: Option<String>,
    /// Its name in the record.
    pub session: String,
    pub tool: String,
    pub node: String,
    pub summary: String,
    pub arguments: Value,
    /// What a yes for the session covers.
    pub what: String,
    /// How far a yes may go.
    #[serde(default)]
    pub offers: Vec<Scope>,
}

/// How far an approval goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    Once,
    Session,
    /// Of an upstream server: it may be used, and every call is asked about.
    Each,
}

impl Scope {
    /// None: it is a no.
    fn of(answer: Answer) -> Option<Self> {
        match answer {
            Answer::Once => Some(Scope::Once),
            Answer::Session => Some(Scope::Session),
            Answer::Each => Some(Scope::Each),
            Answer::No => None,
        }
    }

    fn answer(self) -> Answer {
        match self {
            Scope::Once => Answer::Once,
            Scope::Session => Answer::Session,
            Scope::Each => Answer::Each,
        }
    }
}

#[derive(Debug, Error)]
pub enum NotSettled {
    #[error("no call waits under the code {0}; it was answered, has expired, or was never given out")]
    Unknown(Code),
    #[error("the session that asked under the code {0} is over")]
    SessionGone(Code),
    #[error("the code {0} is about all writes of its session; approve it without --once")]
    NotOnce(Code),
    #[error("the code {0} is not the first use of an upstream server; there is nothing to confirm one by one")]
    NotEach(Code),
    #[error("the code {0} is no call of an upstream server; `approve_writes` without a code unlocks the session")]
    NotSession(Code),
    #[error("only the operator can allow the call {0}, at the hub's command line")]
    OnlyOperator(Code),
    #[error(transparent)]
    NotRecorded(#[from] NotRecorded),
}

impl NotSettled {
    /// What a model is told that brought the code.
    fn into_error(self) -> ToolError {
        match self {
            NotSettled::NotRecorded(_) => ToolError::failed(self),
            NotSettled::OnlyOperator(_) => ToolError::refused(self).hint("ask them to; do not try another way"),
            _ => ToolError::refused(self).hint("make the call itself again; its answer has a code that is good"),
        }
    }
}

/// The desk, and how a human is asked at all.
pub struct Approvals {
    pub mode: Mode,
    audit: Arc<dyn Sink>,
    desk: Mutex<Desk>,
    changes: watch::Sender<u64>,
    questions: watch::Sender<u64>,
}

impl fmt::Debug for Approvals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Approvals").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Approvals {
    pub fn new(mode: Mode, audit: Arc<dyn Sink>) -> Self {
        Self { mode, audit, desk: Mutex::default(), changes: watch::Sender::new(0), questions: watch::Sender::new(0) }
    }

    /// Moves whenever somebody said yes or no to something. A call that waits then looks again.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Moves whenever a question is put on the desk.
    pub fn questions(&self) -> watch::Receiver<u64> {
        self.questions.subscribe()
    }

    /// Everything that waits, oldest first.
    pub fn list(&self) -> Vec<Shown> {
        let mut desk = self.desk.lock();
        desk.sweep(clock::monotonic_ms());
        desk.open().map(Waiting::shown).collect()
    }

    /// The question of that code, if this session asked it and it is still open.
    pub fn asked_by(&self, session: &Session, code: &Code) -> Option<Shown> {
        let mut desk = self.desk.lock();
        desk.sweep(clock::monotonic_ms());
        let asked = |waiting: &&Waiting| waiting.code == *code && waiting.session_id == session.id;
        desk.open().find(asked).filter(|waiting| waiting.about != About::Unlock).map(Waiting::shown)
    }

    /// The operator says yes. Gives what was approved, and how far: a call that is to be confirmed every time is
    /// approved once, whatever was asked for.
    pub async fn approve(&self, code: &Code, scope: Scope) -> Result<(Shown, Scope), NotSettled> {
        self.approve_by(code, scope, By::Operator).await
    }

    /// The same, where the operator is not at the command line.
    pub async fn approve_by(&self, code: &Code, scope: Scope, by: By) -> Result<(Shown, Scope), NotSettled> {
        let (found, session) = self.find(code)?;
        let scope = match (&found.about, scope) {
            (About::Connect(_), scope) => scope,
            (_, Scope::Each) => return Err(NotSettled::NotEach(code.clone())),
            (About::ConfirmCall, _) => Scope::Once,
            (About::Unlock, Scope::Once) => return Err(NotSettled::NotOnce(code.clone())),
            (About::ApproveWrites | About::Unlock | About::ConfirmUpstream(_), scope) => scope,
        };
        self.grant(&found, &session, scope, by).await?;
        Ok((found.shown(), scope))
    }

    /// The operator says no, or takes back what was approved under this code.
    pub async fn deny(&self, code: &Code) -> Result<Shown, NotSettled> {
        self.deny_by(code, By::Operator).await
    }

    /// The same, where the operator is not at the command line.
    pub async fn deny_by(&self, code: &Code, by: By) -> Result<Shown, NotSettled> {
        let (found, session) = self.find(code)?;
        self.record(Event::Denied, &found, &session, Answer::No, by).await?;
        {
            let mut grants = session.grants.lock();
            grants.deny(found.call);
            grants.extend(&found.about, Answer::No);
            if found.standing == Standing::Session && matches!(found.about, About::ApproveWrites | About::Unlock) {
                grants.writes = Writes::Locked;
            }
        }
        self.desk.lock().stand(code, Standing::Denied);
        self.moved();
        Ok(found.shown())
    }

    /// A human said yes to a waiting call of this session, through whom `by` says, and how far. What the operator has
    /// answered is no question any more: no tool changes a no of theirs, or renews a yes.
    pub(crate) async fn allow(
        &self,
        code: &Code,
        session: &Session,
        by: Option<By>,
        scope: Scope,
    ) -> Result<Shown, NotSettled> {
        let (found, asked_in) = self.find(code)?;
        if asked_in.id != session.id || found.standing != Standing::Open || found.about == About::Unlock {
            return Err(NotSettled::Unknown(code.clone()));
        }
        let by = by.filter(|by| self.mode != Mode::Operator || by.is_operator());
        let by = by.ok_or_else(|| NotSettled::OnlyOperator(code.clone()))?;
        match (&found.about, scope) {
            (_, Scope::Once) | (About::Connect(_), _) | (About::ConfirmUpstream(_), Scope::Session) => {}
            (_, Scope::Session) => return Err(NotSettled::NotSession(code.clone())),
            (_, Scope::Each) => return Err(NotSettled::NotEach(code.clone())),
        }
        self.grant(&found, &asked_in, scope, by).await?;
        Ok(found.shown())
    }

    /// Nobody is asked about a code that names no open question of this session.
    pub(crate) fn worth_asking(
        &self,
        origin: &Origin,
        arguments: &Arguments,
        session: &Session,
    ) -> Result<(), ToolError> {
        if *origin != Origin::Own(Own::Gate) {
            return Ok(());
        }
        let code = arguments.parse::<ApproveWrites>().ok().and_then(|asked| asked.code);
        match code.map(|code| Code::typed(&code)) {
            Some(code) if self.asked_by(session, &code).is_none() => Err(NotSettled::Unknown(code).into_error()),
            _ => Ok(()),
        }
    }

    /// Puts a question on the desk. The same call of the same session keeps its code.
    pub(crate) fn put(&self, facts: Facts) -> Code {
        let code = self.desk.lock().put(facts, clock::monotonic_ms());
        self.questions.send_modify(|revision| *revision += 1);
        code
    }

    /// Puts a server's denial on the desk, where the operator can lift it, and nobody else.
    pub(crate) fn put_denied(&self, facts: Facts) -> Code {
        let mut desk = self.desk.lock();
        let code = desk.put(facts, clock::monotonic_ms());
        desk.stand(&code, Standing::Denied);
        code
    }

    /// A ticket for a question that is on the desk.
    pub(crate) fn ticket(&self, code: &Code, bound: [u8; 32]) -> Ticket {
        let ends_ms = clock::monotonic_ms() + millis(TICKET_LIFE);
        let ticket = Ticket { nonce: Uuid::new_v4(), ends_ms, bound };
        self.desk.lock().add_ticket(code, ticket.nonce);
        ticket
    }

    /// Takes a ticket back. It counts for the call it was made for, in time, and once.
    pub(crate) fn redeem(&self, ticket: &Ticket, bound: &[u8; 32]) -> Result<Code, Why> {
        if ticket.bound != *bound {
            return Err(Why::Foreign);
        }
        let taken = self.desk.lock().take_ticket(ticket.nonce);
        if ticket.ends_ms <= clock::monotonic_ms() {
            return Err(Why::Expired);
        }
        taken
    }

    /// The question of a call has its answer.
    pub(crate) fn answered(&self, session: Uuid, call: &CallKey) {
        self.desk.lock().close(session, call);
    }

    /// A human gave a session more than one call: recorded first, then in force.
    pub(crate) async fn extend(&self, facts: Facts, answer: Answer, by: By) -> Result<(), NotRecorded> {
        let session = facts.session.clone();
        let waiting = Waiting::new(Code::typed(""), facts, 0);
        self.record(Event::Approved, &waiting, &session, answer, by).await?;
        session.grants.lock().extend(&waiting.about, answer);
        if answer == Answer::Session {
            self.desk.lock().covered(&waiting);
        }
        self.moved();
        Ok(())
    }

    /// A human wants nothing of a server in this session. In force at once: it gives nothing to anyone.
    pub(crate) fn deny_server(&self, facts: Facts, by: By) {
        let session = facts.session.clone();
        let waiting = Waiting::new(Code::typed(""), facts, 0);
        session.grants.lock().extend(&waiting.about, Answer::No);
        self.audit.post(Self::row(Event::Denied, &waiting, &session, Answer::No, by));
        self.moved();
    }

    fn find(&self, code: &Code) -> Result<(Waiting, Arc<Session>), NotSettled> {
        let found = self.desk.lock().find(code, clock::monotonic_ms());
        let found = found.ok_or_else(|| NotSettled::Unknown(code.clone()))?;
        let session = found.session.upgrade().filter(|session| !session.is_over());
        let session = session.ok_or_else(|| NotSettled::SessionGone(code.clone()))?;
        Ok((found, session))
    }

    /// Recorded first: what cannot be recorded is not granted.
    async fn grant(&self, found: &Waiting, session: &Session, scope: Scope, by: By) -> Result<(), NotSettled> {
        self.record(Event::Approved, found, session, scope.answer(), by).await?;
        {
            let mut grants = session.grants.lock();
            if by.is_operator() {
                grants.lift_denial(&found.call);
            }
            match scope {
                Scope::Once => {
                    grants.allow_once(found.call, by, clock::monotonic_ms() + millis(CODE_LIFE));
                }
                Scope::Session | Scope::Each => grants.extend(&found.about, scope.answer()),
            }
        }
        let mut desk = self.desk.lock();
        match scope {
            Scope::Once => desk.stand(&found.code, Standing::Once),
            Scope::Session => {
                desk.stand(&found.code, Standing::Session);
                desk.covered(found);
            }
            // The call's own question is next, under the same code.
            Scope::Each => desk.stand(&found.code, Standing::Open),
        }
        drop(desk);
        self.moved();
        Ok(())
    }

    async fn record(
        &self,
        event: Event,
        waiting: &Waiting,
        session: &Session,
        answer: Answer,
        by: By,
    ) -> Result<(), NotRecorded> {
        self.audit.durable(Self::row(event, waiting, session, answer, by)).await
    }

    fn row(event: Event, waiting: &Waiting, session: &Session, answer: Answer, by: By) -> Row {
        let row = Row {
            session: Some(session.id),
            principal: Some(waiting.principal.clone()),
            transport: Some(session.transport),
            client: waiting.client.as_deref().map(str::to_owned),
            ..Row::new(event)
        };
        let code = if waiting.code.as_str().is_empty() { "-" } else { waiting.code.as_str() };
        let detail = format!("{code} {} {}, by {by}", waiting.tool, answer.as_str());
        row.detail(detail)
    }

    fn moved(&self) {
        self.changes.send_modify(|revision| *revision += 1);
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

const TOOLS: &[Entry<Approvals>] = &[Entry::of::<ApproveWrites>(), Entry::of::<RevokeWrites>()];

/// The tools about the gate itself.
pub fn tools(approvals: Arc<Approvals>) -> Result<Family<Approvals>, BadTool> {
    Family::new(Origin::Own(Own::Gate), approvals, &[TOOLS])
}
