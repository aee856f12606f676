//! A program's process group: ended as a whole, because a shell's children do not die with their shell.

use std::io;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, test_kill_process_group, waitid};
use tokio::signal::unix::{SignalKind, signal};

use super::guard::Guarded;
use super::mark::{self, Mark};

/// The group a program leads. Dropped before [`Group::release`], all of it is killed at once.
///
/// Signals are sent only while the leader is not reaped: until then its number cannot belong to anyone else.
#[derive(Debug)]
pub struct Group {
    leader: Option<Pid>,
    /// What all it has started bears, in its group or not.
    mark: Option<Mark>,
    /// Taken off the guard's list when this is dropped.
    guarded: Option<Guarded>,
}

impl Group {
    pub(super) fn led_by(id: Option<u32>) -> Self {
        Self { leader: id.and_then(|id| Pid::from_raw(id.cast_signed())), mark: None, guarded: None }
    }

    pub(super) fn marked(mut self, mark: Option<Mark>) -> Self {
        self.mark = mark;
        self
    }

    pub(super) fn guarded(mut self, guarded: Guarded) -> Self {
        self.guarded = Some(guarded);
        self
    }

    /// What Ctrl-C at a terminal does: asks all of it to leave off.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
        // A stopped process would not hear it.
        self.signal(Signal::CONT);
    }

    /// Asks all of it to end.
    pub fn ask_to_end(&self) {
        self.signal(Signal::TERM);
        // A stopped process would not hear it.
        self.signal(Signal::CONT);
    }

    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Kills what has left the group, where the program was [`super::Start::marked`].
    pub async fn kill_strays(&self) {
        let marks = Vec::from_iter(self.mark.clone());
        let _ = tokio::task::spawn_blocking(move || mark::kill_all(&marks)).await;
    }

    /// Whether the leader has ended. Leaves it to be reaped.
    pub fn leader_has_ended(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.leader.is_none_or(|leader| !matches!(waitid(WaitId::Pid(leader), look), Ok(None)))
    }

    /// Comes back when the leader has ended, and leaves it to be reaped: the rest of its group can still be killed then.
    pub async fn leader_ends(&self) -> io::Result<()> {
        // Listens before it looks: an end in between is not missed.
        let mut ends = signal(SignalKind::child())?;
        while !self.leader_has_ended() {
            ends.recv().await;
        }
        Ok(())
    }

    /// Whether anything of it is still there, the unreaped leader included.
    pub fn is_there(&self) -> bool {
        self.leader.is_some_and(|leader| test_kill_process_group(leader).is_ok())
    }

    /// The leader is reaped: its number may be anyone's now, and what it left in the background may stay.
    pub fn release(&mut self) {
        self.leader = None;
        self.mark = None;
        self.guarded = None;
    }

    /// No such group means that it has ended, which is what was wanted.
    fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            let _ = kill_process_group(leader, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        mark::kill_all(self.mark.as_slice());
    }
}
