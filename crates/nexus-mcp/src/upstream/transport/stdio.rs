//! A server that is a program of its own: one JSON message a line, in and out.

mod incoming;
mod outgoing;

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio::net::unix::pipe;
use tokio::process::ChildStderr;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use nexus_core::tasks::Tasks;
use nexus_core::{clock, redact, text};
use nexus_system::process::{Pipe, Start, Started};

use super::{Connector, Inbox, Outgoing, Transport};
use crate::upstream::config::Program;
use crate::upstream::error::TransportError;
use crate::upstream::log::ServerLog;
use incoming::read;
pub(crate) use incoming::{LARGE, MAPPED};
use outgoing::Outbox;

/// Bytes of one message. A line beyond it is passed over, and fails whoever waits for it.
pub const LONGEST_MESSAGE: usize = 10_000_000;

/// Between the end of its input and SIGTERM, and again between that and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// How long the output of a program that has ended is still read: something it has started may hold it open.
const LINGER: Duration = Duration::from_millis(300);
/// A killed process ends at once, unless its disk holds it in the kernel.
const REAP_PATIENCE: Duration = Duration::from_secs(2);

/// Starts the program anew for every connection.
#[derive(Debug)]
pub struct StdioConnector {
    program: Program,
    log: Arc<ServerLog>,
    tasks: Tasks,
}

impl StdioConnector {
    pub fn new(program: Program, log: Arc<ServerLog>, tasks: Tasks) -> Self {
        Self { program, log, tasks }
    }

    async fn start(&self, inbox: Arc<dyn Inbox>) -> Result<Arc<dyn Transport>, TransportError> {
        let Program { command, args, env, cwd } = &self.program;
        let start = Start::new(command).args(args).env(env.iter().map(|(name, value)| (name, value)));
        let started = start.cwd(cwd.clone()).stdin(Pipe::Piped).start_for_life().await;
        let pipes = started.and_then(|mut started| {
            let stdin = started.stdin.take().ok_or_else(no_pipe)?.into_owned_fd()?;
            let stdout = started.stdout.take().ok_or_else(no_pipe)?.into_owned_fd()?;
            Ok((pipe::Sender::from_owned_fd(stdin)?, pipe::Receiver::from_owned_fd(stdout)?, started))
        });
        let (stdin, stdout, started) = pipes.map_err(|error| self.not_started(&error))?;
        let pid = started.child.id();
        self.log.note(format_args!("started as process {}", pid.unwrap_or_default()));
        let outbox = Arc::new(Outbox::new(stdin));
        self.tasks.spawn("upstream input", flush(outbox.clone()));
        let reading = read(stdout, inbox.clone(), self.log.clone());
        let (closing, dropped, gone) = (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
        let keeper = Keeper {
            outbox: outbox.clone(),
            inbox,
            log: self.log.clone(),
            born: clock::now(),
            closing: closing.clone(),
            dropped: dropped.clone(),
            stopping: self.tasks.stopping(),
            gone: gone.clone(),
            reading: self.tasks.spawn("upstream output", reading),
            talking: None,
            started,
        };
        let keeper = keeper.listening(&self.tasks);
        self.tasks.spawn("upstream process", keeper.keep());
        Ok(Arc::new(StdioTransport { pid, outbox, closing, dropped, gone }))
    }

    fn not_started(&self, error: &std::io::Error) -> TransportError {
        let error = TransportError::NotStarted { program: self.program.command.clone(), reason: error.to_string() };
        self.log.note(&error);
        error
    }
}

impl Connector for StdioConnector {
    fn open(&self, inbox: Arc<dyn Inbox>) -> BoxFuture<'_, Result<Arc<dyn Transport>, TransportError>> {
        Box::pin(self.start(inbox))
    }

    fn describe(&self) -> String {
        let words = std::iter::once(&self.program.command).chain(&self.program.args);
        let line = words.map(String::as_str).collect::<Vec<_>>().join(" ");
        text::cut(&redact::text(&text::clean(&line)), 200).replace(['\n', '\r', '\t'], " ")
    }

    fn is_shared_stream(&self) -> bool {
        true
    }
}

fn no_pipe() -> std::io::Error {
    std::io::Error::other("it has no pipe")
}

async fn flush(outbox: Arc<Outbox>) {
    outbox.flush().await;
}

#[derive(Debug)]
struct StdioTransport {
    pid: Option<u32>,
    outbox: Arc<Outbox>,
    /// To be ended in order.
    closing: CancellationToken,
    /// Nobody has it any more: to be ended at once.
    dropped: CancellationToken,
    /// Nothing of it is left.
    gone: CancellationToken,
}

impl Transport for StdioTransport {
    fn send(&self, message: Outgoing) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(self.outbox.send(message.text))
    }

    fn pid(&self) -> Option<u32> {
        self.pid
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.closing.cancel();
        Box::pin(self.gone.cancelled())
    }
}

impl Drop for StdioTransport {
    fn drop(&mut self) {
        self.dropped.cancel();
    }
}

/// Watches over the process until nothing of it is left.
struct Keeper {
    /// Stands first: should this be dropped half-way, its group is killed.
    started: Started,
    outbox: Arc<Outbox>,
    inbox: Arc<dyn Inbox>,
    log: Arc<ServerLog>,
    born: Timestamp,
    closing: CancellationToken,
    dropped: CancellationToken,
    stopping: CancellationToken,
    gone: CancellationToken,
    reading: JoinHandle<Option<()>>,
    talking: Option<JoinHandle<Option<()>>>,
}

/// What ends a connection.
enum Cause {
    Ended,
    OutputClosed,
    InputClosed,
    Asked,
    Dropped,
}

impl Keeper {
    /// Its stderr goes to the log.
    fn listening(mut self, tasks: &Tasks) -> Self {
        let follow = |stderr: ChildStderr, log: Arc<ServerLog>| async move { log.follow(stderr).await };
        let stderr = self.started.stderr.take();
        self.talking = stderr.map(|stderr| tasks.spawn("upstream stderr", follow(stderr, self.log.clone())));
        self
    }

    async fn keep(mut self) {
        let mut cause = tokio::select! {
            biased;
            _ = self.started.group.leader_ends() => Cause::Ended,
            _ = &mut self.reading => Cause::OutputClosed,
            () = self.closing.cancelled() => Cause::Asked,
            () = self.stopping.cancelled() => Cause::Asked,
            () = self.dropped.cancelled() => Cause::Dropped,
            () = self.outbox.closed() => Cause::InputClosed,
        };
        self.outbox.close();
        // A program that ends closes its pipes first.
        if matches!(cause, Cause::OutputClosed | Cause::InputClosed)
            && timeout(LINGER, self.started.group.leader_ends()).await.is_ok()
        {
            cause = Cause::Ended;
        }
        if matches!(cause, Cause::OutputClosed | Cause::InputClosed | Cause::Asked) {
            self.end_in_order().await;
        }
        // What it said last is still in the pipe.
        if !matches!(cause, Cause::Dropped) && !self.reading.is_finished() {
            let _ = timeout(LINGER, &mut self.reading).await;
        }
        // Before the leader is reaped: the group's number is surely its own until then.
        self.started.group.kill();
        let status = timeout(REAP_PATIENCE, self.started.child.wait()).await.ok().and_then(Result::ok);
        if status.is_some() {
            self.started.group.release();
        }
        if let Some(talking) = &mut self.talking {
            let _ = timeout(LINGER, talking).await;
        }
        let reason = self.reason(&cause, status);
        self.log.note(&reason);
        self.reading.abort();
        if let Some(talking) = &self.talking {
            talking.abort();
        }
        self.inbox.closed(TransportError::Closed(reason));
        self.gone.cancel();
    }

    /// End of input, then SIGTERM, each with time to follow.
    async fn end_in_order(&self) {
        let group = &self.started.group;
        for step in [None, Some(())] {
            if step.is_some() {
                group.ask_to_end();
            }
            let ended = tokio::select! {
                ended = timeout(GRACE, group.leader_ends()) => matches!(ended, Ok(Ok(()))),
                () = self.dropped.cancelled() => true,
            };
            if ended {
                return;
            }
        }
    }

    fn reason(&self, cause: &Cause, status: Option<ExitStatus>) -> String {
        let how = match status.map(|status| (status.code(), status.signal())) {
            Some((Some(code), _)) => format!("exited with code {code}"),
            Some((None, Some(signal))) => format!("was ended by signal {signal}"),
            _ => "does not end".to_owned(),
        };
        let how = match cause {
            Cause::Ended => format!("the server {how}"),
            Cause::OutputClosed => format!("the server closed its output and {how}"),
            Cause::InputClosed => format!("the server closed its input and {how}"),
            Cause::Asked | Cause::Dropped => return format!("closed by the hub; the server {how}"),
        };
        match self.log.last_words(self.born) {
            Some(words) => format!("{how}; its last words: {words}"),
            None => how,
        }
    }
}

#[cfg(test)]
mod tests;
