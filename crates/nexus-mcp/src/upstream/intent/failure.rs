//! A request to a server that came to nothing, in words for the one who called.

use thiserror::Error;

use nexus_core::error::ToolError;
use nexus_core::name::ServerName;
use nexus_core::session::Era;

use crate::exchange::Exchange;
use crate::upstream::error::{Delivery, ProtocolError, RequestError, UpstreamError};
use crate::upstream::relay::question::BadQuestion;
use crate::upstream::relay::result::{BadResult, Kind};
use crate::upstream::relay::state::BadState;
use crate::upstream::supervisor::Unavailable;
use crate::wire::{INVALID_PARAMS, MISSING_CAPABILITY, RpcError};

/// What the old era calls a resource that does not exist; the new one has no code of its own for it.
const RESOURCE_NOT_FOUND: i64 = -32002;

#[derive(Debug, Error)]
enum Failure {
    #[error("the server `{server}` answered with an error: {message} ({code})")]
    Said { server: ServerName, code: i64, message: String },
    #[error("the request to the server `{server}` was not sent: {why}")]
    NotSent { server: ServerName, why: RequestError },
    #[error("no answer from the server `{server}`: {why}")]
    Unanswered { server: ServerName, why: RequestError },
    #[error("the server `{server}` refused: {why}")]
    Refused { server: ServerName, why: RequestError },
    #[error("the answer of the server `{server}` makes no sense: {why}")]
    Nonsense { server: ServerName, why: String },
    #[error("the server `{server}` answered, and {why}")]
    Result { server: ServerName, why: BadResult },
    #[error("the server `{server}` wants to ask something that cannot be passed on")]
    Question { server: ServerName, source: BadQuestion },
}

const LOOK_FIRST: &str = "it may have happened all the same: look before you repeat it";

/// Nothing was sent.
pub(super) fn unavailable(error: Unavailable) -> ToolError {
    let hint = match &error {
        Unavailable::Changed { tool, server } => {
            format!(
                "the operator can look at it with `nexus mcp tools {server}` and allow it with `nexus mcp allow {server} {tool}`"
            )
        }
        Unavailable::Denied { .. } => "ask the operator; do not try another way".to_owned(),
        _ => "the hub keeps trying; `list_upstreams` shows how the server is doing".to_owned(),
    };
    ToolError::failed(error).hint(hint)
}

/// What a request failed with. Where only a protocol error can say it, that is what the caller gets.
pub(super) fn request(server: &ServerName, kind: Kind, error: RequestError, exchange: Option<&Exchange>) -> ToolError {
    let server = server.clone();
    if let UpstreamError::Protocol(ProtocolError::Rpc { code, message, data }) = &error.error {
        let (code, message) = (*code, message.clone());
        if let Some(exchange) = exchange
            && let Some(error) = protocol_error(&server, kind, exchange.era, code, &message)
        {
            exchange.fail(match data {
                Some(data) if code == i64::from(MISSING_CAPABILITY) => error.with_data(data.clone()),
                _ => error,
            });
        }
        let failed = ToolError::failed(Failure::Said { server, code, message });
        return match code == i64::from(INVALID_PARAMS) {
            true => failed.hint("look at the tool's description and schema, and mend the arguments"),
            false => failed,
        };
    }
    match (error.delivery, &error.error) {
        (Delivery::NotSent, _) => ToolError::failed(Failure::NotSent { server, why: error })
            .hint("nothing has happened; trying again is safe"),
        (Delivery::MayHaveHappened, _) => {
            ToolError::failed(Failure::Unanswered { server, why: error }).hint(LOOK_FIRST)
        }
        // It says nothing that could be understood, so it may have done anything.
        (Delivery::Answered, UpstreamError::Protocol(ProtocolError::Nonsense(why))) => {
            ToolError::failed(Failure::Nonsense { server, why: why.clone() }).hint(LOOK_FIRST)
        }
        (Delivery::Answered, _) => ToolError::failed(Failure::Refused { server, why: error }),
    }
}

/// The results of tools can tell of errors; those of other methods cannot, nor can anything tell of a capability.
fn protocol_error(server: &ServerName, kind: Kind, caller: Era, code: i64, message: &str) -> Option<RpcError> {
    let missing = code == i64::from(MISSING_CAPABILITY) && caller == Era::Modern;
    if kind == Kind::Tool && !missing {
        return None;
    }
    let code = match code {
        RESOURCE_NOT_FOUND if caller == Era::Modern => INVALID_PARAMS,
        code => i32::try_from(code).unwrap_or(INVALID_PARAMS),
    };
    let message = nexus_core::redact::text(message).into_owned();
    Some(RpcError::new(code, format!("{server}: {message}"), if missing { 400 } else { 200 }))
}

/// Its answer is no result.
pub(super) fn result(server: &ServerName, error: BadResult) -> ToolError {
    ToolError::failed(Failure::Result { server: server.clone(), why: error }).hint(LOOK_FIRST)
}

pub(super) fn question(server: &ServerName, error: BadQuestion) -> ToolError {
    ToolError::failed(Failure::Question { server: server.clone(), source: error })
}

/// The caller brought a state that is not to be believed: as the protocol wants it, that is an error of its own.
pub(super) fn state(error: BadState, exchange: &Exchange) -> ToolError {
    exchange.fail(RpcError::invalid_params(error.to_string()).with_status(200));
    ToolError::refused(error)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::upstream::error::TransportError;

    fn told(error: impl Into<UpstreamError>, delivery: Delivery) -> String {
        let error = RequestError { error: error.into(), delivery };
        request(&ServerName::new("github"), Kind::Tool, error, None).into_reply().text().to_owned()
    }

    #[test]
    fn an_error_names_the_server_and_says_whether_it_may_have_happened() {
        let late = told(ProtocolError::Late(Duration::from_secs(30)), Delivery::MayHaveHappened);
        assert!(late.contains("`github`") && late.contains("30 s") && late.contains(LOOK_FIRST), "{late}");
        let closed = told(TransportError::Closed("exited with code 1".into()), Delivery::NotSent);
        assert!(closed.contains("was not sent") && closed.contains("nothing has happened"), "{closed}");
        assert_eq!(closed.matches("exited with code 1").count(), 1, "{closed}");
        let refused = TransportError::Http { url: "http://x/".into(), status: 404, body: "no".into() };
        let refused = told(refused, Delivery::Answered);
        assert!(refused.contains("the server `github` refused: http://x/ answered HTTP 404"), "{refused}");
        assert!(late.contains("no answer from the server `github`: ") && !late.contains("did not do it"), "{late}");
        let rpc = ProtocolError::Rpc { code: -32602, message: "no such repo".into(), data: None };
        let said = told(rpc, Delivery::Answered);
        assert!(said.contains("`github`") && said.contains("no such repo") && said.contains("schema"), "{said}");
        assert!(!said.contains("happened"), "{said}");
    }

    #[test]
    fn a_missing_resource_has_the_callers_code() {
        let of =
            |kind, era, code| protocol_error(&ServerName::new("x"), kind, era, code, "gone").map(|error| error.code);
        assert_eq!(of(Kind::Resource, Era::Legacy, -32002), Some(-32002));
        assert_eq!(of(Kind::Resource, Era::Modern, -32002), Some(-32602));
        assert_eq!(of(Kind::Tool, Era::Modern, -32602), None);
        assert_eq!(of(Kind::Tool, Era::Modern, -32021), Some(-32021));
        assert_eq!(of(Kind::Tool, Era::Legacy, -32021), None);
    }
}
