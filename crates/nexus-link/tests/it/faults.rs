//! Frames that mean nothing: told, counted, and survived.

use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use crate::support::{Hub, frame};

#[tokio::test]
async fn what_cannot_be_understood_is_told_counted_and_survived() {
    let hub = Hub::start().await;
    let mut computer = hub.computer(1).await;
    let deep = |open: &str| open.repeat(100_000);
    let bad = [
        String::new(),
        "{".to_owned(),
        "[]".to_owned(),
        "null".to_owned(),
        "{}".to_owned(),
        "\u{feff}{}".to_owned(),
        r#"{"type":7}"#.to_owned(),
        r#"{"type":"dance"}"#.to_owned(),
        r#"{"type":"hello-ok"}"#.to_owned(),
        r#"{"type":"request","id":"req-1","method":"ping"}"#.to_owned(),
        r#"{"type":"hello","type":"hello","computerId":9}"#.to_owned(),
        r#"{"type":"hello","computerId":8,"computerId":9}"#.to_owned(),
        r#"{"type":"hello","computerId":9} {}"#.to_owned(),
        r#"["hello",null,null,null,null,9]"#.to_owned(),
        r#"{"type":"response","id":"req-1","ok":"yes"}"#.to_owned(),
        r#"{"type":"response","id":7,"ok":true}"#.to_owned(),
        r#"{"type":"response","id":"7","ok":true}"#.to_owned(),
        deep("["),
        deep(r#"{"type":"#)[..120_000].to_owned(),
        format!(r#"{{"type":"hello","computerId":{}"#, deep("[")),
        format!(r#"{{"type":"hello","computerId":{}{}}}"#, "[".repeat(50_000), "]".repeat(50_000)),
    ];
    for (at, text) in bad.iter().enumerate() {
        computer.say_text(text).await;
        let error = computer.error().await;
        assert!(!error.is_empty() && error.len() < 200, "{error}");
        hub.faults_reach(at as u64 + 1).await;
    }
    hub.reaches(1, &mut computer).await;
    assert_eq!(hub.names().await, ["1"]);
}

#[tokio::test]
async fn nesting_in_what_only_adds_is_no_reason_to_refuse_a_hello() {
    let hub = Hub::start().await;
    let mut computer = hub.connect().await;
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    computer.say_text(&format!(r#"{{"type":"hello","computerId":9,"capabilities":{deep}}}"#)).await;
    assert_eq!(computer.heard().await, json!({ "type": "hello-ok" }));
}

#[tokio::test]
async fn binary_frames_are_told_and_survived() {
    let hub = Hub::start().await;
    let mut computer = hub.computer(1).await;
    computer.send(Message::binary(br#"{"type":"hello","computerId":2}"#.to_vec())).await;
    assert_eq!(computer.error().await, "only text frames are understood");
    hub.faults_reach(1).await;
    hub.reaches(1, &mut computer).await;
}

#[tokio::test]
async fn text_that_is_not_utf_8_is_told_and_survived() {
    let hub = Hub::start().await;
    let mut computer = hub.raw().await;
    computer.send(&frame(0x81, b"{\"type\":\"hello\",\"computerId\":1,\"computerLabel\":\"\xff\"}")).await;
    assert_eq!(computer.heard().await["type"], "error");
    computer.greet(1).await;
    hub.faults_reach(1).await;
}

#[tokio::test]
async fn an_error_repeats_nothing_of_what_was_sent() {
    let hub = Hub::start().await;
    let mut computer = hub.connect().await;
    for text in ["sesame", r#"{"type":"sesame"}"#, r#"{"type":"hello","computerId":"sesame","token":"sesame"}"#] {
        computer.say_text(text).await;
        assert!(!computer.error().await.contains("sesame"));
    }
}

#[tokio::test]
async fn who_only_sends_nonsense_is_sent_away() {
    let hub = Hub::start().await;
    let mut computer = hub.raw().await;
    computer.greet(1).await;
    for _ in 0..256 {
        computer.say("nonsense").await;
    }
    assert_eq!(computer.closed().await, 1008);
    hub.faults_reach(256).await;
}

#[tokio::test]
async fn nonsense_is_forgiven_when_something_is_understood() {
    let hub = Hub::start().await;
    let mut computer = hub.computer(1).await;
    for _ in 0..3 {
        for _ in 0..255 {
            computer.say_text("nonsense").await;
            computer.error().await;
        }
        computer.greet(json!({ "type": "hello", "computerId": 1 })).await;
    }
    hub.reaches(1, &mut computer).await;
}
