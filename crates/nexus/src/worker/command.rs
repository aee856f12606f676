//! Runs a task's command: gives it the words, hears what it says, and stops it with all that it has started.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::ChildStdin;
use tokio::time::{sleep, timeout};

use nexus_system::process::{Group, Pipe, Start, Started};

use super::beat::{Stop, Why};
use super::lines::{Ends, Lines};
use super::outbox::Outbox;

/// How long the output of a command that has ended is still read: something in the background may hold it open.
const LINGER: Duration = Duration::from_secs(1);

/// A line that is not ended for so long is shown as far as it has come.
const SILENCE: Duration = Duration::from_secs(1);

/// A killed process ends at once, unless its disk holds it in the kernel.
const REAPING: Duration = Duration::from_secs(10);

/// Bytes; what a pipe holds.
const PIPE: usize = 64 * 1024;

/// What stands for the task's words in an argument.
const PLACE: &[u8] = b"{}";

/// How the words of a task reach the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    Stdin,
    /// In the place of `{}` in an argument, if there is one.
    Argument,
}

/// The command of a worker.
#[derive(Clone)]
pub struct Command {
    pub program: OsString,
    pub args: Vec<OsString>,
    pub input: Input,
    pub cwd: Option<PathBuf>,
    /// All of its variables but for those about the task.
    pub env: Vec<(OsString, OsString)>,
    /// Between SIGINT and SIGTERM, and between SIGTERM and SIGKILL.
    pub grace: Duration,
}

impl Command {
    /// Whether there is such a program, and such a folder: told before a task has to suffer for it.
    pub fn look(&self) -> io::Result<()> {
        Start::new(&self.program).env(self.env.iter().cloned()).cwd(self.cwd.clone()).find().map(drop)
    }
}

/// Without arguments and variables, which may be secret.
impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command").field("program", &self.program).field("cwd", &self.cwd).finish_non_exhaustive()
    }
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    pub how: How,
    /// Why it was stopped, if it was before it had ended by itself.
    pub why: Option<Why>,
}

#[derive(Debug)]
pub enum How {
    Exited(ExitStatus),
    NotStarted(String),
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            How::NotStarted(why) => write!(f, "could not be started: {why}"),
            How::Exited(status) => match (status.code(), status.signal()) {
                (Some(code), _) => write!(f, "exit code {code}"),
                (None, Some(signal)) => write!(f, "killed by {}", signal_name(signal)),
                (None, None) => f.write_str("ended in an unknown way"),
            },
        }
    }
}

impl Command {
    /// Runs it to its end. `serving` is what answers it meanwhile.
    pub async fn run(
        &self,
        content: &str,
        more_env: Vec<(OsString, OsString)>,
        outbox: &Outbox,
        stop: &Stop,
        serving: impl Future<Output = Infallible>,
    ) -> Ended {
        let (args, stdin) = self.words(content);
        let start = Start::new(&self.program)
            .args(args)
            .env(self.env.iter().cloned().chain(more_env))
            .cwd(self.cwd.clone())
            .stdin(if stdin.is_some() { Pipe::Piped } else { Pipe::Null })
            .marked();
        let how = match start.start_for_life().await {
            Ok(started) => return self.attend(started, stdin, outbox, stop, serving).await,
            Err(error) => How::NotStarted(error.to_string()),
        };
        Ended { how, why: stop.why() }
    }

    /// The arguments, and what goes to stdin.
    fn words<'a>(&self, content: &'a str) -> (Vec<OsString>, Option<&'a str>) {
        let has_place = self.args.iter().any(|arg| find(arg.as_bytes()).is_some());
        if self.input == Input::Stdin || !has_place {
            return (self.args.clone(), Some(content));
        }
        (self.args.iter().map(|arg| filled(arg, content)).collect(), None)
    }

    async fn attend(
        &self,
        started: Started,
        stdin: Option<&str>,
        outbox: &Outbox,
        stop: &Stop,
        serving: impl Future<Output = Infallible>,
    ) -> Ended {
        let Started { mut group, mut child, stdin: pipe, stdout, stderr } = started;
        let streams = async { tokio::join!(feed(pipe, stdin), hear(stdout, outbox), hear(stderr, outbox)) };
        let mut streams = std::pin::pin!(streams);
        let mut open = true;
        {
            let mut ends = std::pin::pin!(group.leader_ends());
            let mut stopping = std::pin::pin!(self.stop_when_told(&group, stop));
            let mut serving = std::pin::pin!(serving);
            loop {
                tokio::select! {
                    biased;
                    _ = &mut ends => break,
                    _ = &mut streams, if open => open = false,
                    never = &mut stopping => match never {},
                    never = &mut serving => match never {},
                }
            }
        }
        let why = stop.why();
        if open {
            open = timeout(LINGER, &mut streams).await.is_err();
        }
        // Before the leader is reaped: until then the number is its own.
        group.kill();
        group.kill_strays().await;
        if open {
            let _ = timeout(LINGER, &mut streams).await;
        }
        let how = match timeout(REAPING, child.wait()).await {
            Ok(Ok(status)) => How::Exited(status),
            Ok(Err(error)) => How::NotStarted(error.to_string()),
            Err(_) => How::NotStarted("it does not end".to_owned()),
        };
        group.release();
        Ended { how, why }
    }

    /// SIGINT, then SIGTERM, then SIGKILL, to all of it.
    async fn stop_when_told(&self, group: &Group, stop: &Stop) -> Infallible {
        stop.stopped().await;
        group.interrupt();
        sleep(self.grace).await;
        group.ask_to_end();
        sleep(self.grace).await;
        group.kill();
        std::future::pending().await
    }
}

async fn feed(pipe: Option<ChildStdin>, words: Option<&str>) {
    if let (Some(mut pipe), Some(words)) = (pipe, words) {
        // Who reads line by line wants an end of the last one, too.
        let end = if words.ends_with('\n') { "" } else { "\n" };
        // A command that does not read them all has its reasons.
        let _ = pipe.write_all(format!("{words}{end}").as_bytes()).await;
    }
}

async fn hear(stream: Option<impl AsyncRead + Unpin>, outbox: &Outbox) {
    let Some(mut stream) = stream else { return };
    let (mut lines, mut buffer) = (Lines::default(), vec![0; PIPE]);
    loop {
        let read = match lines.has_partial() {
            false => stream.read(&mut buffer).await,
            true => match timeout(SILENCE, stream.read(&mut buffer)).await {
                Ok(read) => read,
                Err(_) => {
                    lines.flush(Ends::Not, |piece, ends| outbox.heard(piece, ends));
                    // What is left is half a letter; its other half wakes us.
                    stream.read(&mut buffer).await
                }
            },
        };
        match read {
            Ok(0) | Err(_) => break,
            Ok(count) => lines.feed(&buffer[..count], |piece, ends| outbox.heard(piece, ends)),
        }
    }
    lines.flush(Ends::Line, |piece, ends| outbox.heard(piece, ends));
}

fn filled(arg: &OsStr, content: &str) -> OsString {
    let (mut filled, mut rest) = (Vec::new(), arg.as_bytes());
    while let Some(at) = find(rest) {
        filled.extend_from_slice(&rest[..at]);
        filled.extend_from_slice(content.as_bytes());
        rest = &rest[at + PLACE.len()..];
    }
    filled.extend_from_slice(rest);
    OsString::from_vec(filled)
}

fn find(arg: &[u8]) -> Option<usize> {
    arg.windows(PLACE.len()).position(|window| window == PLACE)
}

fn signal_name(signal: i32) -> String {
    use rustix::process::Signal;
    let known = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
        (Signal::SYS, "SIGSYS"),
    ];
    let named = known.into_iter().find(|(known, _)| known.as_raw() == signal);
    named.map_or_else(|| format!("signal {signal}"), |(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_go_to_stdin_or_where_the_braces_are() {
        check(&["-p"], Input::Argument, &["-p"], Some("do it"));
        check(&["-p", "{}"], Input::Argument, &["-p", "do it"], None);
        check(&["--say={}, {}"], Input::Argument, &["--say=do it, do it"], None);
        check(&["-p", "{}"], Input::Stdin, &["-p", "{}"], Some("do it"));
        check(&["{", "}"], Input::Argument, &["{", "}"], Some("do it"));

        #[track_caller]
        fn check(args: &[&str], input: Input, expected: &[&str], stdin: Option<&str>) {
            let command = Command {
                program: "x".into(),
                args: args.iter().map(OsString::from).collect(),
                input,
                cwd: None,
                env: Vec::new(),
                grace: Duration::ZERO,
            };
            let expected: Vec<OsString> = expected.iter().map(OsString::from).collect();
            assert_eq!(command.words("do it"), (expected, stdin));
        }
    }

    #[test]
    fn an_end_is_told_in_words() {
        let exited = |raw| How::Exited(ExitStatus::from_raw(raw)).to_string();
        assert_eq!(exited(0), "exit code 0");
        assert_eq!(exited(3 << 8), "exit code 3");
        assert_eq!(exited(11), "killed by SIGSEGV");
        assert_eq!(exited(64), "killed by signal 64");
        assert_eq!(How::NotStarted("no".to_owned()).to_string(), "could not be started: no");
    }
}
