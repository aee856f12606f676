//! Puts an entry into the text of an mcp.json, or takes one out, and leaves everything else as it was written.

use serde_json::Value;

use super::json::{self, Doubled, Entry, Node, Parsed};
use crate::config::faults::{Problem, Spot};

/// Both shapes; a file without any gets the common one.
const SHAPES: [&str; 2] = ["mcpServers", "servers"];

/// A file that cannot be read cannot be edited.
pub type Edited<T> = Result<T, (Spot, Problem)>;

/// The text with the entry in it, in place of one of the same name.
pub fn put(text: &str, name: &str, entry: &Value) -> Edited<String> {
    let Parsed { root, doubled, .. } = read(text)?;
    let (shape, present) = match find(&root, name) {
        Some((_, known)) => (None, Some(known)),
        None => (SHAPES.iter().find_map(|shape| root.get(shape)).filter(|shape| shape.is_map()), None),
    };
    let new = match (present, shape) {
        (Some(known), _) => {
            once(known, doubled)?;
            let indent = indent_before(text, known.start);
            replaced(text, known.value.span.clone(), &rendered(entry, &indent))
        }
        (None, Some(servers)) => inserted(text, servers, name, entry),
        (None, None) => inserted(text, &root, SHAPES[0], &serde_json::json!({ name: entry })),
    };
    sound(&new, name, Expect::There)?;
    Ok(new)
}

/// The text without the entry. None: it is not in there.
pub fn take(text: &str, name: &str) -> Edited<Option<String>> {
    let Parsed { root, doubled, .. } = read(text)?;
    let Some((servers, known)) = find(&root, name) else { return Ok(None) };
    once(known, doubled)?;
    let entries = servers.entries();
    let index = entries.iter().position(|entry| entry.key == name).unwrap_or_default();
    let gap = match (index.checked_sub(1).map(|before| &entries[before]), entries.get(index + 1)) {
        (Some(before), _) => before.value.span.end..known.value.span.end,
        (None, Some(after)) => known.start..after.start,
        (None, None) => servers.span.start + 1..servers.span.end - 1,
    };
    let new = replaced(text, gap, "");
    sound(&new, name, Expect::Gone)?;
    Ok(Some(new))
}

/// Whether a file has such an entry.
pub fn has(text: &str, name: &str) -> Edited<bool> {
    Ok(find(&read(text)?.root, name).is_some())
}

fn read(text: &str) -> Edited<Parsed> {
    let mut parsed = json::parse(text);
    match parsed.broken.take() {
        Some(fault) => Err(fault),
        None if parsed.root.is_map() => Ok(parsed),
        None => Err((parsed.root.spot, Problem::new("a map belongs here"))),
    }
}

/// Of two entries of one name nobody knows which is meant. Those of other names do not mind.
fn once(entry: &Entry, doubled: Vec<Doubled>) -> Edited<()> {
    match doubled.into_iter().find(|doubled| doubled.is_of(entry)) {
        Some(doubled) => Err((doubled.spot, doubled.problem)),
        None => Ok(()),
    }
}

fn find<'a>(root: &'a Node, name: &str) -> Option<(&'a Node, &'a Entry)> {
    let servers = SHAPES.iter().filter_map(|shape| root.get(shape));
    servers.filter_map(|servers| Some((servers, servers.entry(name)?))).next()
}

#[derive(Clone, Copy)]
enum Expect {
    There,
    Gone,
}

/// Nobody's file is written over with something that cannot be read again.
fn sound(text: &str, name: &str, expect: Expect) -> Edited<()> {
    let there = find(&read(text)?.root, name).is_some();
    if there != matches!(expect, Expect::There) {
        return Err((Spot { line: 1, col: 1 }, Problem::new("the file is written in a way that is not edited here")));
    }
    Ok(())
}

/// Adds an entry at the end of a map.
fn inserted(text: &str, map: &Node, key: &str, value: &Value) -> String {
    let outer = indent_before(text, map.span.start);
    let (at, indent, end) = match map.entries().last() {
        Some(last) => (last.value.span.end, indent_before(text, last.start), String::new()),
        None => (map.span.start + 1, format!("{outer}  "), format!("\n{outer}")),
    };
    let comma = if map.entries().is_empty() { "" } else { "," };
    let key = Value::from(key);
    let addition = format!("{comma}\n{indent}{key}: {}{end}", rendered(value, &indent));
    // What stands alone between the brackets is blank, or a comment that stays.
    let rest = &text[at..];
    let rest = if end.is_empty() { rest } else { rest.trim_start_matches([' ', '\t', '\n', '\r']) };
    format!("{}{addition}{rest}", &text[..at])
}

/// The blanks before whatever stands on the same line as this.
fn indent_before(text: &str, at: usize) -> String {
    let line = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    text[line..at].chars().take_while(|c| matches!(c, ' ' | '\t')).collect()
}

fn rendered(value: &Value, indent: &str) -> String {
    format!("{value:#}").replace('\n', &format!("\n{indent}"))
}

fn replaced(text: &str, span: std::ops::Range<usize>, with: &str) -> String {
    format!("{}{with}{}", &text[..span.start], &text[span.end..])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_entry_is_put_in_and_the_rest_stays_as_it_was() {
        check("{}", "{\n  \"mcpServers\": {\n    \"x\": {\n      \"url\": \"u\"\n    }\n  }\n}");
        check(
            "{\n  // mine\n  \"servers\": {\n    \"a\": {\"command\": \"a\"}, // first\n  },\n  \"other\": 1\n}\n",
            "{\n  // mine\n  \"servers\": {\n    \"a\": {\"command\": \"a\"},\n    \"x\": {\n      \"url\": \"u\"\n    }, // first\n  },\n  \"other\": 1\n}\n",
        );
        check("{\"mcpServers\": {\"x\": 7, \"y\": 8}}", "{\"mcpServers\": {\"x\": {\n  \"url\": \"u\"\n}, \"y\": 8}}");
        check("{\"a\": 1}", "{\"a\": 1,\n\"mcpServers\": {\n  \"x\": {\n    \"url\": \"u\"\n  }\n}}");
        check(
            "{\n\t\"mcpServers\": {}\n}",
            "{\n\t\"mcpServers\": {\n\t  \"x\": {\n\t    \"url\": \"u\"\n\t  }\n\t}\n}",
        );

        #[track_caller]
        fn check(text: &str, expected: &str) {
            assert_eq!(put(text, "x", &json!({ "url": "u" })).unwrap(), expected);
        }
    }

    #[test]
    fn an_entry_is_taken_out_and_the_rest_stays_as_it_was() {
        check("{\"servers\": {\"x\": 1}}", Some("{\"servers\": {}}"));
        check("{\"servers\": {\"x\": 1, \"a\": 2}}", Some("{\"servers\": {\"a\": 2}}"));
        check("{\"servers\": {\n  \"a\": 2,\n  \"x\": 1\n}}", Some("{\"servers\": {\n  \"a\": 2\n}}"));
        check("{\"servers\": {\"a\": 2, \"x\": 1, \"b\": 3,}}", Some("{\"servers\": {\"a\": 2, \"b\": 3,}}"));
        check("{\"servers\": {\"x\": 1,}}", Some("{\"servers\": {}}"));
        check("{\"servers\": {\"y\": 1}}", None);

        #[track_caller]
        fn check(text: &str, expected: Option<&str>) {
            assert_eq!(take(text, "x").unwrap().as_deref(), expected);
        }
    }

    #[test]
    fn a_faulty_file_is_not_edited() {
        assert!(put("{\"servers\": {", "x", &json!({})).is_err());
        assert!(put("[]", "x", &json!({})).is_err());
        assert!(take("{\"servers\": {\"x\": 1, \"x\": 2}}", "x").is_err());
        assert!(put("{\"servers\": {\"a\": {}, \"a\": {}}}", "x", &json!({})).is_ok(), "another's fault");
        assert!(put("{\"servers\": 7}", "x", &json!({})).is_ok(), "another shape is added");
    }
}
