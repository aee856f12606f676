//! The path of a call with toy tools: what the caller gets, whether the tool ran, and which rows are kept of it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop where it is")]

#[path = "path/approving.rs"]
mod approving;
#[path = "path/background.rs"]
mod background;
#[path = "path/bench.rs"]
mod bench;
#[path = "path/consent.rs"]
mod consent;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use nexus_core::arguments::Arguments;
use nexus_core::audit::{NotRecorded, Row, Sink};
use nexus_core::call::{Call, CallCx};
use nexus_core::gate::{About, Answer, By};
use nexus_core::hub::{Hub, Outcome, Policy};
use nexus_core::prelude::*;
use nexus_core::principal::{Level, Patterns, Principal};
use nexus_core::session::{Session, SessionKey, Transport};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use bench::{Bench, Kept, settle};

#[tokio::test]
async fn a_read_runs_and_is_recorded_once() {
    for level in Level::ALL {
        let bench = Bench::new(level);
        let reply = bench.reply("look", json!({ "at": "x" })).await;
        assert!(!reply.is_error());
        assert_eq!(reply.text(), r#"{"done":true}"#);
        assert_eq!((bench.ran(), bench.rows()), (1, vec!["call look allowed - ok".to_owned()]));
        let row = bench.kept.rows.lock()[0].clone();
        let call = row.call.unwrap();
        assert_eq!((row.principal.unwrap().as_str(), call.summary.as_deref()), ("tester", Some("use look")));
        assert_eq!((call.id, call.access), (bench.cx.id, Some(Access::Read)));
        assert!(call.duration_us.is_some());
    }
}

#[tokio::test]
async fn an_allowed_write_is_recorded_before_it_runs_and_after() {
    let bench = Bench::new(Level::Yolo);
    assert!(!bench.reply("change", json!({ "to": 1, "password": "hunter2" })).await.is_error());
    assert_eq!(bench.ran(), 1);
    assert_eq!(bench.rows(), ["begun change allowed yolo -", "call change allowed yolo ok"]);
    let rows = bench.kept.rows.lock().clone();
    let calls: Vec<_> = rows.iter().map(|row| row.call.as_ref().unwrap()).collect();
    assert_eq!(calls[0].id, calls[1].id);
    assert_eq!(
        serde_json::from_str::<Value>(&calls[1].arguments).unwrap(),
        json!({ "to": 1, "password": "[redacted]" })
    );
}

#[tokio::test]
async fn a_question_settled_once_runs_that_call_and_the_next_one_asks_again() {
    let bench = Bench::new(Level::Trusted);
    let pending = bench.question("change").await;
    assert_eq!((pending.question.about.clone(), bench.ran()), (About::ApproveWrites, 0));
    assert_eq!((pending.tool(), pending.summary()), ("change", "use change"));
    assert!(!settle(pending, Answer::Once, By::Client).await.is_error());
    assert_eq!(bench.ran(), 1);
    assert_eq!(bench.rows(), ["begun change allowed elicited_once -", "call change allowed elicited_once ok"]);
    bench.question("change").await.asked("chat");
}

#[tokio::test]
async fn a_question_settled_for_the_session_frees_its_later_writes() {
    let bench = Bench::new(Level::Trusted);
    settle(bench.question("change").await, Answer::Session, By::Client).await;
    assert!(!bench.reply("change", json!({})).await.is_error());
    assert_eq!(bench.ran(), 2);
    let rows = bench.rows();
    assert_eq!(rows[0], "approved");
    assert_eq!(rows[1..3], ["begun change allowed elicited_session -", "call change allowed elicited_session ok"]);
    assert_eq!(rows[3..], ["begun change allowed session -", "call change allowed session ok"]);
    // Another session has to be asked itself.
    let other = Session::open(SessionKey::Stdio, Transport::Stdio);
    let cx = CallCx { session: Arc::new(other), ..bench.cx.clone() };
    let call = Call { tool: "change".to_owned(), args: Arguments::none(), said: None, cx };
    assert!(matches!(bench.hub.call(call).await, Ok(Outcome::Ask(_))));
}

#[tokio::test]
async fn a_question_answered_with_no_is_a_refusal() {
    let bench = Bench::new(Level::Trusted);
    let reply = settle(bench.question("change").await, Answer::No, By::Client).await;
    assert!(reply.is_error() && reply.text().contains("the operator said no"));
    assert_eq!((bench.ran(), bench.rows()), (0, vec!["call change refused denied refused".to_owned()]));
    bench.question("change").await.asked("chat");
}

#[tokio::test]
async fn a_question_that_was_passed_on_or_forgotten_did_not_run() {
    let bench = Bench::new(Level::Trusted);
    bench.question("change").await.asked("chat");
    drop(bench.question("change").await);
    assert_eq!((bench.ran(), bench.cx.session.in_flight()), (0, 0));
    assert_eq!(bench.rows(), ["call change asked chat waiting", "call change - - abandoned"]);
}

#[tokio::test]
async fn a_confirmation_is_for_its_call_alone() {
    let always_ask = Patterns::parse(["chan*".to_owned()]).unwrap();
    let policy = Policy { always_ask, ..Policy::default() };
    let bench = Bench::with(Principal::new("tester", Level::Trusted), policy, Kept::default());
    let pending = bench.question("change").await;
    assert_eq!(pending.question.about, About::ConfirmCall);
    assert!(settle(pending, Answer::Session, By::Client).await.is_error(), "it was not offered");
    assert!(!settle(bench.question("change").await, Answer::Once, By::Client).await.is_error());
    bench.question("change").await.asked("chat");
}

#[tokio::test]
async fn a_write_is_refused_where_nothing_could_allow_it() {
    let read_only = Policy { read_only: true, ..Policy::default() };
    check(Bench::new(Level::Sandboxed), "level_too_low").await;
    check(Bench::with(Principal::new("tester", Level::Yolo), read_only, Kept::default()), "read_only").await;

    async fn check(bench: Bench, why: &str) {
        let reply = bench.reply("change", json!({})).await;
        assert!(reply.is_error());
        assert_eq!((bench.ran(), bench.rows()), (0, vec![format!("call change refused {why} refused")]));
        assert!(!bench.reply("look", json!({})).await.is_error());
    }
}

#[tokio::test]
async fn an_unknown_or_hidden_tool_does_not_exist() {
    let mut principal = Principal::new("tester", Level::Yolo);
    principal.deny = Patterns::parse(["change".to_owned()]).unwrap();
    let bench = Bench::with(principal, Policy::default(), Kept::default());
    for tool in ["nothing", "change"] {
        assert!(bench.call(tool, json!({})).await.is_err_and(|unknown| unknown.0 == tool));
    }
    // What a client may send as a name is not what the record keeps.
    let strange = format!("\u{1b}[31m{}", "x".repeat(1_000));
    assert!(bench.call(&strange, json!({})).await.is_err());
    let rows = bench.rows();
    assert_eq!(rows[..2], ["call nothing - - unknown_tool", "call change - - unknown_tool"]);
    assert!(rows[2].len() < 200 && !rows[2].contains('\u{1b}'), "{}", rows[2]);
    assert_eq!(bench.ran(), 0);
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_the_callers_to_mend() {
    let bench = Bench::new(Level::Yolo);
    for (args, word) in [(json!({ "to": 300 }), "`to`"), (json!({ "too": 1 }), "too")] {
        let reply = bench.reply("change", args).await;
        assert!(reply.is_error() && reply.text().contains(word), "{}", reply.text());
    }
    assert_eq!((bench.ran(), bench.cx.session.in_flight()), (0, 0));
    assert_eq!(bench.rows(), ["call change - - refused", "call change - - refused"]);
}

#[tokio::test]
async fn a_failure_and_a_panic_are_replies_and_the_next_call_works() {
    let bench = Bench::new(Level::Trusted);
    let failed = bench.reply("fail", json!({})).await;
    assert_eq!((failed.is_error(), failed.text()), (true, "the world said no"));
    let broken = bench.reply("break", json!({})).await;
    assert!(broken.is_error() && broken.text().starts_with("internal error, incident "), "{}", broken.text());
    assert!(!broken.text().contains("the toy broke"));
    assert!(!bench.reply("look", json!({})).await.is_error());
    assert_eq!(bench.rows(), ["call fail allowed - failed", "call break allowed - internal", "call look allowed - ok"]);
    let rows = bench.kept.rows.lock();
    let incident = broken.text().lines().next().unwrap().rsplit(' ').next().unwrap();
    assert!(rows[1].detail.as_ref().unwrap().contains(incident));
}

#[tokio::test]
async fn a_cancelled_call_ends_and_is_recorded_as_that() {
    let bench = Bench::new(Level::Yolo);
    let cancelling = async {
        bench.yard.started.notified().await;
        assert_eq!(bench.cx.session.in_flight(), 1);
        bench.cx.cancel.cancel();
    };
    let (reply, ()) = tokio::join!(bench.reply("dig", json!({})), cancelling);
    assert!(reply.is_error());
    assert_eq!(bench.cx.session.in_flight(), 0);
    assert_eq!(bench.rows(), ["begun dig allowed yolo -", "call dig allowed yolo cancelled"]);
}

#[tokio::test]
async fn a_call_that_was_cancelled_before_it_began_does_not_write() {
    let bench = Bench::new(Level::Yolo);
    bench.cx.cancel.cancel();
    let reply = bench.reply("change", json!({})).await;
    assert!(reply.is_error(), "{}", reply.text());
    assert_eq!(bench.ran(), 0);
}

#[tokio::test]
async fn a_call_that_is_dropped_is_recorded_as_abandoned() {
    let bench = Bench::new(Level::Yolo);
    let mut dropped = Box::pin(bench.call("dig", json!({})));
    tokio::select! {
        _ = &mut dropped => panic!("it does not end"),
        () = bench.yard.started.notified() => {}
    }
    drop(dropped);
    assert_eq!(bench.cx.session.in_flight(), 0);
    assert_eq!(bench.rows(), ["begun dig allowed yolo -", "call dig allowed yolo abandoned"]);
}

#[tokio::test]
async fn a_call_above_what_its_tool_declares_is_our_fault_and_does_not_run() {
    let bench = Bench::new(Level::Yolo);
    let reply = bench.reply("climb", json!({})).await;
    assert!(reply.is_error() && reply.text().starts_with("internal error, incident "), "{}", reply.text());
    assert_eq!((bench.ran(), bench.rows()), (0, vec!["call climb - - internal".to_owned()]));
}

#[tokio::test]
async fn one_call_too_many_is_refused_and_its_place_is_free_when_another_ends() {
    let policy = Policy { calls_per_session: 2, ..Policy::default() };
    let bench = Bench::with(Principal::new("tester", Level::Trusted), policy, Kept::default());
    let mut running: Vec<_> = Vec::new();
    for _ in 0..2 {
        let mut call = Box::pin(bench.call("wait", json!({})));
        tokio::select! {
            _ = &mut call => panic!("it does not end"),
            () = bench.yard.started.notified() => {}
        }
        running.push(call);
    }
    let refused = bench.reply("look", json!({})).await;
    assert!(refused.is_error() && refused.text().contains("2 calls of this session are still running"));
    running.pop();
    assert!(!bench.reply("look", json!({})).await.is_error());
    assert_eq!(bench.rows(), ["call look - - refused", "call wait allowed - abandoned", "call look allowed - ok"]);
}

#[tokio::test]
async fn what_cannot_be_recorded_does_not_happen_and_reads_go_on() {
    let kept = Kept { refuses: true, ..Kept::default() };
    let bench = Bench::with(Principal::new("tester", Level::Yolo), Policy::default(), kept);
    let reply = bench.reply("change", json!({})).await;
    assert!(reply.is_error() && reply.text().contains("the disk is full"), "{}", reply.text());
    assert_eq!(bench.ran(), 0);
    assert!(!bench.reply("look", json!({})).await.is_error());
    assert_eq!((bench.ran(), bench.rows().last().unwrap().as_str()), (1, "call look allowed - ok"));
}

#[tokio::test]
async fn a_full_journal_is_waited_for_before_anything_else() {
    /// Has a backlog until it is told otherwise.
    #[derive(Default)]
    struct Full {
        kept: Kept,
        room: CancellationToken,
    }

    impl Sink for Full {
        fn post(&self, row: Row) {
            self.kept.post(row);
        }

        fn durable(&self, row: Row) -> BoxFuture<'_, Result<(), NotRecorded>> {
            self.kept.durable(row)
        }

        fn backlog(&self) -> Option<BoxFuture<'_, ()>> {
            (!self.room.is_cancelled()).then(|| self.room.cancelled().boxed())
        }
    }

    let full = Arc::new(Full::default());
    let bench = Bench::new(Level::Trusted);
    let hub = Hub::new(bench.hub.catalogue.clone(), full.clone(), Policy::default());
    let call = Call { tool: "look".to_owned(), args: Arguments::none(), said: None, cx: bench.cx.clone() };
    let mut calling = Box::pin(hub.call(call));
    assert!((&mut calling).now_or_never().is_none());
    assert_eq!(bench.ran(), 0);
    full.room.cancel();
    let done = tokio::time::timeout(Duration::from_secs(30), calling).await.unwrap();
    assert!(matches!(done, Ok(Outcome::Done(_))));
}
