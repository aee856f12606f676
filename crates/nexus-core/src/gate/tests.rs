//! The decision as a table, and what must never be.

use super::grants::MOST_ONCE;
use super::*;
use crate::call::CallKey;
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
        Decision::Ask(Question { about: About::Unlock, .. }) => "unlock",
        Decision::Ask(Question { about: About::ConfirmCall, .. }) => "confirm",
        Decision::Ask(Question { about: About::Connect(_), .. }) => "connect",
        Decision::Ask(Question { about: About::ConfirmUpstream(_), .. }) => "confirm_upstream",
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
    check(&Origin::Own(Own::Gate), Sandboxed, Write, &none, "level_too_low");
    check(&Origin::Own(Own::Gate), Trusted, Write, &none, "unlock");
    check(&Origin::Own(Own::Gate), Trusted, Write, &approved, "allow");
    for access in [Read, ReadLogged, Write] {
        check(&upstream(), Sandboxed, access, &consents(Consent::All), "level_too_low");
        check(&upstream(), Trusted, access, &none, "connect");
        check(&upstream(), Trusted, access, &consents(Consent::PerTool), "confirm_upstream");
        check(&upstream(), Trusted, access, &consents(Consent::All), "allow");
        check(&upstream(), Trusted, access, &consents(Consent::Denied), "server_denied");
        check(&upstream(), Yolo, access, &none, "allow");
    }

    #[track_caller]
    fn check(origin: &Origin, level: Level, access: Access, grants: &Grants, expected: &str) {
        let asker = Asker {
            level,
            read_only: false,
            approved: false,
            always_ask: false,
            denied: false,
            connects: false,
            grants,
        };
        assert_eq!(decided(&asker, origin, access), expected);
    }
}

#[test]
fn read_only_beats_yolo_and_yolo_beats_always_ask() {
    let grants = Grants { writes: Writes::Approved, ..Grants::default() };
    let asker = |level, read_only, always_ask| {
        let (approved, denied) = (true, false);
        Asker { level, read_only, approved, always_ask, denied, connects: false, grants: &grants }
    };
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
    assert!(!Permit { access: Access::Read, how: None }.covers(Access::Write));
}

#[test]
fn an_answer_that_was_not_offered_is_a_no() {
    check(About::ConfirmCall, Answer::Session);
    check(About::Unlock, Answer::Once);
    check(About::ApproveWrites, Answer::Each);
    check(About::ConfirmUpstream(ServerName::new("github")), Answer::Each);

    #[track_caller]
    fn check(about: About, answer: Answer) {
        assert_eq!(Question { about, access: Access::Write }.settle(answer).unwrap_err(), Why::Denied);
    }
}

#[test]
fn what_is_said_about_a_server_holds_for_it_alone() {
    let (github, other) = (ServerName::new("github"), ServerName::new("other"));
    check(&About::Connect(github.clone()), Answer::Session, Consent::All);
    check(&About::Connect(github.clone()), Answer::Each, Consent::PerTool);
    check(&About::Connect(github.clone()), Answer::No, Consent::Denied);
    check(&About::ConfirmUpstream(github.clone()), Answer::Session, Consent::All);
    check(&About::ConfirmUpstream(github.clone()), Answer::Once, Consent::Unasked);
    check(&About::ConfirmUpstream(github), Answer::No, Consent::Unasked);
    check(&About::Connect(other), Answer::Session, Consent::Unasked);
    check(&About::ApproveWrites, Answer::Session, Consent::Unasked);

    #[track_caller]
    fn check(about: &About, answer: Answer, expected: Consent) {
        let mut grants = Grants::default();
        grants.extend(about, answer);
        assert_eq!(grants.consent(&ServerName::new("github")), expected, "{about:?} {answer:?}");
    }
}

#[test]
fn who_confirms_each_tool_is_not_asked_about_connecting_again() {
    let grants = consents(Consent::PerTool);
    let level = Level::Trusted;
    let asker = Asker {
        level,
        read_only: false,
        approved: false,
        always_ask: false,
        denied: false,
        connects: true,
        grants: &grants,
    };
    assert_eq!(decided(&asker, &upstream(), Access::Write), "allow");
}

#[test]
fn a_yes_for_one_call_works_once_for_that_call_and_not_for_ever() {
    let (one, other) = (CallKey::of("a", &[1; 32]), CallKey::of("a", &[2; 32]));
    let mut grants = Grants::default();
    grants.allow_once(one, By::Operator, 10);
    assert_eq!(grants.take_once(&other, 5), None);
    assert_eq!(grants.take_once(&one, 5), Some(By::Operator));
    assert_eq!(grants.take_once(&one, 5), None);
    grants.allow_once(one, By::Operator, 10);
    assert_eq!(grants.take_once(&one, 10), None, "too late");
}

#[test]
fn a_session_holds_so_many_of_them_and_revoking_takes_all_but_a_no() {
    let key = |n: usize| CallKey::of(&n.to_string(), &[0; 32]);
    let mut grants = consents(Consent::Denied);
    grants.writes = Writes::Approved;
    (0..=MOST_ONCE).for_each(|n| grants.allow_once(key(n), By::Chat, 10));
    assert_eq!(grants.take_once(&key(0), 5), None, "the oldest gave way");
    assert_eq!(grants.take_once(&key(1), 5), Some(By::Chat));
    grants.revoke();
    assert_eq!((grants.writes, grants.take_once(&key(2), 5)), (Writes::Locked, None));
    assert_eq!(grants.consent(&ServerName::new("github")), Consent::Denied);
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
        let asker = Asker { level, read_only, approved, always_ask, denied: false, connects: false, grants: &grants };
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

#[test]
fn a_no_to_this_very_call_beats_every_yes_to_the_session_or_the_key() {
    for grants in [Grants { writes: Writes::Approved, ..Grants::default() }, consents(Consent::All)] {
        let asker = |level| Asker {
            level,
            read_only: false,
            approved: true,
            always_ask: true,
            denied: true,
            connects: false,
            grants: &grants,
        };
        for origin in [OWN, upstream(), Origin::Own(Own::Gate)] {
            assert_eq!(decided(&asker(Level::Trusted), &origin, Access::Write), "denied");
            assert_eq!(decided(&asker(Level::Yolo), &origin, Access::Write), "allow");
        }
        assert_eq!(decided(&asker(Level::Trusted), &OWN, Access::Read), "allow");
    }
}

#[test]
#[ignore = "a measurement: benches/audit"]
fn how_fast_the_gate_decides() {
    const TIMES: u32 = 1_000_000;
    let grants = consents(Consent::All);
    let askers = Level::ALL.map(|level| Asker {
        level,
        read_only: false,
        approved: false,
        always_ask: false,
        denied: false,
        connects: false,
        grants: &grants,
    });
    let origins = [OWN, upstream()];
    let started = std::time::Instant::now();
    for nth in 0..TIMES as usize {
        let decision = Gate.decide(&askers[nth % 3], &origins[nth % 2], std::hint::black_box(Access::Write));
        std::hint::black_box(decision);
    }
    println!("RESULT the gate: {} ns a decision", started.elapsed().as_nanos() / u128::from(TIMES));
}
