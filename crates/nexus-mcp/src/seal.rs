//! State that a client keeps for us between two rounds, sealed so that it cannot be changed or carried elsewhere.

use serde_json::Value;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use uuid::Uuid;

/// A key that lives as long as the process; what it sealed is worth nothing to the next one.
pub(crate) struct Seal([u8; 32]);

/// Hexadecimal digits of a code.
const CODE: usize = 64;

impl Seal {
    /// From two random ids: 244 bits nobody can guess.
    pub(crate) fn random() -> Self {
        let mut key = [0; 32];
        key[..16].copy_from_slice(Uuid::new_v4().as_bytes());
        key[16..].copy_from_slice(Uuid::new_v4().as_bytes());
        Self(key)
    }

    /// The state as text that [`Seal::open`] takes back only for the same `purpose`.
    pub(crate) fn close(&self, purpose: &[&str], state: &Value) -> String {
        let state = state.to_string();
        self.code(purpose, &state) + &state
    }

    /// None: not from us, changed, or meant for something else.
    pub(crate) fn open(&self, purpose: &[&str], sealed: &str) -> Option<Value> {
        let (code, state) = sealed.split_at_checked(CODE)?;
        let ours = self.code(purpose, state);
        bool::from(ours.as_bytes().ct_eq(code.as_bytes())).then(|| serde_json::from_str(state).ok())?
    }

    fn code(&self, purpose: &[&str], state: &str) -> String {
        // Each part behind its length: no two lists of parts run together to the same bytes.
        let mut message = Vec::new();
        for part in purpose.iter().chain([&state]) {
            message.extend_from_slice(&(part.len() as u64).to_be_bytes());
            message.extend_from_slice(part.as_bytes());
        }
        hmac(&self.0, &message).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// HMAC-SHA256 (RFC 2104), for keys of at most 64 bytes.
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let padded = |pad: u8| {
        let mut block = [pad; 64];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        block
    };
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn what_was_sealed_is_opened_only_unchanged_and_for_the_same_purpose() {
        let seal = Seal::random();
        let sealed = seal.close(&["tool", "key"], &json!({ "round": 1 }));
        assert_eq!(seal.open(&["tool", "key"], &sealed), Some(json!({ "round": 1 })));

        assert_eq!(seal.open(&["tool", "key"], &sealed.replace('1', "2")), None);
        assert_eq!(seal.open(&["tool", "key"], &format!("{sealed}-TAMPERED")), None);
        assert_eq!(seal.open(&["tool", "other"], &sealed), None);
        assert_eq!(seal.open(&["toolk", "ey"], &sealed), None);
        assert_eq!(Seal::random().open(&["tool", "key"], &sealed), None);
        assert_eq!(seal.open(&["tool", "key"], "short"), None);
        assert_eq!(seal.open(&["tool", "key"], &"ü".repeat(100)), None);
    }

    proptest! {
        #[test]
        fn a_single_flipped_bit_breaks_it(at in 0..10_000usize, bit in 0..8u32) {
            let seal = Seal::random();
            let mut sealed = seal.close(&["tool"], &json!("0190.77.abcdef")).into_bytes();
            let at = at % sealed.len();
            sealed[at] ^= 1 << bit;
            let opened = String::from_utf8(sealed).ok().and_then(|sealed| seal.open(&["tool"], &sealed));
            prop_assert_eq!(opened, None);
        }
    }

    /// RFC 4231, test case 2.
    #[test]
    fn the_code_is_hmac_sha256() {
        let code: String = hmac(b"Jefe", b"what do ya want for nothing?").iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(code, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }
}
