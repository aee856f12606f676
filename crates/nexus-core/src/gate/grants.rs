//! What a session has been given: yes to writes, to servers, to single calls; and the operator's no.

use std::collections::BTreeMap;

use super::{About, Answer, By};
use crate::call::CallKey;
use crate::name::ServerName;

/// What a session has been given so far.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    pub writes: Writes,
    pub(super) consents: BTreeMap<ServerName, Consent>,
    /// Oldest first.
    pub(super) once: Vec<Once>,
    /// Calls the operator has said no to. Only their own yes lifts it.
    pub(super) denied: Vec<CallKey>,
}

/// A human's yes to one very call, for its next try.
#[derive(Clone, Copy, Debug)]
pub(super) struct Once {
    call: CallKey,
    by: By,
    /// On the monotonic clock.
    ends_ms: i64,
}

/// Calls a session may hold a yes for; the oldest gives way.
pub(super) const MOST_ONCE: usize = 32;

/// Calls a session may hold a no for. Only the operator makes more of them.
const MOST_DENIED: usize = 1024;

/// Servers a session may have said something of.
const MOST_CONSENTS: usize = 1024;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    #[default]
    Locked,
    Approved,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consent {
    #[default]
    Unasked,
    PerTool,
    All,
    Denied,
}

impl Grants {
    pub fn consent(&self, server: &ServerName) -> Consent {
        self.consents.get(server).copied().unwrap_or_default()
    }

    /// What a human's answer means for later calls. A yes to one call is for that call alone.
    pub fn extend(&mut self, about: &About, answer: Answer) {
        match (about, answer) {
            (_, Answer::Once) | (About::ConfirmCall, _) => {}
            (About::ApproveWrites | About::Unlock, Answer::Session) => self.writes = Writes::Approved,
            (About::ApproveWrites | About::Unlock, Answer::Each | Answer::No) => {}
            (About::Connect(server) | About::ConfirmUpstream(server), Answer::Session) => {
                self.set_consent(server, Consent::All);
            }
            (About::Connect(server), Answer::Each) => self.set_consent(server, Consent::PerTool),
            (About::Connect(server), Answer::No) => self.set_consent(server, Consent::Denied),
            (About::ConfirmUpstream(_), Answer::Each | Answer::No) => {}
        }
    }

    pub fn set_consent(&mut self, server: &ServerName, consent: Consent) {
        if self.consents.len() >= MOST_CONSENTS && !self.consents.contains_key(server) {
            // A yes gives way first: it can be asked for again.
            let yes = self.consents.iter().find(|(_, consent)| **consent != Consent::Denied);
            let goes = yes.or(self.consents.first_key_value()).map(|(server, _)| server.clone());
            goes.map(|goes| self.consents.remove(&goes));
        }
        self.consents.insert(server.clone(), consent);
    }

    /// A yes for the next try of one call.
    pub fn allow_once(&mut self, call: CallKey, by: By, ends_ms: i64) {
        self.forget_once(&call);
        if self.once.len() >= MOST_ONCE {
            self.once.remove(0);
        }
        self.once.push(Once { call, by, ends_ms });
    }

    /// Takes the yes for a call, if there is one. It works once.
    pub fn take_once(&mut self, call: &CallKey, now_ms: i64) -> Option<By> {
        self.once.retain(|once| once.ends_ms > now_ms);
        let at = self.once.iter().position(|once| once.call == *call)?;
        Some(self.once.remove(at).by)
    }

    pub fn forget_once(&mut self, call: &CallKey) {
        self.once.retain(|once| once.call != *call);
    }

    /// The operator said no to one call. It stands against every yes to the session as a whole.
    pub fn deny(&mut self, call: CallKey) {
        self.forget_once(&call);
        self.lift_denial(&call);
        if self.denied.len() >= MOST_DENIED {
            self.denied.remove(0);
        }
        self.denied.push(call);
    }

    pub fn lift_denial(&mut self, call: &CallKey) {
        self.denied.retain(|denied| denied != call);
    }

    /// Whether the operator said no to a call. `call` is made only where there was any no at all.
    pub fn denies(&self, call: impl FnOnce() -> CallKey) -> bool {
        !self.denied.is_empty() && self.denied.contains(&call())
    }

    /// Takes every yes back. A no stays.
    pub fn revoke(&mut self) {
        self.writes = Writes::Locked;
        self.once.clear();
        self.consents.retain(|_, consent| *consent == Consent::Denied);
    }
}
