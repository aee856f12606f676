//! With real servers on loopback that give one answer to everything and tell what they were asked.

use super::*;
use futures_util::future::BoxFuture;
use nexus_core::audit::NotRecorded;
use nexus_core::tasks::Tasks;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

#[derive(Default)]
struct Rows(Mutex<Vec<String>>);

impl Sink for Rows {
    fn post(&self, row: Row) {
        self.0.lock().push(row.detail.unwrap_or_default().rsplit_once(", ").unwrap().0.to_owned());
    }

    fn durable(&self, _: Row) -> BoxFuture<'_, Result<(), NotRecorded>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn backlog(&self) -> Option<BoxFuture<'_, ()>> {
        None
    }
}

struct Server {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn answering(answer: impl Into<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (asked, answer) = (Arc::<Mutex<Vec<String>>>::default(), answer.into());
        let heard = asked.clone();
        Tasks::new().spawn("server", async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut buffer = [0; 4096];
                let length = stream.read(&mut buffer).await.unwrap_or(0);
                heard.lock().push(String::from_utf8_lossy(&buffer[..length]).to_lowercase());
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Self { address, asked }
    }

    fn url(&self) -> SafeUrl {
        SafeUrl::parse(&format!("http://{}/mcp", self.address)).unwrap()
    }
}

fn outlet(reach: Reach) -> (Outlet, Arc<Rows>) {
    let rows = Arc::new(Rows::default());
    (Outlet::new("nexus/test", reach, rows.clone()), rows)
}

fn calling(url: SafeUrl) -> Calling {
    Calling {
        headers: vec![("Accept".to_owned(), "text/plain".to_owned())],
        own_headers: vec![("Authorization".to_owned(), "Bearer hunter2".to_owned())],
        body: Bytes::from_static(b"hello"),
        ..Calling::new("POST", url, "greeting")
    }
}

fn redirect(code: u16, to: &str) -> String {
    format!("HTTP/1.1 {code} Go\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

const OK: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=x\r\nContent-Length: 5\r\nConnection: close\r\n\r\nfine!";

#[tokio::test]
async fn an_answer_comes_with_its_headers_and_is_recorded_at_its_end() {
    let server = Server::answering(OK).await;
    let (outlet, rows) = outlet(Reach::default());
    let answer = outlet.send(calling(server.url())).await.unwrap();
    assert_eq!((answer.status, answer.content_type()), (200, "text/plain"));
    assert!(rows.0.lock().is_empty());
    assert_eq!(answer.whole(5).await.unwrap(), b"fine!");
    assert_eq!(*rows.0.lock(), [format!("POST http://{}/mcp 200, greeting, 5 B", server.address)]);
    assert!(server.asked.lock()[0].contains("authorization: bearer hunter2"));
}

#[tokio::test]
async fn a_long_answer_is_recorded_when_it_begins() {
    let server = Server::answering(OK).await;
    let (outlet, rows) = outlet(Reach::default());
    let answer = outlet.send(Calling { recorded: Recorded::WhenItOpens, ..calling(server.url()) }).await.unwrap();
    assert_eq!(rows.0.lock().len(), 1);
    drop(answer);
    assert_eq!(rows.0.lock().len(), 1);
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_not_taken() {
    let (outlet, _) = outlet(Reach::default());
    for answer in [
        OK,
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nfine!",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfine!\r\n0\r\n\r\n",
    ] {
        let server = Server::answering(answer).await;
        let answer = outlet.send(calling(server.url())).await.unwrap();
        assert!(matches!(answer.whole(4).await, Err(OutboundError::TooLarge { limit: 4, .. })));
        assert_eq!(outlet.send(calling(server.url())).await.unwrap().beginning(4).await, "fine");
    }
}

#[tokio::test]
async fn a_private_address_is_not_called() {
    let (outlet, rows) = outlet(Reach::default());
    let error = outlet.send(calling(SafeUrl::parse("http://192.168.255.1:9/x").unwrap())).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "http://192.168.255.1:9/x may not be called: 192.168.255.1 is a private address, which is not allowed unless it is listed (`allow_private`)"
    );
    assert_eq!(rows.0.lock().len(), 1);
    for disguised in ["http://[::ffff:10.0.0.1]/", "http://0x0a000001/", "http://167772161/"] {
        let called = outlet.send(calling(SafeUrl::parse(disguised).unwrap())).await;
        assert!(matches!(called, Err(OutboundError::Forbidden { .. })), "{disguised}: {called:?}");
    }
}

#[tokio::test]
async fn names_are_checked_where_they_lead() {
    let server = Server::answering(OK).await;
    let port = server.address.rsplit_once(':').unwrap().1;
    let (outlet, _) = outlet(Reach::default());
    let local = SafeUrl::parse(&format!("http://localhost:{port}/mcp")).unwrap();
    assert_eq!(outlet.send(calling(local)).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_redirect_to_the_same_server_keeps_its_headers_and_body() {
    let last = Server::answering(OK).await;
    let first = Server::answering(redirect(308, "/elsewhere")).await;
    let (outlet, _) = outlet(Reach::default());
    let error = outlet.send(calling(first.url())).await.unwrap_err();
    assert!(error.to_string().ends_with("it leads from place to place without end"), "{error}");
    let asked = first.asked.lock().clone();
    assert_eq!(asked.len(), MOST_REDIRECTS + 1);
    assert!(asked[1].starts_with("post /elsewhere"), "{asked:?}");
    assert!(asked[1].contains("bearer hunter2") && asked[1].ends_with("hello"), "{asked:?}");
    drop(last);
}

#[tokio::test]
async fn a_redirect_to_another_server_carries_no_key_and_reaches_no_private_place() {
    let last = Server::answering(OK).await;
    let first = Server::answering(redirect(307, last.url().reveal())).await;
    let (strict, _) = outlet(Reach::default());
    let refused = strict.send(calling(first.url())).await.unwrap_err();
    assert!(refused.to_string().contains("may not be called: 127.0.0.1 is this machine"), "{refused}");
    assert!(last.asked.lock().is_empty());

    let (listed, _) = outlet(Reach::new(false, ["127.0.0.1"]));
    let answer = listed.send(calling(first.url())).await.unwrap();
    assert_eq!((answer.status, answer.url.to_string()), (200, last.url().to_string()));
    let asked = last.asked.lock().clone();
    assert!(asked[0].contains("accept: text/plain") && !asked[0].contains("hunter2"), "{asked:?}");
}

#[tokio::test]
async fn what_was_led_elsewhere_and_failed_there_is_not_said_never_to_have_left() {
    for there in ["http://127.0.0.1:1/x", "http://10.0.0.1/x", "http:///"] {
        let first = Server::answering(redirect(307, there)).await;
        let failed = outlet(Reach::new(false, ["127.0.0.1"])).0.send(calling(first.url())).await;
        assert!(matches!(&failed, Err(OutboundError::Led { url, .. }) if *url == first.url()), "{there}: {failed:?}");
        assert_eq!(first.asked.lock().len(), 1);
    }
}

#[tokio::test]
async fn what_is_meant_for_one_server_alone_is_not_led_to_another() {
    let last = Server::answering(OK).await;
    let first = Server::answering(redirect(307, last.url().reveal())).await;
    let (listed, _) = outlet(Reach::new(false, ["127.0.0.1"]));
    let secret = Calling { redirects: Redirects::SameOrigin, ..calling(first.url()) };
    assert!(matches!(listed.send(secret).await, Err(OutboundError::Led { .. })));
    assert!(last.asked.lock().is_empty());
    let circle = Server::answering(redirect(307, "/elsewhere")).await;
    let secret = Calling { redirects: Redirects::SameOrigin, ..calling(circle.url()) };
    listed.send(secret).await.unwrap_err();
    assert!(circle.asked.lock().len() > 1, "beside it, it is followed");
}

#[tokio::test]
async fn a_redirect_that_changes_the_method_is_an_answer() {
    for code in [301, 302, 303] {
        let server = Server::answering(redirect(code, "/x")).await;
        assert_eq!(outlet(Reach::default()).0.send(calling(server.url())).await.unwrap().status, code);
    }
}

#[tokio::test]
async fn what_never_left_and_what_broke_off_are_told_apart() {
    let (outlet, _) = outlet(Reach::default());
    let error = outlet.send(calling(SafeUrl::parse("http://127.0.0.1:1/x").unwrap())).await.unwrap_err();
    assert_eq!(error.to_string(), "http://127.0.0.1:1/x did not answer: connection refused");
    let server = Server::answering("HTTP/1.1 200 OK\r\nContent-Le").await;
    assert!(matches!(outlet.send(calling(server.url())).await, Err(OutboundError::Broken { .. })));
}

#[tokio::test]
async fn a_header_that_cannot_be_sent_is_named_without_its_value() {
    let (outlet, _) = outlet(Reach::default());
    let mut calling = calling(SafeUrl::parse("http://127.0.0.1:1/x").unwrap());
    calling.own_headers.push(("X-Key".to_owned(), "a\r\nb".to_owned()));
    let error = outlet.send(calling).await.unwrap_err();
    assert_eq!(error.to_string(), "http://127.0.0.1:1/x may not be called: the header `X-Key` cannot be sent");
}
