//! Results as people read them: text as text, JSON in colours, everything else as a file or a line.

use std::fmt::Write;

use serde_json::Value;

use nexus_core::text;

/// Whether colours are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    Colours,
    Plain,
}

/// What results are written on.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    pub paint: Paint,
    /// Characters of one piece; the rest is left out.
    pub longest: usize,
}

impl Page {
    /// For talk on stderr.
    pub const PLAIN: Self = Self { paint: Paint::Plain, longest: 20_000 };
}

/// Blocks of one result that are shown.
const MOST_BLOCKS: usize = 500;

/// A part of a result.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// To be shown.
    Text(String),
    /// To be saved.
    File { kind: String, base64: String },
}

/// The parts of a result, in the order the tool gave them.
pub fn pieces(result: &Value, page: Page) -> Vec<Piece> {
    let blocks = result["content"].as_array().map_or(&[][..], Vec::as_slice);
    let mut pieces: Vec<Piece> = blocks.iter().take(MOST_BLOCKS).map(|block| piece(block, page)).collect();
    if blocks.len() > MOST_BLOCKS {
        pieces.push(Piece::Text(format!("… and {} more", blocks.len() - MOST_BLOCKS)));
    }
    pieces.retain(|piece| !matches!(piece, Piece::Text(text) if text.trim().is_empty()));
    // Where the tool has its own words they say the same, made for reading.
    if pieces.is_empty() && !result["structuredContent"].is_null() {
        pieces.push(Piece::Text(json(&result["structuredContent"], page)));
    }
    pieces
}

fn piece(block: &Value, page: Page) -> Piece {
    match block["type"].as_str().unwrap_or_default() {
        "text" => Piece::Text(words(string(&block["text"]), page)),
        "image" | "audio" => {
            Piece::File { kind: string(&block["mimeType"]).into(), base64: string(&block["data"]).into() }
        }
        "resource_link" => Piece::Text(link(block)),
        "resource" => match block["resource"]["blob"].as_str() {
            Some(blob) => Piece::File { kind: string(&block["resource"]["mimeType"]).into(), base64: blob.into() },
            None => {
                let from = one_line(string(&block["resource"]["uri"]), 300);
                Piece::Text(format!("{from}:\n{}", words(string(&block["resource"]["text"]), page)))
            }
        },
        _ => Piece::Text(json(block, page)),
    }
}

fn link(block: &Value) -> String {
    let about = [string(&block["title"]), string(&block["name"]), string(&block["description"])];
    let about: Vec<String> =
        about.into_iter().filter(|text| !text.is_empty()).map(|text| one_line(text, 200)).collect();
    format!("→ {} ({})", one_line(string(&block["uri"]), 300), about.join("; "))
}

/// Text that is JSON is shown as such; any other as it is, without what would play with the terminal.
fn words(text: &str, page: Page) -> String {
    let looks = text.trim_start().starts_with(['{', '[']);
    match looks.then(|| serde_json::from_str::<Value>(text)) {
        Some(Ok(value)) => json(&value, page),
        _ => bounded(text::clean(text).into_owned(), page),
    }
}

/// A value spread out over lines.
pub fn json(value: &Value, page: Page) -> String {
    let mut out = String::new();
    spread(&mut out, value, 0, page);
    bounded(out, page)
}

fn bounded(text: String, page: Page) -> String {
    let reset = if page.paint == Paint::Colours { "\u{1b}[0m" } else { "" };
    match text.char_indices().nth(page.longest) {
        None => text,
        Some((at, _)) => format!("{}{reset}\n… the rest is left out; /json has all of it", &text[..at]),
    }
}

const NAME: &str = "34";
const STRING: &str = "32";
const NUMBER: &str = "36";
const WORD: &str = "33";

fn spread(out: &mut String, value: &Value, depth: usize, page: Page) {
    // Not worth spreading what is cut anyway.
    if out.len() / 4 > page.longest {
        return;
    }
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            out.push('{');
            for (at, (name, value)) in fields.iter().enumerate() {
                start(out, at, depth + 1);
                coloured(out, NAME, &quoted(name), page.paint);
                out.push_str(": ");
                spread(out, value, depth + 1, page);
            }
            end(out, depth, '}');
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('[');
            for (at, value) in items.iter().enumerate() {
                start(out, at, depth + 1);
                spread(out, value, depth + 1, page);
            }
            end(out, depth, ']');
        }
        Value::String(text) => coloured(out, STRING, &quoted(text), page.paint),
        Value::Number(number) => coloured(out, NUMBER, &number.to_string(), page.paint),
        Value::Bool(_) | Value::Null => coloured(out, WORD, &value.to_string(), page.paint),
        Value::Object(_) => out.push_str("{}"),
        Value::Array(_) => out.push_str("[]"),
    }
}

fn start(out: &mut String, at: usize, depth: usize) {
    out.push_str(if at == 0 { "\n" } else { ",\n" });
    indent(out, depth);
}

fn end(out: &mut String, depth: usize, closing: char) {
    out.push('\n');
    indent(out, depth);
    out.push(closing);
}

fn indent(out: &mut String, depth: usize) {
    (0..depth).for_each(|_| out.push_str("  "));
}

fn quoted(text: &str) -> String {
    // Before the quotes: what is escaped is harmless and need not go.
    let clean: String =
        text.chars().filter(|c| c.is_ascii() || !text::clean(c.encode_utf8(&mut [0; 4])).is_empty()).collect();
    Value::String(clean).to_string()
}

fn coloured(out: &mut String, colour: &str, text: &str, paint: Paint) {
    match paint {
        Paint::Plain => out.push_str(text),
        Paint::Colours => {
            let _ = write!(out, "\u{1b}[{colour}m{text}\u{1b}[0m");
        }
    }
}

/// Somebody else's words on one line of bounded length.
pub fn one_line(words: &str, most: usize) -> String {
    text::cut(&super::super::one_line(words), most).into_owned()
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PLAIN: Page = Page { paint: Paint::Plain, longest: 1_000 };
    const COLOURS: Page = Page { paint: Paint::Colours, longest: 1_000 };

    #[test]
    fn json_is_spread_out_and_coloured_by_kind() {
        let value = json!({ "name": "x", "n": 1.5, "yes": true, "none": null, "list": [1, {}], "empty": [] });
        assert_eq!(
            super::json(&value, PLAIN),
            "{\n  \"name\": \"x\",\n  \"n\": 1.5,\n  \"yes\": true,\n  \"none\": null,\n  \"list\": [\n    1,\n    {}\n  ],\n  \"empty\": []\n}"
        );
        let coloured = super::json(&json!({ "a": "b" }), COLOURS);
        assert_eq!(coloured, "{\n  \u{1b}[34m\"a\"\u{1b}[0m: \u{1b}[32m\"b\"\u{1b}[0m\n}");
    }

    #[test]
    fn every_kind_of_content_has_a_form() {
        check(&json!({ "content": [{ "type": "text", "text": "hello" }] }), &["hello"]);
        check(&json!({ "content": [{ "type": "text", "text": "{\"a\":1}" }] }), &["{\n  \"a\": 1\n}"]);
        check(&json!({ "content": [{ "type": "text", "text": "{not json" }] }), &["{not json"]);
        check(&json!({ "content": [{ "type": "text", "text": "\u{1b}[2Jhi\u{202e}" }] }), &["hi"]);
        check(
            &json!({ "content": [{ "type": "text", "text": " " }], "structuredContent": { "a": 1 } }),
            &["{\n  \"a\": 1\n}"],
        );
        check(&json!({ "content": [{ "type": "text", "text": "seen" }], "structuredContent": { "a": 1 } }), &["seen"]);
        check(
            &json!({ "content": [{ "type": "resource_link", "uri": "file:///a\nb", "name": "A" }] }),
            &["→ file:///a b (A)"],
        );
        check(
            &json!({ "content": [{ "type": "resource", "resource": { "uri": "test://x", "text": "inside" } }] }),
            &["test://x:\ninside"],
        );
        check(&json!({ "content": [{ "type": "novel" }] }), &["{\n  \"type\": \"novel\"\n}"]);
        check(&json!({}), &[]);

        #[track_caller]
        fn check(result: &Value, expected: &[&str]) {
            let expected: Vec<Piece> = expected.iter().map(|text| Piece::Text((*text).to_owned())).collect();
            assert_eq!(pieces(result, PLAIN), expected, "{result}");
        }
    }

    #[test]
    fn images_sounds_and_blobs_become_files() {
        let result = json!({ "content": [
            { "type": "image", "mimeType": "image/png", "data": "AAAA" },
            { "type": "audio", "mimeType": "audio/wav", "data": "BBBB" },
            { "type": "resource", "resource": { "uri": "x", "mimeType": "application/pdf", "blob": "CCCC" } },
        ] });
        let file = |kind: &str, base64: &str| Piece::File { kind: kind.into(), base64: base64.into() };
        let expected = [file("image/png", "AAAA"), file("audio/wav", "BBBB"), file("application/pdf", "CCCC")];
        assert_eq!(pieces(&result, PLAIN), expected);
    }

    #[test]
    fn nothing_that_plays_with_the_terminal_is_left_in_json() {
        let shown = super::json(&json!({ "a\u{202e}b": "c\u{9b}2J\u{1b}[31m" }), PLAIN);
        assert!(!shown.chars().any(|c| matches!(c, '\u{1b}' | '\u{9b}' | '\u{202e}')), "{shown:?}");
    }

    #[test]
    fn a_huge_result_is_cut() {
        let shown = super::json(&Value::String("x".repeat(1_000_000)), PLAIN);
        assert!(shown.chars().count() < 1_100);
        let many = super::json(&Value::Array(vec![json!({ "a": "b" }); 100_000]), COLOURS);
        assert!(many.chars().count() < 1_100);
    }
}
