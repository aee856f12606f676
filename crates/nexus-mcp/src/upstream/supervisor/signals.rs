//! What a server says outside of any request.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::{Notify, broadcast};

use super::parts::Notice;
use crate::upstream::client::{Changed, Host};
use crate::wire::RpcError;

/// Bytes of a notice that are passed on.
const LARGEST_NOTICE: usize = 64 * 1024;

/// Hears what the server says outside of any request.
#[derive(Debug)]
pub struct Signals {
    pub changed: Notify,
    pub notices: broadcast::Sender<Notice>,
}

impl Signals {
    pub fn new(notices: broadcast::Sender<Notice>) -> Self {
        Self { changed: Notify::new(), notices }
    }

    pub fn changed_anything(&self) {
        self.changed.notify_one();
    }
}

impl Host for Signals {
    fn changed(&self, _what: Changed) {
        self.changed_anything();
    }

    fn updated(&self, uri: &str) {
        if uri.len() <= LARGEST_NOTICE {
            // Nobody listens: then nobody needs it.
            let _ = self.notices.send(Notice::Updated(uri.into()));
        }
    }

    fn logged(&self, params: &RawValue) {
        if params.get().len() <= LARGEST_NOTICE && self.notices.receiver_count() > 0 {
            let _ = self.notices.send(Notice::Logged(params.to_owned().into()));
        }
    }

    /// Sessions share the connection, and several have calls under way, or none has.
    fn asked<'a>(
        &'a self,
        method: &'a str,
        _params: Option<&'a RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, RpcError>> {
        let method = nexus_core::text::cut(method, 100);
        let why = format!(
            "{method}: it is not certain whose call this belongs to; `isolate: true` in the server's entry gives every \
             session a process of its own"
        );
        let refused = RpcError::new(NOT_ANSWERED, why, 200);
        async move { Err(refused) }.boxed()
    }
}

/// For what nobody here can answer; the protocol leaves the code to implementations.
const NOT_ANSWERED: i32 = -32000;
