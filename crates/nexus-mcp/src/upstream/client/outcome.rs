//! What becomes of a request: its result, or why there is none and whether it may have been carried out.

use serde::Deserialize;
use serde_json::value::RawValue;

use nexus_core::text::{clean, cut};

use crate::upstream::error::{Delivery, ProtocolError, RequestError, TransportError, UpstreamError};

/// Characters of an error's message.
const LONGEST_MESSAGE: usize = 2000;

/// Bytes of an error's data; more is left away.
const LARGEST_DATA: usize = 64 * 1024;

pub(super) type Answer = Result<Box<RawValue>, RequestError>;

/// What a server answered.
pub(super) fn read(answer: Result<&RawValue, &RawValue>) -> Answer {
    match answer {
        Ok(result) if result.get().starts_with('{') => Ok(result.to_owned()),
        Ok(result) if result.get() == "null" => {
            Err(failed(ProtocolError::Nonsense("it has neither a result nor an error".into()), Delivery::Answered))
        }
        Ok(_) => Err(failed(ProtocolError::Nonsense("its result is not an object".into()), Delivery::Answered)),
        Err(error) => Err(failed(refusal(error), Delivery::Answered)),
    }
}

/// The same for a result that stands at this place of its message: the message becomes it.
pub(super) fn cut_out(mut message: Vec<u8>, place: std::ops::Range<usize>) -> Answer {
    message.truncate(place.end);
    message.drain(..place.start);
    let result = String::from_utf8(message).ok().and_then(|text| RawValue::from_string(text).ok());
    match result {
        Some(result) if result.get().starts_with('{') => Ok(result),
        _ => Err(failed(ProtocolError::Nonsense("its result is not an object".into()), Delivery::Answered)),
    }
}

fn refusal(error: &RawValue) -> ProtocolError {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Refusal<'a> {
        #[serde(borrow)]
        code: Option<&'a RawValue>,
        #[serde(borrow)]
        message: Option<&'a RawValue>,
        #[serde(borrow)]
        data: Option<&'a RawValue>,
    }
    let refusal: Refusal<'_> = serde_json::from_str(error.get()).unwrap_or_default();
    let message: Option<String> = refusal.message.and_then(|message| serde_json::from_str(message.get()).ok());
    let message = message.as_deref().unwrap_or("(it does not say why)");
    let data = refusal.data.filter(|data| data.get().len() <= LARGEST_DATA);
    ProtocolError::Rpc {
        code: refusal.code.and_then(|code| serde_json::from_str(code.get()).ok()).unwrap_or_default(),
        message: cut(&clean(message), LONGEST_MESSAGE).into_owned(),
        data: data.and_then(|data| serde_json::from_str(data.get()).ok()),
    }
}

pub(super) fn failed(error: ProtocolError, delivery: Delivery) -> RequestError {
    RequestError { error: UpstreamError::Protocol(error), delivery }
}

/// A request that did not leave.
pub(super) fn unsent(error: TransportError) -> RequestError {
    RequestError { error: UpstreamError::Transport(error), delivery: Delivery::NotSent }
}

/// A request that had been handed over, and whose answer the transport cannot bring.
pub(super) fn unanswered(error: TransportError) -> RequestError {
    let delivery = match &error {
        // The server, or our own check of addresses, turned it away before anybody looked at what it wants.
        TransportError::SessionLost
        | TransportError::Unauthorized { .. }
        | TransportError::Login { .. }
        | TransportError::Forbidden { .. }
        | TransportError::Unreachable { .. }
        | TransportError::NotStarted { .. } => Delivery::NotSent,
        TransportError::Http { status: 400..=407 | 409..=499, .. } => Delivery::Answered,
        TransportError::Http { .. }
        | TransportError::Closed(_)
        | TransportError::TooLarge { .. }
        | TransportError::Io(_) => Delivery::MayHaveHappened,
    };
    RequestError { error: UpstreamError::Transport(error), delivery }
}

/// A request that was under way when something happened to the whole connection. What that was says nothing about it.
pub(super) fn cut_off(error: TransportError) -> RequestError {
    RequestError { error: UpstreamError::Transport(error), delivery: Delivery::MayHaveHappened }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_server_is_cleaned_and_bounded() {
        let data = "x".repeat(LARGEST_DATA);
        check(r#"{"code":-1,"message":"no\u001b[2J way","data":{"a":1}}"#, "no way (-1) data");
        check(&format!(r#"{{"code":-1,"message":"no","data":"{data}"}}"#), "no (-1)");
        check(r#"{"code":"5","message":7}"#, "(it does not say why) (0)");
        check(r#""just text""#, "(it does not say why) (0)");

        #[track_caller]
        fn check(error: &str, expected: &str) {
            let raw: &RawValue = serde_json::from_str(error).unwrap();
            let ProtocolError::Rpc { code, message, data } = refusal(raw) else { panic!("not a refusal") };
            let data = if data.is_some() { " data" } else { "" };
            assert_eq!(format!("{message} ({code}){data}"), expected);
        }
    }

    #[test]
    fn whether_a_request_may_have_happened_is_known_from_how_it_failed() {
        let url = || "http://x".to_owned();
        check(TransportError::SessionLost, Delivery::NotSent);
        check(TransportError::Unauthorized { url: url(), status: 401, challenge: None }, Delivery::NotSent);
        check(TransportError::Http { url: url(), status: 404, body: String::new() }, Delivery::Answered);
        check(TransportError::Unreachable { url: url(), reason: String::new() }, Delivery::NotSent);
        check(TransportError::Http { url: url(), status: 408, body: String::new() }, Delivery::MayHaveHappened);
        check(TransportError::Http { url: url(), status: 502, body: String::new() }, Delivery::MayHaveHappened);
        check(TransportError::Closed(String::new()), Delivery::MayHaveHappened);
        check(TransportError::TooLarge { limit: 1 }, Delivery::MayHaveHappened);

        #[track_caller]
        fn check(error: TransportError, delivery: Delivery) {
            assert_eq!(unanswered(error).delivery, delivery);
        }
    }
}
