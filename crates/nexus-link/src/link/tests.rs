use std::net::Ipv4Addr;

use nexus_core::audit::Nowhere;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::sending::MOST_MISSED;
use super::*;
use crate::frame::LARGEST_OUT;
use crate::record::Record;

/// A link and the computer at its other end.
async fn pair() -> (Arc<Link>, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (computer, accepted) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    let (socket, peer) = accepted.unwrap();
    (Arc::new(Link::new(1, peer.ip(), socket)), computer.unwrap())
}

/// A short frame as a client sends it, with a mask that changes nothing.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first, 0x80 | u8::try_from(payload.len()).unwrap(), 0, 0, 0, 0];
    bytes.extend_from_slice(payload);
    bytes
}

async fn expect(computer: &mut TcpStream, frame: &[u8]) {
    let mut bytes = vec![0; frame.len()];
    computer.read_exact(&mut bytes).await.unwrap();
    assert_eq!(bytes, frame);
}

async fn missed(link: &Link, many: u8) {
    let reached = async {
        while link.state.lock().missed != many {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(20), reached).await.expect("missed pings are counted");
}

#[tokio::test]
async fn a_link_is_dead_after_two_pings_without_an_answer_and_any_word_is_an_answer() {
    let (link, mut computer) = pair().await;
    let registry = Registry::new(Record::new(Arc::new(Nowhere)), 100);
    let ending = CancellationToken::new();
    let hall = Hall { registry: &registry, token: None, ending: &ending };
    let hello = json!({ "type": "hello", "computerId": 1 }).to_string();

    let plays = async {
        computer.write_all(&masked(0x81, hello.as_bytes())).await.unwrap();
        expect(&mut computer, &protocol::hello_ok()).await;
        for round in 0..6 {
            for pings in 1..=MOST_MISSED {
                link.look_after();
                expect(&mut computer, &frame::ping()).await;
                missed(&link, pings).await;
            }
            let word = if round % 2 == 0 { masked(0x8a, b"") } else { masked(0x81, hello.as_bytes()) };
            computer.write_all(&word).await.unwrap();
            missed(&link, 0).await;
            if round % 2 == 1 {
                expect(&mut computer, &protocol::hello_ok()).await;
            }
        }
        for _ in 0..MOST_MISSED {
            link.look_after();
            expect(&mut computer, &frame::ping()).await;
        }
        assert_eq!(registry.count(), 1, "two misses are not known before the next look");
        link.look_after();
        expect(&mut computer, &frame::close(code::GOING_AWAY, "it did not answer two pings")).await;
    };
    let (why, ()) = tokio::join!(link.live(hall, Vec::new(), || ()), plays);
    assert_eq!(why, "it did not answer two pings");
    registry.forget(&link, why);
    assert_eq!(registry.count(), 0);
}

/// Plays against a link that has said hello, and tells why it ended.
async fn greeted<F: Future<Output = TcpStream>>(plays: impl FnOnce(Arc<Link>, TcpStream) -> F) -> &'static str {
    let (link, mut computer) = pair().await;
    let registry = Registry::new(Record::new(Arc::new(Nowhere)), 100);
    let ending = CancellationToken::new();
    let hall = Hall { registry: &registry, token: None, ending: &ending };
    let hello = json!({ "type": "hello", "computerId": 1 }).to_string();
    computer.write_all(&masked(0x81, hello.as_bytes())).await.unwrap();
    let (why, _still_there) = tokio::join!(link.live(hall, Vec::new(), || ()), async {
        expect(&mut computer, &protocol::hello_ok()).await;
        plays(link.clone(), computer).await
    });
    why
}

#[tokio::test]
async fn a_message_that_is_never_finished_ends_the_link_though_pongs_come() {
    let why = greeted(|link, mut computer| async move {
        computer.write_all(&masked(0x01, b"{")).await.unwrap();
        for _ in 0..3 {
            while !link.within.load(Ordering::Relaxed) {
                tokio::task::yield_now().await;
            }
            link.look_after();
            computer.write_all(&masked(0x8a, b"")).await.unwrap();
            if link.state.lock().closing.is_none() {
                missed(&link, 0).await;
            }
        }
        computer
    });
    assert_eq!(why.await, "a message was never finished");
}

#[tokio::test]
async fn messages_that_come_one_after_the_other_may_go_on_for_ever() {
    let why = greeted(|link, mut computer| async move {
        for _ in 0..10 {
            // The end of one message and the start of the next.
            computer.write_all(&masked(0x01, b"{")).await.unwrap();
            while !link.within.load(Ordering::Relaxed) {
                tokio::task::yield_now().await;
            }
            link.look_after();
            computer.write_all(&masked(0x80, b"}")).await.unwrap();
            missed(&link, 0).await;
            while link.within.load(Ordering::Relaxed) {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(link.state.lock().closing, None);
        link.close(code::GOING_AWAY, ENDING);
        computer
    });
    assert_eq!(why.await, ENDING);
}

#[tokio::test]
async fn a_computer_that_sends_and_never_reads_is_sent_away() {
    let why = greeted(|link, mut computer| async move {
        let large = frame::text(&"x".repeat(LARGEST_OUT));
        while link.state.lock().unsent.is_empty() {
            link.say(&large);
        }
        // More than three looks only as long as the buffers on the way still take something.
        while link.state.lock().closing.is_none() {
            link.say(&large);
            link.look_after();
            computer.write_all(&masked(0x8a, b"")).await.unwrap();
            while link.state.lock().closing.is_none() && link.state.lock().missed > 0 {
                tokio::task::yield_now().await;
            }
        }
        computer
    });
    assert_eq!(why.await, "it does not read what it is sent");
}

#[tokio::test]
async fn a_link_that_is_closed_sends_nothing_more() {
    let (link, mut computer) = pair().await;
    link.close(code::GOING_AWAY, ENDING);
    link.close(code::POLICY, "again");
    link.look_after();
    link.say(&protocol::hello_ok());
    expect(&mut computer, &frame::close(code::GOING_AWAY, ENDING)).await;
    drop(link);
    assert_eq!(computer.read(&mut [0; 16]).await.unwrap(), 0);
}

#[tokio::test]
async fn who_was_replaced_does_not_come_back_with_a_hello_that_was_on_its_way() {
    let registry = Registry::new(Record::new(Arc::new(Nowhere)), 100);
    let computer = |id: u64| {
        let hello = json!({ "type": "hello", "computerId": id }).to_string();
        match protocol::parse(hello.as_bytes()).unwrap() {
            protocol::Message::Hello(hello) => hello.computer,
            protocol::Message::Response { .. } => unreachable!("that was a hello"),
        }
    };
    let (old, _old_computer) = pair().await;
    let (new, _new_computer) = pair().await;
    let new = Arc::new(Link { serial: 2, ..Arc::into_inner(new).unwrap() });
    registry.register(&old, computer(1)).unwrap();
    registry.register(&new, computer(1)).unwrap();
    // The old link's task has not seen yet that it is closed.
    registry.register(&old, computer(1)).unwrap();
    registry.register(&old, computer(2)).unwrap();
    registry.forget(&old, "");
    let all = registry.all();
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].computer.address.id, all[0].target.link), (1, 2));
    assert_eq!(new.state.lock().closing, None);
}
