//! The same computer twice.

use serde_json::json;

use crate::support::{Heard, Hub, LONG, frame, until};
use nexus_link::{Outcome, Question};

#[tokio::test]
async fn the_same_id_anew_replaces_the_old_link() {
    let hub = Hub::start().await;
    let mut old = hub.computer(12).await;
    let target = hub.target(12).await;
    let asking = hub.ask_one(12, Question::new("lua.run", LONG)).await;
    old.request().await;

    let mut new = hub.computer(12).await;
    assert_eq!(old.next().await, Heard::Closed(4001, "the computer linked anew".to_owned()));
    assert!(matches!(asking.outcome().await, Outcome::Replaced));
    hub.reaches(12, &mut new).await;
    let outcomes = hub.links.ask(vec![target], Question::ping(LONG)).await.unwrap();
    assert!(matches!(outcomes[..], [Outcome::Gone]), "the old link is not the new one: {outcomes:?}");
    drop(old);
    hub.reaches(12, &mut new).await;
    assert_eq!(hub.names().await, ["12"]);
}

#[tokio::test]
async fn the_same_id_in_another_world_is_another_computer() {
    let hub = Hub::start().await;
    let hello = |world: &str| json!({ "type": "hello", "computerId": 12, "world": world });
    let mut none = hub.computer(12).await;
    let mut survival = hub.greeted(hello("survival")).await;
    let mut creative = hub.greeted(hello("creative")).await;
    assert_eq!(hub.names().await, ["12", "12 of creative", "12 of survival"]);
    let whom = hub.all().await.iter().map(|seen| seen.target).collect();
    let asking = hub.ask(whom, Question::new("status", LONG));
    for (computer, words) in [(&mut survival, "s"), (&mut none, "n"), (&mut creative, "c")] {
        let (id, _) = computer.request().await;
        computer.answer(&id, json!(words)).await;
    }
    let outcomes = asking.await.unwrap().unwrap().unwrap();
    let words: Vec<_> = outcomes.into_iter().map(crate::support::answer).collect();
    assert_eq!(words, ["n", "c", "s"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_was_replaced_cannot_take_the_place_back_with_what_it_had_sent() {
    let hub = Hub::start().await;
    for round in 0..20 {
        let mut old = hub.raw().await;
        old.greet(1).await;
        // Many hellos under way while another one comes: none of them may hurt it.
        let hellos: Vec<u8> = (0..50).flat_map(|_| frame(0x81, br#"{"type":"hello","computerId":1}"#)).collect();
        let (_, mut new) = tokio::join!(old.send(&hellos), hub.connect());
        new.greet(json!({ "type": "hello", "computerId": 1, "computerLabel": round.to_string() })).await;
        assert_eq!(old.closed().await, 4001);
        hub.reaches(1, &mut new).await;
        assert_eq!(hub.names().await, [format!("1 ({round})")]);
    }
}

#[tokio::test]
async fn a_link_that_moves_to_a_taken_place_replaces_that_one() {
    let hub = Hub::start().await;
    let mut first = hub.computer(1).await;
    let mut second = hub.computer(2).await;
    second.greet(json!({ "type": "hello", "computerId": 1 })).await;
    assert_eq!(first.closed().await, 4001);
    assert_eq!(hub.names().await, ["1"]);
    hub.reaches(1, &mut second).await;
    drop(first);
    drop(second);
    until("all are gone", || hub.links.counts().computers == 0).await;
}
