//! Places, faults, and agreement with serde_json.

use proptest::prelude::*;
use serde_json::{Map, Value};

use super::*;

#[test]
fn every_value_knows_its_place() {
    let parsed = parse("{\n  // ours\n  \"ä\": [1, \"x\"],\n  \"b\": {\"c\": null,},\n}\n");
    assert!(parsed.broken.is_none(), "{parsed:?}");
    let list = parsed.root.get("ä").unwrap();
    assert_eq!((list.spot, list.items()[1].spot), (Spot { line: 3, col: 8 }, Spot { line: 3, col: 12 }));
    let inner = parsed.root.entry("b").unwrap().value.entry("c").unwrap();
    assert_eq!(inner.spot, Spot { line: 4, col: 9 });
}

#[test]
fn what_is_no_json_is_told_with_its_place() {
    check("", 1, 1, "breaks off");
    check("{\"a\": 1 \"b\": 2}", 1, 9, "a comma is missing");
    check("{\n  a: 1}", 2, 3, "a key in double quotes");
    check("{'a': 1}", 1, 2, "a key in double quotes");
    check("{\"a\" 1}", 1, 6, "a `:` belongs");
    check("{\"a\": tru}", 1, 7, "a value belongs here");
    check("{\"a\": 01}", 1, 7, "no number");
    check("{\"a\": \"x\n\"}", 1, 9, "no end on its line");
    check("{\"a\": \"\\x\"}", 1, 8, "no escape");
    check("{\"a\": \"\\ud800x\"}", 1, 8, "no character");
    check("{} {}", 1, 4, "should end here");
    check("/* for ever", 1, 12, "breaks off");
    check(&"[".repeat(1000), 1, 66, "nested too deeply");

    #[track_caller]
    fn check(text: &str, line: usize, col: usize, words: &str) {
        let (spot, problem) = parse(text).broken.unwrap();
        assert!(format!("{problem:?}").contains(words), "{problem:?}");
        assert_eq!(spot, Spot { line, col }, "{text}");
    }
}

#[test]
fn what_stands_whole_before_a_fault_is_kept_and_no_half_of_anything() {
    let parsed = parse(r#"{"servers": {"a": {"x": 1}, "b": {"x": 1, "y" }}}"#);
    assert!(parsed.broken.is_some());
    let servers = parsed.root.get("servers").unwrap();
    assert_eq!(servers.entries().iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn the_first_of_two_keys_counts_and_the_second_is_told() {
    let parsed = parse("{\"a\": 1,\n\"a\": 2}");
    assert_eq!(parsed.root.get("a").unwrap().scalar(), Some("1"));
    assert_eq!(parsed.doubled[0].spot, Spot { line: 2, col: 1 });
}

proptest! {
    /// What serde_json writes is read as the same, and nothing at all makes the reader panic.
    #[test]
    fn it_agrees_with_serde_json(value in value()) {
        for text in [serde_json::to_string(&value).unwrap(), serde_json::to_string_pretty(&value).unwrap()] {
            let parsed = parse(&text);
            prop_assert!(parsed.broken.is_none(), "{:?}", parsed.broken);
            prop_assert_eq!(&text[parsed.root.span.clone()], &text);
            prop_assert_eq!(back(&parsed.root), value.clone());
        }
    }

    #[test]
    fn it_takes_any_text(text in r#"[\[\]{}":,a1 \\u/*\n]{0,40}"#) {
        let parsed = parse(&text);
        prop_assert!(parsed.broken.is_some() || !text.trim().is_empty());
    }
}

fn back(node: &Node) -> Value {
    match &node.kind {
        Kind::Null => Value::Null,
        Kind::Bool(value) => Value::Bool(*value),
        Kind::Number(number) => serde_json::from_str(number).unwrap(),
        Kind::Text(text) => Value::String(text.clone()),
        Kind::List(items) => items.iter().map(back).collect(),
        Kind::Map(entries) => {
            Value::Object(entries.iter().map(|entry| (entry.key.clone(), back(&entry.value))).collect::<Map<_, _>>())
        }
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}
