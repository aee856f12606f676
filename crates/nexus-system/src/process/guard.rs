//! The guard: a process that outlives this one just long enough to kill what it has left behind.
//!
//! The parent-death signal ([`super::shim`]) reaches a child and not the child's children. The guard holds the other
//! end of a pipe; when that ends, this program is gone, however it went, and every group still on the guard's list is
//! killed. What has left its group by `setsid` is out of reach, unless it is marked ([`super::mark`]).
//!
//! One thread, which never ends, starts all programs that are started for life: the kernel takes the *thread* that
//! started a child for its parent. It also writes the guard's list.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::runtime::{self, Handle};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tracing::warn;

use super::group::Group;
use super::mark::{self, Mark};
use super::shim::{GUARD, THIS_PROGRAM};
use super::start::Started;

/// Set once this program is known to understand `__start` and `__guard`.
static INSTALLED: AtomicBool = AtomicBool::new(false);

pub(super) fn install() {
    INSTALLED.store(true, Ordering::Relaxed);
}

pub(super) fn is_installed() -> bool {
    INSTALLED.load(Ordering::Relaxed)
}

/// A group on the guard's list, until this is dropped.
#[derive(Debug)]
pub(super) struct Guarded {
    group: i32,
    mark: Option<Mark>,
    orders: mpsc::Sender<Order>,
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Forget(self.group, self.mark.take()));
    }
}

enum Order {
    /// Starts it in that runtime, and puts its group on the list. Where nobody waits for it any more, what comes back
    /// is dropped here, and with it killed.
    Start(Box<tokio::process::Command>, Option<Mark>, Handle, oneshot::Sender<io::Result<Started>>),
    Forget(i32, Option<Mark>),
}

/// Starts a command that leads a group of its own, from the thread that never ends.
pub(super) async fn start(command: tokio::process::Command, mark: Option<Mark>) -> io::Result<Started> {
    let (answer, started) = oneshot::channel();
    let order = Order::Start(Box::new(command), mark, Handle::current(), answer);
    let gone = || io::Error::other("the thread that starts programs has ended");
    orders()?.send(order).map_err(|_| gone())?;
    started.await.map_err(|_| gone())?
}

#[allow(clippy::disallowed_methods, reason = "a task would move from thread to thread: see above")]
fn orders() -> io::Result<mpsc::Sender<Order>> {
    static ORDERS: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    if let Some(orders) = ORDERS.get() {
        return Ok(orders.clone());
    }
    let (orders, received) = mpsc::channel();
    let list = List { orders: orders.clone(), groups: HashMap::new(), guard: None };
    // Of two that come at once, one thread finds that its channel has no other end, and is gone again.
    if ORDERS.set(orders).is_ok() {
        std::thread::Builder::new().name("starter".to_owned()).spawn(move || list.serve(&received))?;
    }
    ORDERS.get().cloned().ok_or_else(|| io::Error::other("no thread to start programs"))
}

/// One line of the list: `GROUP` or `GROUP MARK`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Entry {
    group: i32,
    mark: Option<Mark>,
}

impl Entry {
    fn read(text: &str) -> Self {
        let (group, mark) = text.split_once(' ').unwrap_or((text, ""));
        Self { group: group.parse().unwrap_or(0), mark: Mark::read(mark) }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.mark {
            None => write!(f, "{}", self.group),
            Some(mark) => write!(f, "{} {}", self.group, mark.as_str()),
        }
    }
}

/// What the guard has been told, kept here too: a guard that somebody has killed is replaced.
struct List {
    orders: mpsc::Sender<Order>,
    /// How often each is on it: a number may be given anew before its last owner is taken off.
    groups: HashMap<Entry, usize>,
    guard: Option<(Child, ChildStdin)>,
}

impl List {
    fn serve(mut self, received: &mpsc::Receiver<Order>) {
        while let Ok(order) = received.recv() {
            match order {
                Order::Start(mut command, mark, runtime, answer) => {
                    let _inside = runtime.enter();
                    let _ = answer.send(self.start(&mut command, mark));
                }
                Order::Forget(group, mark) => {
                    let entry = Entry { group, mark };
                    if let Some(count) = self.groups.get_mut(&entry) {
                        *count -= 1;
                        self.groups.retain(|_, count| *count > 0);
                        self.tell(&format!("-{entry}\n"));
                    }
                }
            }
        }
    }

    fn start(&mut self, command: &mut tokio::process::Command, mark: Option<Mark>) -> io::Result<Started> {
        let child = command.spawn()?;
        let group = child.id().map_or(0, u32::cast_signed);
        let entry = Entry { group, mark: mark.clone() };
        let line = format!("+{entry}\n");
        *self.groups.entry(entry).or_insert(0) += 1;
        self.tell(&line);
        let guarded = Guarded { group, mark: mark.clone(), orders: self.orders.clone() };
        let led = Group::led_by(child.id()).marked(mark).guarded(guarded);
        Ok(Started::new(child, led))
    }

    /// A guard that takes nothing is replaced by one that is told everything.
    fn tell(&mut self, line: &str) {
        let told = self.guard.as_mut().is_some_and(|(_, pipe)| pipe.write_all(line.as_bytes()).is_ok());
        if told {
            return;
        }
        if let Some((mut old, pipe)) = self.guard.take() {
            // Before its pipe ends: it would kill what is well alive.
            let _ = old.kill();
            let _ = old.wait();
            drop(pipe);
        }
        match self.new_guard() {
            Ok(guard) => self.guard = Some(guard),
            Err(error) => warn!(%error, "no guard could be started: servers may outlive a killed hub"),
        }
    }

    #[allow(clippy::disallowed_methods, reason = "part of the shim")]
    fn new_guard(&self) -> io::Result<(Child, ChildStdin)> {
        let mut guard = Command::new(THIS_PROGRAM)
            .arg0("nexus-guard")
            .arg(GUARD)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let mut pipe = guard.stdin.take().ok_or_else(|| io::Error::other("no pipe to the guard"))?;
        // A guard that somebody has stopped must not stop this thread.
        fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?;
        let all: String =
            self.groups.iter().flat_map(|(entry, count)| std::iter::repeat_n(format!("+{entry}\n"), *count)).collect();
        pipe.write_all(all.as_bytes())?;
        Ok((guard, pipe))
    }
}

/// The guard itself, on its own in a process.
pub(super) fn run() -> ExitCode {
    // Whoever ends the hub by a signal to all its processes must not end the guard first.
    let _deaf = ignore_signals();
    let left = read_list(&mut io::stdin().lock());
    for group in left.keys().filter_map(|entry| Pid::from_raw(entry.group)) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    mark::kill_all(&left.into_keys().filter_map(|entry| entry.mark).collect::<Vec<_>>());
    ExitCode::SUCCESS
}

/// A handler that does nothing; the runtime keeps it for as long as it is there.
fn ignore_signals() -> io::Result<runtime::Runtime> {
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    let inside = runtime.enter();
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()] {
        drop(signal(kind)?);
    }
    drop(inside);
    Ok(runtime)
}

/// Reads until nobody can write any more.
fn read_list(lines: &mut dyn BufRead) -> HashMap<Entry, usize> {
    let mut groups = HashMap::new();
    let mut line = String::new();
    while matches!(lines.read_line(&mut line), Ok(1..)) {
        match line.trim_end().split_at_checked(1) {
            Some(("+", entry)) => *groups.entry(Entry::read(entry)).or_insert(0) += 1,
            Some(("-", entry)) => {
                if let Some(count) = groups.get_mut(&Entry::read(entry)) {
                    *count -= 1;
                    groups.retain(|_, count| *count > 0);
                }
            }
            _ => {}
        }
        line.clear();
    }
    // Never 0 or 1, which would mean other groups than anybody wrote.
    groups.retain(|entry, _| entry.group > 1);
    groups
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    #[allow(clippy::disallowed_methods, reason = "what is tested is the one place that starts programs")]
    async fn a_program_that_nobody_waits_for_any_more_is_killed() {
        // The other end of its stdout is open for as long as it lives.
        let (mut reader, writer) = io::pipe().unwrap();
        let mut command = tokio::process::Command::new("sleep");
        command.arg("1000").stdout(writer).process_group(0);
        {
            let mut starting = std::pin::pin!(start(command, None));
            let _ = futures_util::poll!(&mut starting);
        }
        let ended = tokio::task::spawn_blocking(move || reader.read(&mut [0; 1]));
        assert_eq!(tokio::time::timeout(Duration::from_secs(20), ended).await.unwrap().unwrap().unwrap(), 0);
    }

    #[test]
    fn the_list_holds_what_was_added_and_not_taken_off() {
        check("", &[]);
        check("+5\n+7\n-5\n", &[7]);
        check("+5\n+5\n-5\n", &[5]);
        check("-5\n+0\n+1\n+-1\nnoise\n+x\n+9", &[9]);
        let mark = "0123456789abcdef0123456789abcdef";
        check(&format!("+5 {mark}\n+6 {mark}\n-5 {mark}\n+7\n-7 {mark}"), &[6, 7]);
        assert_eq!(Entry::read(&format!("6 {mark}")).to_string(), format!("6 {mark}"));
        assert_eq!(Entry::read("6 x").mark, None);

        #[track_caller]
        fn check(written: &str, left: &[i32]) {
            let mut groups: Vec<i32> =
                read_list(&mut written.as_bytes()).into_keys().map(|entry| entry.group).collect();
            groups.sort_unstable();
            assert_eq!(groups, left);
        }
    }
}
