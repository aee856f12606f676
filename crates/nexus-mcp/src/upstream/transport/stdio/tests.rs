//! With real programs: sh, cat, python3.

use super::*;
use crate::upstream::log::Voice;
use crate::upstream::transport::bench::{Seen, message};

struct Bench {
    seen: Arc<Seen>,
    log: Arc<ServerLog>,
    transport: Arc<dyn Transport>,
}

async fn open(command: &str, args: &[&str]) -> Bench {
    let mut program = Program::new(command, args.iter().copied());
    program.env = vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())];
    let (seen, log) = (Arc::new(Seen::default()), Arc::new(ServerLog::new()));
    let connector = StdioConnector::new(program, log.clone(), Tasks::new());
    let transport = connector.open(seen.clone()).await.unwrap();
    Bench { seen, log, transport }
}

async fn sh(script: &str) -> Bench {
    open("sh", &["-c", script]).await
}

fn is_alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z")))
}

async fn until_dead(pid: &str) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while is_alive(pid) {
        assert!(tokio::time::Instant::now() < deadline, "{pid} lives");
        tokio::task::yield_now().await;
    }
}

fn is_closed(lines: &[String]) -> bool {
    lines.last().is_some_and(|line| line.starts_with("closed"))
}

#[tokio::test]
async fn messages_go_in_and_come_back_in_order() {
    let bench = open("cat", &[]).await;
    for number in 0..100 {
        bench.transport.send(message(format!("{{\"n\":{number}}}"))).await.unwrap();
    }
    let lines = bench.seen.until(|lines| lines.len() == 100).await;
    assert_eq!((lines[0].as_str(), lines[99].as_str()), (r#"{"n":0}"#, r#"{"n":99}"#));
    bench.transport.close().await;
    let lines = bench.seen.until(is_closed).await;
    assert_eq!(lines[100], "closed: the connection is closed: closed by the hub; the server exited with code 0");
    assert!(bench.transport.send(message("{}")).await.is_err());
}

#[tokio::test]
async fn many_large_messages_pass_a_slow_reader_unharmed() {
    let bench = open("cat", &[]).await;
    let large = format!("{{\"x\":\"{}\"}}", "y".repeat(3_000_000));
    for _ in 0..4 {
        bench.transport.send(message(large.clone())).await.unwrap();
    }
    let expected = format!("{} bytes", large.len());
    let lines = bench.seen.until(|lines| lines.len() == 4).await;
    assert!(lines.iter().all(|line| *line == expected), "{lines:?}");
}

#[tokio::test]
async fn noise_and_blank_lines_are_logged_and_passed_over() {
    let bench = sh("echo starting up; echo; echo '{\"a\":1}'; printf '{\"b\":2}\\r\\n'; cat").await;
    assert_eq!(bench.seen.until(|lines| lines.len() == 2).await, [r#"{"a":1}"#, r#"{"b":2}"#]);
    let noise: Vec<_> = bench.log.last(100).into_iter().filter(|line| line.from == Voice::Noise).collect();
    assert_eq!((noise.len(), noise[0].text.as_str()), (1, "starting up"));
}

#[tokio::test]
async fn a_line_that_is_too_long_fails_its_request_and_the_next_one_is_read() {
    check(r#"{"jsonrpc":"2.0","id":7,"result":""#, r#""}"#, "failed 7: a message is larger than 10000000 bytes").await;
    check(r#"{"result":""#, r#"","jsonrpc":"2.0","id":8}"#, "failed 8: a message is larger than 10000000 bytes").await;
    check(r#"{"result":""#, r#""}"#, "lost: a message is larger than 10000000 bytes").await;

    async fn check(head: &str, tail: &str, said: &str) {
        let script = format!(
            "import sys\nw=sys.stdout.write\nw('{head}')\nfor _ in range(300): w('z'*100000)\nw('{tail}\\n{{\"id\":1}}\\n')\n"
        );
        let bench = open("python3", &["-c", &script]).await;
        let lines = bench.seen.until(is_closed).await;
        assert_eq!(lines[..2], [said, r#"{"id":1}"#]);
    }
}

#[tokio::test]
async fn an_end_is_told_at_once_with_the_last_words() {
    let bench = sh("echo '{\"a\":1}'; echo 'no database' >&2; exit 3").await;
    let lines = bench.seen.until(is_closed).await;
    assert_eq!(
        lines,
        [r#"{"a":1}"#, "closed: the connection is closed: the server exited with code 3; its last words: no database"]
    );
    let bench = sh("kill -9 $$").await;
    let lines = bench.seen.until(is_closed).await;
    assert_eq!(lines, ["closed: the connection is closed: the server was ended by signal 9"]);
}

#[tokio::test]
async fn closing_ends_also_what_ignores_sigterm() {
    let bench =
        sh("trap '' TERM; (trap '' TERM; while :; do sleep 1; done) & echo \"{$!\"; while :; do sleep 1; done").await;
    let grandchild = bench.seen.until(|lines| !lines.is_empty()).await[0][1..].to_owned();
    assert!(is_alive(&grandchild));
    let pid = bench.transport.pid().unwrap().to_string();
    bench.transport.close().await;
    until_dead(&pid).await;
    until_dead(&grandchild).await;
}

#[tokio::test]
async fn dropping_the_last_handle_kills_it_with_its_children() {
    let bench = sh("(trap '' TERM HUP; while :; do sleep 1; done) & echo \"{$!\"; while :; do sleep 1; done").await;
    let grandchild = bench.seen.until(|lines| !lines.is_empty()).await[0][1..].to_owned();
    let pid = bench.transport.pid().unwrap().to_string();
    drop(bench.transport);
    until_dead(&pid).await;
    until_dead(&grandchild).await;
}

#[tokio::test]
async fn a_server_that_exits_leaves_no_grandchild() {
    let bench = sh("(trap '' TERM HUP; while :; do sleep 1; done) & echo \"{$!\"; exit 0").await;
    let lines = bench.seen.until(is_closed).await;
    until_dead(&lines[0][1..]).await;
}

#[tokio::test]
async fn a_server_that_reads_nothing_holds_up_its_senders_and_nobody_else() {
    let bench = sh("while :; do sleep 1; done").await;
    let large = "x".repeat(2_000_000);
    bench.transport.send(message(large.clone())).await.unwrap();
    assert!(timeout(Duration::from_millis(50), bench.transport.send(message("{}"))).await.is_err());
    let (second, ()) = tokio::join!(bench.transport.send(message("{}")), bench.transport.close());
    assert!(second.is_err());
}

#[tokio::test]
async fn what_cannot_be_started_is_told_at_once() {
    check("/nowhere/at/all", "`/nowhere/at/all` could not be started: No such file or directory (os error 2)").await;
    check("no-such-program-here", "`no-such-program-here` could not be started: it is not on its PATH").await;
    check("/etc/passwd", "`/etc/passwd` could not be started: /etc/passwd is not executable").await;

    async fn check(command: &str, said: &str) {
        let program = Program::new(command, [""; 0]);
        let connector = StdioConnector::new(program, Arc::new(ServerLog::new()), Tasks::new());
        let error = connector.open(Arc::new(Seen::default())).await.unwrap_err();
        assert_eq!(error.to_string(), said);
    }
}

#[test]
fn people_see_the_command_without_secrets() {
    let program = Program::new("npx", ["-y", "server", "--token=ghp_abcdefghijklmnopqrstuvwxyz0123456789"]);
    let connector = StdioConnector::new(program, Arc::new(ServerLog::new()), Tasks::new());
    assert_eq!(connector.describe(), "npx -y server --token=[redacted]");
}
