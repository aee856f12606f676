//! Frames that a computer's socket has not taken yet, in their order.

use std::collections::VecDeque;

/// Bytes that a waiting frame takes beside its own.
const OVERHEAD: usize = 64;

/// Nothing, for almost every link: then it takes no memory beyond itself.
#[derive(Debug, Default)]
pub struct Unsent {
    frames: VecDeque<Frame>,
    /// Bytes of the first one that have gone out.
    begun: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Frame {
    /// The request that it is.
    request: Option<u64>,
    bytes: Box<[u8]>,
}

impl Unsent {
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Bytes that wait, and what keeping them takes.
    pub fn bytes(&self) -> usize {
        self.bytes + self.frames.len() * OVERHEAD
    }

    /// Adds a frame of which `sent` bytes have gone out already, which only the first can have.
    pub fn push(&mut self, request: Option<u64>, frame: &[u8], sent: usize) {
        if self.frames.is_empty() {
            self.begun = sent;
        }
        self.bytes += frame.len() - sent;
        self.frames.push_back(Frame { request, bytes: frame.into() });
    }

    /// The bytes that come next.
    pub fn next(&self) -> Option<&[u8]> {
        self.frames.front()?.bytes.get(self.begun..)
    }

    /// So many bytes of those have gone out.
    pub fn sent(&mut self, count: usize) {
        self.begun += count;
        self.bytes -= count;
        if self.frames.front().is_some_and(|first| first.bytes.len() <= self.begun) {
            self.frames.pop_front();
            self.begun = 0;
        }
        if self.frames.is_empty() {
            self.frames = VecDeque::new();
        }
    }

    /// Takes a request back. False: it has gone out, or begun to.
    pub fn take_back(&mut self, id: u64) -> bool {
        let whole = if self.begun > 0 { 1 } else { 0 };
        let found = self.frames.iter().skip(whole).position(|frame| frame.request == Some(id));
        let Some(frame) = found.and_then(|at| self.frames.remove(at + whole)) else { return false };
        self.bytes -= frame.bytes.len();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_taken_back_only_while_nothing_of_it_has_gone_out() {
        let mut unsent = Unsent::default();
        unsent.push(Some(1), b"one", 1);
        unsent.push(None, b"pong", 0);
        unsent.push(Some(2), b"two", 0);
        assert_eq!(unsent.bytes(), 9 + 3 * OVERHEAD);
        assert!(!unsent.take_back(1), "its first byte is out: the rest must follow");
        assert!(unsent.take_back(2) && !unsent.take_back(2));
        assert_eq!((unsent.bytes(), unsent.next()), (6 + 2 * OVERHEAD, Some(&b"ne"[..])));
        unsent.sent(2);
        assert_eq!(unsent.next(), Some(&b"pong"[..]));
        unsent.sent(3);
        unsent.push(Some(3), b"three", 0);
        assert_eq!(unsent.next(), Some(&b"g"[..]));
        unsent.sent(1);
        assert!(unsent.take_back(3));
        assert!(unsent.is_empty() && unsent.next().is_none());
    }
}
