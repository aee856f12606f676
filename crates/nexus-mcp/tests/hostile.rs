//! The client library alone, against programs that misbehave on purpose (`tests/hostile` of the workspace).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use nexus_core::session::Era;
use nexus_core::tasks::Tasks;
use nexus_mcp::upstream::client::{Client, Listed, Options};
use nexus_mcp::upstream::config::Program;
use nexus_mcp::upstream::error::{Delivery, ProtocolError, TransportError, UpstreamError};
use nexus_mcp::upstream::log::ServerLog;
use nexus_mcp::upstream::transport::stdio::StdioConnector;

/// A connection that is closed with the test.
struct Rig {
    client: Client,
    log: Arc<ServerLog>,
    tasks: Tasks,
}

async fn try_connect(mode: &str, timeout: Duration) -> Result<Rig, UpstreamError> {
    let script = format!("{}/../../tests/hostile/server.py", env!("CARGO_MANIFEST_DIR"));
    let words = ["-B".to_owned(), script].into_iter().chain(mode.split(' ').map(str::to_owned));
    let mut program = Program::new("python3", words);
    program.env.push(("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()));
    let (tasks, log) = (Tasks::new(), Arc::new(ServerLog::new()));
    let connector = Arc::new(StdioConnector::new(program, log.clone(), tasks.clone()));
    let client = Client::connect(connector, Options { timeout, ..Options::new(tasks.clone()) }).await?;
    Ok(Rig { client, log, tasks })
}

async fn connect(mode: &str) -> Rig {
    try_connect(mode, Duration::from_secs(20)).await.unwrap_or_else(|error| panic!("{mode}: {error}"))
}

impl Rig {
    async fn echo(&self, message: &str) -> Result<String, (String, Delivery)> {
        self.call("echo", json!({ "message": message })).await
    }

    async fn call(&self, tool: &str, arguments: serde_json::Value) -> Result<String, (String, Delivery)> {
        let called = self.client.call_tool(tool, &arguments).await;
        called.map(|result| result.text()).map_err(|failed| (failed.to_string(), failed.delivery))
    }

    async fn end(self) {
        let started = Instant::now();
        self.client.close().await;
        assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
        assert!(self.tasks.finish(Duration::from_secs(5)).await, "its tasks end with it");
    }
}

#[tokio::test]
async fn a_plain_server_is_spoken_to_in_its_own_era() {
    for (mode, era) in [("good", Era::Legacy), ("good era=new", Era::Modern), ("exits at=discover", Era::Legacy)] {
        let rig = connect(mode).await;
        assert_eq!(rig.client.server().era, era, "{mode}");
        assert_eq!(rig.echo("grüße").await.unwrap(), "grüße");
        assert!(rig.client.list(Listed::Tools).await.unwrap().len() > 5);
        rig.client.ping().await.unwrap();
        rig.end().await;
    }
}

#[tokio::test]
async fn garbage_slow_bytes_and_second_answers_are_survived() {
    for mode in
        ["garbage", "garbage era=new", "slow-bytes each_ms=0.1", "twice", "twice era=new", "stderr-flood megabytes=5"]
    {
        let rig = connect(mode).await;
        for n in 0..3 {
            assert_eq!(rig.echo(&n.to_string()).await.unwrap_or_else(|e| panic!("{mode}: {e:?}")), n.to_string());
        }
        assert!(rig.log.last(10_000).len() <= 1000);
        rig.end().await;
    }
}

#[tokio::test]
async fn wrong_ids_fail_the_call_in_time_and_say_that_it_may_have_happened() {
    let rig = try_connect("wrong-ids", Duration::from_secs(1)).await.unwrap();
    let (words, delivery) = rig.echo("x").await.unwrap_err();
    assert_eq!(delivery, Delivery::MayHaveHappened, "{words}");
    rig.end().await;
}

#[tokio::test]
async fn the_hundred_and_first_unrelated_message_fails_the_call() {
    assert_eq!(connect("flood count=100").await.echo("x").await.unwrap(), "x");
    for mode in ["flood count=101", "flood count=50000"] {
        let rig = connect(mode).await;
        let (words, _) = rig.echo("x").await.unwrap_err();
        assert!(words.contains("unrelated"), "{mode}: {words}");
        rig.end().await;
    }
    for mode in ["flood kind=log count=5000", "flood kind=progress count=5000"] {
        assert_eq!(connect(mode).await.echo("x").await.unwrap(), "x", "{mode}");
    }
}

#[tokio::test]
async fn a_line_of_a_hundred_megabytes_fails_the_call_that_waits_for_it_and_no_more() {
    for mode in ["long-line", "long-line hide"] {
        let rig = connect(mode).await;
        let (words, _) = rig.call("big", json!({ "bytes": 100_000_000 })).await.unwrap_err();
        assert!(words.contains("larger"), "{mode}: {words}");
        assert_eq!(rig.echo("again").await.unwrap(), "again", "{mode}");
        assert_eq!(rig.call("big", json!({ "bytes": 9_000_000 })).await.unwrap().len(), 9_000_000);
        rig.end().await;
    }
}

#[tokio::test]
async fn lists_that_do_not_end_are_an_error() {
    for kind in ["endless", "same", "huge", "text"] {
        let rig = connect(&format!("pages kind={kind}")).await;
        let failed = rig.client.list(Listed::Tools).await.unwrap_err();
        assert!(matches!(failed.error, UpstreamError::Protocol(_)), "{kind}: {failed}");
        assert_eq!(rig.echo("x").await.unwrap(), "x", "{kind}");
        rig.end().await;
    }
}

#[tokio::test]
async fn results_that_are_none_fail_their_call_alone() {
    for era in ["old", "new"] {
        let rig = try_connect(&format!("odd-results era={era}"), Duration::from_secs(3)).await.unwrap();
        for shape in [
            "list",
            "text",
            "null",
            "number",
            "neither",
            "error-text",
            "error-odd",
            "error",
            "content-odd",
            "deep",
            "both",
        ] {
            let started = Instant::now();
            let told = rig.echo(shape).await;
            if !matches!(shape, "content-odd" | "deep" | "both") {
                assert!(told.is_err(), "{era} {shape}: {told:?}");
            }
            assert!(started.elapsed() < Duration::from_secs(10), "{era} {shape}");
        }
        assert_eq!(rig.call("note", json!({ "line": "x" })).await.unwrap(), "1", "{era}: it goes on");
        rig.end().await;
    }
}

#[tokio::test]
async fn an_end_at_any_step_is_told_with_the_last_words() {
    for at in ["start", "initialize", "greeted", "initialized"] {
        let told = match try_connect(&format!("exits at={at}"), Duration::from_secs(10)).await {
            Err(error) => error.to_string(),
            // It greeted us and went.
            Ok(rig) => {
                assert!(matches!(at, "greeted" | "initialized"), "{at}");
                rig.client.closed().await.to_string()
            }
        };
        assert!(told.contains("my last words"), "{at}: {told}");
    }
    let rig = connect("exits at=call").await;
    let (words, delivery) = rig.echo("x").await.unwrap_err();
    assert_eq!(delivery, Delivery::MayHaveHappened);
    assert!(words.contains("my last words"), "{words}");
    let (_, delivery) = rig.echo("x").await.unwrap_err();
    assert_eq!(delivery, Delivery::NotSent, "it is gone, and that is known");
    assert!(!rig.client.is_connected());
}

#[tokio::test]
async fn a_server_that_never_answers_a_call_is_given_up_in_time() {
    let rig = try_connect("mute from=call", Duration::from_secs(1)).await.unwrap();
    let started = Instant::now();
    let (words, delivery) = rig.echo("x").await.unwrap_err();
    assert_eq!(delivery, Delivery::MayHaveHappened, "{words}");
    assert!(started.elapsed() < Duration::from_secs(5));
    rig.end().await;
}

#[tokio::test]
async fn an_unknown_version_and_a_missing_program_are_different_errors() {
    let error = try_connect("other-version", Duration::from_secs(5)).await.err().unwrap();
    assert!(
        matches!(&error, UpstreamError::Protocol(ProtocolError::Version(version)) if version.contains("1999-01-01")),
        "{error:?}"
    );
    let tasks = Tasks::new();
    let missing = Program::new("no-such-program-anywhere", Vec::<String>::new());
    let connector = Arc::new(StdioConnector::new(missing, Arc::new(ServerLog::new()), tasks.clone()));
    let error = Client::connect(connector, Options::new(tasks)).await.err().unwrap();
    assert!(matches!(error, UpstreamError::Transport(TransportError::NotStarted { .. })), "{error:?}");
}

#[tokio::test]
async fn a_storm_of_questions_leaves_the_call_its_answer_or_a_clear_error() {
    for method in ["elicitation/create", "sampling/createMessage", "roots/list", "made/up", "ping"] {
        let rig = connect(&format!("storm count=1000 method={method}")).await;
        match rig.echo("x").await {
            Ok(said) => assert_eq!(said, "x", "{method}"),
            Err((words, _)) => assert!(words.contains("unrelated"), "{method}: {words}"),
        }
        rig.end().await;
    }
}

#[tokio::test]
async fn closing_ends_a_server_and_its_children_that_ignore_every_plea() {
    let folder = std::env::temp_dir().join(format!("nexus-hostile-{}", std::process::id()));
    let rig = connect(&format!("grandchildren pids={}", folder.display())).await;
    let pids = std::fs::read_to_string(&folder).unwrap();
    std::fs::remove_file(&folder).unwrap();
    let alive = |pid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with(['Z', 'X']))
    };
    assert_eq!(pids.lines().filter(|pid| alive(pid)).count(), 3);
    rig.end().await;
    assert_eq!(pids.lines().filter(|pid| alive(pid)).count(), 0, "{pids}");
}
