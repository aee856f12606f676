//! Questions, their deadlines, and computers that are slow or go away.

use std::time::Duration;

use futures_util::future::select_all;
use serde_json::{Value, json};
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;

use crate::support::{Hub, LONG, Raw, SHORT, answer, within};
use nexus_link::{Capability, LinkError, Outcome, Question, Seen};

#[tokio::test]
async fn work_that_nobody_waits_for_is_cancelled_and_a_ping_is_not() {
    let hub = Hub::start().await;
    let mut computer = hub.computer(1).await;

    let asking = hub.ask_one(1, Question::new("lua.run", SHORT)).await;
    let (id, _) = computer.request().await;
    assert!(matches!(asking.outcome().await, Outcome::Silent));
    assert_eq!(computer.heard().await, json!({ "type": "cancel", "id": id }));

    let asking = hub.ask_one(1, Question::ping(SHORT)).await;
    computer.request().await;
    assert!(matches!(asking.outcome().await, Outcome::Silent));
    hub.reaches(1, &mut computer).await; // the next frame is its request, not a cancel
}

#[tokio::test]
async fn who_drops_a_question_takes_it_back() {
    let hub = Hub::start().await;
    let mut computer = hub.computer(1).await;
    let asking = hub.ask_one(1, Question::new("lua.run", LONG)).await;
    let (id, _) = computer.request().await;
    asking.0.abort();
    assert_eq!(computer.heard().await, json!({ "type": "cancel", "id": id }));
    computer.answer(&id, json!("done all the same")).await;
    hub.late_reach(1).await;
    hub.reaches(1, &mut computer).await;
}

#[tokio::test]
async fn only_those_that_have_not_answered_are_told_to_cancel() {
    let hub = Hub::start().await;
    let (mut quick, mut mute) = (hub.computer(1).await, hub.computer(2).await);
    let whom = vec![hub.target(2).await, hub.target(1).await];
    let asking = hub.ask(whom, Question::new("status", Duration::from_millis(300)));
    let (id, _) = quick.request().await;
    quick.answer(&id, json!(1)).await;
    let (id, _) = mute.request().await;
    let outcomes = asking.await.unwrap().unwrap().unwrap();
    assert!(matches!(outcomes[..], [Outcome::Silent, Outcome::Answer(_)]), "{outcomes:?}");
    assert_eq!(mute.heard().await, json!({ "type": "cancel", "id": id }));
    hub.reaches(1, &mut quick).await;
}

#[tokio::test]
async fn who_hangs_up_while_asked_is_gone() {
    let hub = Hub::start().await;
    let mut computer = hub.computer(1).await;
    let asking = hub.ask_one(1, Question::ping(LONG)).await;
    computer.request().await;
    drop(computer);
    assert!(matches!(asking.outcome().await, Outcome::Gone));
    crate::support::until("it is forgotten", || hub.links.counts().computers == 0).await;
}

#[tokio::test]
async fn nobody_is_asked_in_no_time() {
    let hub = Hub::start().await;
    assert!(hub.links.ask(Vec::new(), Question::ping(LONG)).await.unwrap().is_empty());
}

#[tokio::test]
async fn the_outcomes_stand_in_the_order_in_which_was_asked() {
    let hub = Hub::start().await;
    let mut computers = Vec::new();
    for id in 0..5 {
        computers.push(hub.computer(id).await);
    }
    let mut whom = Vec::new();
    for id in [3, 0, 4, 1, 3] {
        whom.push(hub.target(id).await);
    }
    let asking = hub.ask(whom, Question::new("status", LONG));
    for id in [4, 3, 3, 1, 0] {
        let (request, _) = computers[id].request().await;
        computers[id].answer(&request, json!(id)).await;
    }
    let outcomes = asking.await.unwrap().unwrap().unwrap();
    let ids: Vec<Value> = outcomes.into_iter().map(answer).collect();
    assert_eq!(ids, [3, 0, 4, 1, 3]);
}

#[tokio::test]
async fn what_does_not_fit_into_a_frame_is_not_sent() {
    let hub = Hub::start().await;
    let mut computer = hub.computer(1).await;
    let whom = vec![hub.target(1).await];
    let large = Question::new("lua.run", LONG).params(json!({ "code": "ü".repeat(20_000) }));
    let error = hub.links.ask(whom, large).await.unwrap_err();
    assert!(matches!(error, LinkError::TooLong { bytes } if bytes > 120_000), "{error}");
    hub.reaches(1, &mut computer).await;
}

/// A computer that reads nothing, in a room of its own: the buffers on the way to it are small.
async fn deaf(hub: &Hub, id: u64) -> Raw {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut raw = Raw::open(socket.connect(hub.address).await.unwrap(), "").await;
    raw.greet(id).await;
    raw
}

#[tokio::test]
async fn a_computer_that_takes_nothing_delays_no_other() {
    let hub = Hub::start().await;
    let mut deaf = deaf(&hub, 1).await;
    let mut other = hub.computer(2).await;
    let target = hub.target(1).await;
    let large = || Question::new("lua.run", LONG).params(json!({ "code": "x".repeat(110_000) }));

    let asked: Vec<_> = (0..100).map(|_| hub.ask(vec![target], large())).collect();
    let (first, _, asked) = within("the hub gives up on it", select_all(asked)).await;
    let outcomes = first.unwrap().unwrap().unwrap();
    assert!(matches!(outcomes[..], [Outcome::Busy]), "{outcomes:?}");

    for _ in 0..10 {
        hub.reaches(2, &mut other).await;
    }
    let both = hub.ask(vec![target, hub.target(2).await], Question::new("status", LONG));
    let (id, _) = other.request().await;
    other.answer(&id, json!("here")).await;
    assert_eq!(hub.all().await.len(), 2, "slow is not dead");

    // What was sent arrives whole, when it reads at last.
    for asking in &asked {
        asking.abort();
    }
    both.abort();
    let mut requests = 0;
    while let (0x81, payload) = deaf.next().await.unwrap() {
        let heard: Value = serde_json::from_slice(&payload).unwrap();
        match heard["type"].as_str().unwrap() {
            "request" => requests += 1,
            "cancel" => break,
            other => panic!("{other}"),
        }
    }
    assert!(requests > 0);
}

/// Work for it until the hub keeps some of it back, which has not gone out then.
async fn stuff(hub: &Hub, id: u64, patience: Duration) -> Vec<JoinHandle<Option<Result<Vec<Outcome>, LinkError>>>> {
    let target = hub.target(id).await;
    let large = || Question::new("lua.run", patience).params(json!({ "code": "x".repeat(110_000) }));
    let asked: Vec<_> = (0..100).map(|_| hub.ask(vec![target], large())).collect();
    let (first, _, asked) = within("the hub gives up on it", select_all(asked)).await;
    assert!(matches!(first.unwrap().unwrap().unwrap()[..], [Outcome::Busy]));
    for _ in 0..10 {
        tokio::task::yield_now().await; // the others ask, too
    }
    asked
}

/// How many requests reach it, now that it reads, before a ping does.
async fn requests(hub: &Hub, id: u64, deaf: &mut Raw) -> usize {
    let ping = hub.ask_one(id, Question::ping(LONG)).await;
    let mut requests = 0;
    loop {
        let (0x81, payload) = deaf.next().await.unwrap() else { continue };
        let heard: Value = serde_json::from_slice(&payload).unwrap();
        match (heard["type"].as_str().unwrap(), heard["method"].as_str()) {
            ("request", Some("ping")) => break,
            ("request", Some("lua.run")) => requests += 1,
            _ => {}
        }
    }
    drop(ping);
    requests
}

#[tokio::test]
async fn work_that_had_not_gone_out_when_all_were_stopped_is_never_done() {
    let hub = Hub::start().await;
    let mut deaf = deaf(&hub, 1).await;
    let asked = stuff(&hub, 1, LONG).await;
    hub.links.stop(LONG).await.unwrap();
    let mut told = 0;
    for asking in asked {
        match within("it ends", asking).await.unwrap().unwrap().unwrap()[..] {
            [Outcome::Stopped] => told += 1, // it went out: nobody knows how far it came
            [Outcome::Busy] => {}
            ref other => panic!("{other:?}"),
        }
    }
    assert_eq!(requests(&hub, 1, &mut deaf).await, told);
}

#[tokio::test]
async fn a_stop_that_nobody_waits_for_any_more_arrives_all_the_same() {
    let hub = Hub::start().await;
    let mut deaf = deaf(&hub, 1).await;
    deaf.say(&json!({ "type": "hello", "computerId": 1, "capabilities": ["lua", "stop"] }).to_string()).await;
    until_it(&hub, |seen| seen.computer.can(Capability::Stop)).await;
    let asked = stuff(&hub, 1, LONG).await;
    let said = hub.links.stop(SHORT).await.unwrap();
    assert!(matches!(said[..], [(_, Outcome::Silent)]), "{said:?}");
    loop {
        let (0x81, payload) = deaf.next().await.unwrap() else { continue };
        let heard: Value = serde_json::from_slice(&payload).unwrap();
        if heard["method"] == "stop" {
            break;
        }
    }
    drop(asked);
}

async fn until_it(hub: &Hub, so: impl Fn(&Seen) -> bool) {
    within("it is so", async {
        while !hub.all().await.iter().all(&so) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn work_that_had_not_gone_out_in_time_is_never_done() {
    let hub = Hub::start().await;
    let mut deaf = deaf(&hub, 1).await;
    let asked = stuff(&hub, 1, Duration::from_secs(3)).await;
    let mut silent = 0;
    for asking in asked {
        match within("it ends", asking).await.unwrap().unwrap().unwrap()[..] {
            [Outcome::Silent] => silent += 1,
            [Outcome::Busy] => {}
            ref other => panic!("{other:?}"),
        }
    }
    assert_eq!(requests(&hub, 1, &mut deaf).await, silent);
}

#[tokio::test]
async fn a_computer_that_owes_too_many_answers_is_busy_and_free_again_after_them() {
    let hub = Hub::start().await;
    let mut computer = hub.computer(1).await;
    let target = hub.target(1).await;
    let mut asked = Vec::new();
    for _ in 0..64 {
        asked.push((hub.ask(vec![target], Question::new("status", LONG)), computer.request().await.0));
    }
    let outcomes = hub.links.ask(vec![target], Question::ping(LONG)).await.unwrap();
    assert!(matches!(outcomes[..], [Outcome::Busy]), "{outcomes:?}");
    for (asking, id) in asked {
        computer.answer(&id, json!(1)).await;
        assert!(matches!(asking.await.unwrap().unwrap().unwrap()[..], [Outcome::Answer(_)]));
    }
    hub.reaches(1, &mut computer).await;
}
