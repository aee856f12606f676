//! Everything that computers do, stopped at once.

use serde_json::json;

use crate::support::{Hub, LONG, answer, within};
use nexus_link::{Outcome, Question};

#[tokio::test]
async fn stop_reaches_all_that_can_before_any_has_answered() {
    let hub = Hub::start().await;
    let mut able = Vec::new();
    for id in 1..=3 {
        able.push(hub.able(id, &["lua", "stop"]).await);
    }
    let mut old = hub.computer(4).await;
    let links = hub.links.clone();
    let stopping = hub.tasks.spawn("stop", async move { links.stop(LONG).await });
    let mut ids = Vec::new();
    for computer in &mut able {
        let (id, method) = computer.request().await;
        assert_eq!(method, "stop");
        ids.push(id);
    }
    for (n, (computer, id)) in able.iter_mut().zip(&ids).enumerate() {
        computer.answer(id, json!({ "stopped": n })).await;
    }
    let said = within("all have stopped", stopping).await.unwrap().unwrap().unwrap();
    let said: Vec<_> = said.into_iter().map(|(seen, said)| (seen.computer.address.id, answer(said))).collect();
    assert_eq!(said, [(1, json!({ "stopped": 0 })), (2, json!({ "stopped": 1 })), (3, json!({ "stopped": 2 }))]);
    hub.reaches(4, &mut old).await; // it got no `stop`, which it would not know
}

#[tokio::test]
async fn stop_ends_work_and_chains_of_it_and_reads_go_on() {
    let hub = Hub::start().await;
    let mut computer = hub.able(1, &["lua", "status", "stop"]).await;
    let mut other = hub.able(2, &["lua"]).await;
    let chain = hub.target(1).await;
    let work = hub.ask_one(1, Question::new("lua.run", LONG)).await;
    let (work_id, _) = computer.request().await;
    let elsewhere = hub.ask_one(2, Question::new("turtle", LONG)).await;
    other.request().await;
    let read = hub.ask_one(1, Question::new("status", LONG)).await;
    let (read_id, _) = computer.request().await;

    let links = hub.links.clone();
    let stopping = hub.tasks.spawn("stop", async move { links.stop(LONG).await });
    assert!(matches!(work.outcome().await, Outcome::Stopped));
    assert!(matches!(elsewhere.outcome().await, Outcome::Stopped));
    let (stop_id, method) = computer.request().await;
    assert_eq!(method, "stop");

    // The next step of the chain finds that it is over, before anything is sent.
    for method in ["lua.run", "turtle", "files.write", "peripherals.call", "redstone.set"] {
        let outcomes = hub.links.ask(vec![chain], Question::new(method, LONG)).await.unwrap();
        assert!(matches!(outcomes[..], [Outcome::Stopped]), "{method}: {outcomes:?}");
    }
    computer.answer(&work_id, json!("too late")).await;
    computer.answer(&read_id, json!("still here")).await;
    assert_eq!(answer(read.outcome().await), "still here");
    computer.answer(&stop_id, json!({ "stopped": 1 })).await;
    within("all have stopped", stopping).await.unwrap().unwrap().unwrap();
    hub.late_reach(1).await;

    // Reads under the old target, and new work under a new one.
    let read = hub.ask(vec![chain], Question::new("status", LONG));
    let (id, _) = computer.request().await;
    computer.answer(&id, json!(1)).await;
    assert!(matches!(read.await.unwrap().unwrap().unwrap()[..], [Outcome::Answer(_)]));
    let work = hub.ask_one(1, Question::new("lua.run", LONG)).await;
    let (id, _) = computer.request().await;
    computer.answer(&id, json!(2)).await;
    assert_eq!(answer(work.outcome().await), 2);
}

#[tokio::test]
async fn work_of_a_computer_that_knows_no_stop_is_cancelled() {
    let hub = Hub::start().await;
    let mut computer = hub.able(1, &["lua"]).await;
    let work = hub.ask_one(1, Question::new("lua.run", LONG)).await;
    let (id, _) = computer.request().await;
    assert!(hub.links.stop(LONG).await.unwrap().is_empty());
    assert!(matches!(work.outcome().await, Outcome::Stopped));
    assert_eq!(computer.heard().await, json!({ "type": "cancel", "id": id }));
}

#[tokio::test]
async fn nobody_to_stop_is_no_error() {
    let hub = Hub::start().await;
    assert!(hub.links.stop(LONG).await.unwrap().is_empty());
}
