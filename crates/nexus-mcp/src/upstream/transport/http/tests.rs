//! Against a web server on loopback that follows a script.

use super::*;
use crate::upstream::transport::bench::{Said, Seen, Server, http, json, message, open_stream, request, stream};
use nexus_core::audit::Nowhere;

struct Bench {
    server: Server,
    seen: Arc<Seen>,
    connector: HttpConnector,
    transport: Arc<dyn Transport>,
}

async fn open(script: impl Fn(&str) -> Said + Send + Sync + 'static) -> Bench {
    open_as(None, script).await
}

async fn open_as(
    credentials: Option<Arc<dyn Credentials>>,
    script: impl Fn(&str) -> Said + Send + Sync + 'static,
) -> Bench {
    let server = Server::start(script).await;
    let mut endpoint = HttpEndpoint::new(&server.url);
    endpoint.headers = vec![("X-Key".to_owned(), "k3y".to_owned())];
    let connector = HttpConnector::new(endpoint, Arc::new(Nowhere), credentials, Arc::default(), Tasks::new());
    let seen = Arc::new(Seen::default());
    let transport = connector.open(seen.clone()).await.unwrap();
    Bench { server, seen, connector, transport }
}

impl Bench {
    /// Sends a request and gives everything that has come once there is so much of it.
    async fn ask(&self, id: u64, method: &'static str, count: usize) -> Vec<String> {
        self.transport.send(request(id, method)).await.unwrap();
        self.seen.at_least(count).await
    }

    /// The last request the server has seen that begins like that.
    fn last(&self, start: &str) -> String {
        let asked = self.server.asked.now();
        asked.iter().rev().find(|asked| asked.starts_with(start)).cloned().unwrap_or_default()
    }
}

/// Answers a request by its id, with what `session` says.
fn echo(asked: &str) -> Said {
    let id = id_of(asked);
    match asked {
        _ if asked.starts_with("get ") => http(405, "", ""),
        _ if asked.contains("\"initialize\"") => http(
            200,
            "Content-Type: application/json\r\nMcp-Session-Id: s-1",
            &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#),
        ),
        _ if !asked.contains("\"id\":") => http(202, "", ""),
        _ => json(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)),
    }
}

fn id_of(asked: &str) -> u64 {
    let digits = asked.rsplit_once("\"id\":").map_or("0", |(_, rest)| rest.split(',').next().unwrap());
    digits.trim_end_matches('}').parse().unwrap()
}

#[tokio::test]
async fn an_answer_arrives_within_its_request() {
    let bench = open(echo).await;
    assert_eq!(bench.ask(7, "tools/list", 1).await, [r#"within 7: {"jsonrpc":"2.0","id":7,"result":{}}"#]);
    let asked = bench.last("post ");
    assert!(asked.contains("accept: application/json, text/event-stream") && asked.contains("x-key: k3y"), "{asked}");
}

#[tokio::test]
async fn session_and_version_are_repeated_once_they_are_known_and_the_session_is_ended() {
    let bench = open(echo).await;
    bench.ask(1, "initialize", 1).await;
    let asked = bench.last("post ");
    assert!(!asked.contains("mcp-session-id") && !asked.contains("mcp-protocol-version"), "{asked}");
    bench.transport.agreed(Era::Legacy, "2025-11-25");
    bench.transport.send(message("{}")).await.unwrap();
    bench.ask(2, "tools/list", 2).await;
    let both =
        |asked: &str| asked.contains("mcp-session-id: s-1") && asked.contains("mcp-protocol-version: 2025-11-25");
    assert!(both(&bench.last("post ")), "{}", bench.last("post "));
    assert!(!bench.last("post ").contains("mcp-method"));
    bench.transport.close().await;
    assert!(both(&bench.last("delete ")), "{:?}", bench.server.asked.now());
    assert_eq!(bench.seen.now().last().unwrap(), "closed: the connection is closed: closed by the hub");
    assert!(bench.transport.send(message("{}")).await.is_err());
}

#[tokio::test]
async fn the_new_era_names_method_and_tool_in_headers() {
    let bench = open(echo).await;
    bench.transport.agreed(Era::Modern, "2026-07-28");
    let call = Outgoing { name: Some("größe".to_owned()), ..request(3, "tools/call") };
    bench.transport.send(call).await.unwrap();
    bench.seen.at_least(1).await;
    let asked = bench.last("post ");
    for header in ["mcp-protocol-version: 2026-07-28", "mcp-method: tools/call", "mcp-name: =?base64?"] {
        assert!(asked.contains(header), "{asked}");
    }
    assert!(bench.last("get ").is_empty());
}

#[tokio::test]
async fn a_stream_brings_what_comes_before_the_answer_too() {
    let bench =
        open(|_| stream("data: {\"method\":\"notifications/progress\"}\n\ndata: {\"id\":5,\"result\":{}}\n\n")).await;
    assert_eq!(
        bench.ask(5, "tools/call", 2).await,
        [r#"within 5: {"method":"notifications/progress"}"#, r#"within 5: {"id":5,"result":{}}"#]
    );
}

#[tokio::test]
async fn a_stream_without_the_answer_fails_its_request() {
    let bench = open(|_| stream("data: {\"method\":\"x\"}\n\n")).await;
    let said = "failed 5: the connection is closed: the server ended the stream without an answer";
    assert_eq!(bench.ask(5, "tools/call", 2).await[1], said);
}

#[tokio::test]
async fn a_stream_with_ids_is_taken_up_again_where_it_broke_off() {
    let bench = open(|asked| match asked.starts_with("get ") {
        false => stream("id: e-1\nretry: 20\ndata:\n\n"),
        true if asked.contains("last-event-id: e-1") => stream("id: e-2\ndata: {\"method\":\"x\"}\n\n"),
        true => open_stream("data: {\"id\":5,\"result\":{}}\n\n"),
    })
    .await;
    let seen = bench.ask(5, "tools/call", 2).await;
    assert_eq!(seen, [r#"within 5: {"method":"x"}"#, r#"within 5: {"id":5,"result":{}}"#]);
    assert!(bench.last("get ").contains("last-event-id: e-2"));
}

#[tokio::test]
async fn a_stream_that_cannot_be_taken_up_again_does_not_say_that_nothing_was_sent() {
    let bench = open(|asked| match asked.starts_with("get ") {
        false => stream("id: e-1\nretry: 10\ndata:\n\n"),
        true => http(405, "", "no"),
    })
    .await;
    let said = &bench.ask(5, "tools/call", 1).await[0];
    let expected = "failed 5: the connection is closed: the stream with the answer could not be taken up again: ";
    assert!(said.starts_with(expected), "{said}");
}

#[tokio::test]
async fn a_session_that_is_gone_is_told_as_that() {
    let bench = open(|asked| if asked.contains("mcp-session-id") { http(404, "", "{}") } else { echo(asked) }).await;
    bench.ask(1, "initialize", 1).await;
    let lines = bench.ask(2, "tools/list", 3).await;
    let gone = "the server no longer knows this session";
    assert_eq!(lines[1..], [format!("failed 2: {gone}"), format!("closed: {gone}")]);
}

#[tokio::test]
async fn notifications_come_by_a_stream_of_their_own_that_is_opened_again() {
    let bench = open(|asked| match asked {
        _ if !asked.starts_with("get ") => echo(asked),
        _ if asked.contains("last-event-id: n-1") => open_stream("data: {\"method\":\"b\"}\n\n"),
        _ => stream("retry: 10\nid: n-1\ndata: {\"method\":\"a\"}\n\n"),
    })
    .await;
    bench.transport.agreed(Era::Legacy, "2025-11-25");
    assert_eq!(bench.seen.at_least(2).await, [r#"{"method":"a"}"#, r#"{"method":"b"}"#]);
    drop(bench.transport);
    bench.server.asked.until(|asked| asked.iter().any(|asked| asked == "gone")).await;
}

#[tokio::test]
async fn requests_wait_for_the_stream_by_which_the_server_asks() {
    let may = Arc::new(tokio::sync::Notify::new());
    let opens = may.clone();
    let bench = open(move |asked| match open_stream(": open\n\n") {
        Said::Open(text) if asked.starts_with("get ") => Said::Later(opens.clone(), text),
        _ => echo(asked),
    })
    .await;
    bench.transport.agreed(Era::Legacy, "2025-11-25");
    bench.transport.send(request(1, "tools/call")).await.unwrap();
    // A start waits for listings, and they make nobody ask.
    assert_eq!(bench.ask(2, "tools/list", 1).await, [r#"within 2: {"jsonrpc":"2.0","id":2,"result":{}}"#]);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!bench.last("post ").contains("tools/call"));
    may.notify_one();
    assert_eq!(bench.seen.at_least(2).await[1], r#"within 1: {"jsonrpc":"2.0","id":1,"result":{}}"#);
}

#[tokio::test]
async fn a_server_that_never_opens_its_stream_is_asked_all_the_same() {
    let bench = open(move |asked| match asked {
        _ if asked.starts_with("get ") => Said::Later(Arc::default(), String::new()),
        _ => echo(asked),
    })
    .await;
    bench.transport.agreed(Era::Legacy, "2025-11-25");
    assert_eq!(bench.ask(1, "tools/call", 1).await.len(), 1);
}

#[tokio::test]
async fn a_request_nobody_waits_for_is_hung_up_on() {
    let bench = open(|_| open_stream(": wait\n\n")).await;
    bench.transport.send(request(4, "tools/call")).await.unwrap();
    bench.server.asked.at_least(1).await;
    bench.transport.abandon(4);
    assert_eq!(bench.server.asked.at_least(2).await[1], "gone");
    assert!(bench.seen.now().is_empty());
}

#[tokio::test]
async fn an_error_of_the_protocol_answers_its_request_whatever_id_it_has() {
    let error = r#"{"code":-32022,"message":"no","data":{"supported":["2025-11-25"]}}"#;
    for id in ["null", "99", "\"x\""] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
        let bench = open(move |_| http(400, "Content-Type: application/json", &body)).await;
        let expected = format!(r#"within 5: {{"jsonrpc":"2.0","id":5,"error":{error}}}"#);
        assert_eq!(bench.ask(5, "server/discover", 1).await, [expected]);
    }
}

#[tokio::test]
async fn other_errors_fail_the_request_and_are_shown_cut_and_clean() {
    let bench = open(|_| http(502, "", "<b>\u{1b}[31mBad\ngateway</b> password=hunter2hunter2")).await;
    let url = bench.server.url.clone();
    let said = format!("failed 5: {url} answered HTTP 502: <b>Bad gateway</b> password=[redacted]");
    assert_eq!(bench.ask(5, "tools/call", 1).await, [said]);

    let bench = open(|_| json(r#"{"jsonrpc":"2.0","id":6,"result":{}}"#)).await;
    let said = "failed 5: the connection is closed: its answer is not to this request";
    assert_eq!(bench.ask(5, "tools/call", 1).await, [said]);

    let bench = open(|_| http(200, "Content-Type: text/html", "hello")).await;
    assert!(bench.ask(5, "tools/call", 1).await[0].ends_with("its answer is of the type `text/html`"));

    let bench = open(|_| http(302, "Location: http://127.0.0.1:1/", "")).await;
    assert!(bench.ask(5, "tools/call", 1).await[0].contains("answered HTTP 302"));
}

#[tokio::test]
async fn an_answer_that_is_too_large_fails_its_request() {
    let large = format!("{{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":\"{}\"}}", "x".repeat(LONGEST));
    let event = format!("data: {large}\n\n");
    let said = format!("failed 5: a message is larger than {LONGEST} bytes");
    assert_eq!(open(move |_| json(&large)).await.ask(5, "tools/call", 1).await[0], said);
    assert_eq!(open(move |_| stream(&event)).await.ask(5, "tools/call", 1).await[0], said);
}

const LONGEST: usize = crate::upstream::transport::stdio::LONGEST_MESSAGE;

#[tokio::test]
async fn where_nobody_is_nothing_was_sent() {
    let endpoint = HttpEndpoint::new("http://127.0.0.1:1/mcp?key=hunter2");
    let connector = HttpConnector::new(endpoint, Arc::new(Nowhere), None, Arc::default(), Tasks::new());
    assert_eq!(connector.describe(), "http://127.0.0.1:1/mcp?…");
    let seen = Arc::new(Seen::default());
    let transport = connector.open(seen.clone()).await.unwrap();
    transport.send(request(1, "tools/call")).await.unwrap();
    let said = "failed 1: http://127.0.0.1:1/mcp?… does not answer: connection refused";
    assert_eq!(seen.at_least(1).await, [said]);
}

#[tokio::test]
async fn where_it_may_not_call_nothing_is_sent() {
    check("http://10.255.255.1:9/mcp", "10.255.255.1 is a private address").await;
    check("http://169.254.169.254/mcp", "169.254.169.254 is the metadata service of a cloud").await;
    check("nonsense", "not a URL that can be called").await;

    async fn check(url: &str, reason: &str) {
        let mut endpoint = HttpEndpoint::new(url);
        endpoint.allow_private.all = url.contains("169.254");
        let connector = HttpConnector::new(endpoint, Arc::new(Nowhere), None, Arc::default(), Tasks::new());
        let sent = async { connector.open(Arc::new(Seen::default())).await?.send(message("{}")).await };
        let error = sent.await.unwrap_err();
        assert!(matches!(&error, TransportError::Forbidden { .. }) && error.to_string().contains(reason), "{error}");
    }
}

/// A server of the older kind, whose answers come by the one stream.
fn older(asked: &str) -> Said {
    match asked {
        _ if asked.starts_with("get ") => open_stream(
            "event: endpoint\ndata: /messages?s=1\n\ndata: {\"id\":1,\"result\":{}}\n\ndata: {\"method\":\"n\"}\n\n",
        ),
        _ if asked.starts_with("post /messages?s=1") => http(202, "", "Accepted"),
        _ => http(405, "", "Method Not Allowed"),
    }
}

#[tokio::test]
async fn a_server_of_the_older_kind_is_recognised_and_remembered() {
    let bench = open(older).await;
    assert!(!bench.connector.is_shared_stream());
    assert_eq!(bench.ask(1, "server/discover", 2).await, [r#"{"id":1,"result":{}}"#, r#"{"method":"n"}"#]);
    assert!(bench.connector.is_shared_stream());
    bench.server.asked.until(|asked| asked.iter().any(|asked| asked.starts_with("post /messages?s=1"))).await;
    assert!(bench.last("post /messages").contains("x-key: k3y"));

    let again = bench.connector.open(bench.seen.clone()).await.unwrap();
    again.send(message("{}")).await.unwrap();
    again.close().await;
    bench.seen.until(|lines| lines.last().unwrap() == "closed: the connection is closed: closed by the hub").await;
    assert!(again.send(message("{}")).await.is_err());
}

#[tokio::test]
async fn a_server_of_the_older_kind_may_not_lead_elsewhere_and_its_end_is_noticed() {
    let elsewhere = |asked: &str| match asked.starts_with("get ") {
        true => open_stream("event: endpoint\ndata: http://127.0.0.1:1/messages\n\n"),
        false => http(405, "", "no"),
    };
    let bench = open(elsewhere).await;
    assert!(bench.ask(1, "server/discover", 1).await[0].contains("answered HTTP 405: no"));

    let mut endpoint = HttpEndpoint::new(&bench.server.url);
    endpoint.kind = HttpKind::Sse;
    let connector = HttpConnector::new(endpoint.clone(), Arc::new(Nowhere), None, Arc::default(), Tasks::new());
    let error = connector.open(bench.seen.clone()).await.unwrap_err();
    assert!(matches!(error, TransportError::Forbidden { .. }), "{error}");

    let server = Server::start(|_| stream("event: endpoint\ndata: /m\n\n")).await;
    endpoint.url = server.url.clone();
    let connector = HttpConnector::new(endpoint, Arc::new(Nowhere), None, Arc::default(), Tasks::new());
    let seen = Arc::new(Seen::default());
    let _transport = connector.open(seen.clone()).await.unwrap();
    assert_eq!(seen.at_least(1).await, ["closed: the connection is closed: the server ended its stream"]);
}

/// Has another token every time it is asked.
#[derive(Debug, Default)]
struct Tokens(Mutex<Vec<String>>);

impl Credentials for Tokens {
    fn bearer(&self) -> BoxFuture<'_, Option<String>> {
        let asked = self.0.lock().len();
        Box::pin(std::future::ready(Some(format!("token-{asked}"))))
    }

    fn challenged<'a>(
        &'a self,
        sent: Option<&'a str>,
        status: u16,
        challenge: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Challenged, TransportError>> {
        self.0.lock().push(format!("{sent:?} {status} {challenge:?}"));
        Box::pin(std::future::ready(Ok(Challenged::Retry)))
    }
}

#[tokio::test]
async fn a_server_that_asks_who_it_is_gets_another_token_a_few_times() {
    let tokens = Arc::new(Tokens::default());
    let bench = open_as(Some(tokens.clone()), |asked| match asked.contains("authorization: bearer token-1") {
        true => echo(asked),
        false => http(401, "WWW-Authenticate: Bearer scope=\"a\"", ""),
    })
    .await;
    assert_eq!(bench.ask(7, "tools/list", 1).await, [r#"within 7: {"jsonrpc":"2.0","id":7,"result":{}}"#]);
    assert_eq!(*tokens.0.lock(), [r#"Some("token-0") 401 Some("Bearer scope=\"a\"")"#]);

    let tokens = Arc::new(Tokens::default());
    let bench = open_as(Some(tokens.clone()), |_| http(403, "", "")).await;
    let url = bench.server.url.clone();
    assert_eq!(bench.ask(7, "tools/list", 1).await, [format!("failed 7: {url} wants to know who asks (HTTP 403)")]);
    assert_eq!(tokens.0.lock().len(), 3);
}

#[tokio::test]
async fn another_server_gets_no_token_and_no_say() {
    let other = Server::start(|_| http(401, "", "")).await;
    let (to, tokens) = (other.url.clone(), Arc::new(Tokens::default()));
    let first = Server::start(move |_| http(307, &format!("Location: {to}"), "")).await;
    let mut endpoint = HttpEndpoint::new(&first.url);
    endpoint.allow_private.some = vec!["127.0.0.1".to_owned()];
    let connector = HttpConnector::new(endpoint, Arc::new(Nowhere), Some(tokens.clone()), Arc::default(), Tasks::new());
    let error = connector.open(Arc::new(Seen::default())).await.unwrap().send(message("{}")).await.unwrap_err();
    assert!(matches!(error, TransportError::Unauthorized { .. }), "{error}");
    assert!(tokens.0.lock().is_empty());
    assert!(!other.asked.now()[0].contains("authorization"), "{:?}", other.asked.now());
}
