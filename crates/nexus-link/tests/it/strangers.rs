//! Many connections that never say who they are.

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::support::{Hub, raise_file_limit, until, within};

/// Connections of one address that may be strangers at once.
const MOST: usize = 512;

async fn is_refused(mut socket: TcpStream) -> bool {
    // Those that are let in are waited for: they say nothing, and hear nothing.
    let heard = tokio::time::timeout(std::time::Duration::from_millis(500), socket.read(&mut [0; 16])).await;
    matches!(heard, Ok(Ok(0) | Err(_)))
}

#[tokio::test]
async fn too_many_strangers_are_refused_and_linked_computers_go_on() {
    raise_file_limit();
    let hub = Hub::start().await;
    let mut computer = hub.computer(1).await;
    let mut strangers = Vec::new();
    for _ in 0..MOST {
        strangers.push(hub.socket().await);
    }
    for _ in 0..5 {
        let socket = hub.socket().await;
        assert!(within("it is refused", async { is_refused(socket).await }).await);
    }
    assert_eq!(hub.links.counts().refused, 5);
    hub.reaches(1, &mut computer).await;

    // Another address has a share of its own.
    let other = tokio::net::TcpSocket::new_v4().unwrap();
    other.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let other = other.connect(hub.address).await.unwrap();
    let mut other = crate::support::Raw::open(other, "").await;
    other.greet(2).await;

    // And there is room again when they have left.
    drop(strangers);
    within("there is room again", async { while is_refused(hub.socket().await).await {} }).await;
    let mut third = hub.computer(3).await;
    hub.reaches(3, &mut third).await;
    hub.reaches(1, &mut computer).await;
    assert_eq!(hub.links.counts().computers, 3);
}

#[tokio::test]
async fn a_linked_computer_is_no_stranger() {
    raise_file_limit();
    let hub = Hub::start().await;
    let mut linked = Vec::new();
    for id in 0..=MOST as u64 {
        linked.push(hub.computer(id).await);
    }
    until("all are linked", || hub.links.counts().computers == MOST + 1).await;
    assert_eq!(hub.links.counts().refused, 0);
}
