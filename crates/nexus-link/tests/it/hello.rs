//! How a connection becomes a linked computer.

use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::support::{Heard, Hub, LONG, Raw, frame, upgrade};
use nexus_link::{Outcome, Question};

#[tokio::test]
async fn a_hello_is_answered_with_exactly_hello_ok() {
    let hub = Hub::start().await;
    let mut computer = hub.connect().await;
    assert!(hub.all().await.is_empty(), "nobody is linked before hello");
    computer.say_text(r#"{"type":"hello","computerId":12,"computerLabel":"base-turtle"}"#).await;
    assert_eq!(computer.next().await, Heard::Text(r#"{"type":"hello-ok"}"#.to_owned()));
    assert_eq!(hub.names().await, ["12 (base-turtle)"]);
    assert!(hub.seen(12).await.from.is_loopback());
    hub.reaches(12, &mut computer).await;
}

#[tokio::test]
async fn a_label_that_is_missing_empty_or_null_is_none() {
    let hub = Hub::start().await;
    let mut linked = Vec::new();
    for (id, hello) in [
        json!({ "type": "hello", "computerId": 0 }),
        json!({ "type": "hello", "computerId": 1, "computerLabel": "" }),
        json!({ "type": "hello", "computerId": 2, "computerLabel": null }),
        json!({ "type": "hello", "computerId": 3, "computerLabel": " \n" }),
    ]
    .into_iter()
    .enumerate()
    {
        linked.push(hub.greeted(hello).await);
        assert_eq!(hub.seen(id as u64).await.computer.label, None);
    }
    assert_eq!(hub.names().await, ["0", "1", "2", "3"]);
}

#[tokio::test]
async fn an_id_that_is_no_whole_number_is_told_and_the_link_stays_usable() {
    let hub = Hub::start().await;
    let mut computer = hub.connect().await;
    let bad = ["\"12\"", "null", "true", "1.5", "-1", "-0.5", "1e300", "1e999", "9007199254740994", "[12]", "{}"];
    for id in bad {
        computer.say_text(&format!(r#"{{"type":"hello","computerId":{id}}}"#)).await;
        assert!(computer.error().await.contains("computerId"), "{id}");
    }
    computer.say_text(r#"{"type":"hello"}"#).await;
    assert!(computer.error().await.contains("computerId"));
    assert!(hub.all().await.is_empty());
    hub.faults_reach(bad.len() as u64 + 1).await;
    computer.greet(json!({ "type": "hello", "computerId": 12.0 })).await;
    hub.reaches(12, &mut computer).await;
}

#[tokio::test]
async fn frames_before_hello_are_told_so_and_hello_still_works() {
    let hub = Hub::start().await;
    let mut computer = hub.connect().await;
    for id in ["req-1", "nonsense"] {
        computer.answer(id, json!(1)).await;
        assert_eq!(computer.error().await, "say hello first");
    }
    computer.say(json!({ "type": "dance" })).await;
    computer.error().await;
    hub.faults_reach(3).await;
    assert_eq!(hub.links.counts().late, 0);
    computer.greet(json!({ "type": "hello", "computerId": 5 })).await;
    hub.reaches(5, &mut computer).await;
}

#[tokio::test]
async fn a_hello_may_come_in_one_piece_with_the_upgrade() {
    let hub = Hub::start().await;
    let mut socket = hub.socket().await;
    let mut first = upgrade("").into_bytes();
    first.extend(frame(0x81, br#"{"type":"hello","computerId":3}"#));
    // Cut after the head: what Raw sends is only the rest of it.
    let at = first.len() - 20;
    socket.write_all(&first[..at]).await.unwrap();
    let mut raw = Raw::opened(socket).await;
    raw.send(&first[at..]).await;
    assert_eq!(raw.heard().await, json!({ "type": "hello-ok" }));
    assert_eq!(hub.names().await, ["3"]);
}

#[tokio::test]
async fn hello_again_keeps_the_place_and_a_new_label_is_seen() {
    let hub = Hub::start().await;
    let mut computer = hub.computer(12).await;
    let before = hub.seen(12).await;
    computer
        .greet(json!({ "type": "hello", "computerId": 12, "computerLabel": "farm", "capabilities": ["lua"] }))
        .await;
    let after = hub.seen(12).await;
    assert_eq!((before.since, before.target), (after.since, after.target));
    assert_eq!(after.computer.label.as_deref(), Some("farm"));
    assert!(after.computer.can(nexus_link::Capability::Lua) && !before.computer.can(nexus_link::Capability::Lua));
    computer.greet(json!({ "type": "hello", "computerId": 12 })).await;
    assert_eq!(hub.names().await, ["12"]);
    hub.reaches(12, &mut computer).await;
}

#[tokio::test]
async fn hello_with_another_id_moves_the_link() {
    let hub = Hub::start().await;
    let mut computer = hub.computer(1).await;
    computer.greet(json!({ "type": "hello", "computerId": 2 })).await;
    assert_eq!(hub.names().await, ["2"]);
    let mut other = hub.computer(1).await;
    assert_eq!(hub.names().await, ["1", "2"], "the old place is free");
    hub.reaches(1, &mut other).await;
    hub.reaches(2, &mut computer).await;
    drop(computer);
    crate::support::until("it went", || hub.links.counts().computers == 1).await;
    assert_eq!(hub.names().await, ["1"]);
}

#[tokio::test]
async fn what_was_asked_of_one_computer_is_not_asked_of_the_one_its_link_became() {
    let hub = Hub::start().await;
    let mut computer = hub.able(1, &["lua"]).await;
    let chain = hub.target(1).await;
    let work = hub.ask_one(1, Question::new("lua.run", LONG)).await;
    let (id, _) = computer.request().await;
    computer.greet(json!({ "type": "hello", "computerId": 2, "capabilities": ["lua"] })).await;
    assert_eq!(computer.heard().await, json!({ "type": "cancel", "id": id }));
    assert!(matches!(work.outcome().await, Outcome::Gone));
    let next = hub.links.ask(vec![chain], Question::new("lua.run", LONG)).await.unwrap();
    assert!(matches!(next[..], [Outcome::Gone]), "{next:?}");
    hub.reaches(2, &mut computer).await;
}

#[tokio::test]
async fn labels_are_shown_as_one_clean_line() {
    let hub = Hub::start().await;
    let label = "two\nlines \u{1b}[31mred\u{202e} ü🐢";
    let _computer = hub.greeted(json!({ "type": "hello", "computerId": 1, "computerLabel": label })).await;
    let label = hub.seen(1).await.computer.label.clone().unwrap();
    assert!(!label.chars().any(|c| c.is_control() || c == '\u{202e}'), "{label:?}");
    assert!(label.contains("ü🐢"));
}

#[tokio::test]
async fn what_a_hello_adds_is_known_and_odd_additions_are_left_out() {
    let hub = Hub::start().await;
    let _able = hub
        .greeted(json!({
            "type": "hello", "computerId": 1, "world": "survival", "version": "1.2", "kind": "turtle",
            "capabilities": ["lua", "levitate", 7, "stop"], "more": [[[1]]]
        }))
        .await;
    let _odd = hub
        .greeted(json!({ "type": "hello", "computerId": 2, "version": [], "kind": "toaster", "capabilities": {} }))
        .await;
    let (able, odd) = (hub.seen(1).await.computer, hub.seen(2).await.computer);
    assert_eq!((able.version.as_deref(), able.kind), (Some("1.2"), Some(nexus_link::Kind::Turtle)));
    let words: Vec<&str> = able.capabilities.iter().map(|capability| capability.as_str()).collect();
    assert_eq!(words, ["lua", "stop"]);
    assert_eq!((odd.version.as_deref(), odd.kind, odd.capabilities.iter().count()), (None, None, 0));
}
