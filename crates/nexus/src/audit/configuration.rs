//! Records when the hub starts with another configuration than last time: which sections, not what they say.

use std::collections::BTreeMap;

use anyhow::Result;
use nexus_core::audit::{Event, Row, Sink};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::config::Config;
use crate::store::{Store, hex};

/// Compares with what the store remembers of this data folder's last start, and remembers this one.
pub async fn record_changes(config: &Config, home: &str, store: &Store, audit: &dyn Sink) -> Result<()> {
    let name = format!("configuration of {home}");
    let now = digests(&serde_json::to_value(config)?);
    let before: Option<BTreeMap<String, String>> =
        store.remembered(&name).await?.and_then(|text| serde_json::from_str(&text).ok());
    let changed = before.map(|before| changed(&before, &now)).unwrap_or_default();
    if !changed.is_empty() {
        audit
            .durable(Row::new(Event::ConfigChanged).detail(format!("since the last start: {}", changed.join(", "))))
            .await?;
    }
    store.remember(&name, &serde_json::to_string(&now)?).await?;
    Ok(())
}

fn digests(config: &Value) -> BTreeMap<String, String> {
    let sections = config.as_object().into_iter().flatten();
    sections.map(|(name, section)| (name.clone(), hex(&Sha256::digest(section.to_string())))).collect()
}

fn changed(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Vec<String> {
    let mut names: Vec<String> = before.keys().chain(now.keys()).cloned().collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| before.get(name) != now.get(name));
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_sections_that_differ_are_named() {
        let before = digests(&json!({ "approval": { "mode": "ask" }, "shell": {}, "old": 1 }));
        let now = digests(&json!({ "approval": { "mode": "chat" }, "shell": {}, "new": 1 }));
        assert_eq!(changed(&before, &now), ["approval", "new", "old"]);
        assert!(changed(&now, &now).is_empty());
    }
}
