//! What a server says, read without copying it.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::few::Few;
use crate::wire::envelope::Envelope;

/// One message.
#[derive(Debug)]
pub(super) enum Said<'a> {
    /// None: it does not say to which request.
    Answer {
        id: Option<u64>,
        answer: Result<&'a RawValue, &'a RawValue>,
    },
    Notice {
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    Question {
        id: &'a RawValue,
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    /// JSON or not: no message.
    Noise,
}

/// Messages in one array, which servers of 2025-03-26 and before may send. What is beyond is not looked at.
const LONGEST_BATCH: usize = 64;

/// Gives each message in `bytes` to `hear`.
pub(super) fn each<'a>(bytes: &'a [u8], mut hear: impl FnMut(Said<'a>)) {
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'[') => match serde_json::from_slice::<Few<&RawValue, LONGEST_BATCH>>(bytes) {
            Ok(Few(batch)) => batch.into_iter().for_each(|item| hear(Said::read(item.get().as_bytes()))),
            Err(_) => hear(Said::Noise),
        },
        _ => hear(Said::read(bytes)),
    }
}

/// Where the result stands in a message that is one good answer and nothing else.
pub(super) fn large_result(message: &[u8]) -> Option<(u64, std::ops::Range<usize>)> {
    if message.trim_ascii_start().first() != Some(&b'{') {
        return None;
    }
    match Said::read(message) {
        Said::Answer { id: Some(id), answer: Ok(result) } => {
            let start = result.get().as_ptr().addr() - message.as_ptr().addr();
            Some((id, start..start + result.get().len()))
        }
        _ => None,
    }
}

impl<'a> Said<'a> {
    fn read(bytes: &'a [u8]) -> Self {
        let Ok(envelope) = serde_json::from_slice::<Envelope<'a>>(bytes) else { return Self::Noise };
        let id = envelope.id.filter(|id| id.get() != "null");
        match (envelope.method, id, envelope.result, envelope.error) {
            (Some(method), None, None, None) => Self::Notice { method, params: envelope.params },
            (Some(method), Some(id), None, None) => Self::Question { id, method, params: envelope.params },
            (None, id, Some(result), None) => Self::Answer { id: id.and_then(number), answer: Ok(result) },
            // Some servers write `"result": null` beside an error.
            (None, id, _, Some(error)) => Self::Answer { id: id.and_then(number), answer: Err(error) },
            // Neither a result nor an error: whoever waits for it has waited long enough.
            (None, Some(id), None, None) => Self::Answer { id: number(id), answer: Ok(RawValue::NULL) },
            _ => Self::Noise,
        }
    }
}

/// Our ids are numbers; some servers give them back as text.
pub(super) fn number(id: &RawValue) -> Option<u64> {
    let text = id.get();
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    text.parse().ok()
}

/// What notifications refer to, in their parameters.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Numbers<'a> {
    #[serde(borrow, rename = "progressToken")]
    pub progress_token: Option<&'a RawValue>,
    #[serde(borrow, rename = "requestId")]
    pub request_id: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    pub meta: Option<&'a RawValue>,
}

impl<'a> Numbers<'a> {
    pub(super) fn of(params: &'a RawValue) -> Option<Self> {
        serde_json::from_str(params.get()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kinds(text: &str) -> String {
        let mut kinds = Vec::new();
        each(text.as_bytes(), |said| {
            kinds.push(match said {
                Said::Answer { id, answer } => format!("answer {id:?} {}", answer.is_ok()),
                Said::Notice { method, .. } => format!("notice {method}"),
                Said::Question { id, method, .. } => format!("question {} {method}", id.get()),
                Said::Noise => "noise".to_owned(),
            });
        });
        kinds.join(", ")
    }

    #[test]
    fn messages_are_told_apart() {
        check(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, "answer Some(7) true");
        check(r#"{"jsonrpc":"2.0","id":"7","result":{}}"#, "answer Some(7) true");
        check(r#"{"jsonrpc":"2.0","id":"x","result":{}}"#, "answer None true");
        check(r#"{"jsonrpc":"2.0","id":-7,"result":{}}"#, "answer None true");
        check(r#"{"jsonrpc":"2.0","id":null,"error":{}}"#, "answer None false");
        check(r#"{"jsonrpc":"2.0","id":7,"result":null,"error":{}}"#, "answer Some(7) false");
        check(r#"{"jsonrpc":"2.0","id":7}"#, "answer Some(7) true");
        check(r#"{"jsonrpc":"2.0","id":null}"#, "noise");
        check(r#"{"jsonrpc":"2.0","method":"n\u0031"}"#, "notice n1");
        check(r#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#, "question \"a\" ping");
        check(r#"[{"jsonrpc":"2.0","method":"a"},{"id":1,"result":1}, 5]"#, "notice a, answer Some(1) true, noise");
        check(r#"{"level":"info","msg":"started"}"#, "noise");
        check(r#"{"id":1,"id":2,"result":{}}"#, "noise");
        check("", "noise");
        check("[", "noise");
        check("[]", "");

        #[track_caller]
        fn check(text: &str, expected: &str) {
            assert_eq!(kinds(text), expected, "{text}");
        }
    }

    #[test]
    fn of_a_batch_only_the_beginning_is_heard() {
        let notices = |count: usize| format!("[{}1]", r#"{"method":"a"},"#.repeat(count));
        assert_eq!(kinds(&notices(LONGEST_BATCH + 1_000)).matches("notice").count(), LONGEST_BATCH);
        assert_eq!(kinds(&format!("[{}]", r#"{"method":"a"},"#.repeat(LONGEST_BATCH + 1))), "noise", "it has no end");
    }

    proptest! {
        #[test]
        fn any_bytes_are_messages_or_noise(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            each(&bytes, |_| ());
        }
    }
}
