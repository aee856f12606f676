//! The few encodings a login needs: base64, percent signs, forms, and what nobody can guess.

use std::fmt::Write;

use sha2::{Digest, Sha256};
use uuid::Uuid;

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const FOR_URLS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// 244 random bits in letters that need no encoding anywhere.
pub fn secret() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

/// The challenge of a code verifier (RFC 7636, `S256`).
pub fn s256(verifier: &str) -> String {
    let mut encoded = base64(&Sha256::digest(verifier.as_bytes()), FOR_URLS);
    encoded.truncate(encoded.trim_end_matches('=').len());
    encoded
}

/// The `Authorization` of a client with a password (RFC 6749, 2.3.1: both are encoded as in a form first).
pub fn basic(id: &str, secret: &str) -> String {
    format!("Basic {}", base64(format!("{}:{}", percent(id), percent(secret)).as_bytes(), STANDARD))
}

/// `application/x-www-form-urlencoded`.
pub fn form(fields: &[(&str, &str)]) -> String {
    let mut body = String::new();
    for (name, value) in fields {
        let between = if body.is_empty() { "" } else { "&" };
        let _ = write!(body, "{between}{}={}", percent(name), percent(value));
    }
    body
}

fn percent(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            other => _ = write!(encoded, "%{other:02X}"),
        }
    }
    encoded
}

fn base64(bytes: &[u8], alphabet: &[u8; 64]) -> String {
    let mut encoded = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |n: usize| u32::from(three.get(n).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit) & 63) as usize;
            encoded.push(if digit > three.len() { '=' } else { char::from(alphabet[index]) });
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_standards_come_out() {
        // RFC 7636, appendix B; RFC 4648, 10; RFC 6749, 2.3.1 has no example with odd letters.
        assert_eq!(s256("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
        for (plain, encoded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
            assert_eq!(base64(plain.as_bytes(), STANDARD), encoded);
        }
        assert_eq!(basic("a:b", "c"), "Basic YSUzQWI6Yw==");
        assert_eq!(form(&[("a b", "c&d"), ("e", "ü")]), "a%20b=c%26d&e=%C3%BC");
    }

    #[test]
    fn no_two_secrets_are_alike() {
        assert_ne!(secret(), secret());
        assert_eq!(secret().len(), 64);
    }
}
