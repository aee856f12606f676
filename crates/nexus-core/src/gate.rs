//! May it happen? One pure function decides; only this file can make a [`Permit`].

use std::collections::BTreeMap;

use crate::name::ServerName;
use crate::principal::Level;
use crate::provider::Origin;
use crate::tool::Access;

/// Proof that the gate let this one call through.
///
/// The field is private: only this file can make one, and running an intent uses it up.
#[derive(Debug)]
pub struct Permit {
    access: Access,
}

impl Permit {
    pub fn covers(&self, access: Access) -> bool {
        access <= self.access
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
    /// This very call, whatever was approved before.
    ConfirmCall,
    /// The first use of an upstream server.
    Connect(ServerName),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Once,
    Session,
    No,
}

impl Question {
    /// The second and last source of a permit: a human's answer.
    pub fn settle(self, answer: Answer) -> Result<Permit, Why> {
        match answer {
            Answer::Once | Answer::Session => Ok(Permit { access: self.access }),
            Answer::No => Err(Why::Denied),
        }
    }
}

/// Why a call may not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    ReadOnly,
    LevelTooLow,
    ServerDenied,
    Denied,
}

impl Why {
    /// The word for the record.
    pub fn as_str(self) -> &'static str {
        match self {
            Why::ReadOnly => "read_only",
            Why::LevelTooLow => "level_too_low",
            Why::ServerDenied => "server_denied",
            Why::Denied => "denied",
        }
    }

    /// What the model is told.
    pub fn message(self) -> &'static str {
        match self {
            Why::ReadOnly => "refused: this key, or the whole hub, is read-only",
            Why::LevelTooLow => "refused: the level of this key does not allow it",
            Why::ServerDenied => "refused: the operator has denied this upstream server",
            Why::Denied => "refused: the operator said no",
        }
    }

    pub fn hint(self) -> &'static str {
        match self {
            Why::ReadOnly => "the operator may take `read_only` away in nexus.yaml; do not try another way",
            Why::LevelTooLow => "the operator may give the key the level `trusted`; do not try another way",
            Why::ServerDenied | Why::Denied => "ask the operator what they want instead; do not try another way",
        }
    }
}

/// What a session has been given so far.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    pub writes: Writes,
    consents: BTreeMap<ServerName, Consent>,
}

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

    /// What a human's *this session* means for later calls. A confirmation is for its call alone.
    pub fn extend(&mut self, about: &About) {
        match about {
            About::ApproveWrites => self.writes = Writes::Approved,
            About::Connect(server) => self.set_consent(server, Consent::All),
            About::ConfirmCall => {}
        }
    }

    pub fn set_consent(&mut self, server: &ServerName, consent: Consent) {
        self.consents.insert(server.clone(), consent);
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
    pub grants: &'a Grants,
}

/// The policy.
#[derive(Debug, Default)]
pub struct Gate;

impl Gate {
    /// What becomes of an intent. Looks only at what it is given: no clock, no lock, no await.
    ///
    /// `read_only` beats everything, then yolo, then `always_ask`. No wildcard arm: a new level
    /// or access does not compile until someone has decided.
    pub fn decide(&self, asker: &Asker<'_>, origin: &Origin, access: Access) -> Decision {
        use Access::{Read, ReadLogged, Write};
        use Level::{Sandboxed, Trusted, Yolo};

        if asker.read_only && access == Write {
            return Decision::Refuse(Why::ReadOnly);
        }
        match (origin, asker.level, access) {
            (Origin::Own(_) | Origin::Upstream(_), Yolo, _) => allow(access),
            (Origin::Own(_), Sandboxed | Trusted, Read | ReadLogged) => allow(access),
            (Origin::Own(_), Sandboxed, Write) => Decision::Refuse(Why::LevelTooLow),
            (Origin::Own(_), Trusted, Write) if asker.always_ask => ask(About::ConfirmCall, access),
            (Origin::Own(_), Trusted, Write) if asker.approved => allow(access),
            (Origin::Own(_), Trusted, Write) => match asker.grants.writes {
                Writes::Approved => allow(access),
                Writes::Locked => ask(About::ApproveWrites, access),
            },
            (Origin::Upstream(_), Sandboxed, _) => Decision::Refuse(Why::LevelTooLow),
            (Origin::Upstream(server), Trusted, _) => match asker.grants.consent(server) {
                Consent::Denied => Decision::Refuse(Why::ServerDenied),
                Consent::Unasked => ask(About::Connect(server.clone()), access),
                Consent::All | Consent::PerTool if asker.always_ask => ask(About::ConfirmCall, access),
                Consent::PerTool => ask(About::ConfirmCall, access),
                Consent::All => allow(access),
            },
        }
    }
}

fn allow(access: Access) -> Decision {
    Decision::Allow(Permit { access })
}

fn ask(about: About, access: Access) -> Decision {
    Decision::Ask(Question { about, access })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Own;
    use proptest::prelude::*;

    const OWN: Origin = Origin::Own(Own::BuiltIn);

    fn upstream() -> Origin {
        Origin::Upstream(ServerName::new("github"))
    }

    fn consents(consent: Consent) -> Grants {
        let mut grants = Grants::default();
        grants.set_consent(&ServerName::new("github"), consent);
        grants
    }

    fn decided(asker: &Asker<'_>, origin: &Origin, access: Access) -> &'static str {
        match Gate.decide(asker, origin, access) {
            Decision::Allow(_) => "allow",
            Decision::Ask(Question { about: About::ApproveWrites, .. }) => "ask",
            Decision::Ask(Question { about: About::ConfirmCall, .. }) => "confirm",
            Decision::Ask(Question { about: About::Connect(_), .. }) => "connect",
            Decision::Refuse(why) => why.as_str(),
        }
    }

    #[test]
    fn the_table_of_the_design() {
        use Access::{Read, ReadLogged, Write};
        use Level::{Sandboxed, Trusted, Yolo};
        let none = Grants::default();
        let approved = Grants { writes: Writes::Approved, ..Grants::default() };

        for level in Level::ALL {
            check(&OWN, level, Read, &none, "allow");
            check(&OWN, level, ReadLogged, &none, "allow");
        }
        check(&OWN, Sandboxed, Write, &none, "level_too_low");
        check(&OWN, Sandboxed, Write, &approved, "level_too_low");
        check(&OWN, Trusted, Write, &none, "ask");
        check(&OWN, Trusted, Write, &approved, "allow");
        check(&OWN, Yolo, Write, &none, "allow");
        for access in [Read, ReadLogged, Write] {
            check(&upstream(), Sandboxed, access, &consents(Consent::All), "level_too_low");
            check(&upstream(), Trusted, access, &none, "connect");
            check(&upstream(), Trusted, access, &consents(Consent::PerTool), "confirm");
            check(&upstream(), Trusted, access, &consents(Consent::All), "allow");
            check(&upstream(), Trusted, access, &consents(Consent::Denied), "server_denied");
            check(&upstream(), Yolo, access, &none, "allow");
        }

        #[track_caller]
        fn check(origin: &Origin, level: Level, access: Access, grants: &Grants, expected: &str) {
            let asker = Asker { level, read_only: false, approved: false, always_ask: false, grants };
            assert_eq!(decided(&asker, origin, access), expected);
        }
    }

    #[test]
    fn read_only_beats_yolo_and_yolo_beats_always_ask() {
        let grants = Grants { writes: Writes::Approved, ..Grants::default() };
        let asker =
            |level, read_only, always_ask| Asker { level, read_only, approved: true, always_ask, grants: &grants };
        assert_eq!(decided(&asker(Level::Yolo, true, false), &OWN, Access::Write), "read_only");
        assert_eq!(decided(&asker(Level::Yolo, true, false), &OWN, Access::Read), "allow");
        assert_eq!(decided(&asker(Level::Yolo, false, true), &OWN, Access::Write), "allow");
        assert_eq!(decided(&asker(Level::Trusted, false, true), &OWN, Access::Write), "confirm");
        assert_eq!(decided(&asker(Level::Trusted, false, false), &OWN, Access::Write), "allow");
    }

    #[test]
    fn only_a_yes_settles_a_question_with_a_permit() {
        let question = || Question { about: About::ApproveWrites, access: Access::Write };
        assert!(question().settle(Answer::Once).unwrap().covers(Access::Write));
        assert!(question().settle(Answer::Session).unwrap().covers(Access::Read));
        assert_eq!(question().settle(Answer::No).unwrap_err(), Why::Denied);
        assert!(!Permit { access: Access::Read }.covers(Access::Write));
    }

    prop_compose! {
        fn any_grants()(approved: bool, consent in 0..4u8) -> Grants {
            let consent = [Consent::Unasked, Consent::PerTool, Consent::All, Consent::Denied][usize::from(consent)];
            Grants { writes: if approved { Writes::Approved } else { Writes::Locked }, ..consents(consent) }
        }
    }

    proptest! {
        /// The one sentence that matters.
        #[test]
        fn no_write_is_allowed_without_a_grant(
            grants in any_grants(), level in 0..3usize, own: bool, read_only: bool, approved: bool, always_ask: bool,
        ) {
            let level = Level::ALL[level];
            let origin = if own { OWN } else { upstream() };
            let asker = Asker { level, read_only, approved, always_ask, grants: &grants };
            if decided(&asker, &origin, Access::Write) == "allow" {
                prop_assert!(!read_only);
                let granted = match &origin {
                    Origin::Own(_) => approved || grants.writes == Writes::Approved,
                    Origin::Upstream(server) => grants.consent(server) == Consent::All,
                };
                prop_assert!(level == Level::Yolo || (level == Level::Trusted && granted && !always_ask));
            }
        }
    }
}
