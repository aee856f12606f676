//! Where all that arrives is sorted: answers to those who wait for them, notices to those they concern.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use nexus_core::session::Era;
use nexus_core::tasks::Tasks;

use super::outcome::{self, Answer, cut_off, failed, unanswered};
use super::question::Questions;
use super::said::{self, Said};
use super::waiting::{Concerned, Kind, MOST_UNRELATED, Table};
use super::{Changed, Host, Listener, Options};
use crate::upstream::error::{Delivery, ProtocolError, TransportError};
use crate::upstream::transport::{Inbox, Outgoing};
use crate::wire::RequestId;

/// Messages of ours, other than requests, that are not yet handed over.
const OUTBOX: usize = 64;

/// Bytes of a notification's parameters. Larger ones are of no use to anybody, and those who keep some must not burst.
const LARGEST_NOTICE: usize = 64 * 1024;

/// Bytes of a message whose result is not copied.
const LARGE: usize = 256 * 1024;

/// The inbox of one connection.
pub(super) struct Desk {
    pub host: Arc<dyn Host>,
    pub tasks: Tasks,
    /// Answers to the server's questions, and cancellations.
    pub outbox: mpsc::Sender<Outgoing>,
    /// What the server asks of us.
    pub questions: Questions,
    /// Known after the handshake.
    pub era: OnceLock<Era>,
    /// Cancelled when the connection is over.
    pub over: CancellationToken,
    /// Changes of resources have been asked for, so that they are not unrelated.
    pub subscribed: AtomicBool,
    table: Mutex<Table>,
}

impl Desk {
    pub(super) fn new(options: &Options) -> (Arc<Self>, mpsc::Receiver<Outgoing>) {
        let (outbox, posted) = mpsc::channel(OUTBOX);
        let desk = Self {
            host: options.host.clone(),
            tasks: options.tasks.clone(),
            outbox,
            questions: Questions::default(),
            era: OnceLock::new(),
            over: CancellationToken::new(),
            subscribed: AtomicBool::new(false),
            table: Mutex::default(),
        };
        (Arc::new(desk), posted)
    }

    /// Takes an id for a request that is about to be sent.
    pub(super) fn expect(
        &self,
        listener: Option<Arc<dyn Listener>>,
        kind: Kind,
    ) -> Result<(u64, oneshot::Receiver<Answer>), TransportError> {
        self.table.lock().add(listener, kind)
    }

    /// Nobody waits for this request any more.
    pub(super) fn withdraw(&self, id: u64) {
        let waiting = self.table.lock().take(id);
        if let Some(waiting) = waiting {
            waiting.dismiss();
        }
    }

    /// The same, where the server may still say something of it.
    pub(super) fn forget(&self, id: u64) {
        let waiting = self.table.lock().give_up(id);
        if let Some(waiting) = waiting {
            waiting.dismiss();
        }
    }

    /// When the server last told of progress with this request.
    pub(super) fn progressed(&self, id: u64) -> Option<Instant> {
        self.table.lock().progressed(id)
    }

    pub(super) fn concerned(&self, within: Option<u64>) -> Option<Concerned> {
        self.table.lock().concerned(within)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.table.lock().len()
    }

    pub(super) fn why_closed(&self) -> Option<TransportError> {
        self.table.lock().why_closed().cloned()
    }

    pub(super) async fn closed(&self) -> TransportError {
        self.over.cancelled().await;
        self.why_closed().unwrap_or_else(|| TransportError::Closed("it is over".into()))
    }

    /// Ends it from this side.
    pub(super) fn shut(&self) {
        self.end(&TransportError::Closed("this side has closed it".into()));
    }

    fn end(&self, error: &TransportError) {
        let everybody = self.table.lock().close(error.clone());
        for waiting in everybody.into_iter().flatten() {
            waiting.settle(Err(cut_off(error.clone())));
        }
        self.over.cancel();
    }

    fn answered(&self, id: Option<u64>, answer: Result<&RawValue, &RawValue>, within: Option<u64>) {
        // Over HTTP the answer to a request that could not be read comes without its id, on that request's own stream.
        let id = id.or(within.filter(|_| answer.is_err()));
        let waiting = id.and_then(|id| self.table.lock().take(id));
        match waiting {
            // A result may be large: it is copied without the lock.
            Some(waiting) => waiting.settle(outcome::read(answer)),
            None if self.table.lock().is_late(id) => {}
            None => self.unrelated(within),
        }
    }

    fn noticed(&self, method: &str, params: Option<&RawValue>, within: Option<u64>) {
        if params.is_some_and(|params| params.get().len() > LARGEST_NOTICE) {
            return self.unrelated(within);
        }
        match method {
            "notifications/progress" => self.progress(params),
            "notifications/message" => self.logged(params, within),
            "notifications/tools/list_changed" => self.host.changed(Changed::Tools),
            "notifications/prompts/list_changed" => self.host.changed(Changed::Prompts),
            "notifications/resources/list_changed" => self.host.changed(Changed::Resources),
            "notifications/resources/updated" => self.updated(params, within),
            "notifications/cancelled" => self.cancelled(params, within),
            "notifications/subscriptions/acknowledged" => self.accepted(params, within),
            _ => self.unrelated(within),
        }
    }

    fn progress(&self, params: Option<&RawValue>) {
        let Some(params) = params else { return };
        let token = said::Numbers::of(params).and_then(|numbers| said::number(numbers.progress_token?));
        let listener = token.and_then(|token| self.table.lock().progress(token, Instant::now()));
        if let Some(listener) = listener {
            listener.progress(params);
        }
    }

    fn logged(&self, params: Option<&RawValue>, within: Option<u64>) {
        let Some(params) = params else { return };
        let concerned = self.concerned(within);
        match concerned {
            Some((listener, _)) => listener.logged(params),
            None => self.host.logged(params),
        }
    }

    fn updated(&self, params: Option<&RawValue>, within: Option<u64>) {
        #[derive(Deserialize)]
        struct Updated {
            uri: String,
        }
        let updated = params.and_then(|params| serde_json::from_str::<Updated>(params.get()).ok());
        match updated {
            Some(updated) if self.subscribed.load(Ordering::Relaxed) => self.host.updated(&updated.uri),
            _ => self.unrelated(within),
        }
    }

    /// The server no longer wants an answer to a question of its own; or it ends a lasting request in this way.
    fn cancelled(&self, params: Option<&RawValue>, within: Option<u64>) {
        let id = params.and_then(|params| said::Numbers::of(params)?.request_id);
        if id.and_then(RequestId::parse).is_some_and(|id| self.questions.withdraw(&id)) {
            return;
        }
        let lasting = id.and_then(said::number).and_then(|id| self.table.lock().take_lasting(id));
        match lasting {
            Some(lasting) => lasting.settle(Err(failed(ProtocolError::Cancelled, Delivery::Answered))),
            None => self.unrelated(within),
        }
    }

    fn accepted(&self, params: Option<&RawValue>, within: Option<u64>) {
        let named = params.and_then(subscription_of);
        let accepted = [within, named].into_iter().flatten().find_map(|id| self.table.lock().accepted(id));
        match accepted {
            Some(accepted) => accepted.cancel(),
            None => self.unrelated(within),
        }
    }

    /// The result of a large answer is cut out of its message in place.
    fn arrived_large(&self, message: Vec<u8>, within: Option<u64>) {
        let Some((id, place)) = said::large_result(&message) else {
            return said::each(&message, |said| self.hear(said, within));
        };
        let waiting = self.table.lock().take(id);
        match waiting {
            Some(waiting) => waiting.settle(outcome::cut_out(message, place)),
            None if self.table.lock().is_late(Some(id)) => {}
            None => self.unrelated(within),
        }
    }

    fn hear(&self, said: Said<'_>, within: Option<u64>) {
        match said {
            Said::Answer { id, answer } => self.answered(id, answer, within),
            Said::Notice { method, params } => self.noticed(&method, params, within),
            Said::Question { id, method, params } => self.questioned(id, &method, params, within),
            Said::Noise => self.unrelated(within),
        }
    }

    /// Counts a message that nobody can use, against those who wait.
    pub(super) fn unrelated(&self, within: Option<u64>) {
        let flooded = self.table.lock().count_unrelated(within);
        for waiting in flooded {
            let error = ProtocolError::Flooded(MOST_UNRELATED + 1);
            waiting.settle(Err(failed(error, Delivery::MayHaveHappened)));
        }
    }
}

impl Inbox for Desk {
    fn arrived(&self, message: Vec<u8>, within: Option<u64>) {
        if message.len() > LARGE {
            return self.arrived_large(message, within);
        }
        said::each(&message, |said| self.hear(said, within));
    }

    fn failed(&self, request: u64, error: TransportError) {
        let waiting = self.table.lock().take(request);
        if let Some(waiting) = waiting {
            waiting.settle(Err(unanswered(error)));
        }
    }

    fn lost(&self, error: TransportError) {
        let waiting = self.table.lock().take_waiting();
        for waiting in waiting {
            waiting.settle(Err(cut_off(error.clone())));
        }
    }

    fn closed(&self, error: TransportError) {
        self.end(&error);
    }
}

/// `_meta["io.modelcontextprotocol/subscriptionId"]`, which is the id of the request that opened the subscription.
fn subscription_of(params: &RawValue) -> Option<u64> {
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(borrow, rename = "io.modelcontextprotocol/subscriptionId")]
        subscription: Option<&'a RawValue>,
    }
    let meta: Meta<'_> = serde_json::from_str(said::Numbers::of(params)?.meta?.get()).ok()?;
    said::number(meta.subscription?)
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("in_flight", &self.in_flight()).field("era", &self.era).finish_non_exhaustive()
    }
}
