//! WebSocket itself, with the rules kept and broken.

use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use crate::support::{Heard, Hub, LONG, Raw, answer, frame, until};
use nexus_link::{Outcome, Question};

const HELLO: &[u8] = br#"{"type":"hello","computerId":7}"#;

#[tokio::test]
async fn fragments_are_understood_also_with_a_ping_between() {
    let hub = Hub::start().await;
    let mut computer = hub.raw().await;
    computer.send(&frame(0x01, &HELLO[..5])).await;
    computer.send(&frame(0x89, b"are you there")).await;
    computer.send(&frame(0x00, b"")).await;
    computer.send(&frame(0x00, &HELLO[5..20])).await;
    computer.send(&frame(0x80, &HELLO[20..])).await;
    assert_eq!(computer.next().await, Some((0x8a, b"are you there".to_vec())));
    assert_eq!(computer.heard().await, json!({ "type": "hello-ok" }));
}

#[tokio::test]
async fn a_frame_may_come_byte_by_byte_and_many_in_one_piece() {
    let hub = Hub::start().await;
    let mut computer = hub.raw().await;
    for byte in frame(0x81, HELLO) {
        computer.send(&[byte]).await;
    }
    assert_eq!(computer.heard().await, json!({ "type": "hello-ok" }));
    let many: Vec<u8> = (0..100).flat_map(|_| frame(0x81, HELLO)).collect();
    computer.send(&many).await;
    for _ in 0..100 {
        assert_eq!(computer.heard().await, json!({ "type": "hello-ok" }));
    }
}

#[tokio::test]
async fn a_ping_is_answered_with_its_own_words() {
    let hub = Hub::start().await;
    let mut computer = hub.connect().await;
    for payload in [&b""[..], b"1", &[b'x'; 125]] {
        computer.send(Message::Ping(payload.to_vec().into())).await;
        assert_eq!(computer.next().await, Heard::Pong(payload.to_vec()));
    }
}

#[tokio::test]
async fn pongs_that_nobody_asked_for_mean_nothing() {
    let hub = Hub::start().await;
    let mut computer = hub.computer(1).await;
    computer.send(Message::Pong(b"here".to_vec().into())).await;
    hub.reaches(1, &mut computer).await;
    assert_eq!(hub.links.counts().faults, 0);
}

#[tokio::test]
async fn what_breaks_the_rules_is_closed_with_the_code_for_it() {
    let hub = Hub::start().await;
    let unmasked = [&[0x81, 5], &b"hello"[..]].concat();
    let announced = |length: u64| [&[0x81, 0xff], &length.to_be_bytes()[..]].concat();
    for (what, bytes, code) in [
        ("not masked", unmasked, 1002),
        ("compressed", frame(0xc1, HELLO), 1002),
        ("an opcode that does not exist", frame(0x83, HELLO), 1002),
        ("a ping in fragments", frame(0x09, b""), 1002),
        ("a ping that is too long", frame(0x89, &[0; 126]), 1002),
        ("a continuation of nothing", frame(0x80, HELLO), 1002),
        ("a message within another", [frame(0x01, HELLO), frame(0x81, HELLO)].concat(), 1002),
        ("one byte too many", frame(0x81, &[b' '; 122_881]), 1009),
        ("announced, and never sent", announced(122_881), 1009),
        ("more than there is in the world", announced(1 << 63), 1009),
        ("the largest number", announced(u64::MAX), 1009),
        ("too large together", [frame(0x01, &[b' '; 122_880]), frame(0x80, b" ")].concat(), 1009),
    ] {
        let mut stranger = hub.raw().await;
        // The hub may hang up before it has taken it all.
        let _ = tokio::io::AsyncWriteExt::write_all(&mut stranger.socket, &bytes).await;
        assert_eq!(stranger.closed().await, code, "{what}");
    }
    assert_eq!(hub.links.counts().faults, 12);
    let mut computer = hub.computer(1).await;
    hub.reaches(1, &mut computer).await;
}

#[tokio::test]
async fn who_breaks_the_rules_is_forgotten_and_its_request_ends() {
    let hub = Hub::start().await;
    let mut computer = hub.raw().await;
    computer.greet(1).await;
    let asking = hub.ask_one(1, Question::ping(LONG)).await;
    computer.request().await;
    computer.send(&frame(0x83, b"")).await;
    assert_eq!(computer.closed().await, 1002);
    assert!(matches!(asking.outcome().await, Outcome::Gone));
    until("it is forgotten", || hub.links.counts().computers == 0).await;
}

#[tokio::test]
async fn a_message_may_be_as_large_as_the_limit() {
    let hub = Hub::start().await;
    let mut computer = hub.computer(1).await;
    let asking = hub.ask_one(1, Question::new("files.read", LONG)).await;
    let (id, _) = computer.request().await;
    let around = format!(r#"{{"type":"response","id":"{id}","ok":true,"result":""}}"#).len();
    let large = "x".repeat(122_880 - around);
    let message = format!(r#"{{"type":"response","id":"{id}","ok":true,"result":"{large}"}}"#);
    assert_eq!(message.len(), 122_880);
    computer.say_text(&message).await;
    assert_eq!(answer(asking.outcome().await), json!(large));
}

#[tokio::test]
async fn no_extension_is_agreed_on_and_what_goes_out_is_plain() {
    let hub = Hub::start().await;
    let offer = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\nSec-WebSocket-Protocol: x\r\n";
    let mut computer = Raw::open(hub.socket().await, offer).await;
    let accepted = computer.accepted.to_ascii_lowercase();
    assert!(!accepted.contains("extensions") && !accepted.contains("protocol:"), "{accepted}");
    assert!(accepted.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{accepted}");
    computer.greet(1).await;
    // Larger than a frame's middle size of length, and of letters that must be escaped.
    for text in ["ü🐢\u{2028}\"\\".repeat(50), "x".repeat(100_000), "é".repeat(15_000)] {
        let asking = hub.ask_one(1, Question::new("lua.run", LONG).params(json!({ "code": text }))).await;
        let request = computer.heard().await; // sees to it: ASCII, one frame, no mask, no extension
        assert_eq!(request["params"]["code"], text);
        let id = request["id"].as_str().unwrap();
        computer.say(&json!({ "type": "response", "id": id, "ok": true, "result": text }).to_string()).await;
        assert_eq!(answer(asking.outcome().await), json!(text));
    }
}

#[tokio::test]
async fn a_close_is_answered_and_the_computer_is_gone() {
    let hub = Hub::start().await;
    let mut computer = hub.raw().await;
    computer.greet(1).await;
    let asking = hub.ask_one(1, Question::ping(LONG)).await;
    computer.request().await;
    computer.send(&frame(0x88, &1000u16.to_be_bytes())).await;
    let (first, payload) = computer.next().await.unwrap();
    assert_eq!((first, payload), (0x88, 1000u16.to_be_bytes().to_vec()));
    assert!(matches!(asking.outcome().await, Outcome::Gone));
    assert_eq!(hub.links.counts().computers, 0, "it is not shown until its socket is closed");
    assert_eq!(computer.next().await, None, "the hub hangs up first");
}
