//! JSON in ASCII alone: computers take every other byte for a letter of its own.

use std::fmt::Write;

/// The same JSON with `\uXXXX` for everything beyond ASCII. Such letters stand in strings only, where that is how
/// they may be written.
pub fn only(json: &str) -> String {
    if json.is_ascii() {
        return json.to_owned();
    }
    let mut plain = String::with_capacity(json.len() + json.len() / 2);
    let mut units = [0; 2];
    for letter in json.chars() {
        if letter.is_ascii() {
            plain.push(letter);
        } else {
            for unit in letter.encode_utf16(&mut units) {
                let _ = write!(plain, "\\u{unit:04x}");
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn letters_beyond_ascii_are_escaped_also_those_that_take_two() {
        check(r#"{"a":"plain"}"#, r#"{"a":"plain"}"#);
        check(r#""\"ü\"""#, r#""\"\u00fc\"""#);
        check(r#""✅🐢""#, r#""\u2705\ud83d\udc22""#);

        #[track_caller]
        fn check(json: &str, expected: &str) {
            assert_eq!(only(json), expected);
        }
    }

    proptest! {
        #[test]
        fn it_stays_the_same_value(text in ".*") {
            let json = Value::from(text).to_string();
            let plain = only(&json);
            prop_assert!(plain.is_ascii());
            prop_assert_eq!(serde_json::from_str::<Value>(&plain).unwrap(), serde_json::from_str::<Value>(&json).unwrap());
        }
    }
}
