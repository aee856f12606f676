//! Upstream servers: nothing of theirs is used before a human has said how far.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use nexus_core::approval::{Mode, NotSettled, Scope};
use nexus_core::call::CallCx;
use nexus_core::catalogue::Catalogue;
use nexus_core::gate::{About, Answer, By, Consent, Permit, Why};
use nexus_core::hub::{Looked, Pending, Policy};
use nexus_core::name::{NodeName, ServerName, ToolName};
use nexus_core::principal::{Level, Principal, PrincipalId};
use nexus_core::provider::{Intent, Origin, Provider, Revision};
use nexus_core::reply::Reply;
use nexus_core::tool::{Access, ToolSpec};
use nexus_core::{ToolResult, arguments::Arguments};
use serde_json::json;
use tokio::sync::watch;

use crate::bench::{Bench, Kept, settle, toys};

fn github() -> ServerName {
    ServerName::new("github")
}

/// The toys once more, as tools of somebody else.
struct Upstream {
    origin: Origin,
    owner: Option<PrincipalId>,
    inner: Arc<dyn Provider>,
}

impl Provider for Upstream {
    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn tools(&self) -> Arc<[Arc<ToolSpec>]> {
        self.inner.tools()
    }

    fn changes(&self) -> watch::Receiver<Revision> {
        self.inner.changes()
    }

    fn owner(&self) -> Option<PrincipalId> {
        self.owner.clone()
    }

    fn intend(&self, tool: &ToolName, args: &Arguments) -> ToolResult<Box<dyn Intent>> {
        Ok(Box::new(Foreign(self.inner.intend(tool, args)?)))
    }
}

/// A call of a tool whose name looks like a secret.
struct Foreign(Box<dyn Intent>);

impl Intent for Foreign {
    fn access(&self) -> Access {
        self.0.access()
    }

    fn summary(&self) -> String {
        "call Cookie: sid=a; b=c of the server github".to_owned()
    }

    fn tells_arguments(&self) -> bool {
        true
    }

    fn node(&self) -> Option<&NodeName> {
        self.0.node()
    }

    fn run(self: Box<Self>, permit: Permit, cx: CallCx) -> BoxFuture<'static, ToolResult<Reply>> {
        self.0.run(permit, cx)
    }
}

#[tokio::test]
async fn whoever_is_asked_sees_the_arguments_whatever_the_tool_is_called() {
    let bench = bench(Level::Trusted, Mode::Ask);
    let asked = bench.call("change", json!({ "to": 7, "password": "hunter2hunter2" })).await;
    let Ok(nexus_core::hub::Outcome::Ask(pending)) = asked else { panic!("{asked:?}") };
    let shown = pending.summary();
    assert!(shown.contains(r#"{"to":7,"password":"[redacted]"}"#), "{shown}");
    pending.refuse(Why::Denied);
    let row = bench.kept.rows.lock().iter().find_map(|row| row.call.clone()).unwrap();
    assert!(row.summary.unwrap().contains(r#"{"to":7,"password":"[redacted]"}"#));
}

fn bench(level: Level, mode: Mode) -> Bench {
    let policy = Policy { mode, ..Policy::default() };
    let bench = Bench::with(Principal::new("tester", level), policy, Kept::default());
    let own = Origin::Own(nexus_core::provider::Own::BuiltIn);
    bench.hub.catalogue.detach(&own);
    let upstream = Upstream { origin: Origin::Upstream(github()), owner: None, inner: toys(bench.yard.clone()) };
    drop(bench.hub.catalogue.attach(Arc::new(upstream)));
    bench
}

fn consent(bench: &Bench) -> Consent {
    bench.cx.session.grants.lock().consent(&github())
}

async fn asked(bench: &Bench, about: &About) -> Pending {
    let pending = bench.question("change").await;
    assert_eq!(&pending.question.about, about);
    pending
}

#[tokio::test]
async fn sandboxed_keys_never_reach_an_upstream_and_yolo_is_not_asked() {
    let sandboxed = bench(Level::Sandboxed, Mode::Ask);
    assert!(sandboxed.reply("look", json!({})).await.text().contains("level"));
    assert_eq!(sandboxed.ran(), 0);
    let yolo = bench(Level::Yolo, Mode::Ask);
    assert!(!yolo.reply("change", json!({})).await.is_error());
    assert_eq!(yolo.rows(), ["begun change allowed yolo -", "call change allowed yolo ok"]);
}

#[tokio::test]
async fn allowing_all_tools_is_asked_once_and_holds_for_the_session() {
    let bench = bench(Level::Trusted, Mode::Ask);
    let pending = asked(&bench, &About::Connect(github())).await;
    assert!(!settle(pending, Answer::Session, By::Client).await.is_error());
    assert!(!bench.reply("look", json!({})).await.is_error());
    assert_eq!((bench.ran(), consent(&bench)), (2, Consent::All));
}

#[tokio::test]
async fn who_confirms_each_tool_is_asked_about_this_call_next_and_about_every_later_one() {
    let bench = bench(Level::Trusted, Mode::Ask);
    let pending = asked(&bench, &About::Connect(github())).await;
    let Looked::Asks(pending) = Box::new(pending).accept(Answer::Each, By::Client).await else { panic!() };
    assert_eq!((&pending.question.about, bench.ran()), (&About::ConfirmUpstream(github()), 0));
    assert!(!settle(*pending, Answer::Once, By::Client).await.is_error());
    let pending = asked(&bench, &About::ConfirmUpstream(github())).await;
    assert!(settle(pending, Answer::No, By::Client).await.is_error());
    let pending = asked(&bench, &About::ConfirmUpstream(github())).await;
    assert!(!settle(pending, Answer::Session, By::Client).await.is_error());
    assert!(!bench.reply("change", json!({})).await.is_error());
    assert_eq!((bench.ran(), consent(&bench)), (3, Consent::All));
}

#[tokio::test]
async fn a_server_that_is_denied_stays_so_for_the_session_and_the_record_says_it() {
    let bench = bench(Level::Trusted, Mode::Ask);
    let refused = asked(&bench, &About::Connect(github())).await.refuse(Why::Denied);
    assert!(refused.is_error());
    assert!(bench.reply("look", json!({})).await.text().contains("denied this upstream server"));
    assert_eq!((bench.ran(), consent(&bench)), (0, Consent::Denied));
    assert!(bench.rows().iter().any(|row| row.starts_with("denied")), "{:?}", bench.rows());
    bench.cx.session.grants.lock().revoke();
    assert_eq!(consent(&bench), Consent::Denied);
}

#[tokio::test]
async fn the_operator_says_how_far_at_the_command_line() {
    check(Scope::Session, Consent::All, false).await;
    check(Scope::Each, Consent::PerTool, true).await;
    check(Scope::Once, Consent::Unasked, false).await;

    async fn check(scope: Scope, expected: Consent, asks_on: bool) {
        let bench = bench(Level::Trusted, Mode::Operator);
        let pending = asked(&bench, &About::Connect(github())).await;
        let code = pending.code();
        bench.hub.approvals.approve(&code, scope).await.unwrap();
        assert_eq!(consent(&bench), expected, "{scope:?}");
        match Box::new(pending).look() {
            Looked::Ready(ready) => assert!(!asks_on && !ready.run().await.is_error()),
            Looked::Asks(pending) => {
                assert!(asks_on);
                let each = bench.hub.approvals.approve(&pending.code(), Scope::Each).await;
                assert!(matches!(each, Err(NotSettled::NotEach(_))), "{each:?}");
            }
            Looked::Over(reply) => panic!("{reply:?}"),
        }
    }
}

#[tokio::test]
async fn in_chat_the_model_brings_the_code_and_how_far() {
    let bench = bench(Level::Trusted, Mode::Chat);
    let code = asked(&bench, &About::Connect(github())).await.code();
    let approve = bench.call("approve_writes", json!({ "code": code.as_str(), "scope": "session" })).await;
    let Ok(nexus_core::hub::Outcome::Ask(pending)) = approve else { panic!("{approve:?}") };
    assert!(!settle(*pending, Answer::Once, By::Chat).await.is_error());
    assert!(!bench.reply("change", json!({})).await.is_error());
    assert_eq!(consent(&bench), Consent::All);
}

#[tokio::test]
async fn a_read_only_key_uses_nothing_of_a_server_that_writes() {
    let mut principal = Principal::new("tester", Level::Yolo);
    principal.read_only = true;
    let bench = Bench {
        cx: CallCx { principal: Arc::new(principal), ..bench(Level::Yolo, Mode::Ask).cx },
        ..bench(Level::Yolo, Mode::Ask)
    };
    assert!(bench.reply("change", json!({})).await.text().contains("read-only"));
}

#[test]
fn what_one_key_has_for_itself_only_that_key_sees() {
    let catalogue = Arc::new(Catalogue::default());
    let (mine, yours) = (Principal::new("mine", Level::Trusted), Principal::new("yours", Level::Trusted));
    let private =
        Upstream { origin: Origin::Upstream(github()), owner: Some(mine.id.clone()), inner: toys(Arc::default()) };
    drop(catalogue.attach(Arc::new(private)));
    assert!(catalogue.find("look", &mine).is_some() && catalogue.listing(&mine).contains("\"look\""));
    assert!(catalogue.find("look", &yours).is_none() && catalogue.listing(&yours).as_ref() == "[]");
    assert!(catalogue.specs().is_empty());
    let shared = Upstream { origin: Origin::Upstream(ServerName::new("b")), owner: None, inner: toys(Arc::default()) };
    drop(catalogue.attach(Arc::new(shared)));
    assert_eq!(catalogue.listing(&mine).matches("\"name\":\"look\"").count(), 1, "no name stands there twice");
    assert!(catalogue.find("look", &yours).is_some());
}
