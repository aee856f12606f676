//! The one writer of a process: takes what is there, commits it together, then answers.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use nexus_core::Chain;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::QueueError;
use super::batch::{Batch, Committed};
use super::clock::Clock;
use super::ears::Ears;
use super::send::{self, Sending};
use super::tend::JUMP_MS;
use crate::agents::bell::Bell;
use crate::store::{Store, StoreError};

/// Changes that are committed together at most.
const MOST: usize = 256;
/// How long those who were told of the last commit are waited for.
const MUSTER: Duration = Duration::from_micros(300);

/// A change of the queue. What it refuses, it refuses before it has changed anything.
pub trait Change: fmt::Debug + Send + 'static {
    type Done: fmt::Debug + Send + 'static;

    fn make(&self, batch: &mut Batch<'_>) -> impl Future<Output = Result<Self::Done, QueueError>> + Send;

    /// It is not made any more when nobody waits for it.
    const NEEDS_A_LISTENER: bool = false;
}

/// A change with whoever waits for it.
#[derive(Debug)]
pub struct Asked<C, D> {
    pub what: C,
    pub done: Option<Result<D, QueueError>>,
    answer: oneshot::Sender<Result<D, QueueError>>,
}

impl<C, D> Asked<C, D> {
    pub fn new(what: C) -> (Self, oneshot::Receiver<Result<D, QueueError>>) {
        let (answer, waiting) = oneshot::channel();
        (Self { what, done: None, answer }, waiting)
    }

    fn tell(self) {
        let _ = self.answer.send(self.done.unwrap_or(Err(QueueError::Ending)));
    }

    fn fail(self, error: StoreError) {
        let _ = self.answer.send(Err(QueueError::Store(error)));
    }
}

/// Any change, with whoever waits for it.
pub trait Step: fmt::Debug + Send {
    fn make<'a>(&'a mut self, batch: &'a mut Batch<'_>) -> BoxFuture<'a, Result<(), StoreError>>;
    fn tell(self: Box<Self>);
    fn fail(self: Box<Self>, error: StoreError);
}

impl<C: Change> Step for Asked<C, C::Done> {
    fn make<'a>(&'a mut self, batch: &'a mut Batch<'_>) -> BoxFuture<'a, Result<(), StoreError>> {
        async move {
            if C::NEEDS_A_LISTENER && self.answer.is_closed() {
                return Ok(());
            }
            self.done = Some(match self.what.make(batch).await {
                Err(QueueError::Store(error)) => return Err(error),
                done => done,
            });
            Ok(())
        }
        .boxed()
    }

    fn tell(self: Box<Self>) {
        (*self).tell();
    }

    fn fail(self: Box<Self>, error: StoreError) {
        (*self).fail(error);
    }
}

/// What comes to the writer. Messages are apart: those that follow each other are written together.
#[derive(Debug)]
pub enum Op {
    Send(Box<Asked<Sending, super::Sent>>),
    Step(Box<dyn Step>),
}

impl Op {
    fn tell(self) {
        match self {
            Op::Send(asked) => asked.tell(),
            Op::Step(step) => step.tell(),
        }
    }

    fn fail(self, error: StoreError) {
        match self {
            Op::Send(asked) => asked.fail(error),
            Op::Step(step) => step.fail(error),
        }
    }
}

/// Why a batch was not written.
enum Failed {
    /// Nothing can be written now.
    Shut(StoreError),
    /// Something in it cannot be written.
    Refused(StoreError),
}

#[derive(Debug)]
pub struct Writer {
    pub store: Store,
    pub home: Arc<str>,
    pub clock: Clock,
    pub bell: Arc<Bell>,
    pub ears: Arc<Ears>,
    /// When the next lease or deadline runs out, as far as this process knows.
    pub due: Arc<watch::Sender<Option<i64>>>,
}

impl Writer {
    /// Until told to stop; then writes what was handed in before.
    pub async fn run(self, mut inbox: mpsc::Receiver<Op>, stop: CancellationToken) {
        let mut last = 0;
        loop {
            let first = tokio::select! {
                biased;
                op = inbox.recv() => op,
                () = stop.cancelled() => {
                    inbox.close();
                    inbox.recv().await
                }
            };
            let Some(first) = first else { break };
            muster(&inbox, last).await;
            let mut ops = vec![first];
            while ops.len() < MOST
                && let Ok(op) = inbox.try_recv()
            {
                ops.push(op);
            }
            last = ops.len();
            self.write(ops).await;
        }
    }

    async fn write(&self, mut ops: Vec<Op>) {
        match self.attempt(&mut ops).await {
            Ok(committed) => self.tell(ops, committed),
            Err(Failed::Refused(error)) if ops.len() > 1 => {
                warn!(error = %Chain(&error), "the store did not take {} changes together; one by one", ops.len());
                self.write_each(ops).await;
            }
            Err(Failed::Refused(error) | Failed::Shut(error)) => fail_all(ops, error),
        }
    }

    async fn write_each(&self, ops: Vec<Op>) {
        let mut rest = ops.into_iter();
        while let Some(op) = rest.next() {
            let mut one = vec![op];
            match self.attempt(&mut one).await {
                Ok(committed) => self.tell(one, committed),
                Err(Failed::Refused(error)) => fail_all(one, error),
                Err(Failed::Shut(error)) => {
                    one.extend(rest);
                    return fail_all(one, error);
                }
            }
        }
    }

    /// Notes when nobody can be heard: beats that are not written are no silence.
    async fn attempt(&self, ops: &mut [Op]) -> Result<Committed, Failed> {
        let began_ms = self.clock.now_ms();
        let done = self.attempt_once(ops).await;
        let missed = match &done {
            Ok(_) => (self.clock.now_ms() - began_ms).abs() > JUMP_MS,
            Err(Failed::Shut(_)) => true,
            Err(Failed::Refused(error)) => !is_of_one(error),
        };
        if missed {
            self.ears.miss();
        }
        done
    }

    async fn attempt_once(&self, ops: &mut [Op]) -> Result<Committed, Failed> {
        let now = self.clock.now();
        let mut batch = Batch::begin(&self.store, &self.home, now, &self.ears).await.map_err(Failed::Shut)?;
        if let Err(error) = make_all(ops, &mut batch).await {
            batch.give_up().await;
            return Err(Failed::Refused(error));
        }
        // Whether it was written is not known then: nothing may be done a second time.
        batch.commit().await.map_err(|error| match error {
            StoreError::Commit(_) => Failed::Shut(error),
            error => Failed::Refused(error),
        })
    }

    fn tell(&self, ops: Vec<Op>, Committed { rung, due, next_due }: Committed) {
        if let Some(next) = next_due {
            self.due.send_replace(next);
        }
        if let Some(due) = due {
            self.due.send_if_modified(|known| {
                let earlier = known.is_none_or(|known| due < known);
                if earlier {
                    *known = Some(due);
                }
                earlier
            });
        }
        ops.into_iter().for_each(Op::tell);
        self.bell.ring(&rung);
    }
}

/// Whether a failure has to do with what was to be written, and not with the store.
fn is_of_one(error: &StoreError) -> bool {
    match error {
        StoreError::BadTask { .. } | StoreError::Raced { .. } => true,
        StoreError::Query(sqlx::Error::Database(error)) => error.kind() != sqlx::error::ErrorKind::Other,
        _ => false,
    }
}

/// Those who were told of the last commit may be about to come back with their next change: a short wait for as many
/// makes one commit of what would be two.
async fn muster(inbox: &mpsc::Receiver<Op>, last: usize) {
    let started = Instant::now();
    while 1 + inbox.len() < last && started.elapsed() < MUSTER && !inbox.is_closed() {
        tokio::task::yield_now().await;
    }
}

async fn make_all(ops: &mut [Op], batch: &mut Batch<'_>) -> Result<(), StoreError> {
    let mut rest = ops;
    while let Some(first) = rest.first() {
        let alike = match first {
            Op::Send(_) => rest.iter().take_while(|op| matches!(op, Op::Send(_))).count(),
            Op::Step(_) => 1,
        };
        let (now, later) = rest.split_at_mut(alike);
        if let [Op::Step(step)] = now {
            step.make(batch).await?;
        } else {
            let sends = now.iter_mut().filter_map(|op| match op {
                Op::Send(asked) => Some(&mut **asked),
                Op::Step(_) => None,
            });
            send::make_all(sends.collect(), batch).await?;
        }
        rest = later;
    }
    Ok(())
}

/// All of them hear the same.
fn fail_all(mut ops: Vec<Op>, error: StoreError) {
    warn!(error = %Chain(&error), "the store did not take {} changes of the queue", ops.len());
    let last = ops.pop();
    for op in ops {
        op.fail(error.again());
    }
    if let Some(op) = last {
        op.fail(error);
    }
}
