//! An audit row as the store keeps it: one JSON object in a fixed order, with the hash that chains it to the one before.

use std::fmt::Write;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use nexus_core::audit::Row;

use super::{hex, unhex};

/// A link of the chain.
pub type Hash = [u8; 32];

const HASH_FIELD: &str = r#","hash":""#;
/// `,"hash":"`, 64 digits, `"}`.
const HASH_LENGTH: usize = HASH_FIELD.len() + 64 + 2;

/// The row as text, and its hash.
pub fn write(row: &Row, chain: &str, seq: i64, pos: i64, previous: &Hash) -> (String, Hash) {
    let mut out = Fields(String::with_capacity(640));
    let _ = write!(out.0, r#"{{"id":"{}","chain":"{chain}","seq":{seq},"at":"{}""#, row.id.hyphenated(), row.at);
    out.plain("event", row.event.as_str());
    if let Some(session) = row.session {
        let _ = write!(out.0, r#","session":"{}""#, session.hyphenated());
    }
    out.text("principal", row.principal.as_ref().map(|id| id.as_str()));
    out.text("transport", row.transport.map(|transport| transport.as_str()));
    out.text("era", row.era.map(|era| era.as_str()));
    out.text("client", row.client.as_deref());
    if let Some(call) = &row.call {
        let _ = write!(out.0, r#","call":"{}""#, call.id.hyphenated());
        out.text("tool", Some(&call.tool));
        if let Some(origin) = &call.origin {
            out.text("origin", Some(&origin.to_string()));
        }
        out.text("access", call.access.map(|access| access.as_str()));
        out.text("node", call.node.as_deref());
        out.text("summary", call.summary.as_deref());
        let _ = write!(out.0, r#","arguments":{},"digest":"{}""#, call.arguments, hex(&call.digest));
        out.text("decision", call.decision);
        out.text("how", call.how);
        out.text("outcome", call.outcome);
        if let Some(duration) = call.duration_us {
            let _ = write!(out.0, r#","duration_us":{duration}"#);
        }
    }
    out.text("detail", row.detail.as_deref());
    let mut body = out.0;
    let hash = link(previous, pos, &body);
    body.push_str(HASH_FIELD);
    body.push_str(&hex(&hash));
    body.push_str("\"}");
    (body, hash)
}

/// The place in the order is part of what is proved.
fn link(previous: &Hash, pos: i64, unhashed: &str) -> Hash {
    let mut sha = Sha256::new();
    sha.update(previous);
    sha.update(pos.to_be_bytes());
    sha.update(unhashed.as_bytes());
    sha.finalize().into()
}

/// The hash a body says it has, and the one it should have. None: it does not end as a body ends.
pub fn check(previous: &Hash, pos: i64, body: &str) -> Option<(Hash, Hash)> {
    let (unhashed, end) = body.split_at_checked(body.len().checked_sub(HASH_LENGTH)?)?;
    let digits = end.strip_prefix(HASH_FIELD)?.strip_suffix("\"}")?;
    Some((unhex(digits)?, link(previous, pos, unhashed)))
}

struct Fields(String);

impl Fields {
    /// A value of ours, which needs no escapes.
    fn plain(&mut self, name: &str, value: &str) {
        let _ = write!(self.0, r#","{name}":"{value}""#);
    }

    fn text(&mut self, name: &str, value: Option<&str>) {
        let Some(value) = value else { return };
        let _ = write!(self.0, r#","{name}":"#);
        if value.bytes().any(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
            self.0.push_str(&serde_json::to_string(value).unwrap_or_default());
        } else {
            self.0.push('"');
            self.0.push_str(value);
            self.0.push('"');
        }
    }
}

/// A row as it comes back. The names are those that a query in Loki or in an export uses.
#[derive(Debug, Serialize, Deserialize)]
pub struct Kept {
    pub id: String,
    pub chain: String,
    pub seq: i64,
    pub at: String,
    pub event: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub era: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    pub hash: String,
}

impl Kept {
    pub fn parse(body: &str) -> serde_json::Result<Self> {
        serde_json::from_str(body)
    }
}

/// What can be looked for: session, tool and outcome. Rows that are no calls have their event for an outcome.
pub fn columns(row: &Row) -> (String, String, &'static str) {
    let call = row.call.as_ref();
    let session = row.session.map(|id| id.to_string()).unwrap_or_default();
    let tool = call.map(|call| call.tool.to_string()).unwrap_or_default();
    let outcome = call.and_then(|call| call.outcome).unwrap_or_else(|| row.event.as_str());
    (session, tool, outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_core::audit::Event;
    use proptest::prelude::*;

    #[test]
    fn a_row_comes_back_as_it_was_and_fits_its_hash() {
        let row = Row::new(Event::KeyRefused).detail("a \"quoted\" \\ line\nand more");
        let (body, hash) = write(&row, "c", 7, 99, &[3; 32]);
        let kept = Kept::parse(&body).unwrap();
        assert_eq!((kept.seq, kept.event.as_str()), (7, "key_refused"));
        assert_eq!(kept.detail, row.detail);
        assert_eq!(kept.hash, hex(&hash));
        assert_eq!(check(&[3; 32], 99, &body), Some((hash, hash)));
    }

    proptest! {
        #[test]
        fn any_change_of_any_byte_shows(at in 0..400usize, by in 1..=255u8, detail in "\\PC{0,80}") {
            let row = Row::new(Event::HubStarted).detail(detail);
            let (body, _) = write(&row, "c", 7, 99, &[3; 32]);
            let mut bytes = body.clone().into_bytes();
            let at = at % bytes.len();
            bytes[at] ^= by;
            let changed = String::from_utf8_lossy(&bytes);
            let fits = check(&[3; 32], 99, &changed).is_some_and(|(says, should)| says == should);
            prop_assert!(!fits);
            let moved = check(&[3; 32], 98, &body).is_some_and(|(says, should)| says == should);
            prop_assert!(!moved, "the place is proved too");
            for (digit, other) in [("a", "A"), ("0", "+")] {
                let respelled = body[..body.len() - 2].rsplit_once(digit).map(|(start, end)| format!("{start}{other}{end}\"}}"));
                let fits = respelled.is_some_and(|body| check(&[3; 32], 99, &body).is_some_and(|(says, should)| says == should));
                prop_assert!(!fits, "another spelling of the hash is a change");
            }
        }
    }
}
