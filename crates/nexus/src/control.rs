//! The holder's Unix socket: how `nexus key` reaches a running hub. Never through MCP.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use nexus_core::audit::Sink;
use nexus_core::tasks::Tasks;

use crate::hold::Lock;
use crate::keyring::{Keyring, Listed, NewKey};

/// What can be asked of the holder. One line of JSON each way.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    KeyNew(NewKey),
    KeyList,
    KeyRevoke(String),
    /// A daemon wants to do the background work; whoever holds the lock only by chance lets go of it.
    GiveWay,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Key(String),
    Keys(Vec<Listed>),
    Done,
    Failed(String),
}

const LONGEST_ORDER: u64 = 64 * 1024;
const PATIENCE: Duration = Duration::from_secs(10);

/// Carries out one order. The command line does the same itself when no hub is running.
pub async fn carry_out(order: Order, keyring: &Keyring, audit: &dyn Sink) -> Answer {
    let done = match order {
        Order::KeyNew(wanted) => keyring.make(wanted, audit).await.map(Answer::Key),
        Order::KeyList => keyring.list().await.map(Answer::Keys),
        Order::KeyRevoke(name) => keyring.revoke(&name, audit).await.map(|()| Answer::Done),
        Order::GiveWay => Err(anyhow!("this process stays the holder")),
    };
    done.unwrap_or_else(|error| Answer::Failed(format!("{error:#}")))
}

/// Asks the holder of a data folder.
pub async fn ask(data: &Path, order: &Order) -> Result<Answer> {
    let path = socket(data);
    let asking = async {
        let (_folder, address) = short(data)?;
        let mut stream = UnixStream::connect(address).await?;
        let mut line = serde_json::to_string(order)?;
        line.push('\n');
        stream.write_all(line.as_bytes()).await?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).await?;
        anyhow::Ok(serde_json::from_str(&answer)?)
    };
    match timeout(PATIENCE, asking).await {
        Ok(answer) => answer.with_context(|| format!("asking the running hub at {}", path.display())),
        Err(_) => bail!("the running hub does not answer at {}", path.display()),
    }
}

/// Listens until the hub ends. Only the holder of the lock may call it: a socket left by a dead one is replaced.
///
/// With a `lock` the holder is one by chance: asked to give way, it lets go of the lock and listens no more.
pub fn listen(
    data: &Path,
    lock: Option<Lock>,
    keyring: Arc<Keyring>,
    audit: Arc<dyn Sink>,
    tasks: &Tasks,
) -> io::Result<()> {
    let path = socket(data);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let (_folder, address) = short(data)?;
    let listener = UnixListener::bind(address)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    let (stop, serving) = (tasks.stopping(), tasks.clone());
    let given_way = lock.is_some().then(CancellationToken::new);
    tasks.spawn("control socket", async move {
        let over = given_way.clone().unwrap_or_default();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => break,
                () = over.cancelled() => break,
            };
            match accepted {
                Ok((stream, _)) => {
                    let (keyring, audit, given_way) = (keyring.clone(), audit.clone(), given_way.clone());
                    serving.spawn("control", async move {
                        if let Err(error) =
                            timeout(PATIENCE, serve(stream, &keyring, &*audit, given_way)).await.unwrap_or(Ok(()))
                        {
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

async fn serve(
    stream: UnixStream,
    keyring: &Keyring,
    audit: &dyn Sink,
    given_way: Option<CancellationToken>,
) -> Result<()> {
    let (reading, mut writing) = stream.into_split();
    let mut line = String::new();
    BufReader::new(reading.take(LONGEST_ORDER)).read_line(&mut line).await?;
    let answer = match serde_json::from_str(&line) {
        Ok(Order::GiveWay) if given_way.is_some() => {
            given_way.inspect(CancellationToken::cancel);
            Answer::Done
        }
        Ok(order) => carry_out(order, keyring, audit).await,
        Err(error) => Answer::Failed(format!("not an order: {error}")),
    };
    let mut line = serde_json::to_string(&answer)?;
    line.push('\n');
    writing.write_all(line.as_bytes()).await?;
    Ok(())
}

pub fn socket(data: &Path) -> PathBuf {
    data.join("control.sock")
}

/// The socket by a path of few characters: a socket's address has 108, and a data folder may be deep. The path
/// leads through the open folder, and is good while that is kept.
pub fn short(data: &Path) -> io::Result<(File, PathBuf)> {
    let folder = File::open(data)?;
    let path = format!("/proc/self/fd/{}/control.sock", folder.as_raw_fd());
    Ok((folder, path.into()))
}
