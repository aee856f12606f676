//! What a program has to do at its very start so that what it starts for life dies with it.
//!
//! The kernel sends a child a signal when its parent is gone, but only if the child itself has asked for it. So the
//! child begins as this very program under the name `__start`, asks for SIGKILL, and then becomes what was wanted.
//! `__guard` is the same program too: see [`super::guard`].

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use super::guard;

/// The first word of the command line of a child on its way, and of the guard.
pub(super) const START: &str = "__start";
pub(super) const GUARD: &str = "__guard";

/// This program as the kernel knows it: also when its file has been replaced meanwhile.
pub(super) const THIS_PROGRAM: &str = "/proc/self/exe";

/// What a shell answers when a command cannot be started.
const NOT_STARTED: u8 = 127;

/// Call this first in `main`, before anything else looks at the command line:
///
/// ```no_run
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     nexus_system::process::shim::run().unwrap_or_else(|| ExitCode::SUCCESS /* the program itself */)
/// }
/// ```
///
/// With an answer this process was a child on its way or the guard, and is done. Without one it is the program itself,
/// and from now on what it starts for life dies with it. Programs that do not call it can only end their children
/// themselves, and leave them behind when they are killed.
pub fn run() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    match words.next() {
        Some(word) if word == START => Some(start(words)),
        Some(word) if word == GUARD => Some(guard::run()),
        _ => {
            guard::install();
            None
        }
    }
}

/// `PARENT -- PROGRAM ARGUMENT…`
fn start(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = words.next().and_then(|word| Pid::from_raw(word.to_str()?.parse().ok()?));
    let (Some(parent), Some(_), Some(program)) = (parent, words.next(), words.next()) else {
        return failed(OsStr::new(START), &io::Error::from(io::ErrorKind::InvalidInput));
    };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return failed(&program, &error.into());
    }
    // It may have died before that was said; whoever has adopted this process then is somebody else.
    if getppid() != Some(parent) {
        return ExitCode::from(NOT_STARTED);
    }
    let error = become_it(&program, words);
    failed(&program, &error)
}

/// Comes back only if that did not work.
#[allow(clippy::disallowed_methods, reason = "part of the shim: this process becomes the program, none is started")]
fn become_it(program: &OsStr, arguments: impl Iterator<Item = OsString>) -> io::Error {
    Command::new(program).args(arguments).exec()
}

/// Its starter reads what it says on stderr.
fn failed(program: &OsStr, error: &io::Error) -> ExitCode {
    let _ = writeln!(io::stderr(), "`{}` could not be started: {error}", program.to_string_lossy());
    ExitCode::from(NOT_STARTED)
}
