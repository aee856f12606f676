//! The door for computers: a port of its own, apart from that of the models.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use nexus_core::tasks::Tasks;
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::frame::code;
use crate::link::{ENDING, Hall, Link};
use crate::pages;
use crate::registry::Registry;
use crate::upgrade::{self, Asked, Refusal};

/// A stranger has this long for the head of its request, and to take the answer.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// Who got another answer than a link has this long to read it.
const LINGER: Duration = Duration::from_secs(2);
/// Links are pinged every 30 s, a thirtieth of them each second.
const GROUPS: u64 = 30;
/// How long links have for their last words when the hub ends.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Who is let in.
#[derive(Debug)]
pub struct Door {
    /// Without one, computers must come from private addresses.
    token: Option<Token>,
    /// Where it listens; told to computers that do not say how they call it.
    address: SocketAddr,
}

impl Door {
    pub fn new(address: SocketAddr, token: Option<&str>) -> Self {
        Self { token: token.map(Token::new), address }
    }
}

/// What computers must know to be let in.
pub struct Token(SecretString);

impl Token {
    fn new(token: &str) -> Self {
        Self(token.to_owned().into())
    }

    pub fn is(&self, said: &[u8]) -> bool {
        self.0.expose_secret().as_bytes().ct_eq(said).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// Lets computers in until the hub ends or `over` is cancelled, then sends all away.
pub async fn serve(listener: TcpListener, door: Door, registry: Arc<Registry>, tasks: &Tasks, over: CancellationToken) {
    let (stop, living) = (tasks.stopping(), Tasks::new());
    let hall = Arc::new(Entrance { door, registry, strangers: Mutex::default(), ending: CancellationToken::new() });
    let mut second = interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut group = 0;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = second.tick() => {
                group = (group + 1) % GROUPS;
                hall.registry.group(group, GROUPS).iter().for_each(|link| link.look_after());
                continue;
            }
            () = stop.cancelled() => break,
            () = over.cancelled() => break,
        };
        match accepted {
            Ok((socket, peer)) => {
                let from = peer.ip().to_canonical();
                match Stranger::enter(&hall, from) {
                    Some(stranger) => drop(living.spawn("link", stranger.live(socket))),
                    None => hall.registry.refused(from, "too many connections that have not said hello"),
                }
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                warn!(%error, "the listener for computers does not accept; trying again");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    hall.ending.cancel();
    for link in hall.registry.links() {
        link.close(code::GOING_AWAY, ENDING);
    }
    living.finish(LAST_WORDS).await;
}

/// Whoever called went away before they were let in: nothing is wrong with the listener.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// What all connections share.
struct Entrance {
    door: Door,
    registry: Arc<Registry>,
    strangers: Mutex<Strangers>,
    /// Nobody is let in any more.
    ending: CancellationToken,
}

#[derive(Default)]
struct Strangers {
    all: usize,
    from: HashMap<IpAddr, usize>,
}

/// A connection. Counts as a stranger's until it has said hello.
struct Stranger {
    hall: Arc<Entrance>,
    from: IpAddr,
}

impl Stranger {
    fn enter(hall: &Arc<Entrance>, from: IpAddr) -> Option<Self> {
        let mut strangers = hall.strangers.lock();
        let of_one = strangers.from.get(&from).copied().unwrap_or_default();
        let most = hall.registry.most_strangers();
        // Half of them may come from one address.
        if strangers.all >= most || of_one >= most / 2 {
            return None;
        }
        strangers.all += 1;
        *strangers.from.entry(from).or_default() += 1;
        Some(Self { hall: hall.clone(), from })
    }

    async fn live(self, socket: TcpStream) {
        let (hall, from) = (self.hall.clone(), self.from);
        // Boxed: what letting somebody in takes is not kept for as long as a link lives.
        let Some(Some(entered)) = hall.ending.run_until_cancelled(Box::pin(let_in(&hall, from, socket))).await else {
            return;
        };
        let link = Arc::new(Link::new(hall.registry.next_serial(), from, entered.socket));
        let token = hall.door.token.as_ref().filter(|_| !entered.knew_token);
        let within = Hall { registry: &hall.registry, token, ending: &hall.ending };
        let mut stranger = Some(self);
        let why = link.live(within, entered.rest, || drop(stranger.take())).await;
        hall.registry.forget(&link, why);
        // Who is leaving is a stranger again, and has to go at once where there are too many of them.
        let leaving = stranger.or_else(|| Self::enter(&hall, from));
        if leaving.is_some() || hall.ending.is_cancelled() {
            link.farewell().await;
        }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut strangers = self.hall.strangers.lock();
        strangers.all -= 1;
        if let Some(left) = strangers.from.get_mut(&self.from) {
            *left -= 1;
            if *left == 0 {
                strangers.from.remove(&self.from);
            }
        }
    }
}

struct Entered {
    socket: TcpStream,
    knew_token: bool,
    rest: Vec<u8>,
}

/// Reads what a connection wants, and gives it that: a page, a refusal, or the upgrade, after which it is a link.
async fn let_in(hall: &Entrance, from: IpAddr, mut socket: TcpStream) -> Option<Entered> {
    let Entrance { door, registry, .. } = hall;
    let _ = socket.set_nodelay(true);
    let asked = match timeout(HEAD_PATIENCE, upgrade::read(&mut socket)).await {
        Ok(Ok(asked)) => asked,
        // Nobody is there to be told.
        Ok(Err(None)) | Err(_) => return None,
        Ok(Err(Some(refusal))) => {
            registry.refused(from, refusal.why.trim_end());
            part(socket, &refusal.render()).await;
            return None;
        }
    };
    if door.token.is_none() && !is_private(from) {
        registry.refused(from, "not a private address, and no token is set");
        let text = "computers are let in from private networks only, unless the hub has a CC_LINK_TOKEN\n";
        part(socket, &Refusal::new(403, "Forbidden", text).render()).await;
        return None;
    }
    match asked {
        Asked::Page { path, host, method } => {
            let host = host.unwrap_or_else(|| door.address.to_string());
            part(socket, &pages::page(&path, method, &host, door.token.is_some())).await;
            None
        }
        Asked::Upgrade { accept, token, rest } => {
            let knew_token = match (&door.token, token) {
                (Some(expected), Some(said)) if !expected.is(said.as_bytes()) => {
                    registry.refused(from, "a wrong token");
                    let text = "the token is wrong; it is the hub's CC_LINK_TOKEN\n";
                    part(socket, &Refusal::new(401, "Unauthorized", text).render()).await;
                    return None;
                }
                (Some(_), None) => false,
                (_, _) => true,
            };
            answer(&mut socket, upgrade::accepted(&accept).as_bytes()).await.then_some(Entered {
                socket,
                knew_token,
                rest,
            })
        }
    }
}

/// Whether it was sent.
async fn answer(socket: &mut TcpStream, bytes: &[u8]) -> bool {
    matches!(timeout(HEAD_PATIENCE, socket.write_all(bytes)).await, Ok(Ok(())))
}

/// Answers and hangs up. What still comes is read for a moment: a socket that is closed over unread bytes takes its last
/// words back.
async fn part(mut socket: TcpStream, bytes: &[u8]) {
    if !answer(&mut socket, bytes).await || socket.shutdown().await.is_err() {
        return;
    }
    let mut rest = [0; 512];
    let unread = async { while matches!(socket.read(&mut rest).await, Ok(1..)) {} };
    let _ = timeout(LINGER, unread).await;
}

/// This machine, the networks that are nobody's, those between a carrier and its customers, and a cable between two.
pub fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let is_carrier = v4.octets()[0] == 100 && (64..128).contains(&v4.octets()[1]);
            v4.is_private() || v4.is_loopback() || v4.is_link_local() || is_carrier
        }
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_those_of_a_home() {
        for address in [
            "127.0.0.1",
            "127.9.9.9",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.10",
            "100.64.0.1",
            "100.127.255.255",
            "169.254.1.1",
            "::1",
            "fd00::1",
            "fe80::1",
            "::ffff:192.168.1.10",
        ] {
            assert!(is_private(address.parse().unwrap()), "{address}");
        }
        for address in [
            "8.8.8.8",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.255.255",
            "100.128.0.1",
            "192.169.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "2001:db8::1",
            "::",
            "::ffff:8.8.8.8",
            "ff02::1",
        ] {
            assert!(!is_private(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn a_token_is_the_whole_of_it_and_is_not_printed() {
        let token = Token::new("correct horse");
        assert!(token.is(b"correct horse"));
        assert!(!token.is(b"correct") && !token.is(b"") && !token.is(b"correct horse "));
        assert!(
            !format!("{:?}", Door::new(SocketAddr::from(([127, 0, 0, 1], 1)), Some("hunter2hunter2")))
                .contains("hunter2")
        );
    }
}
