//! A server's tool as it stands in our `tools/list`.

use serde_json::{Map, Value, json};

use nexus_core::tool::{Access, Foreign, Listed, ToolSpec, with_errors};

use crate::upstream::relay::clean::clean_tree;
use crate::upstream::supervisor::OfferedTool;

/// What the server says of a tool beside its schemas that clients are told. It is a hint: the gate does not look at it.
const HINTS: [&str; 4] = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"];

/// The spec of a tool. One that is held back is not listed, and can be called only to be told so.
pub(super) fn spec(tool: &OfferedTool) -> ToolSpec {
    let mut definition: Value = serde_json::from_str(&tool.definition).unwrap_or_default();
    clean_tree(&mut definition);
    let mut input = match definition["inputSchema"].take() {
        Value::Object(input) => input,
        _ => Map::new(),
    };
    // Some clients insist on them.
    input.entry("properties").or_insert_with(|| json!({}));
    let mut listed = json!({
        "name": tool.exposed.as_str(),
        "title": tool.title,
        "description": tool.description,
        "inputSchema": input,
    });
    if let Some(output) = definition["outputSchema"].as_object().and_then(widened) {
        listed["outputSchema"] = output;
    }
    listed["annotations"] = annotations(&tool.title, &definition["annotations"]);
    ToolSpec::foreign(Foreign {
        name: tool.exposed.clone(),
        title: tool.title.clone(),
        description: tool.description.clone(),
        access: Access::Write,
        input,
        rendered: listed.to_string().into(),
        listed: if tool.is_allowed() { Listed::Everyone } else { Listed::Nobody },
    })
}

fn annotations(title: &str, said: &Value) -> Value {
    let mut shown = json!({ "title": title });
    for hint in HINTS {
        if said[hint].is_boolean() {
            shown[hint] = said[hint].clone();
        }
    }
    shown
}

/// The schema of its results with ours beside it: that something went wrong, or waits. None: it cannot be told in a way
/// that holds for both eras, and so it is not told.
fn widened(output: &Map<String, Value>) -> Option<Value> {
    if output.get("type")?.as_str()? != "object" || !refers_to_definitions_only(&Value::Object(output.clone())) {
        return None;
    }
    let mut reply = output.clone();
    // References begin at the root, so what they refer to must stay there.
    let kept = ["$schema", "$defs", "definitions"].map(|name| (name, reply.shift_remove(name)));
    let mut schema = with_errors(&reply, Access::Write);
    for (name, value) in kept {
        if let Some(value) = value {
            schema[name] = value;
        }
    }
    Some(schema)
}

fn refers_to_definitions_only(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => fields.iter().all(|(name, value)| match (name.as_str(), value) {
            ("$ref", Value::String(to)) => to.starts_with("#/$defs/") || to.starts_with("#/definitions/"),
            ("$id" | "$dynamicRef" | "$recursiveRef", Value::String(_)) => false,
            (_, value) => refers_to_definitions_only(value),
        }),
        Value::Array(items) => items.iter().all(refers_to_definitions_only),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(schema: &Value) -> Option<Value> {
        widened(schema.as_object().unwrap())
    }

    #[test]
    fn results_may_be_errors_and_references_still_lead_somewhere() {
        let schema = of(&json!({
            "type": "object",
            "properties": { "a": { "$ref": "#/$defs/A" } },
            "$defs": { "A": { "type": "string" } },
        }))
        .unwrap();
        assert_eq!(schema["$defs"]["A"]["type"], "string");
        assert_eq!(schema["anyOf"][0], json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/A" } } }));
        assert_eq!(schema["type"], "object");
        let validator = jsonschema::validator_for(&schema).unwrap();
        assert!(validator.is_valid(&json!({ "a": "x" })));
        assert!(!validator.is_valid(&json!({ "a": 1 })));
        assert!(validator.is_valid(&json!({ "error": { "message": "no" } })));
    }

    #[test]
    fn a_schema_that_would_mean_something_else_here_is_not_told() {
        assert_eq!(of(&json!({ "type": "array" })), None);
        assert_eq!(of(&json!({ "oneOf": [{ "type": "object" }] })), None);
        let itself = json!({ "type": "object", "properties": { "next": { "$ref": "#" } } });
        assert_eq!(of(&itself), None);
        let sideways = json!({ "type": "object", "properties": { "a": {}, "b": { "$ref": "#/properties/a" } } });
        assert_eq!(of(&sideways), None);
    }

    #[test]
    fn hints_are_the_servers_own() {
        let said = json!({ "readOnlyHint": true, "openWorldHint": "yes", "title": "Evil", "x": 1 });
        assert_eq!(annotations("Good", &said), json!({ "title": "Good", "readOnlyHint": true }));
    }
}
