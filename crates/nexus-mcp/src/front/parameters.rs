//! Arguments that a tool wants repeated in headers (`x-mcp-header` in its schema), for those who route by them.

use axum::http::HeaderMap;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::http::unwrapped;

/// What keyword in a field's schema names its header.
const KEYWORD: &str = "x-mcp-header";

/// New era: an argument with such a header must stand there too, and the header must not say what no argument
/// says. Gives the name of the first header that does not agree.
pub fn mismatch(headers: &HeaderMap, input: &Map<String, Value>, arguments: Option<&RawValue>) -> Option<String> {
    // Hardly any tool has such fields: the arguments are not read before that is known.
    if !any(input) {
        return None;
    }
    let arguments = arguments.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    first(headers, input, &arguments)
}

fn any(schema: &Map<String, Value>) -> bool {
    fields(schema).any(|(_, field)| field.contains_key(KEYWORD) || any(field))
}

fn first(headers: &HeaderMap, schema: &Map<String, Value>, arguments: &Value) -> Option<String> {
    fields(schema).find_map(|(name, field)| {
        let argument = &arguments[name];
        if let Some(header) = field.get(KEYWORD).and_then(Value::as_str) {
            let header = format!("Mcp-Param-{header}");
            if !agrees(headers, &header, argument) {
                return Some(header);
            }
        }
        first(headers, field, argument)
    })
}

/// The fields that can be reached through `properties` alone; elsewhere the keyword means nothing.
fn fields(schema: &Map<String, Value>) -> impl Iterator<Item = (&str, &Map<String, Value>)> {
    let fields = schema.get("properties").and_then(Value::as_object);
    fields.into_iter().flatten().filter_map(|(name, field)| Some((name.as_str(), field.as_object()?)))
}

fn agrees(headers: &HeaderMap, header: &str, argument: &Value) -> bool {
    let said = headers.get(header);
    let text = match argument {
        // Nothing to repeat: the header must not be there either.
        Value::Null => return said.is_none(),
        Value::String(text) => text.clone(),
        plain => plain.to_string(),
    };
    said.and_then(|said| said.to_str().ok()).and_then(unwrapped).is_some_and(|said| said == text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};
    use serde_json::json;

    #[test]
    fn an_annotated_argument_must_stand_in_its_header() {
        check(r#"{"region":"eu"}"#, &[("mcp-param-region", "eu")], None);
        check(r#"{"region":"eu"}"#, &[("mcp-param-region", "us")], Some("Mcp-Param-Region"));
        check(r#"{"region":"eu"}"#, &[], Some("Mcp-Param-Region"));
        check(r#"{"region":"Hello"}"#, &[("mcp-param-region", "=?base64?SGVsbG8=?=")], None);
        check(r#"{"region":"Hello"}"#, &[("mcp-param-region", "=?base64?SGVsbG8?=")], Some("Mcp-Param-Region"));
        check(r#"{"region":"=?base64?SGVsbG8="}"#, &[("mcp-param-region", "=?base64?SGVsbG8=")], None);
    }

    #[test]
    fn a_header_without_its_argument_is_refused_and_neither_is_fine() {
        check("{}", &[], None);
        check(r#"{"region":null,"other":"x"}"#, &[], None);
        check("{}", &[("mcp-param-region", "eu")], Some("Mcp-Param-Region"));
        check(r#"["not an object"]"#, &[], None);
    }

    #[test]
    fn fields_inside_fields_count_numbers_and_switches_too() {
        check(r#"{"in":{"count":5,"deep":true}}"#, &[("mcp-param-count", "5"), ("mcp-param-deep", "true")], None);
        check(r#"{"in":{"count":5}}"#, &[("mcp-param-count", "6")], Some("Mcp-Param-Count"));
        check(r#"{"in":{"deep":true}}"#, &[("mcp-param-deep", "TRUE")], Some("Mcp-Param-Deep"));
    }

    #[track_caller]
    fn check(arguments: &str, headers: &[(&'static str, &'static str)], expected: Option<&str>) {
        let inner = json!({
            "type": "object",
            "properties": {
                "count": { "type": "integer", "x-mcp-header": "Count" },
                "deep": { "type": "boolean", "x-mcp-header": "Deep" },
            },
        });
        let schema = json!({
            "type": "object",
            "properties": { "region": { "type": "string", "x-mcp-header": "Region" }, "other": {}, "in": inner },
        });
        let header = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let headers: HeaderMap = headers.iter().map(header).collect();
        let arguments: &RawValue = serde_json::from_str(arguments).unwrap();
        assert_eq!(mismatch(&headers, schema.as_object().unwrap(), Some(arguments)).as_deref(), expected);
    }
}
