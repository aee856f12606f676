//! A request on its way: written, sent, waited for, and taken back when nobody wants the answer any more.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use nexus_core::session::Era;

use super::desk::Desk;
use super::outcome::{Answer, failed, unsent};
use super::waiting::Kind;
use super::{Ask, Options};
use crate::upstream::error::{Delivery, ProtocolError, RequestError, TransportError, UpstreamError};
use crate::upstream::transport::{Connector, Outgoing, Transport};
use crate::version::MODERN;
use crate::wire::{notification, quoted};

/// However much progress a server reports: after so many time limits a request has failed.
const MOST_EXTENSIONS: u32 = 10;

/// A limit beyond this means none; the clock cannot count for ever.
const LONGEST_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

/// An open connection and all that it takes to write a request on it.
#[derive(Debug)]
pub(super) struct Line {
    pub desk: Arc<Desk>,
    pub transport: Arc<dyn Transport>,
    pub timeout: Duration,
    /// Whether all requests share one stream, so that a cancellation must be a message.
    shared: bool,
    /// `"…/protocolVersion":…,"…/clientInfo":…`, the part of `_meta` that is the same in every request of the new era.
    introduction: String,
    capabilities: String,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.desk.shut();
    }
}

impl Line {
    pub(super) async fn open(connector: &dyn Connector, options: &Options) -> Result<Arc<Self>, TransportError> {
        let (desk, posted) = Desk::new(options);
        let transport = connector.open(desk.clone()).await?;
        let posting = post(posted, transport.clone(), desk.over.clone());
        let line = Self {
            transport,
            timeout: options.timeout,
            shared: connector.is_shared_stream(),
            introduction: format!(
                r#""io.modelcontextprotocol/protocolVersion":"{MODERN}","io.modelcontextprotocol/clientInfo":{{"name":{},"version":{}}}"#,
                quoted(&options.name),
                quoted(&options.version),
            ),
            capabilities: options.capabilities.to_string(),
            desk,
        };
        options.tasks.spawn("outbox of an upstream", posting);
        Ok(Arc::new(line))
    }

    /// Sends a request and waits for its result.
    pub(super) async fn request(self: &Arc<Self>, ask: Ask<'_>) -> Answer {
        let limit = ask.timeout.unwrap_or(self.timeout).min(LONGEST_LIMIT);
        let deadline = Instant::now() + limit;
        let Ok(asked) = timeout_at(deadline, self.start(ask, Kind::Once, self.era())).await else {
            return Err(failed(ProtocolError::Late(limit), Delivery::MayHaveHappened));
        };
        asked?.within(limit).await
    }

    /// Sends a request, in the words of an era.
    pub(super) async fn start(self: &Arc<Self>, ask: Ask<'_>, kind: Kind, era: Era) -> Result<Asked, RequestError> {
        if ask.method == "resources/subscribe" {
            self.desk.subscribed.store(true, Ordering::Relaxed);
        }
        let (id, answer) = self.desk.expect(ask.listener.clone(), kind).map_err(unsent)?;
        let text = self.write(id, &ask, era);
        let mut asked = Asked { line: self.clone(), id, method: ask.method, answer, stage: Stage::Open };
        let outgoing =
            Outgoing { text, id: Some(id), method: Cow::Borrowed(ask.method), name: ask.name, headers: ask.headers };
        match self.transport.send(outgoing).await {
            Ok(()) => Ok(asked),
            Err(error) => {
                asked.stage = Stage::Unsent;
                Err(unsent(error))
            }
        }
    }

    pub(super) async fn notify(&self, method: &'static str, params: &str) -> Result<(), TransportError> {
        self.transport.send(bare(notification(method, params), method)).await
    }

    /// The old era until the handshake says otherwise.
    pub(super) fn era(&self) -> Era {
        self.desk.era.get().copied().unwrap_or(Era::Legacy)
    }

    fn write(&self, id: u64, ask: &Ask<'_>, era: Era) -> String {
        let mut text = String::with_capacity(ask.fields.len() + self.introduction.len() + 400);
        let _ = write!(text, r#"{{"jsonrpc":"2.0","id":{id},"method":"{}","params":{{{}"#, ask.method, ask.fields);
        let mut meta = String::new();
        if era == Era::Modern {
            let capabilities = ask.capabilities.unwrap_or(&self.capabilities);
            let _ =
                write!(meta, r#",{},"io.modelcontextprotocol/clientCapabilities":{capabilities}"#, self.introduction);
            if let Some(level) = ask.log_level {
                let _ = write!(meta, r#","io.modelcontextprotocol/logLevel":{}"#, quoted(level));
            }
        }
        if ask.wants_progress() {
            let _ = write!(meta, r#","progressToken":{id}"#);
        }
        if !ask.meta.is_empty() {
            let _ = write!(meta, ",{}", ask.meta);
        }
        if let Some(meta) = meta.strip_prefix(',') {
            let comma = if ask.fields.is_empty() { "" } else { "," };
            let _ = write!(text, r#"{comma}"_meta":{{{meta}}}"#);
        }
        text.push_str("}}");
        text
    }
}

/// A message that is no request.
pub(super) fn bare(text: String, method: &'static str) -> Outgoing {
    Outgoing { text, id: None, method: Cow::Borrowed(method), name: None, headers: Vec::new() }
}

/// Hands over what cannot wait for itself, until the connection is over.
async fn post(mut posted: mpsc::Receiver<Outgoing>, transport: Arc<dyn Transport>, over: CancellationToken) {
    let handing_over = async {
        while let Some(outgoing) = posted.recv().await {
            // What does not leave is an answer or a cancellation: whoever would miss it is on the other side.
            let _ = transport.send(outgoing).await;
        }
    };
    tokio::select! {
        () = handing_over => {}
        () = over.cancelled() => {}
    }
}

/// A request that was sent. Dropping it takes it back.
#[derive(Debug)]
pub(super) struct Asked {
    line: Arc<Line>,
    pub id: u64,
    method: &'static str,
    answer: oneshot::Receiver<Answer>,
    stage: Stage,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Unsent,
    Open,
    Settled,
}

impl Asked {
    /// Waits, however long it takes. May be dropped and called again.
    pub(super) async fn answer(&mut self) -> Answer {
        let Ok(answer) = (&mut self.answer).await else {
            return Err(failed(ProtocolError::Cancelled, Delivery::MayHaveHappened));
        };
        if !matches!(&answer, Err(RequestError { error: UpstreamError::Protocol(ProtocolError::Flooded(_)), .. })) {
            self.stage = Stage::Settled;
        }
        answer
    }

    /// Waits for as long as the server reports progress at least every `limit`, up to a multiple of it.
    async fn within(mut self, limit: Duration) -> Answer {
        let begun = Instant::now();
        let end = begun + limit.saturating_mul(MOST_EXTENSIONS);
        let mut deadline = begun + limit;
        loop {
            if let Ok(answer) = timeout_at(deadline, self.answer()).await {
                return answer;
            }
            let extended = self.line.desk.progressed(self.id).map(|at| (at + limit).min(end));
            match extended {
                Some(later) if later > deadline => deadline = later,
                _ => return Err(failed(ProtocolError::Late(deadline - begun), Delivery::MayHaveHappened)),
            }
        }
    }

    fn is_greeting(&self) -> bool {
        matches!(self.method, "initialize" | "server/discover")
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if self.stage == Stage::Settled {
            return;
        }
        if self.stage == Stage::Unsent {
            return self.line.desk.withdraw(self.id);
        }
        self.line.desk.forget(self.id);
        self.line.transport.abandon(self.id);
        // The new era over HTTP cancels by hanging up. A greeting is never cancelled, the protocol says.
        if (self.line.shared || self.line.era() == Era::Legacy) && !self.is_greeting() {
            let params = format!(r#"{{"requestId":{},"reason":"no longer wanted"}}"#, self.id);
            let cancelled = notification("notifications/cancelled", &params);
            let _ = self.line.desk.outbox.try_send(bare(cancelled, "notifications/cancelled"));
        }
    }
}
