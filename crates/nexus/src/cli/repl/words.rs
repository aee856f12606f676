//! A line in words: quotes hold them together, and JSON after `key=` is one piece.

use serde_json::Value;
use thiserror::Error;

/// A word as it is meant, without its quotes, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    pub text: String,
    /// Bytes from the start of the line.
    pub start: usize,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BadWords {
    #[error("the quote {0} at character {1} is not closed")]
    Open(char, usize),
}

pub fn split(line: &str) -> Result<Vec<Word>, BadWords> {
    let (words, open) = read(line);
    match open {
        None => Ok(words),
        Some((quote, at)) => Err(BadWords::Open(quote, line[..at].chars().count() + 1)),
    }
}

/// The words so far, for a line that is still being typed. The last one is empty after a space.
pub fn so_far(line: &str) -> Vec<Word> {
    let (mut words, open) = read(line);
    if open.is_none() && (words.is_empty() || line.ends_with(char::is_whitespace)) {
        words.push(Word { text: String::new(), start: line.len() });
    }
    words
}

/// All words, and the quote that is still open at the end.
fn read(line: &str) -> (Vec<Word>, Option<(char, usize)>) {
    let mut words = Vec::new();
    let mut at = 0;
    let mut open = None;
    while at < line.len() {
        let rest = &line[at..];
        let blank = rest.len() - rest.trim_start().len();
        if blank > 0 {
            at += blank;
            continue;
        }
        let start = at;
        let text;
        (text, at, open) = word(line, at);
        words.push(Word { text, start });
    }
    (words, open)
}

/// One word from `at` on: its text, where it ends, and the quote that never ended.
fn word(line: &str, mut at: usize) -> (String, usize, Option<(char, usize)>) {
    let mut text = String::new();
    let mut quote: Option<(char, usize)> = None;
    while let Some(c) = line[at..].chars().next() {
        let next = line[at + c.len_utf8()..].chars().next();
        match (quote, c) {
            (None, c) if c.is_whitespace() => break,
            (None, '{' | '[') if text.ends_with('=') && json_length(&line[at..]).is_some() => {
                let length = json_length(&line[at..]).unwrap_or(c.len_utf8());
                text.push_str(&line[at..at + length]);
                at += length;
                continue;
            }
            (None, '\'' | '"') => quote = Some((c, at)),
            (Some((open, _)), c) if c == open => quote = None,
            // A backslash elsewhere is one: patterns and paths are full of them.
            (None | Some(('"', _)), '\\') if next.is_some_and(|next| matches!(next, '"' | '\\' | '\'' | ' ')) => {
                text.extend(next);
                at += next.map_or(0, char::len_utf8);
            }
            (Some(('"', _)), '\\') if next == Some('n') => {
                text.push('\n');
                at += 1;
            }
            (_, c) => text.push(c),
        }
        at += c.len_utf8();
    }
    (text, at, quote)
}

/// How long the JSON value at the start of the text is, where it is a whole one and ends with its word.
fn json_length(text: &str) -> Option<usize> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    values.next()?.ok()?;
    let length = values.byte_offset();
    text[length..].chars().next().is_none_or(char::is_whitespace).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quotes_hold_words_together() {
        check("a  b\tc", &["a", "b", "c"]);
        check("", &[]);
        check("   ", &[]);
        check(r#"path="/srv/my files" n=1"#, &["path=/srv/my files", "n=1"]);
        check(r#"'it is' "it's""#, &["it is", "it's"]);
        check(r#""a \"b\" \\ c\n""#, &["a \"b\" \\ c\n"]);
        check(r"pattern=\d+\.rs", &[r"pattern=\d+\.rs"]);
        check(r"my\ file", &["my file"]);
        check(r"'\n'", &[r"\n"]);
        check(r#"filter={"a": [1, "x y"]} b=2"#, &[r#"filter={"a": [1, "x y"]}"#, "b=2"]);
        check(r#"list=["a b", "c"]"#, &[r#"list=["a b", "c"]"#]);
        check("brace={a b", &["brace={a", "b"]);
        check("glob=[ab]*.rs", &["glob=[ab]*.rs"]);
        check("empty=''", &["empty="]);
        check("ümläut 日本", &["ümläut", "日本"]);

        #[track_caller]
        fn check(line: &str, expected: &[&str]) {
            let words: Vec<String> = split(line).unwrap().into_iter().map(|word| word.text).collect();
            assert_eq!(words, expected, "{line}");
        }
    }

    #[test]
    fn a_quote_that_is_not_closed_is_told_with_its_place() {
        assert_eq!(split("ä 'b c"), Err(BadWords::Open('\'', 3)));
        assert_eq!(split("\"").unwrap_err().to_string(), "the quote \" at character 1 is not closed");
    }

    #[test]
    fn a_line_still_being_typed_has_a_last_word() {
        check("", &[("", 0)]);
        check("/ca", &[("/ca", 0)]);
        check("/call ", &[("/call", 0), ("", 6)]);
        check("/call 'a b", &[("/call", 0), ("a b", 6)]);

        #[track_caller]
        fn check(line: &str, expected: &[(&str, usize)]) {
            let words = so_far(line);
            let words: Vec<_> = words.iter().map(|word| (word.text.as_str(), word.start)).collect();
            assert_eq!(words, expected, "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_read_and_every_word_stands_where_it_says(line in ".*") {
            let words = so_far(&line);
            prop_assert!(words.iter().all(|word| line.is_char_boundary(word.start)));
            prop_assert!(words.windows(2).all(|pair| pair[0].start < pair[1].start));
        }
    }
}
