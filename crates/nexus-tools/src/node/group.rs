//! A command's process group: ended as a whole, because a shell's children do not die with their shell.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// The group a command leads. Dropped before [`Group::release`], all of it is killed at once.
///
/// Signals are sent only while the leader is not reaped: until then its number cannot belong to anyone else.
#[derive(Debug)]
pub(super) struct Group {
    leader: Option<Pid>,
}

impl Group {
    pub(super) fn led_by(id: Option<u32>) -> Self {
        Self { leader: id.and_then(|id| Pid::from_raw(id.cast_signed())) }
    }

    /// Asks all of it to end.
    pub(super) fn ask_to_end(&self) {
        self.signal(Signal::TERM);
        // A stopped process would not hear it.
        self.signal(Signal::CONT);
    }

    pub(super) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Whether the leader has ended. Leaves it to be reaped.
    pub(super) fn leader_has_ended(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.leader.is_none_or(|leader| !matches!(waitid(WaitId::Pid(leader), look), Ok(None)))
    }

    /// The leader is reaped: its number may be anyone's now, and what it left in the background may stay.
    pub(super) fn release(&mut self) {
        self.leader = None;
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
    }
}
