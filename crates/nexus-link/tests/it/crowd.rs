//! Ten thousand computers. The other side is a process of its own: together they need more open files than one may have.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use nexus_core::tasks::Tasks;
use serde_json::json;
use std::io::{Read, Write};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::support::{Hub, LONG, answer, frame, raise_file_limit, upgrade};
use nexus_link::{Outcome, Question};

const MANY: u64 = 10_000;
/// The one that this process plays.
const OURS: u64 = 5_000;
/// Fewer at once than the strangers that the hub suffers.
const AT_ONCE: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_thousand_computers_answer_in_the_order_of_their_numbers() {
    let limit = raise_file_limit();
    assert!(limit >= MANY + 200, "ten thousand links need as many open files, and this machine grants {limit}");
    let hub = Hub::start().await;
    let _others = Others::start(hub.address);
    let mut ours = hub.computer(OURS).await;
    tokio::time::timeout(LONG, async {
        while hub.links.counts().computers < MANY as usize {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{:?}", hub.links.counts()));

    let all = hub.all().await;
    assert!(all.iter().map(|seen| seen.computer.address.id).eq(0..MANY));
    let whom = || all.iter().map(|seen| seen.target).collect::<Vec<_>>();

    // All of them are asked for their number.
    let asking = hub.ask(whom(), Question::new("status", LONG));
    let (id, _) = ours.request().await;
    ours.answer(&id, json!(OURS)).await;
    let outcomes = asking.await.unwrap().unwrap().unwrap();
    assert!(outcomes.into_iter().map(answer).eq((0..MANY).map(|id| json!(id))));

    // One of them says nothing: the others answer nonetheless.
    let asking = hub.ask(whom(), Question::ping(std::time::Duration::from_secs(5)));
    ours.request().await;
    let outcomes = asking.await.unwrap().unwrap().unwrap();
    for (id, outcome) in outcomes.iter().enumerate() {
        let is_mute = id as u64 == OURS;
        assert_eq!(matches!(outcome, Outcome::Silent), is_mute, "{id}: {outcome:?}");
        assert_eq!(matches!(outcome, Outcome::Answer(_)), !is_mute, "{id}: {outcome:?}");
    }
    let counts = hub.links.counts();
    assert_eq!((counts.computers as u64, counts.refused, counts.faults, counts.late), (MANY, 0, 0, 0));
}

/// The process with the other computers. Ends with this one: it reads until its input ends.
struct Others(Child);

impl Others {
    #[allow(clippy::disallowed_methods, reason = "this very program, once more")]
    fn start(address: SocketAddr) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["crowd::the_other_side", "--exact", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        writeln!(child.stdin.as_mut().unwrap(), "{address}").unwrap();
        Self(child)
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "no test: the other side of the one above, which starts it"]
fn the_other_side() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let Ok(address) = line.trim().parse::<SocketAddr>() else { return };
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let (tasks, turn) = (Tasks::new(), Arc::new(Semaphore::new(AT_ONCE)));
    let _within = runtime.enter();
    for id in (0..MANY).filter(|id| *id != OURS) {
        drop(tasks.spawn("a computer", one(address, id, turn.clone())));
    }
    let _ = std::io::stdin().read(&mut [0]);
    runtime.shutdown_background();
}

/// A computer that tells its number to whoever asks.
async fn one(address: SocketAddr, id: u64, turn: Arc<Semaphore>) {
    let turn = turn.acquire().await.unwrap();
    let mut socket = TcpStream::connect(address).await.unwrap();
    let mut first = upgrade("").into_bytes();
    first.extend(frame(0x81, format!(r#"{{"type":"hello","computerId":{id}}}"#).as_bytes()));
    socket.write_all(&first).await.unwrap();
    let mut turn = Some(turn);
    let mut bytes = Vec::new();
    let mut buffer = [0; 512];
    loop {
        match socket.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
        }
        // Frames to it are short and hold no `}` but their last byte.
        while let Some(end) = bytes.iter().position(|byte| *byte == b'}') {
            let rest = bytes.split_off(end + 1);
            let said = String::from_utf8_lossy(&std::mem::replace(&mut bytes, rest)).into_owned();
            if said.contains("hello-ok") {
                turn.take();
            } else if let Some((_, tail)) = said.split_once(r#""id":""#) {
                let request = tail.split('"').next().unwrap();
                let answer = format!(r#"{{"type":"response","id":"{request}","ok":true,"result":{id}}}"#);
                socket.write_all(&frame(0x81, answer.as_bytes())).await.unwrap();
            }
        }
    }
}
