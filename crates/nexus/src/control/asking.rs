//! How one process asks another at its socket.

use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures_util::future::join_all;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::{Answer, CONTROL, LONGEST_ORDER, Order, PATIENCE, short};

/// For one of several: a stopped process is not waited for.
const SHORT_PATIENCE: Duration = Duration::from_secs(2);

/// Asks the holder of a data folder.
pub async fn ask(data: &Path, order: &Order) -> Result<Answer> {
    ask_at(data, CONTROL, order, order.patience()).await
}

/// What came of asking every process.
#[derive(Debug, Default)]
pub struct Asked {
    pub answers: Vec<Answer>,
    /// What is wrong with those that do not answer.
    pub silent: Vec<String>,
}

/// Asks every process that may have questions: the holder, and the doors beside it, until one knows the code that
/// the order names. Sockets of dead ones are removed; one that hangs keeps nobody from the others.
pub async fn ask_all(data: &Path, order: &Order) -> Asked {
    let (names, mut asked, mut awake) = (sockets(data), Asked::default(), Vec::new());
    let heard = join_all(names.iter().map(|name| ask_at(data, name, &Order::Pending, SHORT_PATIENCE))).await;
    for (name, heard) in names.into_iter().zip(heard) {
        match heard {
            Ok(answer) => awake.push((name, answer)),
            Err(error) if is_dead(&error) => forget(data, &name),
            Err(error) => asked.silent.push(format!("{error:#}")),
        }
    }
    if matches!(order, Order::Pending) {
        asked.answers = awake.into_iter().map(|(_, answer)| answer).collect();
        return asked;
    }
    // One after the other: a process may listen at two sockets, and must not be told twice.
    for (name, _) in awake {
        match ask_at(data, &name, order, PATIENCE).await {
            Ok(answer) => {
                let settled = !matches!(answer, Answer::NoSuchCode(_));
                asked.answers.push(answer);
                if settled {
                    break;
                }
            }
            Err(error) => asked.silent.push(format!("{error:#}")),
        }
    }
    asked
}

/// The names of all sockets in a data folder, the holder's first.
fn sockets(data: &Path) -> Vec<String> {
    let names = std::fs::read_dir(data).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<String> = names.filter(|name| name == CONTROL || door_of(name).is_some()).collect();
    found.sort_unstable();
    found
}

/// The process behind a door's socket.
fn door_of(name: &str) -> Option<u32> {
    let (pid, _) = name.strip_prefix("door-")?.strip_suffix(".sock")?.split_once('-')?;
    pid.parse().ok()
}

/// Whether nobody is behind the socket.
pub fn is_dead(error: &anyhow::Error) -> bool {
    let io = error.root_cause().downcast_ref::<io::Error>();
    io.is_some_and(|error| matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound))
}

/// Removes a door's socket, once nobody can be behind it. The holder's is replaced by the next holder.
fn forget(data: &Path, name: &str) {
    if door_of(name).is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
        let _ = std::fs::remove_file(data.join(name));
    }
}

/// A hub that dies while it is asked.
const HUNG_UP: &str = "it hung up before it answered";

async fn ask_at(data: &Path, name: &str, order: &Order, patience: Duration) -> Result<Answer> {
    let path = data.join(name);
    let asking = async {
        let (_folder, address) = short(data, name)?;
        let mut stream = UnixStream::connect(address).await?;
        let mut line = serde_json::to_string(order)?;
        line.push('\n');
        if line.len() > LONGEST_ORDER {
            bail!("that is more than a hub takes: {} bytes, and at most {LONGEST_ORDER}", line.len());
        }
        let mut answer = String::new();
        let answered = async {
            stream.write_all(line.as_bytes()).await?;
            BufReader::new(stream).read_line(&mut answer).await
        };
        match answered.await {
            Ok(1..) => anyhow::Ok(serde_json::from_str(&answer)?),
            Ok(0) => bail!(HUNG_UP),
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => {
                bail!(HUNG_UP)
            }
            Err(error) => Err(error.into()),
        }
    };
    match timeout(patience, asking).await {
        Ok(answer) => answer.with_context(|| format!("asking the running hub at {}", path.display())),
        Err(_) => bail!("the running hub does not answer at {}", path.display()),
    }
}
