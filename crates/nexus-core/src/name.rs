//! Names that cannot be wrong: parsed once, at the edge, then passed as types.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A tool's name as clients see it: 1 to 64 of `a-z A-Z 0-9 _ -`, which every known client takes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolName(Arc<str>);

#[derive(Debug, Error, PartialEq, Eq)]
#[error("`{0}` is not a tool name: 1 to 64 letters, digits, `_` or `-`")]
pub struct BadToolName(String);

impl ToolName {
    pub fn parse(name: &str) -> Result<Self, BadToolName> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            return Err(BadToolName(name.chars().take(80).collect()));
        }
        Ok(Self(name.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A node's name in the topology. Never empty, never starts with a dash (ssh would take it for an
/// option), never holds anything a shell or ssh reads as syntax.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct NodeName(String);

#[derive(Debug, Error, PartialEq, Eq)]
#[error("`{0}` is not a node name: letters, digits, `.`, `_` and `-`, not starting with `-`")]
pub struct BadNodeName(String);

impl NodeName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for NodeName {
    type Error = BadNodeName;

    fn try_from(name: String) -> Result<Self, BadNodeName> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > 253 || name.starts_with('-') || !name.chars().all(plain) {
            return Err(BadNodeName(name.chars().take(80).collect()));
        }
        Ok(Self(name))
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of an upstream MCP server, as its entry in `mcp.json` says.
///
/// Where it matters which entry was meant, an edition tells one from another of the same name: what a human has said of
/// a server does not hold for what stands in its place later.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerName {
    name: Arc<str>,
    edition: u64,
}

impl ServerName {
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), edition: 0 }
    }

    #[must_use]
    pub fn of_edition(&self, edition: u64) -> Self {
        Self { name: self.name.clone(), edition }
    }

    pub fn as_str(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_name_never_holds_what_ssh_or_a_shell_would_read() {
        for good in ["node2", "nas.lan", "pi_4-b"] {
            assert!(NodeName::try_from(good.to_owned()).is_ok(), "{good}");
        }
        for bad in ["", "-oProxyCommand=x", "a b", "a;b", "$(id)", "node/2", "näs"] {
            assert!(NodeName::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }

    #[test]
    fn tool_names_fit_every_client() {
        assert!(ToolName::parse("probe-computers").is_ok());
        for bad in ["", "a.b", "a/b", "a b", &"x".repeat(65)] {
            assert!(ToolName::parse(bad).is_err(), "{bad}");
        }
    }
}
