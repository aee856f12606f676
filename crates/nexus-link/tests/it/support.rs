//! A hub's listener on a free port, and computers that call it.

mod computer;
mod raw;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use nexus_core::audit::Nowhere;
use nexus_core::tasks::Tasks;
use nexus_link::{Door, LinkError, Links, Outcome, Question, Seen, Settings, Target};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use computer::{Computer, Heard};
pub use raw::{Raw, frame, http, upgrade};

/// Far beyond what anything here takes: a test that fails should say so, not hang.
pub const DEADLINE: Duration = Duration::from_secs(20);
/// For answers that will come.
pub const LONG: Duration = Duration::from_secs(60);
/// For answers that will not.
pub const SHORT: Duration = Duration::from_millis(30);

/// What comes of it, or a failed test.
#[track_caller]
pub fn within<F: Future>(what: &str, work: F) -> impl Future<Output = F::Output> {
    let place = std::panic::Location::caller();
    let what = what.to_owned();
    async move {
        let done = tokio::time::timeout(DEADLINE, work).await;
        done.unwrap_or_else(|_| panic!("{what}: not within {DEADLINE:?}, at {place}"))
    }
}

/// Looks until it is so.
#[track_caller]
pub fn until(what: &str, mut so: impl FnMut() -> bool) -> impl Future<Output = ()> {
    within(what, async move {
        while !so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
}

/// As many open files as this machine grants.
pub fn raise_file_limit() -> u64 {
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    most.unwrap_or(u64::MAX)
}

/// A listener with nothing around it.
pub struct Hub {
    pub links: Arc<Links>,
    pub address: SocketAddr,
    pub tasks: Tasks,
    pub over: CancellationToken,
    pub listening: JoinHandle<Option<()>>,
}

impl Hub {
    pub async fn start() -> Self {
        Self::start_with(None).await
    }

    pub async fn start_with(token: Option<&str>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let links = Links::new(Settings { patience: LONG, files: u64::MAX }, Arc::new(Nowhere));
        let (tasks, over) = (Tasks::new(), CancellationToken::new());
        let serving = links.clone().listen(listener, Door::new(address, token), tasks.clone(), over.clone());
        let listening = tasks.spawn("the door", serving);
        within("the door opens", async {
            while links.computers().await.is_err() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        Self { links, address, tasks, over, listening }
    }

    pub async fn socket(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A link that has not said hello.
    pub async fn connect(&self) -> Computer {
        Computer::connect(self.address, &[]).await.unwrap()
    }

    /// One that has not said hello and will not keep to the rules.
    pub async fn raw(&self) -> Raw {
        Raw::open(self.socket().await, "").await
    }

    pub async fn computer(&self, id: u64) -> Computer {
        self.greeted(json!({ "type": "hello", "computerId": id })).await
    }

    /// One that says it can do things.
    pub async fn able(&self, id: u64, capabilities: &[&str]) -> Computer {
        self.greeted(json!({ "type": "hello", "computerId": id, "capabilities": capabilities })).await
    }

    pub async fn greeted(&self, hello: Value) -> Computer {
        let mut computer = self.connect().await;
        computer.greet(hello).await;
        computer
    }

    pub async fn all(&self) -> Vec<Seen> {
        self.links.computers().await.unwrap()
    }

    pub async fn names(&self) -> Vec<String> {
        self.all().await.iter().map(|seen| seen.computer.name()).collect()
    }

    pub async fn seen(&self, id: u64) -> Seen {
        let all = self.all().await;
        all.into_iter().find(|seen| seen.computer.address.id == id).expect("that computer is linked")
    }

    pub async fn target(&self, id: u64) -> Target {
        self.seen(id).await.target
    }

    /// Asks in the background; the test plays the computer meanwhile.
    pub fn ask(&self, whom: Vec<Target>, question: Question) -> JoinHandle<Option<Result<Vec<Outcome>, LinkError>>> {
        let links = self.links.clone();
        self.tasks.spawn("a question", async move { links.ask(whom, question).await })
    }

    pub async fn ask_one(&self, id: u64, question: Question) -> Asking {
        Asking(self.ask(vec![self.target(id).await], question))
    }

    /// Whether a computer still takes part: it is pinged, and answers.
    pub async fn reaches(&self, id: u64, computer: &mut Computer) {
        let asking = self.ask_one(id, Question::ping(LONG)).await;
        let (id, method) = computer.request().await;
        assert_eq!(method, "ping");
        computer.answer(&id, json!("pong")).await;
        assert!(matches!(asking.outcome().await, Outcome::Answer(_)));
    }

    pub async fn faults_reach(&self, many: u64) {
        let counts = || self.links.counts();
        until("faults are counted", || counts().faults >= many).await;
        assert_eq!(counts().faults, many);
    }

    pub async fn late_reach(&self, many: u64) {
        let counts = || self.links.counts();
        until("late answers are counted", || counts().late >= many).await;
        assert_eq!(counts().late, many);
    }
}

/// A question to one computer that is under way.
pub struct Asking(pub JoinHandle<Option<Result<Vec<Outcome>, LinkError>>>);

impl Asking {
    pub async fn outcome(self) -> Outcome {
        let mut outcomes = within("the question ends", self.0).await.unwrap().unwrap().unwrap();
        assert_eq!(outcomes.len(), 1);
        outcomes.remove(0)
    }
}

/// The JSON of an answer.
#[track_caller]
pub fn answer(outcome: Outcome) -> Value {
    match outcome {
        Outcome::Answer(raw) => serde_json::from_str(raw.get()).unwrap(),
        other => panic!("no answer: {other:?}"),
    }
}
