//! The Unix sockets in the data folder: how the command line reaches a running hub. Never through MCP.
//!
//! The holder listens at `control.sock`. A `nexus stdio` beside it has questions of its own and listens for what
//! the operator says to them at `door-PID-RANDOM.sock`.

mod asking;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Take};
use tokio::net::unix::OwnedReadHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};
use uuid::Uuid;

use nexus_core::Chain;
use nexus_core::approval::{Approvals, Code, NotSettled, Scope, Shown};
use nexus_core::audit::Sink;
use nexus_core::hub::Hub;
use nexus_core::principal::Level;
use nexus_core::session::Transport;
use nexus_core::tasks::Tasks;
use nexus_link::Links;

pub use asking::{Asked, ask, ask_all, is_dead};

use crate::agents::voice::Voice;
use crate::hold::Lock;
use crate::keyring::{Keyring, Listed, NewKey, OPERATOR};
use crate::links::{LinkAnswer, LinkOrder};
use crate::upstreams::Upstreams;
use crate::upstreams::orders::{McpAnswer, McpOrder};

/// What can be asked of the holder. One line of JSON each way.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    KeyNew(NewKey),
    KeyList,
    KeyRevoke(String),
    KeyLevel {
        name: String,
        level: Level,
        until: Option<Timestamp>,
    },
    /// What waits for the operator.
    Pending,
    Approve {
        code: Code,
        scope: Scope,
    },
    Deny(Code),
    /// About the upstream servers.
    Mcp(McpOrder),
    /// About the computers that are linked, from a door beside the holder.
    Links(LinkOrder),
    /// A call of one of [`FOR_OPERATORS`], by the operator.
    Tool {
        tool: String,
        arguments: Map<String, Value>,
    },
    /// A daemon wants to do the background work; whoever holds the lock only by chance lets go of it.
    GiveWay,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Key(String),
    Keys(Vec<Listed>),
    Waiting(Vec<Shown>),
    Approved(Box<Shown>, Scope),
    Denied(Box<Shown>),
    Mcp(McpAnswer),
    Links(LinkAnswer),
    /// What a tool gave back.
    Replied(Value),
    /// Nothing waits here under that code; it may be another process that asked.
    NoSuchCode(String),
    Done,
    Failed(String),
}

/// The holder's socket.
const CONTROL: &str = "control.sock";

/// A message for an agent may have 100,000 bytes, and each of them six in JSON.
const LONGEST_ORDER: usize = 1024 * 1024;
const PATIENCE: Duration = Duration::from_secs(10);
/// Whoever waits for an update waits no longer than this.
const LONGEST_WAIT: u64 = 60;

/// The tools about tasks, as far as they are for whoever sends them.
pub const FOR_OPERATORS: [&str; 9] = [
    "send_message",
    "pull_updates",
    "queue_status",
    "get_task",
    "list_tasks",
    "list_targets",
    "cancel_task",
    "answer_task",
    "retry_task",
];

impl Order {
    /// How long its answer may take.
    fn patience(&self) -> Duration {
        match self {
            Order::Tool { arguments, .. } => {
                let wait = arguments.get("wait_seconds").and_then(Value::as_u64).unwrap_or_default();
                PATIENCE + Duration::from_secs(wait.min(LONGEST_WAIT))
            }
            Order::Links(order) => PATIENCE + order.patience(),
            _ => PATIENCE,
        }
    }

    /// Whether it is given up with whoever asked.
    fn needs_its_asker(&self) -> bool {
        matches!(self, Order::Links(LinkOrder::Ask { .. }))
    }
}

/// Carries out one order. The command line does the same itself when no hub is running.
pub async fn carry_out(order: Order, keyring: &Keyring, audit: &dyn Sink) -> Answer {
    let done = match order {
        Order::KeyNew(wanted) => keyring.make(wanted, audit).await.map(Answer::Key),
        Order::KeyList => keyring.list().await.map(Answer::Keys),
        Order::KeyRevoke(name) => keyring.revoke(&name, audit).await.map(|()| Answer::Done),
        Order::KeyLevel { name, level, until } => {
            keyring.set_level(&name, level, until, audit).await.map(|()| Answer::Done)
        }
        Order::GiveWay => Err(anyhow!("this process stays the holder")),
        Order::Mcp(_) => Err(anyhow!("upstream servers run only where a hub does")),
        Order::Links(_) => Err(anyhow!("computers link only where a hub runs")),
        Order::Tool { .. } => Err(anyhow!("tasks are sent only where a hub runs")),
        Order::Pending | Order::Approve { .. } | Order::Deny(_) => Err(anyhow!("nobody waits where no hub runs")),
    };
    done.unwrap_or_else(|error| Answer::Failed(format!("{error:#}")))
}

/// What the operator says to a question. None: it is no such order.
async fn settle(order: &Order, approvals: &Approvals) -> Option<Answer> {
    let settled = match order {
        Order::Pending => Ok(Answer::Waiting(approvals.list())),
        Order::Approve { code, scope } => {
            approvals.approve(code, *scope).await.map(|(shown, scope)| Answer::Approved(Box::new(shown), scope))
        }
        Order::Deny(code) => approvals.deny(code).await.map(|shown| Answer::Denied(Box::new(shown))),
        Order::KeyNew(_)
        | Order::KeyList
        | Order::KeyRevoke(_)
        | Order::KeyLevel { .. }
        | Order::Mcp(_)
        | Order::Links(_)
        | Order::Tool { .. }
        | Order::GiveWay => return None,
    };
    Some(settled.unwrap_or_else(|error| match error {
        NotSettled::Unknown(_) => Answer::NoSuchCode(error.to_string()),
        _ => Answer::Failed(error.to_string()),
    }))
}

/// Those who carry orders out.
#[derive(Debug)]
pub struct Behind {
    pub keyring: Arc<Keyring>,
    pub hub: Arc<Hub>,
    pub upstreams: Arc<Upstreams>,
    pub links: Arc<Links>,
}

/// Listens until the hub ends. Only the holder of the lock may call it: a socket left by a dead one is replaced.
///
/// With a `lock` the holder is one by chance: asked to give way, it stops the background work, lets go of the lock
/// and listens no more.
pub fn listen(data: &Path, lock: Option<(Lock, CancellationToken)>, behind: Behind, tasks: &Tasks) -> io::Result<()> {
    let Behind { keyring, hub, upstreams, links } = behind;
    let (lock, given_way) = lock.unzip();
    let over = given_way.clone().unwrap_or_default();
    let operator = Voice::new(hub.clone(), OPERATOR, Transport::Control, FOR_OPERATORS);
    serve(data, CONTROL, over, lock, tasks, move |order| {
        let (keyring, hub, given_way) = (keyring.clone(), hub.clone(), given_way.clone());
        let (upstreams, links, operator) = (upstreams.clone(), links.clone(), operator.clone());
        async move {
            let order = match order {
                Order::Mcp(order) => {
                    let done = upstreams.carry_out(order).await.map(Answer::Mcp);
                    return done.unwrap_or_else(|error| Answer::Failed(format!("{error:#}")));
                }
                Order::Links(order) => {
                    let done = order.carry_out(&links).await.map(Answer::Links);
                    return done.unwrap_or_else(|error| Answer::Failed(Chain(&error).to_string()));
                }
                Order::Tool { tool, arguments } => {
                    let done = operator.call(&tool, arguments).await.map(Answer::Replied);
                    return done.unwrap_or_else(|error| Answer::Failed(error.to_string()));
                }
                other => other,
            };
            match (settle(&order, &hub.approvals).await, given_way) {
                (Some(answer), _) => answer,
                (None, Some(given_way)) if matches!(order, Order::GiveWay) => {
                    given_way.cancel();
                    Answer::Done
                }
                (None, _) => carry_out(order, &keyring, &*hub.audit).await,
            }
        }
        .boxed()
    })
}

/// Listens for what the operator says to this process's own questions, until it ends.
pub fn listen_beside(data: &Path, hub: Arc<Hub>, tasks: &Tasks) -> io::Result<()> {
    // A process of another namespace may have the same number: neither takes the other's socket away.
    let name = format!("door-{}-{}.sock", std::process::id(), Uuid::new_v4().simple());
    serve(data, &name, CancellationToken::new(), None, tasks, move |order| {
        let hub = hub.clone();
        async move {
            let answer = settle(&order, &hub.approvals).await;
            answer.unwrap_or_else(|| Answer::Failed("this process does not hold the data folder".to_owned()))
        }
        .boxed()
    })
}

/// Carries out what comes in at a socket, until the hub ends or `over` is cancelled.
fn serve(
    data: &Path,
    name: &str,
    over: CancellationToken,
    lock: Option<Lock>,
    tasks: &Tasks,
    work: impl Fn(Order) -> BoxFuture<'static, Answer> + Send + Sync + 'static,
) -> io::Result<()> {
    let path = data.join(name);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let (_folder, address) = short(data, name)?;
    let listener = UnixListener::bind(address)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    let (stop, serving, work) = (tasks.stopping(), tasks.clone(), Arc::new(work));
    tasks.spawn("control socket", async move {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => break,
                () = over.cancelled() => break,
            };
            match accepted {
                Ok((stream, _)) => {
                    let work = work.clone();
                    serving.spawn("control", async move {
                        if let Err(error) = answer(stream, &*work).await {
                            debug!("control socket: {error}");
                        }
                    });
                }
                Err(error) => {
                    warn!(%error, "the control socket does not accept; trying again");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        // The socket goes before the lock: whoever gets the lock next makes its own.
        let _ = std::fs::remove_file(&path);
        drop(lock);
    });
    Ok(())
}

async fn answer(stream: UnixStream, work: &(dyn Fn(Order) -> BoxFuture<'static, Answer> + Send + Sync)) -> Result<()> {
    let (reading, mut writing) = stream.into_split();
    let mut line = String::new();
    let mut reading = BufReader::new(reading.take(LONGEST_ORDER as u64));
    timeout(PATIENCE, reading.read_line(&mut line)).await??;
    let answer = match serde_json::from_str::<Order>(&line) {
        Ok(order) => {
            let needs_its_asker = order.needs_its_asker();
            tokio::select! {
                answer = timeout(order.patience(), work(order)) => answer?,
                () = hung_up(&mut reading), if needs_its_asker => return Ok(()),
            }
        }
        Err(error) => Answer::Failed(format!("not an order: {error}")),
    };
    // What a computer said stands in it as it came; a line break there is only space.
    let mut line = serde_json::to_string(&answer)?.replace('\n', " ");
    line.push('\n');
    timeout(PATIENCE, writing.write_all(line.as_bytes())).await??;
    Ok(())
}

/// Comes back when whoever asked waits no more: nothing else comes after an order.
async fn hung_up(reading: &mut BufReader<Take<OwnedReadHalf>>) {
    reading.get_mut().set_limit(1);
    let _ = reading.read(&mut [0]).await;
}

#[cfg(test)]
pub fn socket(data: &Path) -> PathBuf {
    data.join(CONTROL)
}

/// A socket by a path of few characters: a socket's address has 108, and a data folder may be deep. The path
/// leads through the open folder, and is good while that is kept.
fn short(data: &Path, name: &str) -> io::Result<(File, PathBuf)> {
    let folder = File::open(data)?;
    let path = format!("/proc/self/fd/{}/{name}", folder.as_raw_fd());
    Ok((folder, path.into()))
}

/// Whether somebody listens at the holder's socket.
pub fn is_held(data: &Path) -> bool {
    short(data, CONTROL).is_ok_and(|(_folder, address)| std::os::unix::net::UnixStream::connect(address).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_link::Question;
    use serde_json::json;
    use tokio::sync::oneshot;

    #[test]
    fn an_order_about_computers_may_take_as_long_as_they() {
        let question = Question::new("lua.run", Duration::from_secs(300));
        let order = Order::Links(LinkOrder::Ask { whom: Vec::new(), question });
        assert_eq!(order.patience(), Duration::from_secs(310));
        let stop = Order::Links(LinkOrder::Stop { patience: Duration::from_secs(2) });
        assert_eq!(stop.patience(), Duration::from_secs(12));
        assert_eq!(Order::Links(LinkOrder::Computers).patience(), PATIENCE);
    }

    #[test]
    fn a_question_to_all_that_can_be_linked_is_an_order() {
        let whom = vec![json!([1_800_000_000_000_000_u64, 9999, 9999]); 20_000];
        let order = json!({ "links": { "ask": { "whom": whom, "question": Question::ping(PATIENCE) } } });
        let order: Order = serde_json::from_value(order).unwrap();
        let line = serde_json::to_string(&order).unwrap();
        assert!(line.len() < LONGEST_ORDER, "{}", line.len());
    }

    #[tokio::test]
    async fn what_is_asked_of_computers_is_given_up_with_its_asker() {
        let question = Question::new("lua.run", Duration::from_secs(300));
        let order = Order::Links(LinkOrder::Ask { whom: Vec::new(), question });
        let (mut asker, hub) = UnixStream::pair().unwrap();
        let (begun, mut beginning) = oneshot::channel();
        let begun = parking_lot::Mutex::new(Some(begun));
        let work = move |_| {
            let begun = begun.lock().take();
            async move {
                let _ = begun.unwrap().send(());
                std::future::pending().await
            }
            .boxed()
        };
        let asking = async {
            asker.write_all(format!("{}\n", serde_json::to_string(&order).unwrap()).as_bytes()).await.unwrap();
            (&mut beginning).await.unwrap();
            drop(asker);
        };
        let (answered, ()) = tokio::join!(answer(hub, &work), asking);
        answered.unwrap();
    }
}
