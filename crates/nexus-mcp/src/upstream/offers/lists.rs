//! A server's prompts and resources as they stand in our lists: rendered once for each offer.

use serde_json::Value;

use nexus_core::name::ServerName;
use nexus_core::text;

use crate::upstream::supervisor::{Offer, OfferedPrompt, OfferedResource};

/// Characters of a description.
const LONGEST_DESCRIPTION: usize = 2_000;

/// Items as JSON text with commas between them, without brackets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Lists {
    pub(crate) prompts: String,
    pub(crate) resources: String,
    pub(crate) templates: String,
}

impl Lists {
    pub(crate) fn of(offer: &Offer) -> Self {
        let server = offer.naming.server();
        let prompt = |prompt: &OfferedPrompt| item(&prompt.definition, "name", prompt.exposed.as_str(), server);
        let resource =
            |key: &str, resource: &OfferedResource| item(&resource.definition, key, &resource.exposed, server);
        Self {
            prompts: joined(offer.prompts.iter().map(|it| prompt(it))),
            resources: joined(offer.resources.iter().map(|it| resource("uri", it))),
            templates: joined(offer.templates.iter().map(|it| resource("uriTemplate", it))),
        }
    }
}

/// Lists of several servers as one.
pub(crate) fn joined<S: AsRef<str>>(items: impl Iterator<Item = S>) -> String {
    let mut out = String::new();
    for item in items {
        if item.as_ref().is_empty() {
            continue;
        }
        if !out.is_empty() {
            out.push(',');
        }
        out.push_str(item.as_ref());
    }
    out
}

/// One item under our name. Pictures are left out: a client would fetch them from wherever the server likes.
fn item(definition: &Value, key: &str, exposed: &str, server: &ServerName) -> String {
    let Value::Object(mut fields) = definition.clone() else { return String::new() };
    for unwanted in ["_meta", "icons"] {
        fields.shift_remove(unwanted);
    }
    fields.insert(key.to_owned(), exposed.into());
    let about = fields.get("description").and_then(Value::as_str).unwrap_or_default();
    let about = format!("[MCP:{server}] {about}");
    let about = text::cut(about.trim_end(), LONGEST_DESCRIPTION).into_owned();
    fields.insert("description".to_owned(), about.into());
    // A resource must have a name; a hostile server may have left it out.
    if key != "name" && !fields.get("name").is_some_and(Value::is_string) {
        fields.insert("name".to_owned(), exposed.into());
    }
    Value::Object(fields).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn items_stand_under_our_names_and_say_whose_they_are() {
        let definition =
            json!({ "uri": "test://x", "name": "x", "icons": [{ "src": "https://t.example" }], "_meta": {} });
        let shown = item(&definition, "uri", "mcp-a+test://x", &ServerName::new("a"));
        assert_eq!(shown, r#"{"uri":"mcp-a+test://x","name":"x","description":"[MCP:a]"}"#);
        let nameless = item(&json!({ "uri": "test://x" }), "uri", "mcp-a+test://x", &ServerName::new("a"));
        assert!(nameless.contains(r#""name":"mcp-a+test://x""#), "{nameless}");
    }

    #[test]
    fn lists_of_servers_are_joined_without_gaps() {
        assert_eq!(joined(["", "{}", "", "{},{}"].into_iter()), "{},{},{}");
    }
}
