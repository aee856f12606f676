//! The ways to a human's yes beside the answer itself: the operator's word at the desk, the gate's own tools, and
//! what a client brings back.

use nexus_core::approval::{Mode, NotSettled, Scope, Ticket};
use nexus_core::arguments::Arguments;
use nexus_core::call::{Call, CallCx, Said};
use nexus_core::gate::{Answer, By, Why, Writes};
use nexus_core::hub::{Looked, Outcome, Policy};
use nexus_core::principal::{Level, Patterns, Principal};
use nexus_core::reply::Reply;
use nexus_core::session::{Session, SessionKey, Transport};
use serde_json::{Value, json};
use std::sync::Arc;

use crate::bench::{Bench, Kept, settle};

impl Bench {
    fn always_asking() -> Self {
        let policy = Policy { always_ask: Patterns::parse(["change".to_owned()]).unwrap(), ..Policy::default() };
        Self::with(Principal::new("tester", Level::Trusted), policy, Kept::default())
    }

    async fn said(&self, tool: &str, args: Value, cx: &CallCx, said: Said) -> Outcome {
        let Value::Object(args) = args else { panic!("{args}") };
        let call = Call { tool: tool.to_owned(), args: Arguments::tree_of(args), said: Some(said), cx: cx.clone() };
        self.hub.call(call).await.unwrap()
    }

    async fn answers(&self, args: Value, ticket: &Ticket, heard: Result<Answer, Why>) -> Reply {
        let said = Said::Answer { ticket: ticket.clone(), heard: Some(heard) };
        match self.said("change", args, &self.cx, said).await {
            Outcome::Done(reply) => reply,
            Outcome::Ask(pending) => panic!("{pending:?}"),
        }
    }

    fn last_row(&self) -> String {
        self.rows().last().unwrap().clone()
    }
}

fn another_session(cx: &CallCx) -> CallCx {
    CallCx { session: Arc::new(Session::open(SessionKey::Stdio, Transport::Stdio)), ..cx.clone() }
}

#[tokio::test]
async fn what_the_operator_approves_once_runs_once_and_only_that_call() {
    let bench = Bench::new(Level::Trusted);
    let pending = bench.question("change").await;
    let code = pending.code();
    pending.asked("operator");
    let (shown, scope) = bench.hub.approvals.approve(&code, Scope::Once).await.unwrap();
    assert_eq!((shown.tool.as_str(), shown.summary.as_str(), scope), ("change", "use change", Scope::Once));
    assert!(bench.hub.approvals.list().is_empty());
    let row = bench.kept.rows.lock().last().unwrap().clone();
    assert_eq!(row.detail.unwrap(), format!("{code} change once, by the command line"));

    assert!(matches!(bench.call("change", json!({ "to": 1 })).await, Ok(Outcome::Ask(_))));
    assert!(!bench.reply("change", json!({})).await.is_error());
    assert_eq!(bench.last_row(), "call change allowed operator_once ok");
    bench.question("change").await.asked("operator");
    assert_eq!(bench.ran(), 1);
}

#[tokio::test]
async fn what_the_operator_approves_for_the_session_frees_its_writes_and_no_other_sessions() {
    let bench = Bench::new(Level::Trusted);
    let code = bench.question("change").await.code();
    bench.hub.approvals.approve(&code, Scope::Session).await.unwrap();
    assert!(!bench.reply("change", json!({ "to": 1 })).await.is_error());
    assert_eq!(bench.last_row(), "call change allowed session ok");
    let other = CallCx { session: another_session(&bench.cx).session, ..bench.cx.clone() };
    let call = Call { tool: "change".to_owned(), args: Arguments::none(), said: None, cx: other };
    assert!(matches!(bench.hub.call(call).await, Ok(Outcome::Ask(_))));
    // Taken back.
    bench.hub.approvals.deny(&code).await.unwrap();
    assert_eq!(bench.cx.session.grants.lock().writes, Writes::Locked);
}

#[tokio::test]
async fn what_the_operator_denies_is_refused_until_they_change_their_mind() {
    let bench = Bench::new(Level::Trusted);
    let code = bench.question("change").await.code();
    bench.hub.approvals.deny(&code).await.unwrap();
    let refused = bench.reply("change", json!({})).await;
    assert!(refused.is_error() && refused.text().contains("the operator said no"));
    assert_eq!(bench.last_row(), "call change refused denied refused");
    assert!(bench.hub.approvals.list().is_empty());
    assert!(matches!(bench.call("change", json!({ "to": 1 })).await, Ok(Outcome::Ask(_))), "another call");
    bench.hub.approvals.approve(&code, Scope::Once).await.unwrap();
    assert!(!bench.reply("change", json!({})).await.is_error());
}

#[tokio::test]
async fn a_code_that_nobody_gave_out_or_whose_session_is_over_approves_nothing() {
    let bench = Bench::new(Level::Trusted);
    let code = bench.question("change").await.code();
    let mut unknown = code.to_string();
    unknown.replace_range(0..1, if unknown.starts_with('A') { "B" } else { "A" });
    let unknown = nexus_core::approval::Code::typed(&unknown);
    assert!(matches!(bench.hub.approvals.approve(&unknown, Scope::Session).await, Err(NotSettled::Unknown(_))));

    let gone = another_session(&bench.cx);
    let call = Call { tool: "change".to_owned(), args: Arguments::none(), said: None, cx: gone };
    let Ok(Outcome::Ask(pending)) = bench.hub.call(call).await else { panic!() };
    let code = pending.code();
    drop(pending);
    // The row of the forgotten call holds nothing of it.
    let settled = bench.hub.approvals.approve(&code, Scope::Session).await;
    assert!(matches!(settled, Err(NotSettled::SessionGone(_))), "{settled:?}");
    assert_eq!(bench.hub.approvals.list().len(), 1);
}

#[tokio::test]
async fn what_cannot_be_recorded_is_not_granted() {
    let kept = Kept { refuses: true, ..Kept::default() };
    let bench = Bench::with(Principal::new("tester", Level::Trusted), Policy::default(), kept);
    let code = bench.question("change").await.code();
    for scope in [Scope::Once, Scope::Session] {
        assert!(matches!(bench.hub.approvals.approve(&code, scope).await, Err(NotSettled::NotRecorded(_))));
    }
    assert!(settle(bench.question("change").await, Answer::Session, By::Client).await.is_error());
    bench.question("change").await.asked("operator");
    assert_eq!((bench.ran(), bench.cx.session.grants.lock().writes), (0, Writes::Locked));
}

#[tokio::test]
async fn a_call_to_be_confirmed_every_time_is_approved_once_whatever_was_asked_for() {
    let bench = Bench::always_asking();
    let code = bench.question("change").await.code();
    let (_, scope) = bench.hub.approvals.approve(&code, Scope::Session).await.unwrap();
    assert_eq!(scope, Scope::Once);
    assert!(!bench.reply("change", json!({})).await.is_error());
    bench.question("change").await.asked("operator");
}

#[tokio::test]
async fn approve_writes_unlocks_the_session_when_it_is_answered_and_revoke_writes_locks_it() {
    let bench = Bench::new(Level::Trusted);
    let pending = bench.question("approve_writes").await;
    assert!(pending.about_the_gate());
    let reply = settle(pending, Answer::Session, By::Chat).await;
    assert!(reply.text().contains(r#""writes":"approved""#), "{}", reply.text());
    assert_eq!(bench.last_row(), "call approve_writes allowed chat ok");
    assert!(!bench.reply("change", json!({})).await.is_error());
    assert!(bench.reply("approve_writes", json!({})).await.text().contains(r#""writes":"approved""#));

    assert!(bench.reply("revoke_writes", json!({})).await.text().contains(r#""writes":"locked""#));
    assert_eq!(bench.last_row(), "call revoke_writes allowed - ok");
    bench.question("change").await.asked("chat");
    // Its approval is for the session or not at all.
    let code = bench.question("approve_writes").await.code();
    assert!(matches!(bench.hub.approvals.approve(&code, Scope::Once).await, Err(NotSettled::NotOnce(_))));
    assert!(settle(bench.question("approve_writes").await, Answer::Once, By::Client).await.is_error());
}

#[tokio::test]
async fn approve_writes_is_refused_where_no_write_could_be_approved() {
    let read_only = Policy { read_only: true, ..Policy::default() };
    let check = |bench: Bench, why: &'static str| async move {
        assert!(bench.reply("approve_writes", json!({})).await.text().contains(why));
        assert!(!bench.reply("revoke_writes", json!({})).await.is_error());
    };
    check(Bench::new(Level::Sandboxed), "level").await;
    check(Bench::with(Principal::new("tester", Level::Trusted), read_only, Kept::default()), "read-only").await;
    assert!(Bench::new(Level::Yolo).reply("approve_writes", json!({})).await.text().contains(r#""writes":"free""#));
    // No pattern over tool names unlocks the gate, or makes it impossible to unlock.
    let principal = Principal { approved: Patterns::all(), ..Principal::new("tester", Level::Trusted) };
    let policy = Policy { always_ask: Patterns::all(), ..Policy::default() };
    let bench = Bench::with(principal, policy, Kept::default());
    assert!(!settle(bench.question("approve_writes").await, Answer::Session, By::Client).await.is_error());
    assert_eq!(bench.cx.session.grants.lock().writes, Writes::Approved);
}

#[tokio::test]
async fn approve_writes_with_a_code_always_asks_and_allows_that_call_of_that_session_once() {
    let bench = Bench::always_asking();
    bench.cx.session.grants.lock().writes = Writes::Approved;
    let code = bench.question("change").await.code().to_string();
    let asked = |code: &str, cx: &CallCx| Call {
        tool: "approve_writes".to_owned(),
        args: Arguments::tree_of(json!({ "code": code.to_lowercase() }).as_object().unwrap().clone()),
        said: None,
        cx: cx.clone(),
    };
    let other = another_session(&bench.cx);
    let Ok(Outcome::Done(refused)) = bench.hub.call(asked(&code, &other)).await else { panic!("it was asked") };
    assert!(refused.is_error(), "another session's code");

    let Ok(Outcome::Ask(pending)) = bench.hub.call(asked(&code, &bench.cx)).await else { panic!("it was not asked") };
    let reply = settle(*pending, Answer::Once, By::Chat).await;
    assert!(reply.text().contains(r#""writes":"once""#), "{}", reply.text());
    assert!(!bench.reply("change", json!({})).await.is_error());
    assert_eq!(bench.last_row(), "call change allowed chat ok");
    bench.question("change").await.asked("chat");
}

#[tokio::test]
async fn an_answer_that_comes_back_counts_once_for_its_call_its_session_and_its_key() {
    let bench = Bench::new(Level::Trusted);
    let ticket = bench.question("change").await.ticket();
    let yes = || Said::Answer { ticket: ticket.clone(), heard: Some(Ok(Answer::Once)) };
    let stranger = CallCx { principal: Arc::new(Principal::new("other", Level::Trusted)), ..bench.cx.clone() };
    for (args, cx) in
        [(json!({ "to": 1 }), &bench.cx), (json!({}), &another_session(&bench.cx)), (json!({}), &stranger)]
    {
        let Outcome::Done(refused) = bench.said("change", args, cx, yes()).await else { panic!("it was asked") };
        assert!(refused.text().contains("belongs to another call"), "{}", refused.text());
        assert_eq!(bench.last_row(), "call change refused foreign refused");
    }
    assert!(!bench.answers(json!({}), &ticket, Ok(Answer::Once)).await.is_error());
    assert_eq!(bench.last_row(), "call change allowed elicited_once ok");
    assert!(bench.answers(json!({}), &ticket, Ok(Answer::Once)).await.is_error());
    assert_eq!((bench.last_row().as_str(), bench.ran()), ("call change refused replayed refused", 1));
}

#[tokio::test]
async fn an_answer_that_is_no_yes_refuses_even_what_was_approved_meanwhile() {
    let bench = Bench::new(Level::Trusted);
    for (why, told) in [(Why::Denied, "denied"), (Why::Declined, "declined"), (Why::Dismissed, "dismissed")] {
        let ticket = bench.question("change").await.ticket();
        bench.cx.session.grants.lock().writes = Writes::Approved;
        let refused = bench.answers(json!({}), &ticket, Err(why)).await;
        assert!(refused.is_error());
        assert_eq!(refused.text().contains("nexus approve"), why != Why::Denied, "{}", refused.text());
        assert_eq!(bench.last_row(), format!("call change refused {told} refused"));
        bench.cx.session.grants.lock().revoke();
    }
    assert_eq!(bench.ran(), 0);
}

#[tokio::test]
async fn answers_to_nothing_are_refused_also_for_reads_and_in_modes_that_ask_no_client() {
    let bench = Bench::new(Level::Yolo);
    for said in [Said::Strange, Said::Bad(Why::Tampered)] {
        for tool in ["look", "change"] {
            assert!(
                matches!(bench.said(tool, json!({}), &bench.cx, said.clone()).await, Outcome::Done(r) if r.is_error())
            );
        }
    }
    let rows = bench.rows();
    assert_eq!(rows[0], "call look refused unsolicited refused");
    assert_eq!(rows[3], "call change refused tampered refused");
    for mode in [Mode::Chat, Mode::Operator] {
        let policy = Policy { mode, ..Policy::default() };
        let bench = Bench::with(Principal::new("tester", Level::Trusted), policy, Kept::default());
        let ticket = bench.question("change").await.ticket();
        assert!(bench.answers(json!({}), &ticket, Ok(Answer::Session)).await.is_error());
        assert_eq!(bench.last_row(), "call change refused unsolicited refused");
    }
    assert_eq!(bench.ran(), 0);
}

#[tokio::test]
async fn a_ticket_without_an_answer_asks_again_and_several_tries_each_have_their_own() {
    let bench = Bench::new(Level::Trusted);
    let (one, two) = (bench.question("change").await.ticket(), bench.question("change").await.ticket());
    let nothing = Said::Answer { ticket: one, heard: None };
    let Outcome::Ask(pending) = bench.said("change", json!({}), &bench.cx, nothing).await else { panic!() };
    let three = pending.ticket();
    assert!(!bench.answers(json!({}), &three, Ok(Answer::Session)).await.is_error());
    assert!(!bench.answers(json!({}), &two, Ok(Answer::Once)).await.is_error(), "it was asked on its own");
    assert_eq!(bench.ran(), 2);
}

#[tokio::test]
async fn an_answer_that_comes_too_late_is_none() {
    let bench = Bench::new(Level::Trusted);
    let ticket = bench.question("change").await.ticket().to_string();
    let parts: Vec<&str> = ticket.split('.').collect();
    let expired = Ticket::parse(&format!("{}.0.{}", parts[0], parts[2])).unwrap();
    assert!(bench.answers(json!({}), &expired, Ok(Answer::Once)).await.text().contains("too late"));
    assert_eq!((bench.last_row().as_str(), bench.ran()), ("call change refused expired refused", 0));
}

#[tokio::test]
async fn a_no_of_the_operator_is_undone_by_nothing_but_their_own_yes() {
    let bench = Bench::new(Level::Trusted);
    let code = bench.question("change").await.code();
    bench.hub.approvals.deny(&code).await.unwrap();
    // By the model, with the code.
    assert!(bench.reply("approve_writes", json!({ "code": code })).await.is_error());
    // By a yes for the session, which lets every other write through.
    assert!(!settle(bench.question("approve_writes").await, Answer::Session, By::Chat).await.is_error());
    assert!(!bench.reply("change", json!({ "to": 1 })).await.is_error());
    assert!(bench.reply("change", json!({})).await.text().contains("the operator said no"));
    assert_eq!((bench.last_row().as_str(), bench.ran()), ("call change refused denied refused", 1));
    // By locking, or by asking for very much else.
    bench.reply("revoke_writes", json!({})).await;
    for to in 2..60 {
        let Ok(Outcome::Ask(pending)) = bench.call("change", json!({ "to": to })).await else { panic!() };
        pending.code();
    }
    assert!(bench.reply("change", json!({})).await.is_error());
    bench.hub.approvals.approve(&code, Scope::Once).await.unwrap();
    assert!(!bench.reply("change", json!({})).await.is_error());
    bench.question("change").await.asked("chat");
}

#[tokio::test]
async fn a_raise_to_yolo_leaves_no_grant_behind() {
    let bench = Bench::new(Level::Trusted);
    let code = bench.question("change").await.code();
    let raised = CallCx { principal: Arc::new(Principal::new("tester", Level::Yolo)), ..bench.cx.clone() };
    let args = json!({ "code": code }).as_object().unwrap().clone();
    let call = Call { tool: "approve_writes".to_owned(), args: Arguments::tree_of(args), said: None, cx: raised };
    let Ok(Outcome::Done(reply)) = bench.hub.call(call).await else { panic!("it was asked") };
    assert!(reply.text().contains(r#""writes":"free""#), "{}", reply.text());
    bench.question("change").await.asked("chat");
    assert_eq!(bench.hub.approvals.list().len(), 1);
}

#[tokio::test]
async fn in_operator_mode_the_tool_allows_nothing_whoever_is_said_to_have_answered() {
    let policy = Policy { mode: Mode::Operator, ..Policy::default() };
    let bench = Bench::with(Principal::new("tester", Level::Trusted), policy, Kept::default());
    let code = bench.question("change").await.code();
    for by in [By::Chat, By::Client] {
        let Ok(Outcome::Ask(pending)) = bench.call("approve_writes", json!({ "code": code })).await else { panic!() };
        let refused = settle(*pending, Answer::Once, by).await;
        assert!(refused.text().contains("only the operator"), "{}", refused.text());
    }
    bench.question("change").await.asked("operator");
}

#[tokio::test]
async fn a_yes_for_one_call_is_recorded_with_the_one_who_gave_it() {
    for (by, how, told) in [(By::Client, "elicited_once", "the client"), (By::Chat, "chat", "chat")] {
        let bench = Bench::new(Level::Trusted);
        let code = bench.question("change").await.code();
        let Ok(Outcome::Ask(pending)) = bench.call("approve_writes", json!({ "code": code })).await else { panic!() };
        assert!(!settle(*pending, Answer::Once, by).await.is_error());
        let details: Vec<String> = bench.kept.rows.lock().iter().filter_map(|row| row.detail.clone()).collect();
        assert!(details.contains(&format!("{code} change once, by {told}")), "{details:?}");
        assert!(!bench.reply("change", json!({})).await.is_error());
        assert_eq!(bench.last_row(), format!("call change allowed {how} ok"));
    }
}

#[tokio::test]
async fn a_yes_at_the_desk_is_used_up_by_an_answer_in_the_client() {
    let bench = Bench::new(Level::Trusted);
    for answer in [Ok(Answer::Once), Err(Why::Denied)] {
        let ticket = bench.question("change").await.ticket();
        let code = bench.hub.approvals.list()[0].code.clone();
        bench.hub.approvals.approve(&code, Scope::Once).await.unwrap();
        assert_eq!(bench.answers(json!({}), &ticket, answer).await.is_error(), answer.is_err());
        bench.question("change").await.asked("chat");
    }
    let pending = bench.question("change").await;
    bench.hub.approvals.approve(&pending.code(), Scope::Once).await.unwrap();
    assert!(pending.refuse(Why::Denied).is_error());
    bench.question("change").await.asked("chat");
    assert_eq!(bench.ran(), 1);
}

/// A client whose key changes while it waits.
struct Holds(parking_lot::Mutex<Option<Arc<Principal>>>);

impl nexus_core::call::Client for Holds {
    fn progress(&self, _: nexus_core::call::Progress) {}

    fn principal_now(&self, _: &Arc<Principal>) -> Option<Arc<Principal>> {
        self.0.lock().clone()
    }
}

#[tokio::test]
async fn an_answer_counts_only_where_the_key_would_still_be_asked() {
    let mut bench = Bench::new(Level::Trusted);
    let holds = Arc::new(Holds(parking_lot::Mutex::new(Some(bench.cx.principal.clone()))));
    bench.cx.client = holds.clone();
    let read_only = Principal { read_only: true, ..Principal::new("tester", Level::Trusted) };
    for (now, row) in [
        (Some(Principal::new("tester", Level::Sandboxed)), "call change refused level_too_low refused"),
        (Some(read_only), "call change refused read_only refused"),
        (None, "call change - - cancelled"),
    ] {
        let (accepts, looks) = (bench.question("change").await, bench.question("change").await);
        *holds.0.lock() = now.map(Arc::new);
        assert!(settle(accepts, Answer::Session, By::Client).await.is_error());
        assert_eq!(bench.last_row(), row);
        assert!(matches!(Box::new(looks).look(), Looked::Over(_)));
        assert_eq!(bench.last_row(), row);
        *holds.0.lock() = Some(bench.cx.principal.clone());
    }
    assert_eq!((bench.ran(), bench.cx.session.grants.lock().writes), (0, Writes::Locked));
}

#[tokio::test]
async fn a_session_that_ended_takes_its_questions_with_it() {
    let bench = Bench::new(Level::Trusted);
    let pending = bench.question("change").await;
    let code = pending.code();
    bench.cx.session.end();
    assert!(bench.hub.approvals.list().is_empty());
    for _ in 0..2 {
        let settled = bench.hub.approvals.approve(&code, Scope::Session).await;
        assert!(matches!(settled, Err(NotSettled::SessionGone(_))), "{settled:?}");
    }
    assert!(settle(pending, Answer::Session, By::Client).await.is_error());
    assert_eq!((bench.ran(), bench.cx.session.grants.lock().writes), (0, Writes::Locked));
}

#[tokio::test]
async fn nobody_is_asked_about_a_code_that_names_no_open_question() {
    let bench = Bench::new(Level::Trusted);
    let refused = bench.reply("approve_writes", json!({ "code": "AAAAAAAA" })).await;
    assert!(refused.text().contains("no call waits under the code AAAAAAAA"), "{}", refused.text());
    let unlock = bench.question("approve_writes").await.code();
    assert!(bench.reply("approve_writes", json!({ "code": unlock })).await.is_error());
    let code = bench.question("change").await.code();
    bench.hub.approvals.approve(&code, Scope::Once).await.unwrap();
    assert!(bench.reply("approve_writes", json!({ "code": code })).await.is_error(), "answered already");
}
