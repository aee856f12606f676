//! How a secret may be written: as it is, escaped, percent-encoded, or within something in base64.

use std::fmt::Write;
use std::ops::Range;

/// Characters of base64 that are looked for. What comes after them may stand on the next line.
const BASE64_LOOKED_FOR: usize = 48;

/// One way to write a secret.
#[derive(Debug)]
pub(super) struct Spelling {
    /// What is looked for.
    pub(super) text: String,
    /// Characters of base64 before and after it that hold the rest of the secret.
    before: usize,
    after: usize,
}

/// All the ways.
pub(super) fn spellings(secret: &str) -> Vec<Spelling> {
    let json = escaped(secret, "\"\\", |c| format!("\\{c}"));
    let plain = [
        secret.to_owned(),
        escaped(&json, "\"\\", |c| format!("\\{c}")),
        // As Go writes JSON, and as PHP does.
        escaped(&json, "<>&", |c| format!("\\u{:04x}", u32::from(c))),
        escaped(&json, "/", |c| format!("\\{c}")),
        // As Python does: everything that is not ASCII.
        json.chars().fold(String::new(), beyond_ascii),
        json,
        escaped(secret, "'", |_| "'\\''".to_owned()),
        escaped(secret, "&<>\"'", html),
        percent(secret, "", true),
        percent(secret, "", false),
        percent(secret, "!'()*", true),
        percent(secret, "!'()*", false),
        percent(secret, "!$&'()*+,;=:@/?", true),
        percent(secret, "", true).replace("%20", "+"),
        percent(secret, "*", true).replace("%20", "+"),
    ];
    let plain = plain.into_iter().map(|text| Spelling { text, before: 0, after: 0 });
    plain.chain((0..3).flat_map(|offset| base64(secret.as_bytes(), offset))).collect()
}

fn escaped(secret: &str, special: &str, escape: impl Fn(char) -> String) -> String {
    let piece = |c: char| if special.contains(c) { escape(c) } else { c.to_string() };
    secret.chars().map(piece).collect()
}

fn beyond_ascii(mut text: String, c: char) -> String {
    if c.is_ascii() {
        text.push(c);
    } else {
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(text, "\\u{unit:04x}");
        }
    }
    text
}

fn html(c: char) -> String {
    match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        _ => "&#39;".to_owned(),
    }
}

fn percent(secret: &str, also_plain: &str, upper: bool) -> String {
    secret.bytes().fold(String::new(), |mut text, byte| {
        let c = char::from(byte);
        let _ = match byte {
            _ if c.is_ascii_alphanumeric() || "-._~".contains(c) || (c.is_ascii() && also_plain.contains(c)) => {
                write!(text, "{c}")
            }
            _ if upper => write!(text, "%{byte:02X}"),
            _ => write!(text, "%{byte:02x}"),
        };
        text
    })
}

/// None if there is nothing to decode.
pub(super) fn percent_decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, more)) = rest.split_first() {
        let code = more.get(..2).filter(|_| *first == b'%').and_then(|code| str::from_utf8(code).ok());
        let byte = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &more[2..] } else { more };
    }
    String::from_utf8(bytes).ok().filter(|decoded| decoded != text)
}

/// The secret in base64, with `offset` bytes (of three) of something else before it: `user:password`. Only what no
/// other byte has a part in is looked for; the rest of the secret is in the four characters before and after.
fn base64(secret: &[u8], offset: usize) -> impl Iterator<Item = Spelling> {
    const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let shared = (3 - offset) % 3;
    let (groups, rest) = secret.get(shared..).unwrap_or_default().as_chunks::<3>();
    let before = if shared > 0 { 4 } else { 0 };
    let last = if rest.is_empty() { 0 } else { 4 };
    let groups = groups.to_vec();
    [STANDARD, URL_SAFE].into_iter().map(move |alphabet| {
        let whole: String = groups.iter().flat_map(|group| encode(*group, alphabet)).collect();
        let looked_for = whole.len().min(BASE64_LOOKED_FOR);
        Spelling { text: whole[..looked_for].to_owned(), before, after: whole.len() - looked_for + last }
    })
}

fn encode([a, b, c]: [u8; 3], alphabet: &[u8; 64]) -> [char; 4] {
    [a >> 2, (a & 3) << 4 | b >> 4, (b & 15) << 2 | c >> 6, c & 63].map(|six| char::from(alphabet[usize::from(six)]))
}

impl Spelling {
    /// All of the secret that was found, in a text whose beginning up to `floor` is done with.
    pub(super) fn reach(&self, bytes: &[u8], floor: usize, found: Range<usize>) -> Range<usize> {
        let is_base64 = |b: &u8| b.is_ascii_alphanumeric() || b"+/-_".contains(b);
        let before = bytes[floor..found.start].iter().rev().take(self.before).take_while(|b| is_base64(b)).count();
        let (mut end, mut left) = (found.end, self.after);
        while left > 0 {
            // `base64` breaks its lines.
            let line = bytes[end..].iter().take_while(|b| matches!(b, b'\r' | b'\n')).take(2).count();
            let here = bytes[end + line..].iter().take(left).take_while(|b| is_base64(b) || **b == b'=').count();
            if here == 0 {
                break;
            }
            end += line + here;
            left -= here;
        }
        found.start - before..end
    }
}
