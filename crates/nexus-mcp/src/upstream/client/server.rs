//! What a server says of itself, bounded before anybody sees it.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use nexus_core::session::Era;
use nexus_core::text::{clean, cut};

use crate::upstream::error::ProtocolError;

/// Characters of a name, a title or a version.
const LONGEST_NAME: usize = 200;

/// Characters of instructions.
const LONGEST_INSTRUCTIONS: usize = 4096;

/// Bytes of capabilities. Real ones have a few hundred.
const LARGEST_CAPABILITIES: usize = 64 * 1024;

/// Bytes of a whole greeting, which is read into a tree.
const LARGEST_GREETING: usize = 512 * 1024;

/// Lists that can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Changed {
    Tools,
    Prompts,
    Resources,
}

impl Changed {
    pub const ALL: [Self; 3] = [Self::Tools, Self::Prompts, Self::Resources];

    /// Its name among the capabilities.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
        }
    }
}

/// A server by its own words: shown to people, never relied on. Texts are cleaned and cut.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerInfo {
    pub name: String,
    pub title: Option<String>,
    pub version: String,
    pub era: Era,
    pub protocol_version: &'static str,
    pub capabilities: Value,
    pub instructions: Option<String>,
}

impl ServerInfo {
    /// Whether it says that it has this: `tools`, `prompts`, `resources`, `logging`, `completions`.
    pub fn has(&self, capability: &str) -> bool {
        self.capabilities.get(capability).is_some_and(Value::is_object)
    }

    /// Whether it tells when that list changes.
    pub fn tells_of(&self, what: Changed) -> bool {
        self.capabilities.get(what.as_str()).and_then(|said| said.get("listChanged")) == Some(&Value::Bool(true))
    }
}

/// The result of `initialize` or of `server/discover`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Hello {
    pub protocol_version: Option<String>,
    pub supported_versions: Option<Vec<String>>,
    capabilities: Value,
    #[serde(deserialize_with = "if_it_fits")]
    server_info: Option<Implementation>,
    #[serde(deserialize_with = "if_it_fits")]
    instructions: Option<String>,
    #[serde(rename = "_meta", deserialize_with = "if_it_fits")]
    meta: Meta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Meta {
    #[serde(rename = "io.modelcontextprotocol/serverInfo", deserialize_with = "if_it_fits")]
    server_info: Option<Implementation>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Implementation {
    #[serde(deserialize_with = "if_it_fits")]
    name: String,
    #[serde(deserialize_with = "if_it_fits")]
    title: Option<String>,
    #[serde(deserialize_with = "if_it_fits")]
    version: String,
}

/// What is only shown to people is not worth a connection: of another kind than it should be, it counts as not said.
fn if_it_fits<'de, D: Deserializer<'de>, T: serde::de::DeserializeOwned + Default>(from: D) -> Result<T, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(from)?).unwrap_or_default())
}

impl Hello {
    pub(super) fn parse(text: &str) -> Result<Self, ProtocolError> {
        if text.len() > LARGEST_GREETING {
            return Err(ProtocolError::Nonsense(format!("its greeting has more than {LARGEST_GREETING} bytes")));
        }
        serde_json::from_str(text).map_err(|error| {
            ProtocolError::Nonsense(cut(&clean(&format!("its greeting does not fit: {error}")), 300).into_owned())
        })
    }

    /// Bounded, as it is kept.
    pub(super) fn into_info(self, era: Era, protocol_version: &'static str) -> Result<ServerInfo, ProtocolError> {
        if self.capabilities.to_string().len() > LARGEST_CAPABILITIES {
            return Err(ProtocolError::Nonsense(format!(
                "its capabilities have more than {LARGEST_CAPABILITIES} bytes"
            )));
        }
        let said = self.server_info.or(self.meta.server_info).unwrap_or_default();
        let named = |text: String| one_line(&text);
        Ok(ServerInfo {
            name: named(said.name),
            title: said.title.map(named),
            version: named(said.version),
            era,
            protocol_version,
            capabilities: self.capabilities,
            instructions: self.instructions.map(|text| cut(&clean(&text), LONGEST_INSTRUCTIONS).into_owned()),
        })
    }
}

/// Cleaned, on one line, cut.
fn one_line(text: &str) -> String {
    let line: String = clean(text).chars().map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
    cut(line.trim(), LONGEST_NAME).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_server_says_of_itself_is_cleaned_and_cut() {
        let hello = json!({
            "capabilities": { "tools": { "listChanged": true }, "prompts": {} },
            "serverInfo": { "name": "evil\n\u{1b}[31m\u{202e}name", "version": "1".repeat(5000), "icons": [] },
            "instructions": "x".repeat(10_000),
        });
        let info = Hello::parse(&hello.to_string()).unwrap().into_info(Era::Legacy, "2025-11-25").unwrap();
        assert_eq!(info.name, "evil name");
        assert_eq!(info.version.chars().count(), LONGEST_NAME + 1);
        assert_eq!(info.instructions.as_ref().map(|text| text.chars().count()), Some(LONGEST_INSTRUCTIONS + 1));
        assert!(info.tells_of(Changed::Tools) && info.has("prompts") && !info.tells_of(Changed::Prompts));
        assert!(!info.has("resources"));
    }

    #[test]
    fn what_is_shown_of_a_server_and_does_not_fit_is_left_out_and_the_rest_stands() {
        let hello = json!({
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "good", "title": { "en": "x" }, "version": 2 },
            "instructions": ["a"],
            "_meta": "x",
        });
        let info = Hello::parse(&hello.to_string()).unwrap().into_info(Era::Legacy, "2025-11-25").unwrap();
        assert_eq!((info.name.as_str(), info.title.as_ref(), info.version.as_str()), ("good", None, ""));
        assert!(info.has("tools") && info.instructions.is_none());
        let hello = json!({ "serverInfo": "x", "capabilities": {} });
        assert_eq!(Hello::parse(&hello.to_string()).unwrap().into_info(Era::Legacy, "2025-11-25").unwrap().name, "");
    }

    #[test]
    fn capabilities_without_end_are_refused() {
        let hello = json!({ "capabilities": { "experimental": "x".repeat(LARGEST_CAPABILITIES) } });
        let refused = Hello::parse(&hello.to_string()).unwrap().into_info(Era::Legacy, "2025-11-25");
        assert!(matches!(refused, Err(ProtocolError::Nonsense(_))), "{refused:?}");
        let refused = Hello::parse(&json!({ "instructions": "x".repeat(LARGEST_GREETING) }).to_string());
        assert!(matches!(refused, Err(ProtocolError::Nonsense(_))), "{refused:?}");
    }
}
