//! The hub's own secrets, wherever and however they are written.

use super::*;
use crate::ToolError;
use crate::reply::Reply;

/// Standard base64 of anything, to check ours with.
fn base64(bytes: &[u8], alphabet: &str, padded: bool) -> String {
    let alphabet: Vec<char> = alphabet.chars().collect();
    let mut out = String::new();
    for group in bytes.chunks(3) {
        let bits = group.iter().chain([&0, &0]).take(3).fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte));
        let whole = [18, 12, 6, 0].map(|shift| alphabet[bits >> shift & 63]);
        out.extend(&whole[..=group.len()]);
        out.extend(std::iter::repeat_n('=', if padded { 3 - group.len() } else { 0 }));
    }
    out
}

const STANDARD: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn wrapped(text: &str) -> String {
    text.as_bytes().chunks(76).map(|line| format!("{}\n", str::from_utf8(line).unwrap())).collect()
}

/// Each spelling, with a part of it that must not be seen.
fn spelled(secret: &str) -> Vec<(String, String)> {
    let json = |text: &str| Value::from(text).to_string().trim_matches('"').to_owned();
    let percent = |keep: &str| {
        let byte = |byte: u8| match char::from(byte) {
            c if c.is_ascii_alphanumeric() || keep.contains(c) => c.to_string(),
            _ => format!("%{byte:02X}"),
        };
        secret.bytes().map(byte).collect::<String>()
    };
    let inside = |encoded: String| {
        let middle = encoded.len() / 2;
        let part = encoded[middle - 3..middle + 3].to_owned();
        (encoded, part)
    };
    let user = |user: &str, alphabet, padded| inside(base64(format!("{user}{secret}").as_bytes(), alphabet, padded));
    let plain = [secret.to_owned(), percent("-._~"), percent("-._~!'()*")];
    let mut all: Vec<_> = plain.into_iter().map(|spelling| (spelling.clone(), spelling)).collect();
    for escaped in [json(secret), serde_json::to_string(&json(secret)).unwrap()] {
        all.push((escaped.clone(), escaped.trim_matches('"').to_owned()));
    }
    for alphabet in [STANDARD, URL_SAFE] {
        for padded in [true, false] {
            all.push(inside(base64(secret.as_bytes(), alphabet, padded)));
        }
    }
    all.extend(["u:", "me:", "you:", "x-access-token:"].map(|name| user(name, STANDARD, true)));
    let lines = wrapped(&base64(secret.as_bytes(), STANDARD, true));
    // The last line that no other text has by chance: of a line of two letters that cannot be said.
    let part = lines.lines().map(|line| line.trim_end_matches('=')).rfind(|line| line.len() >= 6).unwrap().to_owned();
    all.push((lines, part));
    all
}

/// No word of the other rules, so that only the value gives it away.
fn secret() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => "Q[0-9][A-Za-z0-9]{12,70}",
        1 => "Q[0-9][!-~äß€]{8,40}Q",
        1 => "Q[0-9][A-Za-z0-9 ]{8,30}[&<\"'/\\\\%+]Q",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn an_own_secret_survives_nowhere_in_no_spelling(
        before in "\\PC{0,30}",
        secret in secret(),
        after in "\\PC{0,30}",
    ) {
        learn([&secret]);
        for (spelling, part) in spelled(&secret) {
            let given = format!("{before} {spelling} {after}");
            let gone = |shown: &str| !shown.contains(&spelling) && (before.contains(&part) || after.contains(&part) || !shown.contains(&part));
            prop_assert!(gone(&text(&given)), "{spelling} in {}", text(&given));
            prop_assert!(gone(&beginning(&given)));
            prop_assert!(gone(&own_values(&given)));
            let error = ToolError::failed(given.clone()).hint(given.clone()).into_reply();
            prop_assert!(gone(error.text()), "{}", error.text());

            let tree = json!({ "a": [given], given.clone(): { "b": given } });
            let kept = Value::Object(arguments(tree.as_object().unwrap(), &[]));
            let structured = || Reply::structured(&tree, None).unwrap();
            let content = json!({ "content": [{ "type": "text", "text": given }, { "type": "image", "data": given }], "x": given });
            let verbatim = || Reply::Verbatim(serde_json::value::to_raw_value(&content).unwrap());
            let replies = [reply(structured()), own_values_of_reply(structured()), reply(Reply::plain(&given)), reply(verbatim()), own_values_of_reply(verbatim())];
            for reply in replies {
                let shown = serde_json::from_str::<Value>(reply.text()).unwrap_or_else(|_| reply.text().into());
                each_string(&shown, &mut |shown| assert!(gone(shown), "{shown}"));
            }
            each_string(&kept, &mut |shown| assert!(gone(shown), "{shown}"));
        }
    }

    #[test]
    fn a_text_without_own_secrets_is_not_touched_for_them(plain in "\\PC{0,200}") {
        learn(["Q7XmnopqrstuvwxyzABC", "Q8X9 with & in it"]);
        prop_assume!(!plain.contains('Q'));
        prop_assert!(matches!(own_values(&plain), Cow::Borrowed(same) if same == plain));
    }
}

fn each_string(value: &Value, look: &mut dyn FnMut(&str)) {
    match value {
        Value::String(words) => look(words),
        Value::Array(items) => items.iter().for_each(|item| each_string(item, look)),
        Value::Object(fields) => {
            for (name, value) in fields {
                look(name);
                each_string(value, look);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[test]
fn a_secret_that_is_learnt_later_is_known_to_every_thread() {
    let secret = "later-learnt-8d1f20";
    std::thread::scope(|scope| {
        let (go, told) = std::sync::mpsc::channel::<()>();
        let other = scope.spawn(move || {
            let before = text(secret).into_owned();
            told.recv().unwrap();
            (before, text(secret).into_owned())
        });
        learn([secret]);
        go.send(()).unwrap();
        assert_eq!(other.join().unwrap().1, HIDDEN);
    });
}

#[test]
fn a_secret_out_of_a_url_is_known_as_it_is_meant() {
    learn(["out%2Fof%20a%url"]);
    assert_eq!(text("x out%2Fof%20a%url x out/of a%url x"), "x [redacted] x [redacted] x");
}

#[test]
fn short_secrets_are_not_learnt() {
    learn(["zq7", "zq7zq7z"]);
    assert_eq!(text("zq7 zq7zq7z"), "zq7 zq7zq7z");
    assert!(!can_be_learnt("zq7zq7z") && can_be_learnt("zq7zq7zq") && !can_be_learnt("redacted"));
}

#[test]
fn an_own_secret_that_reaches_beyond_another_is_hidden_whole() {
    learn(["owl7 with blanks", "ends-in-the-cut-4711"]);
    assert_eq!(text("a_token=owl7 with blanks, b"), "a_token=[redacted], b");
    assert_eq!(text("x owl7 with blanksowl7 with blanks"), "x [redacted][redacted]");
    assert_eq!(beginning("so it ends-in-the-cu"), "so it [redacted]");
    assert_eq!(beginning("so it end"), "so it end");
}
