//! A mark in the environment, which all that a program starts inherits: what has left the program's group by `setsid`
//! is found by it. Agents start their shells that way.
//!
//! Out of reach is what belongs to another user, and what has overwritten its own environment.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

const NAME: &str = "NEXUS_MARK";

/// Bytes of an environment that are looked at.
const LONGEST: u64 = 4 * 1024 * 1024;

/// While one is killed it may start another; whoever is quicker than this for so long wins.
const ROUNDS: usize = 100;
const PAUSE: Duration = Duration::from_millis(5);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Mark(String);

impl Mark {
    pub(super) fn new() -> Self {
        Self(uuid::Uuid::new_v4().simple().to_string())
    }

    /// From the text that `as_str` gives.
    pub(super) fn read(text: &str) -> Option<Self> {
        (text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| Self(text.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn variable(&self) -> (OsString, OsString) {
        (NAME.into(), self.as_str().into())
    }
}

/// Kills all that bears one of these marks. Takes milliseconds, and blocks for that long.
#[allow(
    clippy::disallowed_methods,
    reason = "the guard has no runtime, and a group that is dropped cannot wait otherwise"
)]
pub(super) fn kill_all(marks: &[Mark]) {
    if marks.is_empty() {
        return;
    }
    let marks: Vec<String> = marks.iter().map(|mark| format!("{NAME}={}", mark.as_str())).collect();
    for _ in 0..ROUNDS {
        if !kill_each(&marks) {
            return;
        }
        thread::sleep(PAUSE);
    }
}

/// Whether there was any.
fn kill_each(marks: &[String]) -> bool {
    let mut found = false;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| Pid::from_raw(name.parse().ok()?));
        // Held before it is looked at: the signal then goes to what was looked at, whoever has the number by then.
        let Some(process) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else { continue };
        let mut environment = Vec::new();
        let Ok(file) = fs::File::open(entry.path().join("environ")) else { continue };
        if file.take(LONGEST).read_to_end(&mut environment).is_err() {
            continue;
        }
        let marked = |variable: &[u8]| marks.iter().any(|mark| mark.as_bytes() == variable);
        // One that has ended and was not reaped has no environment any more.
        if environment.split(|byte| *byte == 0).any(marked) {
            found |= pidfd_send_signal(process, Signal::KILL).is_ok();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::time::timeout;

    use super::super::Start;
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A program that has ended and left something in a session of its own, which holds its stdout.
    async fn strayed(start: Start) -> (super::super::Group, tokio::process::ChildStdout) {
        let script = "setsid sh -c 'echo there; sleep 1000; sleep 1000' & sleep 1000";
        let path = [("PATH", "/usr/local/bin:/usr/bin:/bin")];
        let started = start.args(["-c", script]).env(path).start().unwrap();
        let mut stdout = started.stdout.unwrap();
        let mut there = [0; 6];
        timeout(PATIENCE, stdout.read_exact(&mut there)).await.unwrap().unwrap();
        started.group.kill();
        timeout(PATIENCE, started.group.leader_ends()).await.unwrap().unwrap();
        (started.group, stdout)
    }

    async fn ends(mut stdout: tokio::process::ChildStdout) {
        assert_eq!(
            timeout(PATIENCE, stdout.read_u8()).await.unwrap().unwrap_err().kind(),
            std::io::ErrorKind::UnexpectedEof
        );
    }

    #[tokio::test]
    async fn what_has_left_the_group_is_found_by_its_mark() {
        let (group, stdout) = strayed(Start::new("sh").marked()).await;
        let (other, mut others) = strayed(Start::new("sh").marked()).await;
        group.kill_strays().await;
        ends(stdout).await;
        // What bears another mark is left alone, until its own group is given up.
        assert!(futures_util::poll!(std::pin::pin!(others.read_u8())).is_pending());
        drop(other);
        ends(others).await;
    }

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let mark = Mark::new();
        assert_eq!(Mark::read(mark.as_str()), Some(mark));
        for wrong in ["", "x", "0123456789abcdef0123456789abcdeg", "0123456789abcdef0123456789abcdef0"] {
            assert_eq!(Mark::read(wrong), None);
        }
    }
}
