//! What a tool takes, read from its schema, however that is written.

use serde_json::Value;

use super::typed::followed;

/// Arguments that are told.
const MOST_ARGUMENTS: usize = 300;

/// Choices and lists, one inside the other, that are told.
const DEEPEST: usize = 4;

/// Ways in which a schema is put together: all of these hold.
const PARTS: &str = "allOf";

#[derive(Debug)]
pub struct Argument<'a> {
    pub name: &'a str,
    /// As `integer`, `fast | slow` or `list of string`. Not cleaned.
    pub kind: String,
    pub required: bool,
    pub about: &'a str,
}

/// All arguments, also those of the parts that a schema is put together from.
pub fn arguments(schema: &Value) -> Vec<Argument<'_>> {
    let root = followed(schema, schema);
    let parts = root[PARTS].as_array().into_iter().flatten().map(|part| followed(schema, part));
    let parts: Vec<&Value> = std::iter::once(root).chain(parts).collect();
    let is_required = |name: &str| {
        let mut required = parts.iter().flat_map(|part| part["required"].as_array().into_iter().flatten());
        required.any(|one| one == name)
    };
    let mut arguments: Vec<Argument<'_>> = Vec::new();
    for (name, field) in parts.iter().flat_map(|part| part["properties"].as_object().into_iter().flatten()) {
        if arguments.len() < MOST_ARGUMENTS && arguments.iter().all(|argument| argument.name != name) {
            let about = [field, followed(schema, field)].into_iter().find_map(|field| field["description"].as_str());
            let (kind, required) = (kind(schema, field, 0), is_required(name));
            arguments.push(Argument { name, kind, required, about: about.unwrap_or_default() });
        }
    }
    arguments
}

/// What a value may be. That it may also be nothing, the column beside it says.
fn kind(root: &Value, field: &Value, depth: usize) -> String {
    let field = followed(root, field);
    if depth == DEEPEST {
        return "…".to_owned();
    }
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if let Some(choices) = field["enum"].as_array() {
        return joined(choices.iter().map(plain));
    }
    if let Some(only) = field.get("const") {
        return plain(only);
    }
    for several in ["anyOf", "oneOf"] {
        if let Some(choices) = field[several].as_array() {
            return joined(choices.iter().map(|choice| kind(root, choice, depth + 1)));
        }
    }
    let word = |word: &str| match word {
        "array" => match kind(root, &field["items"], depth + 1).as_str() {
            "any" => "list".to_owned(),
            items => format!("list of {items}"),
        },
        word => word.to_owned(),
    };
    match &field["type"] {
        Value::String(one) => word(one),
        Value::Array(several) => joined(several.iter().filter_map(Value::as_str).map(word)),
        _ if field["properties"].is_object() => "object".to_owned(),
        _ => match field[PARTS].as_array().and_then(|parts| parts.first()) {
            Some(part) => kind(root, part, depth + 1),
            None => "any".to_owned(),
        },
    }
}

/// Each of them once.
fn joined(words: impl Iterator<Item = String>) -> String {
    let mut all: Vec<String> = Vec::new();
    for word in words.filter(|word| word != "null") {
        if !all.contains(&word) {
            all.push(word);
        }
    }
    if all.is_empty() { "null".to_owned() } else { all.join(" | ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_way_to_write_a_schema_gives_types_and_what_is_required() {
        let schema = json!({
            "$defs": {
                "Mode": { "oneOf": [{ "const": "fast", "description": "Quick." }, { "const": "slow" }], "description": "How." },
                "Tree": { "type": "object", "properties": { "left": { "$ref": "#/$defs/Tree" } } },
                "Paged": { "properties": { "cursor": { "type": "string" } }, "required": ["cursor"] },
            },
            "properties": {
                "mode": { "$ref": "#/$defs/Mode" },
                "maybe": { "anyOf": [{ "$ref": "#/$defs/Mode" }, { "type": "null" }] },
                "n": { "type": ["integer", "null"] },
                "names": { "type": "array", "items": { "type": "string" } },
                "tree": { "$ref": "#/$defs/Tree" },
                "all": { "allOf": [{ "type": "boolean" }] },
                "free": {},
            },
            "required": ["mode"],
            "allOf": [{ "$ref": "#/$defs/Paged" }],
        });
        let told: Vec<(&str, String, bool)> =
            arguments(&schema).into_iter().map(|argument| (argument.name, argument.kind, argument.required)).collect();
        let row = |name, kind: &str, required| (name, kind.to_owned(), required);
        let expected = [
            row("mode", "fast | slow", true),
            row("maybe", "fast | slow", false),
            row("n", "integer", false),
            row("names", "list of string", false),
            row("tree", "object", false),
            row("all", "boolean", false),
            row("free", "any", false),
            row("cursor", "string", true),
        ];
        assert_eq!(told, expected);
        assert_eq!(arguments(&schema)[0].about, "How.");
    }

    #[test]
    fn a_schema_that_holds_itself_has_an_end() {
        let list = json!({ "$defs": { "l": { "type": "array", "items": { "$ref": "#/$defs/l" } } },
                           "properties": { "l": { "$ref": "#/$defs/l" } } });
        assert_eq!(arguments(&list)[0].kind, "list of list of list of list of …");
        let circle = json!({ "$ref": "#/$defs/c", "$defs": { "c": { "$ref": "#/$defs/c" } } });
        assert!(arguments(&circle).is_empty());
    }
}
