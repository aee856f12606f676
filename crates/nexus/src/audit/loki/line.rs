//! A row as Loki gets it: when, one line for people, and every field of it beside that.
//!
//! The same row always gives the same three, so that Loki drops what is pushed a second time.

use std::fmt::{self, Write};

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use nexus_core::text;

/// Bytes. Together all fields stay below the 64 KB that Loki takes beside a line.
const LONGEST_FIELD: usize = 1_500;
const LONGEST_ARGUMENTS: usize = 24_000;
/// Characters of what is told in the line.
const LONGEST_WORDS: usize = 400;

/// One entry of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub pos: i64,
    /// `["<nanoseconds>","<line>",{…}]`
    pub json: String,
}

/// The fields of a body in their order, each as it stands there.
struct Fields<'a>(Vec<(&'a str, &'a RawValue)>);

impl<'a> Fields<'a> {
    fn raw(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.get())
    }

    fn text(&self, name: &str) -> Option<String> {
        self.raw(name).and_then(|raw| serde_json::from_str(raw).ok())
    }
}

impl Line {
    pub fn of(pos: i64, written_ms: i64, body: &str) -> serde_json::Result<Self> {
        let fields: Fields<'_> = serde_json::from_str(body)?;
        let mut json = String::with_capacity(body.len() + 300);
        let _ = write!(json, r#"["{}","#, stamp(&fields, written_ms));
        json.push_str(&quoted(&words(&fields)));
        json.push_str(",{");
        for (nth, (name, value)) in fields.0.iter().enumerate() {
            json.push_str(if nth == 0 { "\"" } else { ",\"" });
            json.push_str(name);
            json.push_str("\":");
            json.push_str(&field(name, value.get()));
        }
        json.push_str("}]");
        Ok(Self { pos, json })
    }
}

/// Nanoseconds since 1970. Rows of the same microsecond keep the order of their chain, and none has another's place.
fn stamp(fields: &Fields<'_>, written_ms: i64) -> i128 {
    let at = fields.text("at").and_then(|at| at.parse::<Timestamp>().ok());
    let at = at.map_or(i128::from(written_ms) * 1_000_000, Timestamp::as_nanosecond);
    let seq = fields.raw("seq").and_then(|seq| seq.parse::<i128>().ok()).unwrap_or_default();
    at - at.rem_euclid(1_000) + seq.rem_euclid(1_000)
}

/// `call run_command ok: uptime id=0193…`
fn words(fields: &Fields<'_>) -> String {
    let mut line = fields.text("event").unwrap_or_default();
    for part in [fields.text("tool"), fields.text("outcome").or_else(|| fields.text("decision"))].into_iter().flatten()
    {
        line.push(' ');
        line.push_str(&part);
    }
    if let Some(told) = fields.text("summary").or_else(|| fields.text("detail")) {
        line.push_str(": ");
        line.push_str(&text::cut(&text::clean(&told), LONGEST_WORDS));
    }
    line.push_str(" id=");
    line.push_str(&fields.text("id").unwrap_or_default());
    line.replace(['\n', '\r', '\t'], " ")
}

/// A field's value as a JSON string: that is all Loki takes there.
fn field(name: &str, raw: &str) -> String {
    let longest = if name == "arguments" { LONGEST_ARGUMENTS } else { LONGEST_FIELD };
    match raw.starts_with('"') {
        // Its escapes are right already.
        true if raw.len() <= longest => raw.to_owned(),
        true => quoted(&cut(&serde_json::from_str::<String>(raw).unwrap_or_default(), longest)),
        false => quoted(&cut(raw, longest)),
    }
}

fn cut(text: &str, most: usize) -> String {
    match text.len() <= most {
        true => text.to_owned(),
        false => format!("{}…", &text[..text.floor_char_boundary(most)]),
    }
}

pub fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_else(|_| "\"\"".to_owned())
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an audit row")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::with_capacity(24);
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn parts(body: &Value) -> (String, String, Value) {
        let line = Line::of(1, 5, &body.to_string()).unwrap();
        serde_json::from_str(&line.json).unwrap()
    }

    #[test]
    fn a_call_is_one_line_for_people_and_all_of_its_fields() {
        let body = json!({
            "id": "0193", "chain": "c", "seq": 12_345, "at": "2026-11-15T10:00:00.123456789Z", "event": "call", "session": "s",
            "tool": "run_command", "summary": "run \"uptime\"\nnow", "arguments": { "command": "uptime \"x\"" },
            "outcome": "ok", "duration_us": 17, "hash": "h",
        });
        let (stamp, line, fields) = parts(&body);
        assert_eq!(stamp, "1794736800123456345");
        assert_eq!(line, "call run_command ok: run \"uptime\" now id=0193");
        assert_eq!(
            fields,
            json!({
                "id": "0193", "chain": "c", "seq": "12345", "at": "2026-11-15T10:00:00.123456789Z", "event": "call",
                "session": "s", "tool": "run_command", "summary": "run \"uptime\"\nnow",
                "arguments": "{\"command\":\"uptime \\\"x\\\"\"}", "outcome": "ok", "duration_us": "17", "hash": "h",
            })
        );
    }

    #[test]
    fn other_events_tell_their_detail_and_a_row_without_a_time_has_that_of_its_writing() {
        let (stamp, line, _) =
            parts(&json!({ "id": "i", "seq": 7, "at": "?", "event": "hub_started", "detail": "pid 1" }));
        assert_eq!(stamp, "5000007");
        assert_eq!(line, "hub_started: pid 1 id=i");
    }

    #[test]
    fn what_is_no_row_is_an_error() {
        for body in ["", "{", "[]", "7"] {
            assert!(Line::of(1, 5, body).is_err(), "{body}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn no_row_is_more_than_loki_takes_and_each_is_the_same_twice(
            long in "\\PC{0,3000}", many in 0..20usize, arguments in ".{0,9000}", seq in 0..i64::MAX,
        ) {
            let mut body = json!({ "id": "i", "at": "2026-11-15T10:00:00Z", "event": "call", "seq": seq });
            (0..many).for_each(|n| body[format!("field_{n}")] = json!(long));
            body["summary"] = json!(long);
            body["arguments"] = json!({ "text": arguments, "more": long.repeat(10) });
            let body = body.to_string();
            let line = Line::of(1, 5, &body).unwrap();
            prop_assert_eq!(&line, &Line::of(1, 5, &body).unwrap());
            let (stamp, words, fields): (String, String, Value) = serde_json::from_str(&line.json).unwrap();
            prop_assert!(stamp.parse::<u64>().is_ok());
            prop_assert!(words.len() < 8_192 && !words.contains('\n'));
            let fields = fields.as_object().unwrap();
            let size: usize = fields.iter().map(|(name, value)| name.len() + value.as_str().unwrap().len()).sum();
            prop_assert!(size < 64 * 1024 && fields.len() <= 128, "{size} bytes");
        }
    }
}
