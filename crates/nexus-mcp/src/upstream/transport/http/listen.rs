//! Old era: the stream by which a server says what belongs to no request.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Link;
use super::post::PAUSE;
use crate::upstream::error::TransportError;
use crate::upstream::transport::events::{Event, Events, Position};
use crate::upstream::transport::peer::told;
use crate::upstream::transport::sse::too_large;
use crate::upstream::transport::stdio::LONGEST_MESSAGE;

/// So often in a row a server may not be there before it counts as gone.
const MOST_MISSES: u32 = 2;
/// A stream that ends sooner is not worth being opened at once again: each time is a line in the record.
const SHORT_LIVED: Duration = Duration::from_secs(10);
/// Between two streams, where they all end soon.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl Link {
    /// Reads it for as long as there is one, and opens it again where it broke off.
    pub(super) async fn listen(self: &Arc<Self>) {
        let mut position = Position::default();
        let (mut misses, mut short_lived) = (0u32, 0u32);
        loop {
            let opened = Instant::now();
            let stream = self.stream(&position).await;
            if let Some((_, heard)) = self.heard.get() {
                heard.cancel();
            }
            match stream {
                Ok(mut stream) => {
                    misses = 0;
                    let mut events = Events::new(LONGEST_MESSAGE, position);
                    let broken = loop {
                        match stream.chunk().await {
                            Ok(Some(piece)) => self.hear(&mut events, &piece),
                            Ok(None) => break None,
                            Err(error) => break Some(told(&error)),
                        }
                    };
                    if let Some(error) = broken {
                        self.peer.log.note(format_args!("its stream broke off: {error}"));
                    }
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
                    if misses >= MOST_MISSES && matches!(error, TransportError::Unreachable { .. }) {
                        return self.inbox.closed(error);
                    }
                }
            }
            short_lived = if opened.elapsed() < SHORT_LIVED { short_lived.saturating_add(1) } else { 0 };
            sleep(pause(position.pause, short_lived)).await;
        }
    }

    fn hear(&self, events: &mut Events, piece: &[u8]) {
        events.take(piece, &mut |event| match event {
            Event::Message(message) => self.inbox.arrived(message, None),
            Event::Oversized(whose) => too_large(&self.peer.log, self.inbox.as_ref(), whose),
            Event::Other(..) => {}
        });
    }
}

/// As the server wishes; longer after that many streams in a row that ended soon, whatever they brought.
fn pause(wished: Option<Duration>, short_lived: u32) -> Duration {
    let least = PAUSE * 2u32.pow(short_lived.saturating_sub(1).min(6));
    wished.unwrap_or(PAUSE).max(least.min(LONGEST_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_end_soon_are_opened_ever_more_seldom_whatever_the_server_wishes() {
        for wished in [None, Some(Duration::from_millis(1)), Some(Duration::from_secs(1))] {
            let pauses: Vec<u64> = (0..9).map(|short_lived| pause(wished, short_lived).as_secs()).collect();
            assert_eq!(pauses, [1, 1, 2, 4, 8, 16, 30, 30, 30], "{wished:?}");
        }
        let long = Duration::from_secs(45);
        assert_eq!((pause(Some(long), 1), pause(Some(long), 9)), (long, long));
    }
}
