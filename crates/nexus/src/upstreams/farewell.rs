//! Hears from the record when a session ends, so that servers close what they keep for it alone (`isolate`).

use std::sync::Arc;

use futures_util::future::BoxFuture;

use nexus_core::audit::{Event, NotRecorded, Row, Sink};
use nexus_mcp::upstream::registry::Registry;

/// The record of sessions, with one more reader.
pub struct Farewell {
    pub audit: Arc<dyn Sink>,
    pub registry: Registry,
}

impl Sink for Farewell {
    fn post(&self, row: Row) {
        if let (Event::SessionEnded, Some(session)) = (row.event, row.session) {
            self.registry.session_ended(session);
        }
        self.audit.post(row);
    }

    fn durable(&self, row: Row) -> BoxFuture<'_, Result<(), NotRecorded>> {
        self.audit.durable(row)
    }

    fn noted(&self, row: Row) -> Result<(), NotRecorded> {
        self.audit.noted(row)
    }

    fn backlog(&self) -> Option<BoxFuture<'_, ()>> {
        self.audit.backlog()
    }
}
