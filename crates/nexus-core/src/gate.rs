//! May it happen? One pure function decides; only this file can make a [`Permit`].

mod grants;

use std::fmt;

use crate::name::ServerName;
use crate::principal::Level;
use crate::provider::{Origin, Own};
use crate::tool::Access;

pub use grants::{Consent, Grants, Writes};

/// Proof that the gate let this one call through.
///
/// The field is private: only this file can make one, and running an intent uses it up.
#[derive(Debug)]
pub struct Permit {
    access: Access,
    how: Option<&'static str>,
}

impl Permit {
    pub fn covers(&self, access: Access) -> bool {
        access <= self.access
    }

    /// What let it through, where that was neither a free read nor a human's answer.
    pub fn how(&self) -> Option<&'static str> {
        self.how
    }
}

/// What becomes of an intent.
#[derive(Debug)]
pub enum Decision {
    Allow(Permit),
    Ask(Question),
    Refuse(Why),
}

/// What a human has to answer before the call may go on.
#[derive(Debug)]
pub struct Question {
    pub about: About,
    access: Access,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// The first write of a session.
    ApproveWrites,
    /// `approve_writes`: all writes of the session, and no call of its own.
    Unlock,
    /// This very call, whatever was approved before.
    ConfirmCall,
    /// The first use of an upstream server.
    Connect(ServerName),
    /// This call of an upstream server, whose calls a human wants to see one by one.
    ConfirmUpstream(ServerName),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Once,
    Session,
    /// Of an upstream server: it may be used, and every call is asked about.
    Each,
    No,
}

impl Answer {
    pub fn as_str(self) -> &'static str {
        match self {
            Answer::Once => "once",
            Answer::Session => "session",
            Answer::Each => "each",
            Answer::No => "no",
        }
    }
}

impl About {
    /// What a human may answer. Anything else is no answer, and so a no.
    pub fn offers(&self) -> &'static [Answer] {
        match self {
            About::ApproveWrites | About::ConfirmUpstream(_) => &[Answer::Once, Answer::Session, Answer::No],
            About::Connect(_) => &[Answer::Session, Answer::Each, Answer::No],
            About::Unlock => &[Answer::Session, Answer::No],
            About::ConfirmCall => &[Answer::Once, Answer::No],
        }
    }
}

/// Through whom a human's answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The client put the question.
    Client,
    /// The model asked in chat, and says that the answer was yes.
    Chat,
    /// The operator, at the hub's own command line.
    Operator,
    /// The operator, as the Telegram user of this number.
    Telegram(i64),
}

/// For the record.
impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            By::Client => f.write_str("the client"),
            By::Chat => f.write_str("chat"),
            By::Operator => f.write_str("the command line"),
            By::Telegram(user) => write!(f, "Telegram user {user}"),
        }
    }
}

impl By {
    /// No model stands between: it counts in every mode, and lifts a no.
    pub fn is_operator(self) -> bool {
        matches!(self, By::Operator | By::Telegram(_))
    }

    /// How a yes came, for the record.
    pub fn how(self, answer: Answer) -> &'static str {
        match (self, answer) {
            (_, Answer::No) => Why::Denied.as_str(),
            (By::Client, Answer::Once) => "elicited_once",
            (By::Client, Answer::Session) => "elicited_session",
            (By::Client, Answer::Each) => "elicited_each",
            (By::Chat, Answer::Once | Answer::Session | Answer::Each) => "chat",
            (By::Operator, Answer::Once) => "operator_once",
            (By::Operator, Answer::Session) => "operator_session",
            (By::Operator, Answer::Each) => "operator_each",
            (By::Telegram(_), Answer::Once) => "telegram_once",
            (By::Telegram(_), Answer::Session) => "telegram_session",
            (By::Telegram(_), Answer::Each) => "telegram_each",
        }
    }
}

impl Question {
    /// The second and last source of a permit: a human's answer. *Each* gives none: it only says that the call's own
    /// question is next.
    pub fn settle(self, answer: Answer) -> Result<Permit, Why> {
        // Once is no choice where a server is to be used for the first time; the operator may still say it to one call.
        let offered = self.about.offers().contains(&answer)
            || (answer == Answer::Once && matches!(self.about, About::Connect(_)));
        match answer {
            Answer::Once | Answer::Session if offered => Ok(Permit { access: self.access, how: None }),
            Answer::Once | Answer::Session | Answer::Each | Answer::No => Err(Why::Denied),
        }
    }
}

/// Why a call may not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    ReadOnly,
    LevelTooLow,
    ServerDenied,
    /// A human said no.
    Denied,
    /// The client declined, or brought no clear answer. Some do so by themselves where nobody is there to ask.
    Declined,
    /// The question was closed without an answer.
    Dismissed,
    /// The client could not put the question.
    Unavailable,
    /// The answer came too late.
    Expired,
    /// The answer has counted once.
    Replayed,
    /// The answer is not to a question of this hub, or was changed.
    Tampered,
    /// The answer is to another call, or of another session or key.
    Foreign,
    /// An answer to nothing.
    Unsolicited,
}

impl Why {
    /// The word for the record.
    pub fn as_str(self) -> &'static str {
        match self {
            Why::ReadOnly => "read_only",
            Why::LevelTooLow => "level_too_low",
            Why::ServerDenied => "server_denied",
            Why::Denied => "denied",
            Why::Declined => "declined",
            Why::Dismissed => "dismissed",
            Why::Unavailable => "unavailable",
            Why::Expired => "expired",
            Why::Replayed => "replayed",
            Why::Tampered => "tampered",
            Why::Foreign => "foreign",
            Why::Unsolicited => "unsolicited",
        }
    }

    /// The word for the model: to it everything that is not a yes is a no.
    pub fn told(self) -> &'static str {
        match self {
            Why::Declined | Why::Dismissed => Why::Denied.as_str(),
            other => other.as_str(),
        }
    }

    /// What the model is told.
    pub fn message(self) -> &'static str {
        match self {
            Why::ReadOnly => "refused: this key, or the whole hub, is read-only",
            Why::LevelTooLow => "refused: the level of this key does not allow it",
            Why::ServerDenied => "refused: the operator has denied this upstream server",
            Why::Denied => "refused: the operator said no",
            Why::Declined => "refused: the question was declined, and that counts as no",
            Why::Dismissed => "refused: the question was dismissed, and that counts as no",
            Why::Unavailable => "refused: the client could not put the question to anyone",
            Why::Expired => "refused: the answer came too late",
            Why::Replayed => "refused: this answer has been used already",
            Why::Tampered => "refused: this requestState is not from this hub, or was changed",
            Why::Foreign => "refused: this answer belongs to another call, session or key",
            Why::Unsolicited => "refused: nothing was asked, so there is nothing to answer",
        }
    }

    pub fn hint(self) -> &'static str {
        match self {
            Why::ReadOnly => "the operator may take `read_only` away in nexus.yaml; do not try another way",
            Why::LevelTooLow => "the operator may give the key the level `trusted`; do not try another way",
            Why::ServerDenied | Why::Denied => "ask the operator what they want instead; do not try another way",
            Why::Declined | Why::Dismissed | Why::Unavailable => {
                "nothing has happened; ask the operator what they want"
            }
            Why::Expired | Why::Replayed => "nothing has happened; call again without it, and the question is put anew",
            Why::Tampered | Why::Foreign | Why::Unsolicited => {
                "nothing has happened; call again without `requestState` and `inputResponses`"
            }
        }
    }
}

/// Who asks, as far as the decision cares.
#[derive(Debug)]
pub struct Asker<'a> {
    pub level: Level,
    /// The key or the hub is read-only.
    pub read_only: bool,
    /// The key's owner has allowed this write for good.
    pub approved: bool,
    /// The operator wants to be asked about this tool every time.
    pub always_ask: bool,
    /// The operator has said no to this very call.
    pub denied: bool,
    /// It is no call of a server's tool, only the wish to use the server.
    pub connects: bool,
    pub grants: &'a Grants,
}

/// The policy.
#[derive(Debug, Default)]
pub struct Gate;

impl Gate {
    /// What becomes of an intent. Looks only at what it is given: no clock, no lock, no await.
    ///
    /// `read_only` beats everything, then yolo, then a no to this very call, then `always_ask`. No wildcard arm: a new level
    /// or access does not compile until someone has decided.
    pub fn decide(&self, asker: &Asker<'_>, origin: &Origin, access: Access) -> Decision {
        use Access::{Read, ReadLogged, Write};
        use Level::{Sandboxed, Trusted, Yolo};

        if asker.read_only && access == Write {
            return Decision::Refuse(Why::ReadOnly);
        }
        match (origin, asker.level, access) {
            (Origin::Own(_), Yolo, Read | ReadLogged) => allow(access, None),
            (Origin::Own(_) | Origin::Upstream(_), Yolo, _) => allow(access, Some("yolo")),
            (Origin::Own(_), Sandboxed | Trusted, Read | ReadLogged) => allow(access, None),
            (Origin::Own(_), Sandboxed, Write) => Decision::Refuse(Why::LevelTooLow),
            (Origin::Own(_), Trusted, Write) if asker.denied => Decision::Refuse(Why::Denied),
            (Origin::Own(_), Trusted, Write) if asker.always_ask => ask(About::ConfirmCall, access),
            (Origin::Own(_), Trusted, Write) if asker.approved => allow(access, Some("approved_by_key")),
            (Origin::Own(own), Trusted, Write) => match (asker.grants.writes, own) {
                (Writes::Approved, _) => allow(access, Some("session")),
                (Writes::Locked, Own::Gate) => ask(About::Unlock, access),
                (Writes::Locked, Own::BuiltIn | Own::Agents | Own::Links) => ask(About::ApproveWrites, access),
            },
            (Origin::Upstream(_), Sandboxed, _) => Decision::Refuse(Why::LevelTooLow),
            (Origin::Upstream(_), Trusted, _) if asker.denied => Decision::Refuse(Why::Denied),
            (Origin::Upstream(server), Trusted, _) => match asker.grants.consent(server) {
                Consent::Denied => Decision::Refuse(Why::ServerDenied),
                Consent::Unasked => ask(About::Connect(server.clone()), access),
                Consent::All | Consent::PerTool if asker.always_ask => ask(About::ConfirmCall, access),
                Consent::PerTool if asker.connects => allow(access, Some("consent")),
                Consent::PerTool => ask(About::ConfirmUpstream(server.clone()), access),
                Consent::All => allow(access, Some("consent")),
            },
        }
    }
}

fn allow(access: Access, how: Option<&'static str>) -> Decision {
    Decision::Allow(Permit { access, how })
}

fn ask(about: About, access: Access) -> Decision {
    Decision::Ask(Question { about, access })
}

#[cfg(test)]
mod tests;
