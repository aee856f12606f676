//! Who is asked in which way, and a call that waits: time is the test's own here, so that silence takes none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Asking, PATIENCE, Way, way};
use crate::exchange::{Capabilities, Exchange, OUTBOX, Peer};
use crate::seal::Seal;
use crate::wire::{Incoming, Message, Params, RequestId};
use nexus_core::approval::{Code, Mode, Scope};
use nexus_core::arguments::Arguments;
use nexus_core::audit::Nowhere;
use nexus_core::call::{Call, CallCx, Said};
use nexus_core::catalogue::Catalogue;
use nexus_core::gate::{Answer, Why};
use nexus_core::hub::{Hub, Outcome, Policy};
use nexus_core::prelude::*;
use nexus_core::principal::{Level, Principal};
use nexus_core::provider::{Origin, Own};
use nexus_core::reply::Reply;
use nexus_core::session::{Era, Session, SessionKey, Transport};
use nexus_core::tasks::Tasks;
use nexus_core::tool::{Entry, Family};

#[test]
fn who_is_asked_in_which_way() {
    for version in [Some("2024-11-05"), Some("2025-06-18"), Some("2025-11-25"), None] {
        for forms in [true, false] {
            let able = forms && version.is_some_and(|version| version >= "2025-06-18");
            assert_eq!(way(Mode::Ask, Era::Legacy, version, forms), if able { Way::Now } else { Way::Chat });
            assert_eq!(way(Mode::Ask, Era::Modern, version, forms), if forms { Way::Later } else { Way::Chat });
            for era in [Era::Legacy, Era::Modern] {
                assert_eq!(way(Mode::Chat, era, version, forms), Way::Chat);
                assert_eq!(way(Mode::Operator, era, version, forms), Way::Operator);
            }
        }
    }
}

#[test]
fn a_client_that_puts_forms_says_so() {
    check(r#"{"elicitation":{}}"#, true);
    check(r#"{"elicitation":{"form":{},"url":{}}}"#, true);
    check(r#"{"elicitation":{"form":{"applyDefaults":true}}}"#, true);
    check(r#"{"elicitation":{"url":{}}}"#, false);
    check(r#"{"elicitation":true}"#, false);
    check("{}", false);

    #[track_caller]
    fn check(said: &str, expected: bool) {
        assert_eq!(capabilities(said).elicits(), expected, "{said}");
    }
}

fn capabilities(said: &str) -> Capabilities {
    Capabilities::parse(&serde_json::value::RawValue::from_string(said.to_owned()).unwrap()).unwrap()
}

/// Changes something.
#[derive(Debug, Deserialize, JsonSchema)]
struct Change {
    #[allow(dead_code, reason = "two calls are to differ")]
    to: Option<u8>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Changed {}

impl Tool<AtomicUsize> for Change {
    const NAME: &'static str = "change";
    const ACCESS: Access = Access::Write;
    type Reply = Changed;

    fn summary(&self) -> String {
        "change something".to_owned()
    }

    async fn run(self, ran: &AtomicUsize, _: &CallCx) -> ToolResult<Changed> {
        ran.fetch_add(1, Ordering::SeqCst);
        Ok(Changed {})
    }
}

/// A hub, and one client of the old era that can be asked.
struct Bench {
    hub: Arc<Hub>,
    asking: Arc<Asking>,
    closing: CancellationToken,
    ran: Arc<AtomicUsize>,
    principal: Arc<Principal>,
    session: Arc<Session>,
    peer: Arc<Peer>,
    outbox: mpsc::Sender<String>,
    inbox: mpsc::Receiver<String>,
    tasks: Tasks,
}

impl Bench {
    fn new() -> Self {
        let ran = Arc::new(AtomicUsize::new(0));
        let catalogue = Arc::new(Catalogue::default());
        const TOOLS: &[Entry<AtomicUsize>] = &[Entry::of::<Change>()];
        let family = Family::new(Origin::Own(Own::BuiltIn), ran.clone(), &[TOOLS]).unwrap();
        drop(catalogue.attach(Arc::new(family)));
        let hub = Arc::new(Hub::new(catalogue, Arc::new(Nowhere), Policy::default()));
        let closing = CancellationToken::new();
        let asking = Arc::new(Asking::new(hub.approvals.clone(), closing.clone(), PATIENCE));
        let peer = Arc::new(Peer::default());
        peer.version.set("2025-11-25").unwrap();
        let (outbox, inbox) = mpsc::channel(OUTBOX);
        Self {
            hub,
            asking,
            closing,
            ran,
            principal: Arc::new(Principal::new("tester", Level::Trusted)),
            session: Arc::new(Session::open(SessionKey::Stdio, Transport::Stdio)),
            peer,
            outbox,
            inbox,
            tasks: Tasks::new(),
        }
    }

    fn exchange(&self, era: Era) -> Exchange {
        self.exchange_with(era, &self.peer)
    }

    fn exchange_with(&self, era: Era, peer: &Arc<Peer>) -> Exchange {
        let (principal, session) = (self.principal.clone(), self.session.clone());
        let id = RequestId::number(7);
        let mut exchange = Exchange::new(id, principal, session, era, peer.clone(), self.outbox.clone());
        exchange.capabilities = capabilities(r#"{"elicitation":{}}"#);
        exchange
    }

    /// A write on its way, as a client of the old era makes it.
    fn write(&self, to: u8) -> (tokio::task::JoinHandle<Option<Reply>>, CancellationToken) {
        self.write_with(to, &self.peer)
    }

    fn write_with(&self, to: u8, peer: &Arc<Peer>) -> (tokio::task::JoinHandle<Option<Reply>>, CancellationToken) {
        let exchange = Arc::new(self.exchange_with(Era::Legacy, peer));
        let cancel = exchange.cancel.clone();
        let (hub, asking) = (self.hub.clone(), self.asking.clone());
        let writing = async move {
            match hub.call(call(&exchange, to, None)).await.unwrap() {
                Outcome::Done(reply) => reply,
                Outcome::Ask(pending) => asking.ask(pending, &exchange).await,
            }
        };
        (self.tasks.spawn("write", writing), cancel)
    }

    /// The next message to the client.
    async fn told(&mut self) -> Value {
        serde_json::from_str(&self.inbox.recv().await.unwrap()).unwrap()
    }

    fn answer(&self, question: &Value, answer: &Value) {
        let text = json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer }).to_string();
        let Ok(Incoming::One(Message::Response { id, answer })) = Incoming::parse(text.as_bytes()) else { panic!() };
        assert!(self.peer.settle(&id, answer));
    }

    fn ran(&self) -> usize {
        self.ran.load(Ordering::SeqCst)
    }
}

fn call(exchange: &Arc<Exchange>, to: u8, said: Option<Said>) -> Call {
    let Value::Object(args) = json!({ "to": to }) else { panic!() };
    Call {
        tool: "change".to_owned(),
        args: Arguments::tree_of(args),
        said,
        cx: CallCx {
            id: nexus_core::clock::new_id(),
            principal: exchange.principal.clone(),
            session: exchange.session.clone(),
            era: exchange.era,
            client_name: None,
            cancel: exchange.cancel.clone(),
            client: exchange.clone(),
            answered: None,
            noted: Arc::default(),
        },
    }
}

fn accepted(decision: &str) -> Value {
    json!({ "action": "accept", "content": { "decision": decision } })
}

async fn ended(writing: tokio::task::JoinHandle<Option<Reply>>) -> Reply {
    writing.await.unwrap().unwrap()
}

fn body(reply: &Reply) -> Value {
    let Reply::Plain { structured: Some(body), .. } = reply else { panic!("{reply:?}") };
    serde_json::from_str(body.get()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn silence_ends_with_the_pending_reply_and_takes_the_question_back() {
    let mut bench = Bench::new();
    let (writing, _) = bench.write(1);
    let question = bench.told().await;
    assert_eq!(question["params"]["message"], "Allow this? change on local: «change something»");
    let started = tokio::time::Instant::now();
    let reply = ended(writing).await;
    assert_eq!(started.elapsed().as_secs(), 50);
    let body = body(&reply);
    assert_eq!((reply.is_error(), &body["status"]), (true, &"approval_required".into()));
    let taken_back = bench.told().await;
    assert_eq!(taken_back["method"], "notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], question["id"]);

    // The code is good for the next try.
    let code = Code::typed(body["code"].as_str().unwrap());
    bench.hub.approvals.approve(&code, Scope::Once).await.unwrap();
    assert!(!ended(bench.write(1).0).await.is_error());
    assert_eq!(bench.ran(), 1);
}

#[tokio::test(start_paused = true)]
async fn of_several_writes_one_asks_and_a_yes_for_the_session_is_for_all() {
    let mut bench = Bench::new();
    let writing: Vec<_> = (0..4).map(|to| bench.write(to).0).collect();
    let question = bench.told().await;
    bench.answer(&question, &accepted("session"));
    for writing in writing {
        assert!(!ended(writing).await.is_error());
    }
    assert_eq!(bench.ran(), 4);
    assert!(bench.inbox.try_recv().is_err(), "nothing more was asked");
    assert!(bench.hub.approvals.list().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_yes_for_one_call_leaves_the_next_question_to_be_put() {
    let mut bench = Bench::new();
    let (one, two) = (bench.write(1).0, bench.write(2).0);
    let first = bench.told().await;
    assert!(bench.inbox.try_recv().is_err());
    bench.answer(&first, &accepted("once"));
    let second = bench.told().await;
    bench.answer(&second, &json!({ "action": "decline" }));
    let replies = [ended(one).await, ended(two).await];
    assert_eq!(replies.iter().filter(|reply| reply.is_error()).count(), 1);
    assert_eq!(bench.ran(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_operators_word_settles_a_call_that_waits() {
    let mut bench = Bench::new();
    let (writing, _) = bench.write(1);
    let question = bench.told().await;
    let code = bench.hub.approvals.list()[0].code.clone();
    bench.hub.approvals.approve(&code, Scope::Once).await.unwrap();
    assert!(!ended(writing).await.is_error());
    assert_eq!(bench.told().await["params"]["requestId"], question["id"]);

    let (writing, _) = bench.write(2);
    bench.told().await;
    let code = bench.hub.approvals.list()[0].code.clone();
    bench.hub.approvals.deny(&code).await.unwrap();
    assert_eq!(body(&ended(writing).await)["error"]["why"], "denied");
    assert_eq!(bench.ran(), 1);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_client_that_cancels_or_is_gone_or_for_a_hub_that_ends() {
    let mut bench = Bench::new();
    let (writing, cancel) = bench.write(1);
    bench.told().await;
    cancel.cancel();
    assert_eq!(body(&ended(writing).await)["error"]["kind"], "cancelled");

    let mut bench = Bench::new();
    let (writing, _) = bench.write(1);
    bench.told().await;
    bench.inbox.close();
    assert_eq!(body(&ended(writing).await)["error"]["kind"], "cancelled");

    let mut bench = Bench::new();
    let (writing, _) = bench.write(1);
    bench.told().await;
    bench.closing.cancel();
    assert_eq!(body(&ended(writing).await)["status"], "approval_required");
    assert_eq!(bench.ran(), 0);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_in_a_session_that_is_over() {
    let mut bench = Bench::new();
    let (asking, queued) = (bench.write(1).0, bench.write(2).0);
    bench.told().await;
    bench.session.end();
    for writing in [asking, queued] {
        assert_eq!(body(&ended(writing).await)["error"]["kind"], "cancelled");
    }
    assert!(bench.hub.approvals.list().is_empty());
    assert_eq!(bench.ran(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_keeps_no_other_of_the_same_session_from_being_asked() {
    let mut bench = Bench::new();
    let silent = bench.write(1).0;
    bench.told().await;
    let other = Arc::new(Peer::default());
    other.version.set("2025-11-25").unwrap();
    let (writing, _) = bench.write_with(2, &other);
    let question = bench.told().await;
    assert_eq!(question["method"], "elicitation/create", "at once");
    bench.peer = other;
    bench.answer(&question, &accepted("once"));
    assert!(!ended(writing).await.is_error());
    assert!(ended(silent).await.is_error());
    assert_eq!(bench.ran(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_yes_says_which_it_was() {
    for (answer, why, code) in [
        (accepted("no"), "denied", false),
        (json!({ "action": "decline" }), "denied", true),
        (accepted("forever"), "denied", true),
        (json!({ "action": "cancel" }), "denied", true),
    ] {
        let mut bench = Bench::new();
        let (writing, _) = bench.write(1);
        let question = bench.told().await;
        bench.answer(&question, &answer);
        let body = body(&ended(writing).await);
        assert_eq!((&body["error"]["why"], body["error"]["code"].is_string()), (&why.into(), code), "{answer}: {body}");
        assert_eq!(bench.hub.approvals.list().len(), usize::from(code));
        assert_eq!(bench.ran(), 0);
    }
    let mut bench = Bench::new();
    let (writing, _) = bench.write(1);
    let question = bench.told().await;
    let text = json!({ "jsonrpc": "2.0", "id": question["id"], "error": { "code": -32601, "message": "?" } });
    let Ok(Incoming::One(Message::Response { id, answer })) = Incoming::parse(text.to_string().as_bytes()) else {
        panic!()
    };
    bench.peer.settle(&id, answer);
    assert_eq!(body(&ended(writing).await)["error"]["why"], "unavailable");
}

#[tokio::test(start_paused = true)]
async fn of_very_many_questions_the_last_are_not_waited_for() {
    let mut bench = Bench::new();
    let writing: Vec<_> = (0..40).map(|to| bench.write(to).0).collect();
    let question = bench.told().await;
    let started = tokio::time::Instant::now();
    let mut late = 0;
    for writing in writing.into_iter().skip(32) {
        let reply = ended(writing).await;
        assert!(body(&reply)["how"].as_str().unwrap().contains("nobody was asked"), "{reply:?}");
        late += usize::from(reply.is_error());
    }
    assert_eq!((late, started.elapsed().as_secs()), (8, 0));
    bench.answer(&question, &json!({ "action": "decline" }));
}

/// The state of a modern question, and what the server makes of it when it comes back.
fn said(asking: &Asking, state: &str, answers: &Value) -> Option<Said> {
    let params = json!({ "name": "change", "requestState": state, "inputResponses": answers }).to_string();
    let raw = serde_json::value::RawValue::from_string(params).unwrap();
    asking.said(&Params::parse(Some(&raw)).unwrap(), Era::Modern)
}

async fn asked(bench: &Bench) -> Value {
    let exchange = Arc::new(bench.exchange(Era::Modern));
    let Outcome::Ask(pending) = bench.hub.call(call(&exchange, 1, None)).await.unwrap() else { panic!() };
    let Reply::Verbatim(raw) = bench.asking.ask(pending, &exchange).await else { panic!() };
    serde_json::from_str(raw.get()).unwrap()
}

#[tokio::test]
async fn a_modern_question_is_sealed_and_its_answer_read_only_with_the_seal() {
    let bench = Bench::new();
    let result = asked(&bench).await;
    assert_eq!(result["resultType"], "input_required");
    assert_eq!(result["inputRequests"]["approval"]["method"], "elicitation/create");
    let state = result["requestState"].as_str().unwrap();
    let yes = json!({ "approval": accepted("session") });
    assert!(matches!(said(&bench.asking, state, &yes), Some(Said::Answer { heard: Some(Ok(Answer::Session)), .. })));
    assert!(matches!(said(&bench.asking, state, &json!({})), Some(Said::Answer { heard: None, .. })));
    assert!(matches!(said(&bench.asking, &format!("{state}x"), &yes), Some(Said::Bad(Why::Tampered))));
    assert!(matches!(said(&bench.asking, &state[6..], &yes), Some(Said::Strange)));
    let other = Bench::new();
    assert!(matches!(said(&other.asking, state, &yes), Some(Said::Bad(Why::Tampered))), "another process");
    let forged = format!("nexus:{}", Seal::random().close(&["approval"], &json!("x")));
    assert!(matches!(said(&bench.asking, &forged, &yes), Some(Said::Bad(Why::Tampered))));
}
