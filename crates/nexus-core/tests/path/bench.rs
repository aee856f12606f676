//! Toy tools, a sink that keeps what it is given, and one caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use nexus_core::arguments::Arguments;
use nexus_core::audit::{NotRecorded, Row, Sink};
use nexus_core::call::{Call, CallCx, Deaf};
use nexus_core::catalogue::Catalogue;
use nexus_core::gate::{Answer, By};
use nexus_core::hub::{Hub, Looked, Outcome, Pending, Policy, UnknownTool};
use nexus_core::prelude::*;
use nexus_core::principal::{Level, Principal};
use nexus_core::provider::{Origin, Own, Provider};
use nexus_core::reply::Reply;
use nexus_core::session::{Era, Session, SessionKey, Transport};
use nexus_core::tool::{Entry, Family};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// What the toys leave behind.
#[derive(Default)]
pub struct Yard {
    ran: AtomicUsize,
    pub started: Notify,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Done {
    done: bool,
}

/// Makes a toy tool: its name, its class, the highest it may go, how far one call does go, and what it does.
macro_rules! toy {
    ($(#[$doc:meta])* $toy:ident { $($field:ident: $kind:ty),* } = $name:literal, $access:ident, $wants:ident, $run:expr) => {
        $(#[$doc])*
        #[derive(Debug, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        #[allow(dead_code, reason = "the fields are there to be parsed")]
        struct $toy { $($field: $kind),* }

        impl Tool<Yard> for $toy {
            const NAME: &'static str = $name;
            const ACCESS: Access = Access::$access;
            type Reply = Done;

            fn summary(&self) -> String {
                format!("use {}", Self::NAME)
            }

            fn access(&self) -> Access {
                Access::$wants
            }

            async fn run(self, yard: &Yard, _: &CallCx) -> ToolResult<Done> {
                yard.ran.fetch_add(1, Ordering::SeqCst);
                yard.started.notify_one();
                let run: fn() -> BoxFuture<'static, ToolResult<()>> = $run;
                run().await?;
                Ok(Done { done: true })
            }
        }
    };
}

toy! {
    /// Looks.
    Look { at: Option<String> } = "look", Read, Read, || async { Ok(()) }.boxed()
}
toy! {
    /// Changes something.
    Change { to: Option<u8>, password: Option<String> } = "change", Write, Write, || async { Ok(()) }.boxed()
}
toy! {
    /// Breaks.
    Break {} = "break", Read, Read, || async { panic!("the toy broke") }.boxed()
}
toy! {
    /// Never ends.
    Wait {} = "wait", Read, Read, || std::future::pending().boxed()
}
toy! {
    /// Never ends, and changes something meanwhile.
    Dig {} = "dig", Write, Write, || std::future::pending().boxed()
}
toy! {
    /// Says that it reads, and wants to write.
    Climb {} = "climb", Read, Write, || async { Ok(()) }.boxed()
}
toy! {
    /// Finds the world in the way.
    Fail {} = "fail", Read, Read, || async { Err(ToolError::failed("the world said no")) }.boxed()
}

const TOYS: &[Entry<Yard>] = &[
    Entry::of::<Look>(),
    Entry::of::<Change>(),
    Entry::of::<Break>(),
    Entry::of::<Wait>(),
    Entry::of::<Dig>(),
    Entry::of::<Climb>(),
    Entry::of::<Fail>(),
];

/// Keeps what it is given, unless it is told to refuse.
#[derive(Default)]
pub struct Kept {
    pub rows: Mutex<Vec<Row>>,
    pub refuses: bool,
}

impl Sink for Kept {
    fn post(&self, row: Row) {
        self.rows.lock().push(row);
    }

    fn durable(&self, row: Row) -> BoxFuture<'_, Result<(), NotRecorded>> {
        if self.refuses {
            return Box::pin(std::future::ready(Err(NotRecorded("the disk is full".to_owned()))));
        }
        self.post(row);
        Box::pin(std::future::ready(Ok(())))
    }

    fn backlog(&self) -> Option<BoxFuture<'_, ()>> {
        None
    }
}

/// The toys as a provider.
pub fn toys(yard: Arc<Yard>) -> Arc<dyn Provider> {
    Arc::new(Family::new(Origin::Own(Own::BuiltIn), yard, &[TOYS]).unwrap())
}

/// A hub with toys, and one caller.
pub struct Bench {
    pub hub: Hub,
    pub kept: Arc<Kept>,
    pub yard: Arc<Yard>,
    pub cx: CallCx,
}

impl Bench {
    pub fn new(level: Level) -> Self {
        Self::with(Principal::new("tester", level), Policy::default(), Kept::default())
    }

    pub fn with(principal: Principal, policy: Policy, kept: Kept) -> Self {
        let (kept, yard, catalogue) = (Arc::new(kept), Arc::new(Yard::default()), Arc::new(Catalogue::default()));
        drop(catalogue.attach(toys(yard.clone())));
        let cx = CallCx {
            id: nexus_core::clock::new_id(),
            principal: Arc::new(principal),
            session: Arc::new(Session::open(SessionKey::Stdio, Transport::Stdio)),
            era: Era::Legacy,
            client_name: None,
            cancel: CancellationToken::new(),
            client: Arc::new(Deaf),
            answered: None,
            noted: Arc::default(),
        };
        let hub = Hub::new(catalogue, kept.clone(), policy);
        drop(hub.catalogue.attach(Arc::new(nexus_core::approval::tools(hub.approvals.clone()).unwrap())));
        Self { hub, kept, yard, cx }
    }

    pub async fn call(&self, tool: &str, args: Value) -> Result<Outcome, UnknownTool> {
        let Value::Object(args) = args else { panic!("{args}") };
        self.hub
            .call(Call { tool: tool.to_owned(), args: Arguments::tree_of(args), said: None, cx: self.cx.clone() })
            .await
    }

    pub async fn reply(&self, tool: &str, args: Value) -> Reply {
        match self.call(tool, args).await {
            Ok(Outcome::Done(reply)) => reply,
            other => panic!("{tool}: {other:?}"),
        }
    }

    pub async fn question(&self, tool: &str) -> Pending {
        match self.call(tool, Value::Object(serde_json::Map::new())).await {
            Ok(Outcome::Ask(pending)) => *pending,
            other => panic!("{tool}: {other:?}"),
        }
    }

    pub fn ran(&self) -> usize {
        self.yard.ran.load(Ordering::SeqCst)
    }

    /// `event tool decision how outcome` of each row, with `-` for what is not said. Only the event where it is no call.
    pub fn rows(&self) -> Vec<String> {
        let told = |row: &Row| {
            let Some(call) = &row.call else { return row.event.as_str().to_owned() };
            let said = |part: Option<&'static str>| part.unwrap_or("-");
            let (decision, how, outcome) = (said(call.decision), said(call.how), said(call.outcome));
            format!("{} {} {decision} {how} {outcome}", row.event.as_str(), call.tool)
        };
        self.kept.rows.lock().iter().map(told).collect()
    }
}

/// Goes on with an answer, for questions after which no other comes.
pub async fn settle(pending: Pending, answer: Answer, by: By) -> Reply {
    match Box::new(pending).accept(answer, by).await {
        Looked::Ready(ready) => ready.run().await,
        Looked::Over(refused) => refused,
        Looked::Asks(pending) => panic!("asks again: {pending:?}"),
    }
}
