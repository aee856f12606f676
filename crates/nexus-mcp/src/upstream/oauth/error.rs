//! Why there is no token.

use std::io;

use nexus_core::text;
use thiserror::Error;

use crate::upstream::error::behind;

#[derive(Debug, Error)]
pub enum OAuthError {
    #[error("{reason}")]
    Unreachable { reason: String },
    #[error("{url} answered HTTP {status}{}", behind(said))]
    Answered { url: String, status: u16, said: String },
    /// Metadata or an answer that must not be used.
    #[error("{0}")]
    Unusable(String),
    /// `error` of an authorization or token answer.
    #[error("the authorization server says no: {0}")]
    Refused(String),
    #[error("the authorization server {issuer} takes no new clients; register one there and name it (--client-id)")]
    NoRegistration { issuer: String },
    #[error("the answer of the authorization page is not the one to our question: {0}")]
    Forged(&'static str),
    #[error("nobody logged in within {0} minutes")]
    Late(u64),
    #[error("there were {0} logins already, and the server still refuses")]
    TooOften(u32),
    #[error("the login cannot be kept")]
    Store(#[from] io::Error),
    #[error("the page of the login cannot be waited for")]
    Listener(#[source] io::Error),
}

impl OAuthError {
    /// With words of somebody else in it: cleaned and cut.
    pub(super) fn refused(error: &str, description: Option<&str>) -> Self {
        let said = match description {
            Some(description) => format!("{error} ({description})"),
            None => error.to_owned(),
        };
        Self::Refused(shown(&said))
    }
}

/// Words of a server, fit to be shown in one line.
pub(super) fn shown(said: &str) -> String {
    let one_line: String = said.split_whitespace().collect::<Vec<_>>().join(" ");
    text::cut(&text::clean(&nexus_core::redact::text(&one_line)), 300).into_owned()
}
