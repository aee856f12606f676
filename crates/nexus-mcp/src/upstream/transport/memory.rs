//! A server in the same program: for tests, and for what needs no process of its own.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use nexus_core::tasks::Tasks;

use super::{Connector, Inbox, Outgoing, Transport};
use crate::upstream::error::TransportError;

/// Messages on their way. Whoever sends more waits.
const ON_THE_WAY: usize = 64;

type Serve = dyn Fn(Far) -> BoxFuture<'static, ()> + Send + Sync;

/// Opens connections to a server that is a function: it gets the far end of each, and ends when that hears nothing more.
pub struct MemoryConnector {
    serve: Arc<Serve>,
    tasks: Tasks,
    streams: Streams,
}

/// Which kind of transport it is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// stdio: all messages in one stream.
    Shared,
    /// HTTP: each request has its own.
    Separate,
}

impl MemoryConnector {
    pub fn new<F>(tasks: Tasks, streams: Streams, serve: impl Fn(Far) -> F + Send + Sync + 'static) -> Arc<Self>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Arc::new(Self { serve: Arc::new(move |far| Box::pin(serve(far))), tasks, streams })
    }
}

impl fmt::Debug for MemoryConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryConnector").field("streams", &self.streams).finish_non_exhaustive()
    }
}

impl Connector for MemoryConnector {
    fn open(&self, inbox: Arc<dyn Inbox>) -> BoxFuture<'_, Result<Arc<dyn Transport>, TransportError>> {
        Box::pin(async move {
            let (messages, heard) = mpsc::channel(ON_THE_WAY);
            let (abandoned, hung_up) = mpsc::channel(ON_THE_WAY);
            let ended = CancellationToken::new();
            let serving = (self.serve)(Far { heard, hung_up, inbox });
            let guard = ended.clone().drop_guard();
            self.tasks.spawn("server in memory", async move {
                serving.await;
                drop(guard);
            });
            let transport = MemoryTransport { messages: Mutex::new(Some(messages)), abandoned, ended };
            Ok(Arc::new(transport) as Arc<dyn Transport>)
        })
    }

    fn describe(&self) -> String {
        "in memory".into()
    }

    fn is_shared_stream(&self) -> bool {
        self.streams == Streams::Shared
    }
}

/// The server's end of a connection. When it is dropped, the connection is over.
pub struct Far {
    heard: mpsc::Receiver<Outgoing>,
    hung_up: mpsc::Receiver<u64>,
    inbox: Arc<dyn Inbox>,
}

impl Far {
    /// The next message. None: the client has closed the connection.
    pub async fn heard(&mut self) -> Option<Outgoing> {
        self.heard.recv().await
    }

    /// The next request whose answer the client no longer wants.
    pub async fn abandoned(&mut self) -> Option<u64> {
        self.hung_up.recv().await
    }

    pub fn say(&self, message: impl Into<Vec<u8>>) {
        self.inbox.arrived(message.into(), None);
    }

    /// On the stream of one request.
    pub fn say_within(&self, request: u64, message: impl Into<Vec<u8>>) {
        self.inbox.arrived(message.into(), Some(request));
    }

    pub fn fail(&self, request: u64, error: TransportError) {
        self.inbox.failed(request, error);
    }

    /// Ends the connection for a reason of one's own.
    pub fn end(&self, error: TransportError) {
        self.inbox.closed(error);
    }

    /// A message of the server did not come through.
    pub fn lose(&self, error: TransportError) {
        self.inbox.lost(error);
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.inbox.closed(TransportError::Closed("the server has ended".into()));
    }
}

impl fmt::Debug for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Far").field("waiting", &self.heard.len()).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct MemoryTransport {
    messages: Mutex<Option<mpsc::Sender<Outgoing>>>,
    abandoned: mpsc::Sender<u64>,
    ended: CancellationToken,
}

impl Transport for MemoryTransport {
    fn send(&self, message: Outgoing) -> BoxFuture<'_, Result<(), TransportError>> {
        let messages = self.messages.lock().clone();
        Box::pin(async move {
            let gone = || TransportError::Closed("the server has ended".into());
            messages.ok_or_else(gone)?.send(message).await.map_err(|_| gone())
        })
    }

    fn abandon(&self, request: u64) {
        let _ = self.abandoned.try_send(request);
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        drop(self.messages.lock().take());
        Box::pin(self.ended.cancelled())
    }
}
