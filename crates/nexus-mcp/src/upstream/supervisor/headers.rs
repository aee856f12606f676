//! Arguments that HTTP repeats in headers, because a field's schema says `x-mcp-header`.

use std::collections::HashSet;

use serde_json::{Map, Value};

const KEYWORD: &str = "x-mcp-header";

/// One such argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderParam {
    /// From the arguments down, field by field.
    pub path: Vec<String>,
    /// With its `Mcp-Param-`.
    pub header: String,
}

/// The values of these arguments, as text. What is absent or null has no header.
pub fn of(params: &[HeaderParam], arguments: &Map<String, Value>) -> Vec<(String, String)> {
    let value = |param: &HeaderParam| {
        let (first, rest) = param.path.split_first()?;
        let value = rest.iter().try_fold(arguments.get(first)?, |value, field| value.get(field))?;
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(yes) => yes.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
        };
        Some((param.header.clone(), text))
    };
    params.iter().filter_map(value).collect()
}

/// All of them. A tool that has one which no header can carry must not be offered, says the protocol.
pub fn find(input: &Map<String, Value>) -> Result<Vec<HeaderParam>, String> {
    let mut found = Vec::new();
    walk(input, &mut Vec::new(), &mut found)?;
    let mut seen = HashSet::new();
    match found.iter().find(|param| !seen.insert(param.header.to_ascii_lowercase())) {
        Some(twice) => Err(format!("two of its arguments want the header `{}`", twice.header)),
        None => Ok(found),
    }
}

fn walk(schema: &Map<String, Value>, path: &mut Vec<String>, found: &mut Vec<HeaderParam>) -> Result<(), String> {
    if let Some(header) = schema.get(KEYWORD) {
        found.push(param(schema, header, path)?);
    }
    for (keyword, inner) in schema {
        match (keyword.as_str(), inner) {
            ("properties", Value::Object(fields)) => {
                for (name, field) in fields {
                    if let Value::Object(field) = field {
                        path.push(name.clone());
                        walk(field, path, found)?;
                        path.pop();
                    }
                }
            }
            // Plain values, in which the word means nothing.
            ("enum" | "const" | "default" | "examples" | "example", _) => {}
            (_, inner) if mentions(inner) => {
                return Err(format!("`{KEYWORD}` stands below `{}`, where it may not", super::tool::shown(keyword)));
            }
            _ => {}
        }
    }
    Ok(())
}

fn param(schema: &Map<String, Value>, header: &Value, path: &[String]) -> Result<HeaderParam, String> {
    let token = |name: &&str| {
        !name.is_empty()
            && name.len() <= 128
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
    };
    let header = header.as_str().filter(token).ok_or_else(|| format!("its `{KEYWORD}` is not a header's name"))?;
    let plain = matches!(schema.get("type").and_then(Value::as_str), Some("string" | "integer" | "boolean"));
    if path.is_empty() || !plain {
        return Err(format!("`{KEYWORD}` is only for fields that are a string, an integer or a boolean"));
    }
    Ok(HeaderParam { path: path.to_vec(), header: format!("Mcp-Param-{header}") })
}

/// Whether the keyword stands anywhere in there, other than as the name of a field.
fn mentions(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(name, inner)| match (name.as_str(), inner) {
            (KEYWORD, _) => true,
            (
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
                Value::Object(named),
            ) => named.values().any(mentions),
            ("enum" | "const" | "default" | "examples" | "example", _) => false,
            (_, inner) => mentions(inner),
        }),
        Value::Array(items) => items.iter().any(mentions),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(schema: &Value) -> Result<Vec<HeaderParam>, String> {
        find(schema.as_object().unwrap())
    }

    #[test]
    fn arguments_become_headers_at_any_depth() {
        let schema = json!({ "type": "object", "properties": {
            "region": { "type": "string", "x-mcp-header": "Region" },
            "in": { "type": "object", "properties": { "deep": { "type": "boolean", "x-mcp-header": "Deep" } } },
            "n": { "type": "integer", "x-mcp-header": "N" },
            "x-mcp-header": { "type": "string" },
        } });
        let params = found(&schema).unwrap();
        let arguments = json!({ "region": "eu west", "in": { "deep": true }, "n": null, "x-mcp-header": "no" });
        let expected = [("Mcp-Param-Region", "eu west"), ("Mcp-Param-Deep", "true")];
        assert_eq!(of(&params, arguments.as_object().unwrap()), expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn what_no_header_can_carry_is_refused() {
        check(&json!({ "properties": { "a": { "type": "object", "x-mcp-header": "A" } } }), "only for fields");
        check(&json!({ "properties": { "a": { "type": "number", "x-mcp-header": "A" } } }), "only for fields");
        check(&json!({ "properties": { "a": { "x-mcp-header": "A" } } }), "only for fields");
        check(&json!({ "properties": { "a": { "type": "string", "x-mcp-header": "A B" } } }), "not a header's name");
        check(&json!({ "properties": { "a": { "type": "string", "x-mcp-header": "" } } }), "not a header's name");
        check(&json!({ "properties": { "a": { "type": "string", "x-mcp-header": 1 } } }), "not a header's name");
        check(
            &json!({ "properties": { "a": { "items": { "type": "string", "x-mcp-header": "A" } } } }),
            "below `items`",
        );
        check(&json!({ "allOf": [{ "properties": { "a": { "type": "string", "x-mcp-header": "A" } } }] }), "below");
        let twice = json!({ "properties": { "a": { "type": "string", "x-mcp-header": "A" },
            "b": { "type": "string", "x-mcp-header": "a" } } });
        check(&twice, "two of its arguments");

        #[track_caller]
        fn check(schema: &Value, why: &str) {
            let refused = found(schema).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
