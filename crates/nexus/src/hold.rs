//! Who does the background work of a data folder: the one process that holds its lock file.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What the holder writes into its lock file, for those who come after it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Holder {
    pub pid: u32,
    /// Where its MCP listener is; none behind `nexus stdio`.
    pub mcp: Option<String>,
}

#[derive(Debug, Error)]
#[error("the lock file {path}")]
pub struct LockError {
    path: PathBuf,
    source: io::Error,
}

/// The outcome of trying to become the holder.
#[derive(Debug)]
pub enum Claim {
    Mine(Lock),
    /// Somebody else is.
    Taken(Holder),
}

/// Held until it is dropped, or the process ends in whatever way.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Tells the others who we are and where.
    pub fn announce(&mut self, holder: &Holder) -> Result<(), LockError> {
        let text = serde_json::to_string(holder).unwrap_or_default();
        let written =
            self.file.set_len(0).and_then(|()| self.file.rewind()).and_then(|()| self.file.write_all(text.as_bytes()));
        written.map_err(|source| LockError { path: self.path.clone(), source })
    }
}

pub fn claim(data: &Path) -> Result<Claim, LockError> {
    let path = data.join("hub.lock");
    let failed = |source| LockError { path: path.clone(), source };
    let file = OpenOptions::new()
        .create(true)
        .read(true)
        .write(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {
            // What a dead holder said of itself is no longer true.
            file.set_len(0).map_err(failed)?;
            Ok(Claim::Mine(Lock { file, path }))
        }
        Err(TryLockError::WouldBlock) => Ok(Claim::Taken(read(file))),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// The running holder, if there is one. Looks whether somebody listens at its socket: trying the lock
/// itself could get in the way of a hub that is just starting.
pub fn holder(data: &Path) -> Option<Holder> {
    let file = File::open(data.join("hub.lock")).ok()?;
    crate::control::is_held(data).then(|| read(file))
}

fn read(mut file: File) -> Holder {
    let mut text = String::new();
    let _ = Read::by_ref(&mut file).take(4096).read_to_string(&mut text);
    serde_json::from_str(&text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_and_the_others_see_who() {
        let data = tempfile::tempdir().unwrap();
        assert!(holder(data.path()).is_none());
        let Claim::Mine(mut lock) = claim(data.path()).unwrap() else { panic!("nobody holds it") };
        lock.announce(&Holder { pid: 7, mcp: Some("http://x/mcp".into()) }).unwrap();
        let Claim::Taken(other) = claim(data.path()).unwrap() else { panic!("it is held") };
        assert_eq!(other.pid, 7);
        let socket = std::os::unix::net::UnixListener::bind(crate::control::socket(data.path())).unwrap();
        assert_eq!(holder(data.path()).unwrap().mcp.as_deref(), Some("http://x/mcp"));
        drop((lock, socket));
        assert!(holder(data.path()).is_none());
        assert!(matches!(claim(data.path()).unwrap(), Claim::Mine(_)));
    }
}
