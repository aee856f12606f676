//! An audit row as the store keeps it: one JSON object in a fixed order, with the hash that chains it to the one before.

use std::fmt::Write;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use nexus_core::audit::Row;

use super::{push_hex, unhex};

/// A link of the chain.
pub type Hash = [u8; 32];

const HASH_FIELD: &str = r#","hash":""#;
/// `,"hash":"`, 64 digits, `"}`.
const HASH_LENGTH: usize = HASH_FIELD.len() + 64 + 2;

/// The row as text, and its hash.
pub fn write(row: &Row, chain: &str, seq: i64, pos: i64, previous: &Hash) -> (String, Hash) {
    let mut out = Fields(String::with_capacity(1_024));
    out.0.push_str(r#"{"id":""#);
    out.id(row.id);
    let _ = write!(out.0, r#"","chain":"{chain}","seq":{seq},"at":"{}""#, row.at);
    out.plain("event", row.event.as_str());
    if let Some(session) = row.session {
        out.0.push_str(r#","session":""#);
        out.id(session);
        out.0.push('"');
    }
    out.text("principal", row.principal.as_ref().map(|id| id.as_str()));
    out.text("transport", row.transport.map(|transport| transport.as_str()));
    out.text("era", row.era.map(|era| era.as_str()));
    out.text("client", row.client.as_deref());
    if let Some(call) = &row.call {
        out.0.push_str(r#","call":""#);
        out.id(call.id);
        out.0.push('"');
        out.text("tool", Some(&call.tool));
        if let Some(origin) = &call.origin {
            out.text("origin", Some(&origin.to_string()));
        }
        out.text("access", call.access.map(|access| access.as_str()));
        out.text("node", call.node.as_deref());
        out.text("summary", call.summary.as_deref());
        out.0.push_str(r#","arguments":"#);
        out.0.push_str(&call.arguments);
        out.0.push_str(r#","digest":""#);
        push_hex(&mut out.0, &call.digest);
        out.0.push('"');
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
    push_hex(&mut body, &hash);
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
        for part in [",\"", name, "\":\"", value, "\""] {
            self.0.push_str(part);
        }
    }

    fn id(&mut self, id: Uuid) {
        self.0.push_str(id.hyphenated().encode_lower(&mut Uuid::encode_buffer()));
    }

    fn text(&mut self, name: &str, value: Option<&str>) {
        let Some(value) = value else { return };
        for part in [",\"", name, "\":"] {
            self.0.push_str(part);
        }
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

/// What a row can be looked for by. Rows that are no calls have their event for an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Found<'a> {
    pub session: &'a str,
    pub tool: &'a str,
    pub outcome: &'a str,
}

/// The part of a body that says where it belongs. Borrowed: the common row has no escapes in these.
#[derive(Deserialize)]
pub struct Place<'a> {
    pub chain: &'a str,
    pub seq: i64,
    pub event: &'a str,
    pub session: Option<&'a str>,
    pub tool: Option<&'a str>,
    pub outcome: Option<&'a str>,
}

impl<'a> Place<'a> {
    pub fn found(&self) -> Found<'a> {
        let session = self.session.unwrap_or_default();
        Found { session, tool: self.tool.unwrap_or_default(), outcome: self.outcome.unwrap_or(self.event) }
    }

    /// None: it is not a row.
    pub fn read<T>(body: &str, with: impl FnOnce(&Place<'_>) -> T) -> Option<T> {
        if let Ok(place) = serde_json::from_str::<Place<'_>>(body) {
            return Some(with(&place));
        }
        let kept = Kept::parse(body).ok()?;
        Some(with(&Place {
            chain: &kept.chain,
            seq: kept.seq,
            event: &kept.event,
            session: kept.session.as_deref(),
            tool: kept.tool.as_deref(),
            outcome: kept.outcome.as_deref(),
        }))
    }
}

impl Found<'_> {
    pub fn read<T>(body: &str, with: impl FnOnce(Found<'_>) -> T) -> Option<T> {
        Place::read(body, |place| with(place.found()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::hex;
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
