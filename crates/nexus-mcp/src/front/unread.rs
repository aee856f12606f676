//! What is left of a request's body when its answer is ready. A refusal does not wait for the body, and a connection
//! with half a request on it cannot be used again: so the rest is read where it is small, and where it is not, the
//! answer says that the connection ends. Without either, a client's next request would meet a closed connection.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, Response, header};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Bytes that are read for the sake of the connection.
const MOST: u64 = 64 * 1024;

/// How long the rest may take to come.
const LONGEST: Duration = Duration::from_secs(1);

/// A request's body, which comes back if it is dropped before its end.
pub struct Lent {
    body: Option<Incoming>,
    back: Option<oneshot::Sender<Incoming>>,
}

/// What comes back of it.
pub struct Rest {
    body: Option<oneshot::Receiver<Incoming>>,
    /// The sender asks first whether it is to send it (`Expect: 100-continue`): reading would say yes.
    asks_first: bool,
}

pub fn lend(headers: &HeaderMap, body: Incoming) -> (Lent, Rest) {
    let asks_first = headers.contains_key(header::EXPECT);
    if body.is_end_stream() {
        return (Lent { body: Some(body), back: None }, Rest { body: None, asks_first });
    }
    let (back, rest) = oneshot::channel();
    (Lent { body: Some(body), back: Some(back) }, Rest { body: Some(rest), asks_first })
}

impl Rest {
    /// Makes the connection fit for the next request, or the answer say that there is none.
    pub async fn settle<B>(self, response: &mut Response<B>, closing: &CancellationToken) {
        let Some(body) = self.body.and_then(|mut rest| rest.try_recv().ok()) else { return };
        let read = async {
            tokio::select! {
                read = timeout(LONGEST, is_read(body)) => read.unwrap_or(false),
                () = closing.cancelled() => false,
            }
        };
        if self.asks_first || !read.await {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

async fn is_read(mut body: Incoming) -> bool {
    let mut left = MOST;
    if body.size_hint().lower() > left {
        return false;
    }
    while let Some(frame) = body.frame().await {
        let length = frame.ok().and_then(|frame| frame.into_data().ok()).map(|data| data.len() as u64);
        match length.and_then(|length| left.checked_sub(length)) {
            Some(rest) => left = rest,
            None => return false,
        }
    }
    true
}

impl Body for Lent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let (Some(body), Some(back)) = (self.body.take(), self.back.take())
            && !body.is_end_stream()
        {
            // Nobody waits for it when the connection is gone.
            let _ = back.send(body);
        }
    }
}
