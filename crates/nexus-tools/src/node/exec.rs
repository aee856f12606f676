//! Runs one command on this machine.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use nexus_core::ToolError;
use nexus_system::process::{Group, Start};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStderr, ChildStdout};
use tokio::time::{Instant, interval_at, sleep_until, timeout};

use super::capture::{Capture, Captured};
use super::environment::Environment;
use super::{Argv, Limits};

/// Between asking a group to end and killing it.
const GRACE: Duration = Duration::from_secs(2);
/// How long the output of a command that has ended is still read: something in the background may hold it open.
const LINGER: Duration = Duration::from_millis(500);
/// A killed process ends at once, unless its disk holds it in the kernel.
const REAP_PATIENCE: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(250);
/// A silent command is reported this often.
const SILENCE: Duration = Duration::from_secs(2);
/// Bytes; what a pipe holds.
const PIPE: usize = 64 << 10;

/// A command that has ended.
#[derive(Debug)]
pub struct Finished {
    pub end: End,
    pub stdout: Captured,
    pub stderr: Captured,
    pub timed_out: bool,
    /// Something it started has outlived it and holds its output open.
    pub left_running: bool,
    pub elapsed: Duration,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Exited(i32),
    Signalled(i32),
    /// It was killed and has not come back from the kernel yet, or someone else took its status.
    Unknown,
}

/// How a running command is doing.
#[derive(Debug)]
pub struct Glance<'a> {
    pub elapsed: Duration,
    /// The last line it wrote, to either stream.
    pub last_line: &'a str,
}

#[derive(Debug, Error)]
pub enum ExecError {
    #[error("`{program}` could not be started")]
    NotStarted { program: String, source: io::Error },
    #[error("the call was cancelled; the command and all it started were killed")]
    Cancelled,
    #[error("the call was cancelled before the command began")]
    NotBegun,
}

impl From<ExecError> for ToolError {
    fn from(error: ExecError) -> Self {
        use io::ErrorKind::{ArgumentListTooLong, NotFound};
        match &error {
            ExecError::Cancelled | ExecError::NotBegun => Self::failed(error),
            ExecError::NotStarted { source, .. } => match source.kind() {
                ArgumentListTooLong => {
                    Self::refused(error).hint("it is too long for a command line; use write_file and run the file")
                }
                NotFound => {
                    Self::failed(error).hint("it is not installed on the hub's machine, or not where PATH leads")
                }
                _ => Self::failed(error),
            },
        }
    }
}

enum Phase {
    Running,
    /// Out of time or cancelled, and asked to end.
    Ending,
    /// The leader has ended; the rest of its output is on its way.
    Lingering(Option<ExitStatus>),
}

enum Stop {
    OutOfTime,
    Cancelled,
}

pub(super) async fn run(
    environment: &Environment,
    argv: &Argv,
    limits: Limits,
    watch: &mut (dyn FnMut(Glance<'_>) + Send),
) -> Result<Finished, ExecError> {
    if limits.cancel.is_cancelled() {
        return Err(ExecError::NotBegun);
    }
    let mut running = Running::start(environment, argv, limits.spool)?;
    let started = Instant::now();
    let mut reports = Reports { started, last: started, heard: (0, 0), line: String::new(), watch };
    let mut ticks = interval_at(started + TICK, TICK);
    let mut phase = Phase::Running;
    let mut stop = None;
    let alarm = sleep_until(started + limits.time);
    tokio::pin!(alarm);

    loop {
        let Running { group, child, out, err } = &mut running;
        let in_time = matches!(phase, Phase::Running);
        tokio::select! {
            () = out.fill(), if out.is_open() => {}
            () = err.fill(), if err.is_open() => {}
            status = child.wait(), if in_time => {
                group.release();
                phase = Phase::Lingering(status.ok());
                alarm.as_mut().reset(Instant::now() + LINGER);
            }
            () = limits.cancel.cancelled(), if in_time => stop = Some(Stop::Cancelled),
            () = &mut alarm => match phase {
                Phase::Running => stop = Some(Stop::OutOfTime),
                Phase::Ending | Phase::Lingering(_) => break,
            },
            _ = ticks.tick() => reports.tick(out, err),
        }
        match phase {
            Phase::Running if stop.is_some() => {
                group.ask_to_end();
                phase = Phase::Ending;
                alarm.as_mut().reset(Instant::now() + GRACE);
            }
            Phase::Running => {}
            Phase::Ending if running.is_silent() && running.group.leader_has_ended() => break,
            Phase::Lingering(_) if running.is_silent() => break,
            Phase::Ending | Phase::Lingering(_) => {}
        }
    }

    let status = match phase {
        Phase::Lingering(status) => status,
        Phase::Running | Phase::Ending => running.kill().await,
    };
    match stop {
        Some(Stop::Cancelled) => return Err(ExecError::Cancelled),
        Some(Stop::OutOfTime) => running.take_in_the_rest().await,
        None => {}
    }
    Ok(running.finished(status, stop.is_some(), started.elapsed()))
}

/// A command on its way. The group stands first: it is dropped, and with it killed, before the child is given up.
struct Running {
    group: Group,
    child: Child,
    out: Stream<ChildStdout>,
    err: Stream<ChildStderr>,
}

impl Running {
    fn start(environment: &Environment, argv: &Argv, spool: usize) -> Result<Self, ExecError> {
        let start = Start::new(argv.program()).args(argv.rest()).env(environment.iter());
        let started = start.start().map_err(|source| ExecError::NotStarted {
            program: argv.program().to_string_lossy().into_owned(),
            source,
        })?;
        let out = Stream::new(started.stdout, spool);
        let err = Stream::new(started.stderr, spool);
        Ok(Self { group: started.group, child: started.child, out, err })
    }

    /// Nobody can write to it any more.
    fn is_silent(&self) -> bool {
        !self.out.is_open() && !self.err.is_open()
    }

    /// Kills all of it.
    async fn kill(&mut self) -> Option<ExitStatus> {
        self.group.kill();
        let status = timeout(REAP_PATIENCE, self.child.wait()).await.ok().and_then(Result::ok);
        if status.is_some() {
            self.group.release();
        }
        status
    }

    /// What a killed command had said before.
    async fn take_in_the_rest(&mut self) {
        let rest = async {
            while self.out.is_open() {
                self.out.fill().await;
            }
            while self.err.is_open() {
                self.err.fill().await;
            }
        };
        let _ = timeout(LINGER, rest).await;
    }

    fn finished(self, status: Option<ExitStatus>, timed_out: bool, elapsed: Duration) -> Finished {
        let end = match status.map(|status| (status.code(), status.signal())) {
            Some((Some(code), _)) => End::Exited(code),
            Some((None, Some(signal))) => End::Signalled(signal),
            Some((None, None)) | None => End::Unknown,
        };
        let left_running = !self.is_silent();
        let (stdout, stderr) = (self.out.capture.finish(), self.err.capture.finish());
        Finished { end, stdout, stderr, timed_out, left_running, elapsed }
    }
}

/// One of a command's two outputs.
struct Stream<R> {
    pipe: Option<R>,
    buffer: Box<[u8]>,
    capture: Capture,
    heard: u64,
}

impl<R: AsyncRead + Unpin> Stream<R> {
    fn new(pipe: Option<R>, spool: usize) -> Self {
        Self { pipe, buffer: vec![0; PIPE].into(), capture: Capture::new(spool), heard: 0 }
    }

    fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Takes in what is there, or waits for more. May be dropped and called again without loss.
    async fn fill(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        match pipe.read(&mut self.buffer).await {
            Ok(0) | Err(_) => self.pipe = None,
            Ok(length) => {
                self.heard += length as u64;
                self.capture.push(&self.buffer[..length]);
            }
        }
    }
}

/// Tells the watcher how it goes: with each tick that has something new, and now and then in silence.
struct Reports<'a> {
    started: Instant,
    last: Instant,
    /// Bytes on stdout and stderr at the last report.
    heard: (u64, u64),
    line: String,
    watch: &'a mut (dyn FnMut(Glance<'_>) + Send),
}

impl Reports<'_> {
    fn tick(&mut self, out: &Stream<ChildStdout>, err: &Stream<ChildStderr>) {
        let now = Instant::now();
        let heard = (out.heard, err.heard);
        if heard == self.heard && now - self.last < SILENCE {
            return;
        }
        if heard.0 > self.heard.0 {
            self.line = out.capture.last_line();
        } else if heard.1 > self.heard.1 {
            self.line = err.capture.last_line();
        }
        (self.watch)(Glance { elapsed: now - self.started, last_line: &self.line });
        (self.heard, self.last) = (heard, now);
    }
}
