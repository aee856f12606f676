//! The connections of one attempt to connect a server: never two at once, and none left when it is given up.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use nexus_core::tasks::Tasks;

use super::establish::CLOSE_PATIENCE;
use crate::upstream::error::TransportError;
use crate::upstream::transport::{Connector, Inbox, Transport};

/// Opens connections one after the other: what is left of one is gone before the next is there. Two processes of a server
/// may want the same file.
pub struct Opening {
    connector: Arc<dyn Connector>,
    open: Mutex<Option<Arc<dyn Transport>>>,
    tasks: Tasks,
    /// What is being closed although nobody waits for it here.
    rest: TaskTracker,
}

impl Opening {
    pub fn new(connector: Arc<dyn Connector>, tasks: Tasks, rest: TaskTracker) -> Arc<Self> {
        Arc::new(Self { connector, open: Mutex::new(None), tasks, rest })
    }

    /// It is connected: closing it is from now on up to whoever has the connection.
    pub fn succeeded(&self) {
        self.open.lock().take();
    }

    /// Comes back when nothing is left of it.
    pub async fn end(&self) {
        let open = self.open.lock().take();
        if let Some(open) = open {
            close(&*open).await;
        }
    }
}

/// Given up in the midst of it.
impl Drop for Opening {
    fn drop(&mut self) {
        // Without a runtime nothing can be waited for; what is dropped is killed.
        if let (Some(open), Ok(_)) = (self.open.get_mut().take(), Handle::try_current()) {
            self.tasks.spawn("upstream given up", self.rest.track_future(async move { close(&*open).await }));
        }
    }
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening").field("connector", &self.connector).finish_non_exhaustive()
    }
}

impl Connector for Opening {
    fn open(&self, inbox: Arc<dyn Inbox>) -> BoxFuture<'_, Result<Arc<dyn Transport>, TransportError>> {
        Box::pin(async move {
            self.end().await;
            let transport = self.connector.open(inbox).await?;
            *self.open.lock() = Some(transport.clone());
            Ok(transport)
        })
    }

    fn describe(&self) -> String {
        self.connector.describe()
    }

    fn is_shared_stream(&self) -> bool {
        self.connector.is_shared_stream()
    }
}

async fn close(transport: &dyn Transport) {
    let _ = timeout(CLOSE_PATIENCE, transport.close()).await;
}
