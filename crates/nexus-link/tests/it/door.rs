//! Who is let in, and the pages.

use tokio::io::AsyncWriteExt;

use crate::support::{Hub, http, until, upgrade, within};

async fn get(hub: &Hub, request: &str) -> String {
    http(hub.socket().await, request).await
}

#[track_caller]
fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

#[tokio::test]
async fn a_web_page_is_refused() {
    let hub = Hub::start().await;
    for origin in ["http://evil.example", "null", "", "http://127.0.0.1:3001"] {
        let answer = get(&hub, &upgrade(&format!("Origin: {origin}\r\n"))).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    }
    assert_eq!(hub.links.counts().refused, 4);
}

#[tokio::test]
async fn the_client_is_served_with_the_address_by_which_it_was_asked_for() {
    let hub = Hub::start().await;
    for path in ["/nexus.lua", "/install.lua"] {
        let request = |host: &str| format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let page = get(&hub, &request("base.example:3001")).await;
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
        assert!(page.contains("Content-Type: text/plain"), "{page}");
        assert!(!page.contains("@ADDRESS@") && !page.contains("@TOKEN_NEEDED@"));
        assert!(page.contains(&format!("Content-Length: {}\r\n", body(&page).len())));
        // A host that would be a program is not repeated.
        let odd = get(&hub, &request("x\"..os.shutdown()..\"")).await;
        assert!(odd.starts_with("HTTP/1.1 200 OK\r\n") && !odd.contains("os.shutdown()..\""));
        // HEAD is the same without the body.
        let head = get(&hub, &request("base.example:3001").replace("GET", "HEAD")).await;
        assert_eq!(body(&head), "");
        assert_eq!(head, page[..page.len() - body(&page).len()]);
    }
    let page = get(&hub, "GET /install.lua HTTP/1.1\r\nHost: base.example:3001\r\n\r\n").await;
    assert!(body(&page).contains("base.example:3001"));
    let page = get(&hub, "GET /install.lua HTTP/1.0\r\n\r\n").await;
    assert!(body(&page).contains(&hub.address.to_string()), "no host: the listener's own address");
    assert_eq!(hub.links.counts().refused, 0);
}

#[tokio::test]
async fn other_requests_are_told_what_is_wrong() {
    let hub = Hub::start().await;
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "426"),
        ("GET /etc/passwd HTTP/1.1\r\n\r\n".to_owned(), "404"),
        ("GET /../nexus.lua HTTP/1.1\r\n\r\n".to_owned(), "404"),
        ("POST /nexus.lua HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello".to_owned(), "405"),
        (format!("POST /nexus.lua HTTP/1.1\r\nContent-Length: 200000\r\n\r\n{}", "x".repeat(200_000)), "405"),
        ("DELETE / HTTP/1.1\r\n\r\n".to_owned(), "405"),
        ("\u{16}\u{3}\u{1}".to_owned(), "400"),
        ("hello\r\n\r\n".to_owned(), "400"),
        (format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(9 * 1024)), "431"),
        (format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(300_000)), "431"),
        (format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(100)), "431"),
        (upgrade("").replace(": 13", ": 8"), "426"),
        (upgrade("").replace("ZQ==", ""), "400"),
        (upgrade("").replace("GET", "HEAD"), "400"),
    ] {
        let answer = get(&hub, &request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{:.60}: {answer}", request);
        assert!(answer.contains("Connection: close\r\n"), "{answer}");
    }
    assert!(hub.all().await.is_empty());
}

#[tokio::test]
async fn a_head_may_come_byte_by_byte() {
    let hub = Hub::start().await;
    let mut socket = hub.socket().await;
    let request = upgrade("");
    for byte in request.as_bytes() {
        socket.write_all(&[*byte]).await.unwrap();
    }
    let mut raw = crate::support::Raw::opened(socket).await;
    raw.greet(1).await;
}

#[tokio::test]
async fn who_hangs_up_early_leaves_nothing_behind() {
    let hub = Hub::start().await;
    let before = hub.tasks.running();
    for cut in [0, 1, 20, 100] {
        let mut socket = hub.socket().await;
        socket.write_all(&upgrade("").as_bytes()[..cut]).await.unwrap();
    }
    drop(hub.raw().await);
    let mut computer = hub.computer(1).await;
    hub.reaches(1, &mut computer).await;
    drop(computer);
    until("the computer went", || hub.links.counts().computers == 0).await;
    assert_eq!(hub.tasks.running(), before);
    hub.over.cancel();
    within("the door closes", hub.listening).await.unwrap();
}
