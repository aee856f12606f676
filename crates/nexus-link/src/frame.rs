//! WebSocket frames (RFC 6455), by hand: a library's buffers would cost a link five times its memory.
//!
//! Out go single text frames, close, ping and pong, unmasked, as a server's must be. In come masked frames, whole or in
//! fragments, of any opcode; whatever breaks the rules ends the link with the code that the rules name for it.

/// Bytes of a message that a computer may send. ComputerCraft's own limit is a little higher.
pub const LARGEST_IN: usize = 120 * 1024;
/// Bytes of a frame that goes out. ComputerCraft closes the link at 131,072.
pub const LARGEST_OUT: usize = 120_000;
/// Bytes of a control frame's payload, by the rules.
const LARGEST_CONTROL: usize = 125;

/// Codes with which a link is closed.
pub mod code {
    pub const NORMAL: u16 = 1000;
    pub const GOING_AWAY: u16 = 1001;
    pub const PROTOCOL: u16 = 1002;
    pub const POLICY: u16 = 1008;
    pub const TOO_LARGE: u16 = 1009;
    pub const TRY_LATER: u16 = 1013;
    /// Another connection said hello for the same computer.
    pub const REPLACED: u16 = 4001;
    pub const TOKEN: u16 = 4003;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    fn of(bits: u8) -> Option<Self> {
        Some(match bits {
            0x0 => Opcode::Continuation,
            0x1 => Opcode::Text,
            0x2 => Opcode::Binary,
            0x8 => Opcode::Close,
            0x9 => Opcode::Ping,
            0xa => Opcode::Pong,
            _ => return None,
        })
    }

    fn bits(self) -> u8 {
        match self {
            Opcode::Continuation => 0x0,
            Opcode::Text => 0x1,
            Opcode::Binary => 0x2,
            Opcode::Close => 0x8,
            Opcode::Ping => 0x9,
            Opcode::Pong => 0xa,
        }
    }

    fn is_control(self) -> bool {
        matches!(self, Opcode::Close | Opcode::Ping | Opcode::Pong)
    }
}

/// What a peer did that ends the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    pub code: u16,
    pub why: &'static str,
}

const fn broken(why: &'static str) -> Broken {
    Broken { code: code::PROTOCOL, why }
}

const TOO_LARGE: Broken = Broken { code: code::TOO_LARGE, why: "the message is larger than 122880 bytes" };

/// One whole frame at the start of some bytes, unmasked in place.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub opcode: Opcode,
    /// Nothing of this message follows.
    pub is_last: bool,
    pub payload: &'a [u8],
    /// Bytes of it, head included.
    pub length: usize,
}

/// Takes the first frame. None: it is not whole yet. A bad head is told as soon as it can be seen, so that nobody waits
/// for the gigabyte that it announces.
pub fn take(bytes: &mut [u8]) -> Result<Option<Frame<'_>>, Broken> {
    let Some(head) = head(bytes)? else { return Ok(None) };
    let Head { opcode, is_last, mask, start, end } = head;
    let Some(payload) = bytes.get_mut(start..end) else { return Ok(None) };
    unmask(payload, mask);
    Ok(Some(Frame { opcode, is_last, payload, length: end }))
}

struct Head {
    opcode: Opcode,
    is_last: bool,
    mask: [u8; 4],
    start: usize,
    end: usize,
}

fn head(bytes: &[u8]) -> Result<Option<Head>, Broken> {
    let [first, second, rest @ ..] = bytes else { return Ok(None) };
    if first & 0x70 != 0 {
        return Err(broken("a reserved bit is set; no extension was agreed on"));
    }
    let Some(opcode) = Opcode::of(first & 0x0f) else { return Err(broken("an opcode that does not exist")) };
    let is_last = first & 0x80 != 0;
    if second & 0x80 == 0 {
        return Err(broken("a frame from a client must be masked"));
    }
    let short = usize::from(second & 0x7f);
    if opcode.is_control() && (!is_last || short > LARGEST_CONTROL) {
        return Err(broken("a control frame must be whole and short"));
    }
    let (length, wide) = match short {
        126 => match rest.first_chunk() {
            Some(length) => (usize::from(u16::from_be_bytes(*length)), 2),
            None => return Ok(None),
        },
        127 => match rest.first_chunk() {
            Some(length) => (usize::try_from(u64::from_be_bytes(*length)).unwrap_or(usize::MAX), 8),
            None => return Ok(None),
        },
        short => (short, 0),
    };
    if length > LARGEST_IN {
        return Err(TOO_LARGE);
    }
    let Some(mask) = rest.get(wide..).and_then(|rest| rest.first_chunk()) else { return Ok(None) };
    let start = 2 + wide + mask.len();
    Ok(Some(Head { opcode, is_last, mask: *mask, start, end: start + length }))
}

fn unmask(payload: &mut [u8], mask: [u8; 4]) {
    if mask == [0; 4] {
        return;
    }
    let (words, rest) = payload.as_chunks_mut::<4>();
    for word in words {
        *word = (u32::from_ne_bytes(*word) ^ u32::from_ne_bytes(mask)).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(mask) {
        *byte ^= key;
    }
}

/// Puts messages together of frames. Holds bytes only between the fragments of one.
#[derive(Debug, Default)]
pub struct Assembly {
    /// Kept behind a pointer: almost no link ever needs it.
    open: Option<Box<(Opcode, Vec<u8>)>>,
}

/// What a frame came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    Text(&'a [u8]),
    Binary,
    Ping(&'a [u8]),
    Pong,
    Close,
    /// More has to come.
    Part,
}

impl Assembly {
    /// More of a message has to come.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Takes the next frame; `whole` is called with what it completes.
    pub fn add<T>(&mut self, frame: &Frame<'_>, whole: impl FnOnce(Message<'_>) -> T) -> Result<T, Broken> {
        let message = match (frame.opcode, self.open.is_some()) {
            (Opcode::Ping, _) => Message::Ping(frame.payload),
            (Opcode::Pong, _) => Message::Pong,
            (Opcode::Close, _) => Message::Close,
            (Opcode::Continuation, false) => return Err(broken("a continuation of nothing")),
            (Opcode::Text | Opcode::Binary, true) => return Err(broken("a new message within another")),
            (Opcode::Text, false) if frame.is_last => Message::Text(frame.payload),
            (Opcode::Binary, false) if frame.is_last => Message::Binary,
            (Opcode::Text | Opcode::Binary, false) => {
                self.open = Some(Box::new((frame.opcode, frame.payload.to_vec())));
                Message::Part
            }
            (Opcode::Continuation, true) => return self.go_on(frame, whole),
        };
        Ok(whole(message))
    }

    fn go_on<T>(&mut self, frame: &Frame<'_>, whole: impl FnOnce(Message<'_>) -> T) -> Result<T, Broken> {
        let Some(mut open) = self.open.take() else { return Err(broken("a continuation of nothing")) };
        let (opcode, bytes) = &mut *open;
        if bytes.len() + frame.payload.len() > LARGEST_IN {
            return Err(TOO_LARGE);
        }
        bytes.extend_from_slice(frame.payload);
        Ok(match (frame.is_last, *opcode) {
            (true, Opcode::Text) => whole(Message::Text(bytes)),
            (true, _) => whole(Message::Binary),
            (false, _) => {
                self.open = Some(open);
                whole(Message::Part)
            }
        })
    }
}

/// A text frame of the hub's. The caller keeps to [`LARGEST_OUT`].
pub fn text(payload: &str) -> Vec<u8> {
    let mut frame = Vec::with_capacity(payload.len() + 4);
    push(&mut frame, Opcode::Text, payload.as_bytes());
    frame
}

pub fn ping() -> Vec<u8> {
    let mut frame = Vec::with_capacity(2);
    push(&mut frame, Opcode::Ping, b"");
    frame
}

pub fn pong(payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(payload.len() + 2);
    push(&mut frame, Opcode::Pong, payload);
    frame
}

/// A close with a reason, which is ours and short.
pub fn close(code: u16, why: &str) -> Vec<u8> {
    let mut payload = code.to_be_bytes().to_vec();
    payload.extend(why.bytes().filter(u8::is_ascii).take(LARGEST_CONTROL - 2));
    let mut frame = Vec::with_capacity(payload.len() + 2);
    push(&mut frame, Opcode::Close, &payload);
    frame
}

/// Adds an unmasked frame that is whole.
fn push(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8]) {
    out.push(0x80 | opcode.bits());
    match payload.len() {
        length @ 0..=125 => out.push(u8::try_from(length).unwrap_or_default()),
        length => match u16::try_from(length) {
            Ok(length) => {
                out.push(126);
                out.extend_from_slice(&length.to_be_bytes());
            }
            Err(_) => {
                out.push(127);
                out.extend_from_slice(&(length as u64).to_be_bytes());
            }
        },
    }
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A frame as a client sends it.
    fn masked(opcode: u8, is_last: bool, mask: [u8; 4], payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        push(&mut bytes, Opcode::Text, payload);
        let head = bytes.len() - payload.len();
        bytes[0] = opcode | if is_last { 0x80 } else { 0 };
        bytes[1] |= 0x80;
        let scrambled: Vec<u8> = payload.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]).collect();
        bytes.truncate(head);
        bytes.extend(mask);
        bytes.extend(scrambled);
        bytes
    }

    #[test]
    fn the_example_of_the_rfc_says_hello() {
        let mut bytes = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
        let frame = take(&mut bytes).unwrap().unwrap();
        assert_eq!(frame, Frame { opcode: Opcode::Text, is_last: true, payload: b"Hello", length: 11 });
        assert_eq!(text("Hello"), [0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f]);
    }

    #[test]
    fn what_breaks_the_rules_is_told_from_its_head() {
        check(&[0x81, 0x05], code::PROTOCOL, "masked");
        check(&[0xc1, 0x80], code::PROTOCOL, "reserved");
        check(&[0x83, 0x80], code::PROTOCOL, "opcode");
        check(&[0x09, 0x80], code::PROTOCOL, "control");
        check(&[0x89, 0xfe], code::PROTOCOL, "control");
        check(&[0x81, 0xff, 0, 0, 0, 1, 0, 0, 0, 0], code::TOO_LARGE, "larger");
        check(&[0x81, 0xff, 255, 255, 255, 255, 255, 255, 255, 255], code::TOO_LARGE, "larger");

        #[track_caller]
        fn check(bytes: &[u8], code: u16, why: &str) {
            let Err(broken) = take(&mut bytes.to_vec()) else { panic!("{bytes:x?} was taken") };
            assert!(broken.code == code && broken.why.contains(why), "{broken:?}");
        }
    }

    #[test]
    fn fragments_become_one_message_and_a_ping_may_come_between() {
        let mut assembly = Assembly::default();
        let mut add = |opcode, is_last, payload: &[u8]| {
            let mut bytes = masked(opcode, is_last, [1, 2, 3, 4], payload);
            let frame = take(&mut bytes).unwrap().unwrap();
            assembly.add(&frame, |message| format!("{message:?}"))
        };
        assert_eq!(add(1, false, b"ab"), Ok("Part".to_owned()));
        assert_eq!(add(9, true, b"?"), Ok("Ping([63])".to_owned()));
        assert_eq!(add(0, false, b"c"), Ok("Part".to_owned()));
        assert_eq!(add(0, true, b"d"), Ok("Text([97, 98, 99, 100])".to_owned()));
        assert_eq!(add(0, true, b"x"), Err(broken("a continuation of nothing")));
        assert_eq!(add(1, false, b"ab"), Ok("Part".to_owned()));
        assert_eq!(add(1, true, b"x"), Err(broken("a new message within another")));
    }

    #[test]
    fn fragments_do_not_grow_beyond_the_limit() {
        let mut assembly = Assembly::default();
        let large = vec![b'x'; LARGEST_IN];
        let frame = |opcode, payload| Frame { opcode, is_last: false, payload, length: 0 };
        assert_eq!(assembly.add(&frame(Opcode::Text, &large), |_| ()), Ok(()));
        assert_eq!(assembly.add(&frame(Opcode::Continuation, b"x"), |_| ()), Err(TOO_LARGE));
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(mut bytes in vec(any::<u8>(), 0..300)) {
            let length = bytes.len();
            if let Ok(Some(frame)) = take(&mut bytes) {
                prop_assert!(frame.length <= length);
                prop_assert!(frame.payload.len() < frame.length);
            }
        }

        #[test]
        fn what_is_sent_arrives(payload in vec(any::<u8>(), 0..70_000), mask: [u8; 4], last: bool, cut in 0usize..100) {
            let mut bytes = masked(2, last, mask, &payload);
            let whole = bytes.len();
            let mut short = bytes[..whole - 1 - cut.min(whole - 1)].to_vec();
            prop_assert_eq!(take(&mut short), Ok(None));
            bytes.extend(b"next");
            let frame = take(&mut bytes).unwrap().unwrap();
            prop_assert_eq!(frame, Frame { opcode: Opcode::Binary, is_last: last, payload: &payload, length: whole });
        }

        #[test]
        fn a_frame_half_read_is_not_spoilt_by_the_looking(payload in vec(any::<u8>(), 1..500), mask: [u8; 4]) {
            let bytes = masked(1, true, mask, &payload);
            let mut buffer = Vec::new();
            for byte in &bytes[..bytes.len() - 1] {
                buffer.push(*byte);
                prop_assert_eq!(take(&mut buffer), Ok(None));
            }
            buffer.extend(bytes.last());
            prop_assert_eq!(take(&mut buffer).unwrap().unwrap().payload, &payload[..]);
        }
    }
}
