//! The holder's Unix socket: how `nexus key` reaches a running hub. Never through MCP.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;
use tracing::{debug, warn};

use nexus_core::audit::Sink;
use nexus_core::tasks::Tasks;

use crate::keyring::{Keyring, Listed, NewKey};

/// What can be asked of the holder. One line of JSON each way.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    KeyNew(NewKey),
    KeyList,
    KeyRevoke(String),
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
    };
    done.unwrap_or_else(|error| Answer::Failed(format!("{error:#}")))
}

/// Asks the holder of a data folder.
pub async fn ask(data: &Path, order: &Order) -> Result<Answer> {
    let path = socket(data);
    let asking = async {
        let mut stream = UnixStream::connect(&path).await?;
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
pub fn listen(data: &Path, keyring: Arc<Keyring>, audit: Arc<dyn Sink>, tasks: &Tasks) -> io::Result<()> {
    let path = socket(data);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    let (stop, serving) = (tasks.stopping(), tasks.clone());
    tasks.spawn("control socket", async move {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            match accepted {
                Ok((stream, _)) => {
                    let (keyring, audit) = (keyring.clone(), audit.clone());
                    serving.spawn("control", async move {
                        if let Err(error) = timeout(PATIENCE, serve(stream, &keyring, &*audit)).await.unwrap_or(Ok(())) {
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
        let _ = std::fs::remove_file(&path);
    });
    Ok(())
}

async fn serve(stream: UnixStream, keyring: &Keyring, audit: &dyn Sink) -> Result<()> {
    let (reading, mut writing) = stream.into_split();
    let mut line = String::new();
    BufReader::new(reading.take(LONGEST_ORDER)).read_line(&mut line).await?;
    let answer = match serde_json::from_str(&line) {
        Ok(order) => carry_out(order, keyring, audit).await,
        Err(error) => Answer::Failed(format!("not an order: {error}")),
    };
    let mut line = serde_json::to_string(&answer)?;
    line.push('\n');
    writing.write_all(line.as_bytes()).await?;
    Ok(())
}

fn socket(data: &Path) -> PathBuf {
    data.join("control.sock")
}
