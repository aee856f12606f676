//! Old era: the stream by which a server says what belongs to no request.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::Link;
use super::post::PAUSE;
use crate::upstream::error::TransportError;
use crate::upstream::transport::events::{Event, Events, Position};
use crate::upstream::transport::peer::told;
use crate::upstream::transport::sse::too_large;
use crate::upstream::transport::stdio::LONGEST_MESSAGE;

/// So often in a row a server may not be there before it counts as gone.
const MOST_MISSES: u32 = 2;
/// Between two streams that bring nothing.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

impl Link {
    /// Reads it for as long as there is one, and opens it again where it broke off.
    pub(super) async fn listen(self: &Arc<Self>) {
        let mut position = Position::default();
        let (mut misses, mut empty) = (0u32, 0u32);
        loop {
            match self.stream(&position).await {
                Ok(mut stream) => {
                    misses = 0;
                    let mut events = Events::new(LONGEST_MESSAGE, position);
                    let mut news = false;
                    let broken = loop {
                        match stream.chunk().await {
                            Ok(Some(piece)) => news |= self.hear(&mut events, &piece),
                            Ok(None) => break None,
                            Err(error) => break Some(told(&error)),
                        }
                    };
                    if let Some(error) = broken {
                        self.peer.log.note(format_args!("its stream broke off: {error}"));
                    }
                    empty = if news { 0 } else { empty.saturating_add(1) };
                    position = events.position;
                }
                Err(TransportError::SessionLost) => return self.inbox.closed(TransportError::SessionLost),
                // It has no such stream, which it need not have.
                Err(TransportError::Http { status: 400..=499, .. }) => return,
                Err(error @ (TransportError::Forbidden { .. } | TransportError::Unauthorized { .. })) => {
                    return self.peer.log.note(format_args!("it cannot be listened to: {error}"));
                }
                Err(error) => {
                    misses += 1;
                    empty = empty.saturating_add(1);
                    if misses >= MOST_MISSES && matches!(error, TransportError::Unreachable { .. }) {
                        return self.inbox.closed(error);
                    }
                }
            }
            // As the server wishes; longer, when it never has anything to say.
            let pause = position.pause.unwrap_or(PAUSE);
            sleep((pause * 2u32.pow(empty.saturating_sub(1).min(6))).min(LONGEST_PAUSE)).await;
        }
    }

    /// Whether it brought anything.
    fn hear(&self, events: &mut Events, piece: &[u8]) -> bool {
        let mut news = false;
        events.take(piece, &mut |event| {
            news = true;
            match event {
                Event::Message(message) => self.inbox.arrived(message, None),
                Event::Oversized(whose) => too_large(&self.peer.log, self.inbox.as_ref(), whose),
                Event::Other(..) => {}
            }
        });
        news
    }
}
