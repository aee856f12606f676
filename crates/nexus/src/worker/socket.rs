//! The Unix socket beside a running command, by which it speaks with the operator: `nexus agent ask`, `nexus agent say`.

use std::convert::Infallible;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;
use uuid::Uuid;

/// Bytes of what is said; the hub takes no more.
const LONGEST_WORDS: usize = 100_000;
/// The same as JSON, where a letter may need six bytes.
const LONGEST_ORDER: u64 = 7 * LONGEST_WORDS as u64;
/// Who connects says at once what they want.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections at a time.
const MOST: usize = 8;

/// What a command wants. One line of JSON each way.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    Ask(String),
    Say(String),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    /// The operator's words, or none where none were asked for.
    Done(String),
    Failed(String),
}

/// The folder of all sockets of a worker; gone with it.
#[derive(Debug)]
pub struct Folder(PathBuf);

const FOLDER: &str = "nexus-agent-";

impl Folder {
    /// A new one in the user's folder for such things, or in the one for temporary files.
    pub fn make(runtime: Option<PathBuf>) -> io::Result<Self> {
        let parent = runtime.filter(|folder| folder.is_dir()).unwrap_or_else(std::env::temp_dir);
        sweep(&parent);
        let random = Uuid::new_v4().simple().to_string();
        let folder = parent.join(format!("{FOLDER}{}-{}", std::process::id(), &random[..8]));
        // Not one that is there already: it might be somebody else's.
        DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Takes away what killed workers have left.
fn sweep(parent: &Path) {
    let me = rustix::process::getuid().as_raw();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(FOLDER)?.split_once('-')?.0.parse::<u32>().ok());
        let Some(pid) = pid else { continue };
        let ours = entry.metadata().is_ok_and(|data| data.is_dir() && data.uid() == me);
        if ours && !Path::new(&format!("/proc/{pid}")).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The socket of one task; gone when it is dropped.
#[derive(Debug)]
pub struct Socket {
    pub path: PathBuf,
    listener: UnixListener,
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Socket {
    pub fn open(folder: &Folder, task: &str) -> io::Result<Self> {
        // The hub's word for a task becomes part of a path.
        let plain: String = task.chars().filter(char::is_ascii_alphanumeric).take(24).collect();
        let path = folder.0.join(format!("{plain}-{}", &Uuid::new_v4().simple().to_string()[..8]));
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        Ok(Self { path, listener })
    }

    /// Answers whoever connects, until it is dropped; `told` hears which question was answered.
    pub async fn serve<F>(&self, carry_out: impl Fn(Order) -> F, told: impl Fn(&str)) -> Infallible
    where
        F: Future<Output = Result<String, String>>,
    {
        let mut open = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if open.len() < MOST => match accepted {
                    Ok((stream, _)) => open.push(answer(stream, &carry_out, &told)),
                    // No more files, say; others will be closed.
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                },
                Some(()) = open.next() => {}
            }
        }
    }
}

async fn answer<F>(stream: UnixStream, carry_out: impl Fn(Order) -> F, told: impl Fn(&str))
where
    F: Future<Output = Result<String, String>>,
{
    let (reading, mut writing) = stream.into_split();
    let mut reading = BufReader::new(reading.take(LONGEST_ORDER));
    let mut line = String::new();
    let Ok(Ok(1..)) = timeout(PATIENCE, reading.read_line(&mut line)).await else { return };
    let mut asked = None;
    let reply = match serde_json::from_str(&line) {
        Ok(Order::Ask(words) | Order::Say(words)) if words.trim().is_empty() => Err("nothing was said".to_owned()),
        Ok(Order::Ask(words) | Order::Say(words)) if words.len() > LONGEST_WORDS => {
            Err(format!("more than {LONGEST_WORDS} bytes cannot be said at once"))
        }
        Ok(order) => {
            if let Order::Ask(words) = &order {
                asked = Some(words.clone());
            }
            tokio::select! {
                // Whoever asked has gone.
                biased;
                _ = reading.read_u8() => return,
                done = carry_out(order) => done,
            }
        }
        Err(_) => Err("this is not understood".to_owned()),
    };
    let answered = reply.is_ok();
    let reply = reply.map_or_else(Reply::Failed, Reply::Done);
    let line = serde_json::to_string(&reply).unwrap_or_default() + "\n";
    let written = timeout(PATIENCE, writing.write_all(line.as_bytes())).await;
    if let (Some(words), true, Ok(Ok(()))) = (asked, answered, written) {
        told(&words);
    }
}

/// The other end: asks the worker that has started this command, and waits for as long as it takes.
pub async fn ask(socket: &Path, order: &Order) -> Result<String> {
    let mut stream = UnixStream::connect(socket).await.context("the worker is not there any more")?;
    stream.write_all(format!("{}\n", serde_json::to_string(order)?).as_bytes()).await?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).await?;
    match serde_json::from_str(&line) {
        Ok(Reply::Done(words)) => Ok(words),
        Ok(Reply::Failed(why)) => bail!(why),
        Err(_) => bail!("the worker has ended"),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    async fn said(order: Order) -> Result<String, String> {
        match order {
            Order::Ask(words) => Ok(format!("{words}!")),
            Order::Say(words) => Err(format!("not {words}")),
        }
    }

    #[tokio::test]
    async fn a_command_asks_and_is_answered_and_nobody_else_can() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::make(Some(parent.path().to_owned())).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder.0), 0o700);
        let socket = Socket::open(&folder, "t5/../x").unwrap();
        assert_eq!(mode(&socket.path), 0o600);
        assert_eq!(socket.path.parent(), Some(folder.0.as_path()));

        let told = RefCell::new(Vec::new());
        let asking = async {
            let path = &socket.path;
            assert_eq!(ask(path, &Order::Ask("yes\n\u{1}".into())).await.unwrap(), "yes\n\u{1}!");
            assert_eq!(ask(path, &Order::Say("so".into())).await.unwrap_err().to_string(), "not so");
            assert!(ask(path, &Order::Say(" ".into())).await.is_err());
            assert!(ask(path, &Order::Ask("x".repeat(LONGEST_WORDS + 1))).await.is_err());
            assert!(ask(path, &Order::Ask("\u{1}".repeat(LONGEST_WORDS))).await.is_ok());
        };
        tokio::select! {
            never = socket.serve(said, |words| told.borrow_mut().push(words.to_owned())) => match never {},
            () = asking => {}
        }
        assert_eq!(told.borrow().len(), 2, "questions that were answered");
        assert_eq!(told.borrow()[0], "yes\n\u{1}");
        let path = socket.path.clone();
        drop(socket);
        assert!(ask(&path, &Order::Say("x".into())).await.is_err());
        drop(folder);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_worker_left_is_taken_away() {
        let parent = tempfile::tempdir().unwrap();
        // No process has such a number.
        let (dead, other) = (parent.path().join("nexus-agent-99999999-x"), parent.path().join("nexus-agent-mine"));
        fs::create_dir(&dead).unwrap();
        fs::create_dir(&other).unwrap();
        let alive = Folder::make(Some(parent.path().to_owned())).unwrap();
        sweep(parent.path());
        assert!(!dead.exists() && other.exists() && alive.0.exists());
    }
}
