//! Schemas: what they find, and that none of them can hurt.

use std::time::{Duration, Instant};

use serde_json::{Map, json};

use super::*;

fn misfits(schema: &Value, arguments: &Value) -> Vec<String> {
    let checker = inspect(schema).unwrap();
    let found = checker.check(&schema.to_string(), arguments).err().unwrap_or_default();
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn what_does_not_fit_is_told_with_its_place_and_never_its_value() {
    let schema = json!({
        "type": "object",
        "properties": {
            "path": { "type": "string" },
            "mode": { "enum": ["r", "w"] },
            "deep": { "type": "object", "properties": { "n": { "type": "integer", "minimum": 1 } } },
        },
        "required": ["path"],
        "additionalProperties": false,
    });
    check(&schema, &json!({ "path": "x" }), &[]);
    check(&schema, &json!({}), &["arguments: \"path\" is a required property"]);
    check(&schema, &json!({ "path": 4711 }), &["/path: value is not of type \"string\""]);
    check(&schema, &json!({ "path": "x", "mode": "s3cret" }), &["/mode: value is not one of \"r\" or \"w\""]);
    check(&schema, &json!({ "path": "x", "deep": { "n": 0 } }), &["/deep/n: value is less than the minimum of 1"]);

    #[track_caller]
    fn check(schema: &Value, arguments: &Value, expected: &[&str]) {
        assert_eq!(misfits(schema, arguments), expected);
    }
}

#[test]
fn references_within_work_and_references_away_are_refused() {
    let tree = json!({ "type": "object", "properties": { "children": { "type": "array", "items": { "$ref": "#" } } } });
    assert_eq!(misfits(&tree, &json!({ "children": [{ "children": [] }] })), [""; 0]);
    assert_eq!(misfits(&tree, &json!({ "children": [{ "children": 1 }] })).len(), 1);
    let defs = json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/a" }, "b": { "$ref": "#b" } },
        "$defs": { "a": { "type": "string" }, "b": { "$anchor": "b", "type": "integer" } } });
    assert_eq!(misfits(&defs, &json!({ "a": 1, "b": 1 })).len(), 1);
    for away in ["http://127.0.0.1:1/schema", "file:///etc/passwd", "other.json"] {
        let schema = json!({ "type": "object", "properties": { "a": { "$ref": away } } });
        assert!(inspect(&schema).unwrap_err().contains("is not in it"), "{away}");
    }
}

#[test]
fn what_a_schema_says_of_its_dialect_does_not_matter() {
    for dialect in [
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2020-12/schema",
        "http://example.com/of-our-own",
    ] {
        let schema = json!({ "$schema": dialect, "type": "object", "properties": { "a": { "type": "string" } } });
        assert_eq!(misfits(&schema, &json!({ "a": 1 })).len(), 1, "{dialect}");
    }
}

#[test]
fn schemas_that_never_end_are_refused() {
    check(&json!({ "type": "object", "$ref": "#" }));
    check(&json!({ "type": "object", "allOf": [{ "$ref": "#" }] }));
    check(
        &json!({ "type": "object", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "not": { "$ref": "#/$defs/a" } } } }),
    );
    check(&json!({ "type": "object", "$dynamicAnchor": "x", "anyOf": [{ "$dynamicRef": "#x" }] }));

    #[track_caller]
    fn check(schema: &Value) {
        assert_eq!(inspect(schema).unwrap_err(), "refers to itself without end");
    }
}

#[test]
fn broken_and_oversized_schemas_are_refused() {
    check(&json!({ "type": "objekt" }), "cannot be used");
    check(&json!({ "type": "object", "properties": { "a": { "pattern": "(" } } }), "cannot be used");
    check(&json!({ "type": "object", "properties": [] }), "cannot be used");
    check(&json!({ "type": "object", "title": "x".repeat(LARGEST) }), "more than");
    let deep = (0..80).fold(json!({}), |inner, _| json!({ "properties": { "a": inner } }));
    check(&deep, "deep");

    #[track_caller]
    fn check(schema: &Value, why: &str) {
        let refused = inspect(schema).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}

/// Each of these would take ages, or the whole stack, if it were simply built and used.
#[test]
fn schemas_made_to_cost_cost_little() {
    let defs = |n: usize, of: &dyn Fn(usize) -> Value| -> Map<String, Value> {
        (0..n).map(|i| (format!("a{i}"), of(i))).collect()
    };
    let to = |i: usize| json!({ "$ref": format!("#/$defs/a{}", i + 1) });
    let nested = (0..60).fold(json!(1), |inner, _| json!({ "a": inner }));
    let doubling = defs(40, &|i| if i == 39 { json!({}) } else { json!({ "allOf": [to(i), to(i)] }) });
    check("twice the same", doubling, &nested);
    let below = |i| json!({ "allOf": [{ "properties": { "a": to(i) } }, { "properties": { "a": to(i) } }] });
    check("twice below", defs(60, &|i| if i == 59 { json!({}) } else { below(i) }), &nested);
    let wide = |i: usize| json!({ "properties": { "a": to(i), "b": to(i) } });
    check("two fields", defs(60, &|i| if i == 59 { json!({}) } else { wide(i) }), &nested);
    let chain = |i: usize| json!({ "properties": { "a": to(i) } });
    check("a long chain", defs(4000, &|i| if i == 3999 { json!({}) } else { chain(i) }), &nested);
    let straight = defs(4000, &|i| if i == 3999 { json!({}) } else { to(i) });
    check("a straight chain", straight, &nested);
    let again = json!({ "properties": { "a": { "$ref": "#/$defs/a0" } } });
    let itself = json!({ "allOf": [again, again] });
    check("itself twice", defs(1, &|_| itself.clone()), &nested);
    let pattern = json!({ "properties": { "a": { "pattern": "^(a+)+(?=b)$" } } });
    check("a pattern", defs(1, &|_| pattern.clone()), &json!({ "a": "a".repeat(5000) }));

    #[track_caller]
    fn check(what: &str, defs: Map<String, Value>, arguments: &Value) {
        let defs = Value::Object(defs);
        let schema = json!({ "type": "object", "$ref": "#/$defs/a0", "$defs": defs });
        let started = Instant::now();
        if let Ok(checker) = inspect(&schema) {
            let _ = checker.check(&schema.to_string(), arguments);
        }
        // Debug builds on a busy machine: what is bounded takes milliseconds, what is not takes for ever.
        assert!(started.elapsed() < Duration::from_secs(10), "{what}: {:?}", started.elapsed());
    }
}
