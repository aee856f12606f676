//! A hub whose computers must know its token.

use serde_json::json;
use tokio_tungstenite::tungstenite::Error;

use crate::support::{Computer, Heard, Hub, http, upgrade};

const TOKEN: &str = "correct-horse-battery";

async fn with(hub: &Hub, header: &str) -> Result<Computer, Error> {
    Computer::connect(hub.address, &[("Authorization", header)]).await
}

#[tokio::test]
async fn a_token_in_the_header_is_enough() {
    let hub = Hub::start_with(Some(TOKEN)).await;
    for (id, header) in [(1, format!("Bearer {TOKEN}")), (2, format!("bearer  {TOKEN}"))] {
        let mut computer = with(&hub, &header).await.unwrap();
        computer.greet(json!({ "type": "hello", "computerId": id })).await;
        hub.reaches(id, &mut computer).await;
    }
}

#[tokio::test]
async fn a_wrong_token_in_the_header_is_refused_before_the_upgrade() {
    let hub = Hub::start_with(Some(TOKEN)).await;
    let shorter = &TOKEN[..TOKEN.len() - 1];
    for header in ["Bearer", "Bearer x", "Basic x", "", &format!("Bearer {TOKEN}x"), &format!("Bearer {shorter}")] {
        let Err(Error::Http(answer)) = with(&hub, header).await else { panic!("let in with {header:?}") };
        assert_eq!(answer.status(), 401, "{header:?}");
    }
    assert!(hub.all().await.is_empty());
    assert_eq!(hub.links.counts().refused, 6);
}

#[tokio::test]
async fn a_token_may_come_with_the_hello_and_must_come_again_with_another() {
    let hub = Hub::start_with(Some(TOKEN)).await;
    let mut computer = hub.connect().await;
    computer.greet(json!({ "type": "hello", "computerId": 1, "token": TOKEN })).await;
    hub.reaches(1, &mut computer).await;
    computer.greet(json!({ "type": "hello", "computerId": 1, "computerLabel": "x", "token": TOKEN })).await;
    assert_eq!(hub.names().await, ["1 (x)"]);
}

#[tokio::test]
async fn a_hello_without_the_token_is_told_and_closed() {
    let hub = Hub::start_with(Some(TOKEN)).await;
    for token in [json!(null), json!(""), json!("x"), json!(format!("{TOKEN} ")), json!(TOKEN.to_uppercase())] {
        let mut computer = hub.connect().await;
        computer.say(json!({ "type": "hello", "computerId": 1, "token": token })).await;
        let words = computer.error().await;
        assert!(words.contains("token") && !words.contains(TOKEN), "{words}");
        assert_eq!(computer.next().await, Heard::Closed(4003, "token refused".to_owned()));
        assert!(hub.all().await.is_empty());
    }
    assert_eq!(hub.links.counts().refused, 5);
}

#[tokio::test]
async fn a_token_is_not_needed_where_none_is_set() {
    let hub = Hub::start().await;
    let mut computer = with(&hub, "Bearer whatever").await.unwrap();
    computer.greet(json!({ "type": "hello", "computerId": 1, "token": "whatever" })).await;
    hub.reaches(1, &mut computer).await;
}

#[tokio::test]
async fn no_answer_holds_the_token() {
    let hub = Hub::start_with(Some(TOKEN)).await;
    let wrong = "Authorization: Bearer wrong-horse-battery\r\n";
    for request in [
        "GET /nexus.lua HTTP/1.1\r\nHost: hub\r\n\r\n".to_owned(),
        "GET /install.lua HTTP/1.1\r\nHost: hub\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        upgrade(wrong),
        upgrade("Origin: x\r\n"),
        "nonsense\r\n\r\n".to_owned(),
    ] {
        let answer = http(hub.socket().await, &request).await;
        assert!(!answer.is_empty() && !answer.contains("horse"), "{answer}");
    }
}
