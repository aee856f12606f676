//! What the fuzz targets in `fuzz/` do. It stands here so that it is also run where no fuzzer is at hand: the tests below
//! feed it with inputs made of right ones.

use crate::frame::{self, Assembly, Broken, LARGEST_IN, Message};
use crate::protocol;
use crate::upgrade::{self, Asked};

/// Reads bytes as a link does, whole and in pieces: how they were cut makes no difference. The first byte says how.
pub fn frames(data: &[u8]) {
    let Some((cut, bytes)) = data.split_first() else { return };
    let mut whole = Reader::default();
    whole.take(bytes);
    let mut pieces = Reader::default();
    for piece in bytes.chunks(usize::from(*cut).max(1)) {
        pieces.take(piece);
    }
    assert_eq!(whole, pieces);
}

/// Reads the head of a request, at once and cut short: what was understood of a part stays understood.
pub fn upgrade(data: &[u8]) {
    let Some((cut, bytes)) = data.split_first() else { return };
    let whole = upgrade::head(bytes);
    for end in (0..bytes.len()).step_by(usize::from(*cut).max(1)) {
        match (upgrade::head(bytes.get(..end).unwrap_or_default()), &whole) {
            (Ok(None), _) | (Err(_), Err(_)) => {}
            (Ok(Some(part)), Ok(Some(whole))) => assert_eq!(without_rest(&part), without_rest(whole)),
            (part, whole) => panic!("{part:?} became {whole:?}"),
        }
    }
    if let Ok(Some(Asked::Upgrade { accept, .. })) = &whole {
        assert!(upgrade::accepted(accept).ends_with(&format!(": {accept}\r\n\r\n")) && accept.len() == 28);
    }
}

fn without_rest(asked: &Asked) -> String {
    match asked {
        Asked::Page { path, host, method } => format!("{path} {host:?} {method:?}"),
        Asked::Upgrade { accept, token, .. } => format!("{accept} {token:?}"),
    }
}

/// Keeps what was heard.
#[derive(Debug, Default)]
struct Reader {
    rest: Vec<u8>,
    assembly: Assembly,
    heard: Vec<String>,
    broken: Option<Broken>,
}

impl PartialEq for Reader {
    fn eq(&self, other: &Self) -> bool {
        (&self.heard, self.broken) == (&other.heard, other.broken)
    }
}

impl Reader {
    fn take(&mut self, piece: &[u8]) {
        self.rest.extend_from_slice(piece);
        while self.broken.is_none() {
            let length = self.rest.len();
            let frame = match frame::take(&mut self.rest) {
                Ok(Some(frame)) => frame,
                Ok(None) => return,
                Err(broken) => return self.broken = Some(broken),
            };
            let used = frame.length;
            assert!(used <= length && frame.payload.len() <= LARGEST_IN);
            match self.assembly.add(&frame, told) {
                Ok(told) => self.heard.push(told),
                Err(broken) => self.broken = Some(broken),
            }
            self.rest.drain(..used);
        }
    }
}

fn told(message: Message<'_>) -> String {
    match message {
        Message::Text(payload) => format!("{:?}", protocol::parse(payload)),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUTS: usize = 20_000;

    const WORDS: [&str; 6] = [
        r#"{"type":"hello","computerId":12,"computerLabel":"base-turtle","capabilities":["lua"],"token":"x"}"#,
        r#"{"type":"hello","computerId":1e3,"computerLabel":"\u00fc\ud83d\udc22","world":"survival","kind":"turtle"}"#,
        r#"{"type":"response","id":"req-17","ok":true,"result":{"a":[1,2.5,null,{"b":"c"}]}}"#,
        r#"{"type":"response","id":"req-18","ok":false,"error":"unknown method"}"#,
        r#"{"type":"dance"}"#,
        "",
    ];

    const HEAD: &str = "GET /nexus.lua?x HTTP/1.1\r\nHost: hub:3001\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
                        Authorization: Bearer x\r\n\r\nrest";

    /// Numbers that look like chance and are the same in every run (xorshift64*).
    struct Chance(u64);

    impl Chance {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
        }

        fn below(&mut self, end: usize) -> usize {
            (self.next() >> 16) as usize % end.max(1)
        }

        fn byte(&mut self) -> u8 {
            self.next().to_be_bytes()[0]
        }

        /// Changes a few places.
        fn spoil(&mut self, bytes: &mut Vec<u8>) {
            for _ in 0..self.below(4) {
                let at = self.below(bytes.len());
                let some = at..(at + self.below(20)).min(bytes.len());
                match self.below(6) {
                    0 => bytes.insert(at, self.byte()),
                    1 => drop(bytes.drain(some)),
                    2 => bytes.extend_from_within(some),
                    3 => bytes.truncate(at),
                    4 if at < bytes.len() => bytes[at] = self.byte(),
                    _ if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                    _ => {}
                }
            }
        }

        /// Some frames, most of them right.
        fn frames(&mut self) -> Vec<u8> {
            let mut bytes = vec![self.byte() % 32];
            for _ in 0..=self.below(4) {
                let word = WORDS[self.below(WORDS.len())].as_bytes();
                let cut = self.below(word.len());
                match self.below(8) {
                    0 | 2 => {
                        self.frame(0x01, &word[..cut], &mut bytes);
                        self.frame(0x89, b"?", &mut bytes);
                        self.frame(0x80, &word[cut..], &mut bytes);
                    }
                    1 => {
                        let first = self.byte();
                        self.frame(first, word, &mut bytes);
                    }
                    _ => self.frame(0x81, word, &mut bytes),
                }
            }
            bytes
        }

        fn frame(&mut self, first: u8, payload: &[u8], bytes: &mut Vec<u8>) {
            let key = self.next().to_be_bytes();
            bytes.push(first);
            match payload.len() {
                0..126 => bytes.push(0x80 | payload.len() as u8),
                _ => bytes.extend([0xfe, 0, payload.len() as u8]),
            }
            bytes.extend(&key[..4]);
            bytes.extend(payload.iter().zip(key[..4].iter().cycle()).map(|(byte, key)| byte ^ key));
        }
    }

    #[test]
    fn frames_mean_the_same_however_they_are_cut() {
        let mut chance = Chance(0x6e65_7875_7321);
        let mut understood = 0;
        for _ in 0..INPUTS {
            let mut input = chance.frames();
            chance.spoil(&mut input);
            frames(&input);
            let mut reader = Reader::default();
            reader.take(input.get(1..).unwrap_or_default());
            understood += reader.heard.iter().filter(|heard| heard.starts_with("Ok(")).count();
        }
        assert!(understood > INPUTS / 2, "most of it must be worth looking at: {understood}");
    }

    #[test]
    fn heads_mean_the_same_however_they_are_cut() {
        let mut chance = Chance(0x6865_6164_7321);
        let mut understood = 0;
        for _ in 0..INPUTS {
            let mut input = vec![16 + chance.byte() % 64];
            input.extend(HEAD.replace("Upgrade: w", ["Upgrade: w", "X: "][chance.below(2)]).bytes());
            chance.spoil(&mut input);
            upgrade(&input);
            understood += usize::from(matches!(upgrade::head(input.get(1..).unwrap_or_default()), Ok(Some(_))));
        }
        assert!(understood > INPUTS / 4, "most of it must be worth looking at: {understood}");
    }
}
