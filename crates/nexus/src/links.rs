//! Where the tools of this process find computers: at its own listener, or with whoever holds the data folder.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use nexus_core::tasks::Tasks;
use nexus_link::{Door, Holder, LinkError, Links, Outcome, Question, Seen, Settings, Standing, Target};

use crate::config::{Config, Loaded};
use crate::control::{self, Answer, Order};

/// How long a process that was asked to give way may still have the port.
const GIVING_WAY: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

const SWITCHED_OFF: &str = "links are switched off: `links.enabled`";

/// Who may have had the port a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    Nobody,
    /// A process of the same data folder, which lets go of it.
    GivenWay,
}

/// The listener for computers, or why there is none.
#[derive(Debug)]
pub enum Doorway {
    Open(TcpListener),
    /// The words are for people.
    Shut(String),
}

impl Doorway {
    /// Takes the port. One that somebody chose must be free; without the usual one the hub goes on.
    pub async fn open(config: &Config, before: Before) -> Result<Self> {
        if !config.links.enabled {
            return Ok(Doorway::Shut(SWITCHED_OFF.to_owned()));
        }
        let address = SocketAddr::new(config.links.host, config.links.port);
        let why = match bind(address, before).await {
            Ok(listener) => {
                warn_of_no_token(config);
                return Ok(Doorway::Open(listener));
            }
            Err(error) => in_the_way(address, &error),
        };
        if config.links_chosen {
            return Err(anyhow!(why));
        }
        warn!("no computer can link with this hub: {why}");
        Ok(Doorway::Shut(why))
    }
}

async fn bind(address: SocketAddr, before: Before) -> io::Result<TcpListener> {
    let first = TcpListener::bind(address).await;
    match (&first, before) {
        (Err(error), Before::GivenWay) if error.kind() == io::ErrorKind::AddrInUse => {}
        _ => return first,
    }
    let again = async {
        loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            match TcpListener::bind(address).await {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                bound => return bound,
            }
        }
    };
    timeout(GIVING_WAY, again).await.unwrap_or(first)
}

fn in_the_way(address: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "{address} is taken by another program; CC_LINK_PORT=3002 listens for computers on another port, \
             CC_LINK_PORT=0 on any free one"
        ),
        _ => format!("listening for computers on {address}: {error}"),
    }
}

fn warn_of_no_token(config: &Config) {
    if config.environment.link_token.is_none() && !config.links.host.to_canonical().is_loopback() {
        warn!(
            "computers may link without a token, from private addresses; \
             CC_LINK_TOKEN=$(openssl rand -hex 16) asks every one of them for it"
        );
    }
}

pub fn settings(config: &Config) -> Settings {
    use rustix::process::{Resource, getrlimit};
    Settings {
        patience: Duration::from_millis(config.links.probe_timeout_ms.get().into()),
        files: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
    }
}

/// Lets computers in, until the process ends or gives way (`over`): from then on they are those of the new holder.
/// Gives where it listens.
pub fn start(
    links: &Arc<Links>,
    doorway: Doorway,
    loaded: &Loaded,
    tasks: &Tasks,
    over: CancellationToken,
) -> io::Result<Option<SocketAddr>> {
    let listener = match doorway {
        Doorway::Open(listener) => {
            links.stand(Standing::Listening);
            Some(listener)
        }
        Doorway::Shut(why) => {
            links.stand(Standing::Closed(why));
            None
        }
    };
    let address = listener.as_ref().map(TcpListener::local_addr).transpose()?;
    let token = loaded.config.environment.link_token.as_ref();
    let door = address.map(|address| Door::new(address, token.map(|token| token.expose())));
    let (links, loaded, inside) = (links.clone(), loaded.clone(), tasks.clone());
    tasks.spawn("links", async move {
        let stop = inside.stopping();
        let listening = async {
            if let (Some(listener), Some(door)) = (listener, door) {
                links.clone().listen(listener, door, inside, over.clone()).await;
            }
        };
        let giving_way = async {
            if stop.run_until_cancelled(over.cancelled()).await.is_some() {
                stand_beside(&links, &loaded);
            }
        };
        join(listening, giving_way).await;
    });
    Ok(address)
}

/// Finds computers with the holder of the data folder, whoever that is.
pub fn stand_beside(links: &Links, loaded: &Loaded) {
    links.stand(if loaded.config.links.enabled {
        Standing::Elsewhere(Arc::new(Beside { data: loaded.data.clone() }))
    } else {
        Standing::Closed(SWITCHED_OFF.to_owned())
    });
}

/// What `/health` says of them.
pub fn health(links: &Links) -> Value {
    let state = match links.standing() {
        Standing::Listening => "listening",
        Standing::Closed(_) => "closed",
        Standing::Elsewhere(_) => "elsewhere",
    };
    let mut health = json!({ "state": state });
    if let (Value::Object(health), Ok(Value::Object(counts))) = (&mut health, serde_json::to_value(links.counts())) {
        health.extend(counts);
    }
    health
}

/// What a door beside the holder asks of the holder's links.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkOrder {
    Computers,
    Ask {
        whom: Vec<Target>,
        question: Question,
    },
    /// `patience` is what each computer has for its answer.
    Stop {
        patience: Duration,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkAnswer {
    Computers(Vec<Seen>),
    Outcomes(Vec<Outcome>),
    Stopped(Vec<(Seen, Outcome)>),
    /// There are no links here, and why.
    Closed(String),
    /// The question, in bytes.
    TooLong(usize),
}

impl LinkOrder {
    /// How long computers may take for it.
    pub fn patience(&self) -> Duration {
        match self {
            LinkOrder::Computers => Duration::ZERO,
            LinkOrder::Ask { question, .. } => question.patience,
            LinkOrder::Stop { patience } => *patience,
        }
    }

    pub async fn carry_out(self, links: &Links) -> Result<LinkAnswer, LinkError> {
        if matches!(links.standing(), Standing::Elsewhere(_)) {
            // Whoever asks again reaches the new holder; from here it would go in circles.
            return Ok(LinkAnswer::Closed("this process has just given way to another".to_owned()));
        }
        let done = match self {
            LinkOrder::Computers => links.computers().await.map(LinkAnswer::Computers),
            LinkOrder::Ask { whom, question } => links.ask(whom, question).await.map(LinkAnswer::Outcomes),
            LinkOrder::Stop { patience } => links.stop(patience).await.map(LinkAnswer::Stopped),
        };
        match done {
            Err(LinkError::Closed(why)) => Ok(LinkAnswer::Closed(why)),
            Err(LinkError::TooLong { bytes }) => Ok(LinkAnswer::TooLong(bytes)),
            done => done,
        }
    }
}

/// The links of the holder, by way of its control socket.
#[derive(Debug)]
struct Beside {
    data: PathBuf,
}

impl Beside {
    async fn order(&self, order: LinkOrder) -> Result<LinkAnswer, LinkError> {
        match control::ask(&self.data, &Order::Links(order)).await {
            Ok(Answer::Links(LinkAnswer::Closed(why))) => Err(LinkError::Closed(why)),
            Ok(Answer::Links(LinkAnswer::TooLong(bytes))) => Err(LinkError::TooLong { bytes }),
            Ok(Answer::Links(answer)) => Ok(answer),
            Ok(Answer::Failed(why)) => Err(LinkError::Elsewhere(why)),
            Ok(_) => Err(odd()),
            Err(error) if control::is_dead(&error) => {
                Err(LinkError::Closed("the hub has ended; `nexus serve` starts one that stays".to_owned()))
            }
            Err(error) => Err(LinkError::Elsewhere(format!("{error:#}"))),
        }
    }
}

impl Holder for Beside {
    fn computers(&self) -> BoxFuture<'_, Result<Vec<Seen>, LinkError>> {
        async {
            match self.order(LinkOrder::Computers).await? {
                LinkAnswer::Computers(seen) => Ok(seen),
                _ => Err(odd()),
            }
        }
        .boxed()
    }

    fn ask(&self, whom: Vec<Target>, question: Question) -> BoxFuture<'_, Result<Vec<Outcome>, LinkError>> {
        async move {
            let asked = whom.len();
            match self.order(LinkOrder::Ask { whom, question }).await? {
                LinkAnswer::Outcomes(outcomes) if outcomes.len() == asked => Ok(outcomes),
                _ => Err(odd()),
            }
        }
        .boxed()
    }

    fn stop(&self, patience: Duration) -> BoxFuture<'_, Result<Vec<(Seen, Outcome)>, LinkError>> {
        async move {
            match self.order(LinkOrder::Stop { patience }).await? {
                LinkAnswer::Stopped(stopped) => Ok(stopped),
                _ => Err(odd()),
            }
        }
        .boxed()
    }
}

/// Holder and door may be of different versions.
fn odd() -> LinkError {
    LinkError::Elsewhere("the running hub answers something else; is it of another version?".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Env};

    #[tokio::test]
    async fn a_taken_port_is_a_fault_only_where_somebody_chose_it() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut config = listening_on(taken.local_addr().unwrap());
        let refused = Doorway::open(&config, Before::Nobody).await.unwrap_err().to_string();
        assert!(refused.contains("is taken by another program") && refused.contains("CC_LINK_PORT"), "{refused}");
        config.links_chosen = false;
        let Doorway::Shut(why) = Doorway::open(&config, Before::Nobody).await.unwrap() else { panic!("it is taken") };
        assert_eq!(why, refused);
        config.links.enabled = false;
        let Doorway::Shut(why) = Doorway::open(&config, Before::Nobody).await.unwrap() else { panic!("it is off") };
        assert_eq!(why, SWITCHED_OFF);
    }

    #[tokio::test]
    async fn a_port_of_somebody_who_gives_way_is_waited_for() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        let config = listening_on(address);
        let giving_way = async {
            tokio::time::sleep(LOOK_AGAIN).await;
            drop(taken);
        };
        let (opened, ()) = tokio::join!(Doorway::open(&config, Before::GivenWay), giving_way);
        let Doorway::Open(listener) = opened.unwrap() else { panic!("it is free") };
        assert_eq!(listener.local_addr().unwrap(), address);
    }

    fn listening_on(address: SocketAddr) -> Config {
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        let env = Env::from_pairs([("CC_LINK_HOST", ip.as_str()), ("CC_LINK_PORT", port.as_str())]);
        config::load(None, Some("/nonexistent".as_ref()), &env).unwrap().config
    }
}
