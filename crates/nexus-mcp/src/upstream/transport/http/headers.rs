//! What Streamable HTTP says in headers.

use nexus_core::session::Era;

use crate::upstream::transport::Outgoing;

pub(super) const SESSION: &str = "Mcp-Session-Id";
const VERSION: &str = "MCP-Protocol-Version";

/// Where a message of the new era names its version.
const VERSION_FIELD: &str = r#""io.modelcontextprotocol/protocolVersion":""#;

/// What the two ends have agreed on.
#[derive(Clone, Debug, Default)]
pub(super) struct Agreed {
    pub(super) session: Option<String>,
    pub(super) protocol: Option<(Era, String)>,
}

impl Agreed {
    pub(super) fn era(&self) -> Option<Era> {
        self.protocol.as_ref().map(|(era, _)| *era)
    }

    /// Those of a message, without the session.
    pub(super) fn headers(&self, message: &Outgoing) -> Vec<(String, String)> {
        // Before there is an agreement, a message that names its version speaks for itself.
        let (era, version) = match &self.protocol {
            Some((era, version)) => (*era, Some(version.as_str())),
            None => match version_in(&message.text) {
                Some(version) => (Era::Modern, Some(version)),
                None => (Era::Legacy, None),
            },
        };
        let mut headers = self.version(version);
        if era == Era::Modern {
            headers.push(("Mcp-Method".to_owned(), fit(&message.method)));
            headers.extend(message.name.iter().map(|name| ("Mcp-Name".to_owned(), fit(name))));
            let arguments = message.headers.iter().filter(|(name, _)| is_argument(name));
            headers.extend(arguments.map(|(name, value)| (name.clone(), fit(value))));
        }
        headers
    }

    /// Those of a request that carries no message.
    pub(super) fn bare_headers(&self) -> Vec<(String, String)> {
        self.version(self.protocol.as_ref().map(|(_, version)| version.as_str()))
    }

    fn version(&self, version: Option<&str>) -> Vec<(String, String)> {
        version.map(|version| (VERSION.to_owned(), fit(version))).into_iter().collect()
    }

    /// For the server it came from alone.
    pub(super) fn session_header(&self) -> Vec<(String, String)> {
        self.session.iter().map(|session| (SESSION.to_owned(), session.clone())).collect()
    }
}

/// A session id is visible ASCII; whatever else a server says is none.
pub(super) fn session_id(said: Option<&str>) -> Option<String> {
    let plain = |id: &&str| (1..=1024).contains(&id.len()) && id.bytes().all(|byte| (0x21..0x7f).contains(&byte));
    said.filter(plain).map(str::to_owned)
}

fn version_in(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once(VERSION_FIELD)?;
    rest.split_once('"').map(|(version, _)| version)
}

fn is_argument(name: &str) -> bool {
    name.get(..10).is_some_and(|start| start.eq_ignore_ascii_case("Mcp-Param-"))
}

/// A value as a header can carry it: wrapped as `=?base64?…?=` where it could not go as it is.
fn fit(value: &str) -> String {
    let plain = value.bytes().all(|byte| (b' '..0x7f).contains(&byte)) && value.trim() == value;
    let looks_wrapped = value.starts_with("=?base64?") && value.ends_with("?=");
    match plain && !looks_wrapped {
        true => value.to_owned(),
        false => format!("=?base64?{}?=", base64(value.as_bytes())),
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            encoded.push(if place <= group.len() { char::from(digit) } else { '=' });
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    #[test]
    fn what_no_header_can_carry_is_wrapped() {
        check("plain value", "plain value");
        check("", "");
        check("über", "=?base64?w7xiZXI=?=");
        check(" a", "=?base64?IGE=?=");
        check("a\nb", "=?base64?YQpi?=");
        check("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?=");
        check("äöüß", "=?base64?w6TDtsO8w58=?=");

        #[track_caller]
        fn check(value: &str, sent: &str) {
            assert_eq!(fit(value), sent);
        }
    }

    #[test]
    fn each_era_has_its_headers() {
        let modern = (Era::Modern, "2026-07-28".to_owned());
        let legacy = (Era::Legacy, "2025-11-25".to_owned());
        let asking = r#"{"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        check(None, "{}", "");
        check(None, asking, "MCP-Protocol-Version: 2026-07-28, Mcp-Method: tools/call, Mcp-Name: add, Mcp-Param-A: 1");
        check(Some(legacy), asking, "MCP-Protocol-Version: 2025-11-25");
        check(
            Some(modern),
            "{}",
            "MCP-Protocol-Version: 2026-07-28, Mcp-Method: tools/call, Mcp-Name: add, Mcp-Param-A: 1",
        );

        #[track_caller]
        fn check(protocol: Option<(Era, String)>, text: &str, sent: &str) {
            let message = Outgoing {
                text: text.to_owned(),
                id: Some(1),
                method: Cow::Borrowed("tools/call"),
                name: Some("add".to_owned()),
                headers: vec![("Mcp-Param-A".to_owned(), "1".to_owned()), ("Cookie".to_owned(), "x".to_owned())],
            };
            let headers = Agreed { session: None, protocol }.headers(&message);
            assert_eq!(
                headers.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join(", "),
                sent
            );
        }
    }
}
