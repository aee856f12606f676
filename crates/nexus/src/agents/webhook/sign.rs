//! The Standard Webhooks scheme (standardwebhooks.com): what is signed, with what, and how a signature is checked.

use std::fmt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use thiserror::Error;

use nexus_core::clock;
use nexus_core::redact;

use crate::config::env::{EnvVar, Secret, read_secret};

/// Before a secret that is written in base64.
const PREFIX: &str = "whsec_";
/// Bytes. A shorter secret can be guessed by whoever sees one signature.
const SHORTEST: usize = 16;
/// Seconds that the clocks of the two sides may be apart.
const TOLERANCE_S: i64 = 300;
/// Signatures that are looked at: a sender that changes its secret has two.
const MOST_SIGNATURES: usize = 8;
/// Characters. With the target it has to fit into the name of an update.
const LONGEST_ID: usize = 128;

#[derive(Debug, Error, PartialEq, Eq)]
pub enum BadSecret {
    #[error("it has no secret to sign with")]
    None,
    #[error("its secret is too short: at least {SHORTEST} bytes")]
    Short,
    #[error("its secret begins with `{PREFIX}`, and what follows is not base64")]
    NotBase64,
    /// The file cannot be read.
    #[error("{0}")]
    File(String),
}

impl BadSecret {
    pub fn hint(&self) -> String {
        let make = format!("echo {PREFIX}$(openssl rand -base64 32)");
        match self {
            BadSecret::None => format!("set {}, or webhook.secret_file; `{make}` makes one", variable()),
            BadSecret::Short | BadSecret::NotBase64 => format!("`{make}` makes a good one"),
            BadSecret::File(_) => "look at webhook.secret_file".to_owned(),
        }
    }
}

fn variable() -> &'static str {
    EnvVar::NexusWebhookSecret.name()
}

/// Why somebody is not believed. For the record; the sender is told nothing.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Disbelieved {
    #[error("no signature")]
    Unsigned,
    #[error("a wrong signature")]
    Wrong,
    #[error("a signature of another time")]
    Stale,
}

/// Signs, and knows what was signed with the same secret.
#[derive(Clone)]
pub struct Signer(Hmac<Sha256>);

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer")
    }
}

/// What stands in the headers of a signed message.
#[derive(Clone, Copy, Debug)]
pub struct Seal<'a> {
    pub id: &'a str,
    pub timestamp: &'a str,
    pub signature: &'a str,
}

impl Signer {
    /// With the secret in the target's own file, or else with the one of the environment.
    pub fn of(file: Option<&Path>, common: Option<&Secret>) -> Result<Self, BadSecret> {
        match (file, common) {
            (Some(file), _) => {
                let secret = read_secret(file).map_err(|problem| BadSecret::File(problem.what().to_owned()))?;
                redact::learn([secret.trim()]);
                Self::parse(&secret)
            }
            (None, Some(common)) => Self::parse(common.expose()),
            (None, None) => Err(BadSecret::None),
        }
    }

    /// `whsec_` and base64, or any text as it is.
    pub fn parse(secret: &str) -> Result<Self, BadSecret> {
        let secret = secret.trim();
        let bytes = match secret.strip_prefix(PREFIX) {
            // With or without its padding, as the reference libraries take it.
            Some(encoded) => STANDARD_NO_PAD.decode(encoded.trim_end_matches('=')).map_err(|_| BadSecret::NotBase64)?,
            None => secret.as_bytes().to_vec(),
        };
        if bytes.len() < SHORTEST {
            return Err(BadSecret::Short);
        }
        Hmac::new_from_slice(&bytes).map(Self).map_err(|_| BadSecret::Short)
    }

    /// For a target that there is not: nobody has this secret, and looking takes as long as with a real one.
    pub fn of_nobody() -> Result<Self, BadSecret> {
        Self::parse(&format!("{}{}", clock::new_id(), uuid::Uuid::new_v4()))
    }

    /// The `webhook-signature` of a message.
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let code = self.mac(id, &timestamp.to_string(), body).finalize().into_bytes();
        format!("v1,{}", STANDARD.encode(code))
    }

    /// Whether this was signed with the same secret, at about `now` (seconds).
    pub fn verify(&self, seal: Seal<'_>, body: &[u8], now: i64) -> Result<(), Disbelieved> {
        let Seal { id, timestamp, signature } = seal;
        if !is_id(id) || signature.is_empty() {
            return Err(Disbelieved::Unsigned);
        }
        let written: i64 = timestamp.parse().map_err(|_| Disbelieved::Unsigned)?;
        let signatures = signature.split(' ').filter_map(|one| one.strip_prefix("v1,")).take(MOST_SIGNATURES);
        // All of them, whatever came of the first: the time it takes tells nothing.
        let same = signatures.fold(false, |same, encoded| {
            let code = STANDARD.decode(encoded).unwrap_or_default();
            self.mac(id, timestamp, body).verify_slice(&code).is_ok() || same
        });
        match same {
            false => Err(Disbelieved::Wrong),
            true if written.abs_diff(now) > TOLERANCE_S.unsigned_abs() => Err(Disbelieved::Stale),
            true => Ok(()),
        }
    }

    fn mac(&self, id: &str, timestamp: &str, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            mac.update(part);
        }
        mac
    }
}

/// It becomes the name of an update, and must not be able to say anything else.
fn is_id(id: &str) -> bool {
    (1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(|c| c.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, test cases 1, 2, 3 and 6.
    #[test]
    fn the_code_is_that_of_the_rfc() {
        check(&[0x0b; 20], b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
        check(
            b"Jefe",
            b"what do ya want for nothing?",
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        );
        check(&[0xaa; 20], &[0xdd; 50], "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
        check(
            &[0xaa; 131],
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
        );

        #[track_caller]
        fn check(key: &[u8], message: &[u8], expected: &str) {
            let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
            mac.update(message);
            let code: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(code, expected);
        }
    }

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const AT: i64 = 1_614_265_330;

    /// The example of the scheme's own reference libraries.
    #[test]
    fn a_signature_is_that_of_the_reference_libraries() {
        let signature = Signer::parse(SECRET).unwrap().sign(ID, AT, BODY);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn only_what_was_signed_with_the_secret_and_now_is_believed() {
        let signer = Signer::parse(SECRET).unwrap();
        let good = signer.sign(ID, AT, BODY);
        let other = Signer::parse("another secret of some length").unwrap().sign(ID, AT, BODY);
        let (at, both) = (AT.to_string(), format!("v1a,xxx {other} {good}"));
        let unknown = good.replace("v1,", "v2,");
        let check = |seal: Seal<'_>, body: &[u8], now: i64, expected: Result<(), Disbelieved>| {
            assert_eq!(signer.verify(seal, body, now), expected, "{seal:?} at {now}");
        };
        let seal = |signature| Seal { id: ID, timestamp: &at, signature };
        check(seal(&good), BODY, AT, Ok(()));
        check(seal(&good), BODY, AT + 299, Ok(()));
        check(seal(&good), BODY, AT - 299, Ok(()));
        check(seal(&both), BODY, AT, Ok(()));
        check(seal(&good), BODY, AT + 301, Err(Disbelieved::Stale));
        check(seal(&good), BODY, AT - 301, Err(Disbelieved::Stale));
        check(seal(&other), BODY, AT, Err(Disbelieved::Wrong));
        check(seal(&good), b"{}", AT, Err(Disbelieved::Wrong));
        check(seal("v1,"), BODY, AT, Err(Disbelieved::Wrong));
        check(seal(&good[3..]), BODY, AT, Err(Disbelieved::Wrong));
        check(seal(&unknown), BODY, AT, Err(Disbelieved::Wrong));
        check(seal(""), BODY, AT, Err(Disbelieved::Unsigned));
        check(Seal { id: "", ..seal(&good) }, BODY, AT, Err(Disbelieved::Unsigned));
        check(Seal { id: "msg 1", ..seal(&good) }, BODY, AT, Err(Disbelieved::Unsigned));
        check(Seal { id: "msg_2", ..seal(&good) }, BODY, AT, Err(Disbelieved::Wrong));
        check(Seal { timestamp: "soon", ..seal(&good) }, BODY, AT, Err(Disbelieved::Unsigned));
        check(Seal { timestamp: "1614265331", ..seal(&good) }, BODY, AT, Err(Disbelieved::Wrong));
        check(Seal { timestamp: "-9223372036854775808", ..seal(&good) }, BODY, AT, Err(Disbelieved::Wrong));
    }

    #[test]
    fn a_secret_is_base64_or_plain_and_never_short() {
        let parse = |secret: &str| Signer::parse(secret).map(drop);
        assert_eq!(parse(SECRET), Ok(()));
        assert_eq!(parse("whsec_bmV4dXMtd2ViaG9vay10ZXN0LXNlY3JldA"), Ok(()));
        assert_eq!(parse("whsec_bmV4dXMtd2ViaG9vay10ZXN0LXNlY3JldA=="), Ok(()));
        assert_eq!(parse("a plain secret of some length\n"), Ok(()));
        assert_eq!(parse("hunter2"), Err(BadSecret::Short));
        assert_eq!(parse("whsec_aGk="), Err(BadSecret::Short));
        assert_eq!(parse("whsec_not base64 at all, but long enough"), Err(BadSecret::NotBase64));
        assert_eq!(Signer::of(None, None).map(drop), Err(BadSecret::None));
        let missing = Signer::of(Some(Path::new("/does/not/exist")), None).unwrap_err();
        assert!(matches!(missing, BadSecret::File(_)), "{missing}");
        assert_eq!(format!("{:?}", Signer::parse(SECRET).unwrap()), "Signer");
    }
}
