//! Values become what the schema says, or are refused with what it wants.

use serde_json::{Value, json};

use super::arguments;

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": { "type": "string" },
            "lines": { "type": "integer" },
            "limit": { "type": ["integer", "null"] },
            "ratio": { "type": "number" },
            "deep": { "type": "boolean" },
            "tags": { "type": "array", "items": { "type": "string" } },
            "sizes": { "type": "array", "items": { "type": "integer" } },
            "mode": { "enum": ["fast", "slow", 3] },
            "either": { "anyOf": [{ "type": "integer" }, { "type": "string" }] },
            "anything": {},
            "login": { "$ref": "#/$defs/login" },
            "loop": { "$ref": "#/properties/loop" },
        },
        "$defs": {
            "login": { "type": "object", "properties": { "user": { "type": "string" }, "pin": { "type": "integer" } } },
        },
        "additionalProperties": false,
    })
}

#[test]
fn values_become_what_the_schema_says() {
    check("path=5", json!({ "path": "5" }));
    check("path=true", json!({ "path": "true" }));
    check("path=a=b", json!({ "path": "a=b" }));
    check("path=", json!({ "path": "" }));
    check("lines=5", json!({ "lines": 5 }));
    check("lines=-5", json!({ "lines": -5 }));
    check("limit=7", json!({ "limit": 7 }));
    check("limit=null", json!({ "limit": null }));
    check("ratio=0.5", json!({ "ratio": 0.5 }));
    check("ratio=2", json!({ "ratio": 2 }));
    check("deep=yes", json!({ "deep": true }));
    check("deep=False", json!({ "deep": false }));
    check("tags=a", json!({ "tags": ["a"] }));
    check("tags=a tags=b", json!({ "tags": ["a", "b"] }));
    check(r#"tags=["a","b"]"#, json!({ "tags": ["a", "b"] }));
    check("sizes=1 sizes=2", json!({ "sizes": [1, 2] }));
    check("mode=fast", json!({ "mode": "fast" }));
    check("mode=3", json!({ "mode": 3 }));
    check("either=7", json!({ "either": 7 }));
    check("either=seven", json!({ "either": "seven" }));
    check("anything=[1]", json!({ "anything": [1] }));
    check("anything=word", json!({ "anything": "word" }));
    check("login.user=ann login.pin=7", json!({ "login": { "user": "ann", "pin": 7 } }));
    check(r#"login={"user":"ann"}"#, json!({ "login": { "user": "ann" } }));
    check("loop=1", json!({ "loop": 1 }));

    #[track_caller]
    fn check(line: &str, expected: Value) {
        let made = arguments(&schema(), &pairs(line)).map(Value::Object);
        assert_eq!(made, Ok(expected), "{line}");
    }
}

#[test]
fn what_does_not_fit_is_refused_with_what_would() {
    check("lines=many", "`lines` must be a whole number, not `many`");
    check("lines=1.5", "`lines` must be a whole number, not `1.5`");
    check("deep=maybe", "`deep` must be true or false, not `maybe`");
    check("limit=x", "`limit` must be null, or a whole number, not `x`");
    check("sizes=1 sizes=b", "`sizes` must be a list of which each is a whole number, not `b`");
    check("mode=quick", "`mode` must be one of fast, slow, 3, not `quick`");
    check("login=ann", "`login` must be a JSON object, not `ann`");
    check("login.pin=x", "`login.pin` must be a whole number, not `x`");
    check("path=a path=b", "`path` is given twice");
    check("pth=a", "there is no argument `pth`; did you mean `path`?");
    check(
        "zzzzzz=a",
        "there is no argument `zzzzzz`; there are path, lines, limit, ratio, deep, tags, sizes, mode, either, anything, login, loop",
    );

    #[track_caller]
    fn check(line: &str, expected: &str) {
        assert_eq!(arguments(&schema(), &pairs(line)).unwrap_err().to_string(), expected, "{line}");
    }
}

#[test]
fn what_is_missing_is_named_and_what_is_open_stays_open() {
    let wants = json!({ "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] });
    assert_eq!(arguments(&wants, &[]).unwrap_err().to_string(), "`path` is missing");
    let none = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    assert_eq!(arguments(&none, &pairs("a=1")).unwrap_err().to_string(), "there is no argument `a`; it takes none");
    let open = json!({ "type": "object" });
    assert_eq!(arguments(&open, &pairs("a=1 b=x")).map(Value::Object), Ok(json!({ "a": 1, "b": "x" })));
    let rest = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    assert_eq!(arguments(&rest, &pairs("a=1")).map(Value::Object), Ok(json!({ "a": "1" })));
    assert!(arguments(&Value::Null, &pairs("a=1")).is_ok());
}

fn pairs(line: &str) -> Vec<(String, String)> {
    let pair = |word: &str| word.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())).unwrap();
    line.split(' ').map(pair).collect()
}
