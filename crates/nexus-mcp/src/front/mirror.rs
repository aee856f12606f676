//! New era: headers that repeat the body, for those who route by them. What they say must be what the body says.

use axum::http::{HeaderMap, HeaderName};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use nexus_core::principal::Principal;

use super::Front;
use super::guard::text;
use super::http::VERSION;
use crate::wire::{HEADER_MISMATCH, Params, Request, RpcError};

const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// What keyword in a field's schema names its header.
const KEYWORD: &str = "x-mcp-header";

/// New era: what the body says must stand in the headers too, for those who route by them.
pub fn check(headers: &HeaderMap, request: &Request, params: &Params<'_>) -> Result<(), RpcError> {
    let mismatch = |what: &str| Err(header_mismatch(what));
    let version = params.meta.as_ref().and_then(|meta| meta.version.as_deref());
    if version.is_some() && text(headers, VERSION) != version {
        return mismatch("MCP-Protocol-Version");
    }
    // What is missing in the body is told first, by `accept_modern`.
    if version.is_none() {
        return Ok(());
    }
    if text(headers, METHOD) != Some(&request.method) {
        return mismatch("Mcp-Method");
    }
    let named = match request.method.as_str() {
        "tools/call" | "prompts/get" => params.name.as_deref(),
        "resources/read" => params.uri.as_deref(),
        _ => None,
    };
    match named {
        Some(name)
            if !text(headers, NAME).is_some_and(|said| said == name || unwrapped(said).as_deref() == Some(name)) =>
        {
            mismatch("Mcp-Name")
        }
        _ => Ok(()),
    }
}

fn header_mismatch(header: &str) -> RpcError {
    RpcError::new(HEADER_MISMATCH, format!("the header {header} is missing or does not say what the body says"), 400)
}

/// The same for the arguments of which a tool's schema demands it.
pub fn check_arguments(
    front: &Front,
    principal: &Principal,
    headers: &HeaderMap,
    request: &Request,
    params: &Params<'_>,
) -> Result<(), RpcError> {
    let Some(tool) = params.name.as_deref().filter(|_| request.method == "tools/call") else { return Ok(()) };
    let Some(found) = front.server.hub.catalogue.find(tool, principal) else { return Ok(()) };
    // Hardly any tool has such fields: the arguments are not read before that is known.
    if !found.spec.mirrors {
        return Ok(());
    }
    match mismatch(headers, &found.spec.input, params.arguments) {
        Some(header) => Err(header_mismatch(&header)),
        None => Ok(()),
    }
}

/// A header value that may be wrapped as `=?base64?…?=` to carry what headers cannot.
fn unwrapped(value: &str) -> Option<String> {
    match value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        None => Some(value.to_owned()),
        Some(encoded) => String::from_utf8(decode_base64(encoded)?).ok(),
    }
}

fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if !text.len().is_multiple_of(4) || text.len() - digits.len() > 2 {
        return None;
    }
    let (mut bits, mut held, mut out) = (0u32, 0u32, Vec::with_capacity(text.len() * 3 / 4));
    for c in digits.bytes() {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push(u8::try_from(bits >> held & 0xff).ok()?);
        }
    }
    Some(out)
}

/// An argument with such a header must stand there too, and the header must not say what no argument
/// says. Gives the name of the first header that does not agree.
fn mismatch(headers: &HeaderMap, input: &Map<String, Value>, arguments: Option<&RawValue>) -> Option<String> {
    let arguments = arguments.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    first(headers, input, &arguments)
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
    use axum::http::HeaderValue;
    use serde_json::json;

    #[test]
    fn header_values_may_be_wrapped() {
        assert_eq!(unwrapped("plain").as_deref(), Some("plain"));
        assert_eq!(unwrapped("=?base64?w7xiZXI=?=").as_deref(), Some("über"));
        assert_eq!(unwrapped("=?base64?w7xiZXI?="), None);
        assert_eq!(unwrapped("=?base64?w7xi!!!?="), None);
    }

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
