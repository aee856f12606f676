//! The end of the listener, and of the hub.

use std::time::Duration;

use serde_json::json;
use tokio::net::TcpListener;

use crate::support::{Heard, Hub, LONG, Raw, frame, upgrade, within};
use nexus_link::{LinkError, Outcome, Question, Standing};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn every_computer_is_told_when_the_listener_ends() {
    let hub = Hub::start().await;
    let mut computers = Vec::new();
    for id in 0..5 {
        computers.push(hub.computer(id).await);
    }
    let asking = hub.ask_one(3, Question::new("lua.run", LONG)).await;
    computers[3].request().await;
    hub.over.cancel();
    for computer in &mut computers {
        assert_eq!(computer.next().await, Heard::Closed(1001, "the hub ends".to_owned()));
    }
    assert!(matches!(asking.outcome().await, Outcome::Gone));
    drop(computers);
    within("the listener ends", hub.listening).await.unwrap();
    assert!(matches!(hub.links.standing(), Standing::Closed(_)));
    assert!(matches!(hub.links.computers().await, Err(LinkError::Closed(_))));
    assert!(matches!(hub.links.stop(crate::support::LONG).await, Err(LinkError::Closed(_))));
    assert_eq!(hub.links.counts().computers, 0);
    TcpListener::bind(hub.address).await.expect("the port is free again");
}

#[tokio::test]
async fn the_end_of_the_hub_is_the_end_of_the_listener() {
    let hub = Hub::start().await;
    let mut computer = hub.computer(1).await;
    let ending = async {
        assert_eq!(computer.closed().await, 1001);
        drop(computer);
    };
    let (ended, ()) = tokio::join!(hub.tasks.finish(LONG), ending);
    assert!(ended);
    assert!(matches!(hub.links.standing(), Standing::Closed(_)));
}

#[tokio::test]
async fn another_standing_is_not_overwritten_by_the_end() {
    let hub = Hub::start().await;
    hub.links.stand(Standing::Closed("moved".to_owned()));
    hub.over.cancel();
    within("the listener ends", hub.listening).await.unwrap();
    assert!(matches!(hub.links.standing(), Standing::Closed(why) if why == "moved"));
}

#[tokio::test]
async fn strangers_are_sent_away_at_the_end_and_cannot_link_after_it() {
    let hub = Hub::start().await;
    let mut silent = hub.socket().await;
    let mut half = hub.socket().await;
    half.write_all(&upgrade("").as_bytes()[..30]).await.unwrap();
    let mut upgraded = hub.raw().await;
    let mut computer = hub.computer(1).await; // all before it have been let in
    hub.over.cancel();
    assert_eq!(computer.closed().await, 1001);
    drop(computer);
    assert_eq!(upgraded.closed().await, 1001);
    for socket in [&mut silent, &mut half] {
        assert!(matches!(within("it hangs up", socket.read(&mut [0; 16])).await, Ok(0) | Err(_)));
    }
    within("the listener ends", hub.listening).await.unwrap();
    assert_eq!(hub.links.counts().computers, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_says_hello_while_the_listener_ends_is_sent_away() {
    for round in 0..20 {
        let hub = Hub::start().await;
        let mut strangers: Vec<Raw> = Vec::new();
        for _ in 0..10 {
            strangers.push(hub.raw().await);
        }
        for (id, stranger) in strangers.iter_mut().enumerate() {
            if id == round / 2 {
                hub.over.cancel();
            }
            let hello = json!({ "type": "hello", "computerId": id }).to_string();
            let _ = stranger.socket.write_all(&frame(0x81, hello.as_bytes())).await;
        }
        for stranger in &mut strangers {
            assert_eq!(stranger.closed().await, 1001);
        }
        within("the listener ends", hub.listening).await.unwrap();
        assert_eq!(hub.links.counts().computers, 0);
    }
}

#[tokio::test]
async fn a_computer_that_does_not_read_does_not_hold_up_the_end() {
    let hub = Hub::start().await;
    let mut computer = hub.raw().await;
    computer.greet(1).await;
    hub.over.cancel();
    within("the listener ends", hub.listening).await.unwrap();
    // The close it never read; and no task is left.
    assert!(hub.tasks.finish(Duration::from_secs(5)).await);
}
