//! Which processes of a data folder are alive: each holds a lock on a file named like its chain.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::notes;
use crate::private;

/// Held until the process ends in whatever way; in order, the file goes too.
#[derive(Debug)]
pub struct Alive {
    path: PathBuf,
    data: PathBuf,
    chain: String,
    _lock: File,
}

impl Alive {
    pub fn declare(data: &Path, chain: &str) -> io::Result<Self> {
        private::folder(&data.join("chains"))?;
        let path = file(data, chain);
        let lock = private::create(&path)?;
        lock.lock()?;
        Ok(Self { path, data: data.to_owned(), chain: chain.to_owned(), _lock: lock })
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        notes::forget(&self.data, &self.chain);
    }
}

/// The chains of all processes that have left a file, alive or dead.
pub fn declared(data: &Path) -> Vec<String> {
    let names = fs::read_dir(data.join("chains")).into_iter().flatten().flatten();
    names.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| !name.contains('.')).collect()
}

/// Whether the process that writes this chain still runs.
pub fn is_alive(data: &Path, chain: &str) -> bool {
    // Only a lock that is free, or none at all, is a sign of death: everything else is our own trouble.
    match File::open(file(data, chain)) {
        Ok(file) => file.try_lock_shared().is_err(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Takes away what a dead process left.
pub fn forget(data: &Path, chain: &str) {
    let _ = fs::remove_file(file(data, chain));
    notes::forget(data, chain);
}

fn file(data: &Path, chain: &str) -> PathBuf {
    data.join("chains").join(chain)
}

/// The name of a data folder in a store that several share. Made once.
pub fn home(data: &Path) -> io::Result<String> {
    let path = data.join("home");
    if let Some(home) = private::read(&path)? {
        return Ok(home);
    }
    match private::write_new(&path, &Uuid::new_v4().to_string()) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    Ok(private::read(&path)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_while_it_holds_its_lock() {
        let data = tempfile::tempdir().unwrap();
        let alive = Alive::declare(data.path(), "c").unwrap();
        assert!(is_alive(data.path(), "c"));
        drop(alive);
        assert!(!is_alive(data.path(), "c"));
        assert!(!is_alive(data.path(), "other"));
        assert_eq!(home(data.path()).unwrap(), home(data.path()).unwrap());
    }
}
