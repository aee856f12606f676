//! Answers that nobody waits for, and what counts as one.

use std::collections::HashSet;

use serde_json::json;

use crate::support::{Hub, LONG, SHORT, answer};
use nexus_link::{Outcome, Question};

#[tokio::test]
async fn every_request_has_an_id_of_its_own() {
    let hub = Hub::start().await;
    let (mut one, mut two) = (hub.computer(1).await, hub.computer(2).await);
    let mut ids = HashSet::new();
    for _ in 0..50 {
        let whom = vec![hub.target(1).await, hub.target(2).await];
        let asking = hub.ask(whom, Question::ping(LONG));
        for computer in [&mut one, &mut two] {
            let (id, _) = computer.request().await;
            computer.answer(&id, json!("pong")).await;
            assert!(id.starts_with("req-"), "{id}");
            assert!(ids.insert(id.clone()), "{id} came twice");
        }
        asking.await.unwrap().unwrap().unwrap();
    }
}

#[tokio::test]
async fn answers_under_a_wrong_id_are_counted_and_are_no_answers() {
    let hub = Hub::start().await;
    let (mut one, mut two) = (hub.computer(1).await, hub.computer(2).await);
    let of_one = hub.ask_one(1, Question::new("status", LONG)).await;
    let of_two = hub.ask_one(2, Question::new("status", LONG)).await;
    let (first, _) = one.request().await;
    let (second, _) = two.request().await;

    two.answer("req-1", json!("made up")).await;
    two.answer("req-18446744073709551615", json!("made up")).await;
    two.answer(&first, json!("for another")).await;
    hub.late_reach(3).await;
    one.answer(&second, json!("for another")).await;
    hub.late_reach(4).await;
    assert!(!of_one.0.is_finished() && !of_two.0.is_finished());

    one.answer(&first, json!("one")).await;
    two.answer(&second, json!("two")).await;
    assert_eq!(answer(of_one.outcome().await), "one");
    assert_eq!(answer(of_two.outcome().await), "two");
    assert_eq!(hub.links.counts().faults, 0);
}

#[tokio::test]
async fn only_the_first_of_two_answers_counts() {
    let hub = Hub::start().await;
    let mut computer = hub.computer(1).await;
    let asking = hub.ask_one(1, Question::new("status", LONG)).await;
    let (id, _) = computer.request().await;
    computer.answer(&id, json!("first")).await;
    computer.answer(&id, json!("second")).await;
    assert_eq!(answer(asking.outcome().await), "first");
    hub.late_reach(1).await;
    hub.reaches(1, &mut computer).await;
}

#[tokio::test]
async fn an_answer_that_comes_late_is_counted_and_answers_nothing_else() {
    let hub = Hub::start().await;
    let mut computer = hub.computer(1).await;
    let asking = hub.ask_one(1, Question::ping(SHORT)).await;
    let (late, _) = computer.request().await;
    assert!(matches!(asking.outcome().await, Outcome::Silent));

    let next = hub.ask_one(1, Question::new("status", LONG)).await;
    let (id, _) = computer.request().await;
    computer.answer(&late, json!("late")).await;
    hub.late_reach(1).await;
    computer.answer(&id, json!("in time")).await;
    assert_eq!(answer(next.outcome().await), "in time");
}

#[tokio::test]
async fn answers_may_come_in_another_order_than_the_requests() {
    let hub = Hub::start().await;
    let mut computer = hub.computer(1).await;
    let mut asked = Vec::new();
    for n in 0..10 {
        let asking = hub.ask_one(1, Question::new("status", LONG).params(json!({ "n": n }))).await;
        asked.push((computer.heard().await, asking));
    }
    for (request, _) in asked.iter().rev() {
        computer.answer(request["id"].as_str().unwrap(), request["params"]["n"].clone()).await;
    }
    for (n, (_, asking)) in asked.into_iter().enumerate() {
        assert_eq!(answer(asking.outcome().await), n);
    }
}

#[tokio::test]
async fn a_refusal_comes_with_its_words_cleaned_and_cut() {
    let hub = Hub::start().await;
    let mut computer = hub.computer(1).await;
    for (said, heard) in [
        (json!({ "error": "unknown method" }), "unknown method"),
        (json!({ "error": "two\nlines \u{1b}[31m" }), "two lines"),
        (json!({}), ""),
        (json!({ "error": null }), ""),
        (json!({ "error": { "code": 7 } }), r#"{"code":7}"#),
    ] {
        let asking = hub.ask_one(1, Question::new("dance", LONG)).await;
        let (id, _) = computer.request().await;
        let mut response = json!({ "type": "response", "id": id, "ok": false });
        response.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
        computer.say(response).await;
        let Outcome::Refused(words) = asking.outcome().await else { panic!("not refused") };
        assert_eq!(words, heard);
    }
    let asking = hub.ask_one(1, Question::new("dance", LONG)).await;
    let (id, _) = computer.request().await;
    computer.say(json!({ "type": "response", "id": id, "ok": false, "error": "x".repeat(100_000) })).await;
    let Outcome::Refused(words) = asking.outcome().await else { panic!("not refused") };
    assert!(words.len() < 600);
}

#[tokio::test]
async fn an_answer_that_is_larger_than_wanted_is_not_taken() {
    let hub = Hub::start().await;
    let mut computer = hub.computer(1).await;
    for (length, fits) in [(98, true), (99, false), (100_000, false)] {
        let asking = hub.ask_one(1, Question::new("status", LONG).largest(100)).await;
        let (id, _) = computer.request().await;
        computer.answer(&id, json!("x".repeat(length))).await;
        let outcome = asking.outcome().await;
        assert_eq!(matches!(outcome, Outcome::Answer(_)), fits, "{outcome:?}");
        assert_eq!(matches!(outcome, Outcome::TooLarge), !fits, "{outcome:?}");
    }
}
