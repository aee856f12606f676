//! The server at the other end of HTTP: what every request to it has in common, and who the hub is to it.

use std::sync::Arc;

use nexus_core::audit::Sink;
use nexus_core::{redact, text};
use nexus_system::outbound::{Calling, Incoming, OutboundError, Outlet, Reach, SafeUrl};

use super::http::{Challenged, Credentials};
use crate::upstream::config::HttpEndpoint;
use crate::upstream::error::TransportError;
use crate::upstream::log::ServerLog;

/// Bytes of an answer that is an error, as far as it is read and as far as it is shown.
const ERROR_BODY: usize = 64 * 1024;
const SHOWN_BODY: usize = 300;
/// So often a request is sent again with another token.
const MOST_CHALLENGES: usize = 3;

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) url: SafeUrl,
    outlet: Outlet,
    headers: Headers,
    credentials: Option<Arc<dyn Credentials>>,
    pub(super) log: Arc<ServerLog>,
}

/// The configured ones. Their values may be secret.
struct Headers(Vec<(String, String)>);

impl std::fmt::Debug for Headers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl Peer {
    pub(super) fn new(
        endpoint: HttpEndpoint,
        audit: Arc<dyn Sink>,
        credentials: Option<Arc<dyn Credentials>>,
        log: Arc<ServerLog>,
    ) -> Result<Self, TransportError> {
        let url = SafeUrl::parse(&endpoint.url).map_err(|error| TransportError::Forbidden {
            url: redact::SafeUrl::new(&endpoint.url).to_string(),
            reason: error.to_string(),
        })?;
        let reach = Reach::new(endpoint.allow_private.all, endpoint.allow_private.some);
        let outlet = Outlet::new(concat!("nexus/", env!("CARGO_PKG_VERSION")), reach, audit);
        Ok(Self { url, outlet, headers: Headers(endpoint.headers), credentials, log })
    }

    /// Sends a request with all that identifies the hub, and again when there is another token for it.
    pub(super) async fn call(&self, mut calling: Calling) -> Result<Incoming, TransportError> {
        let own = calling.own_headers.len();
        for attempt in 0.. {
            calling.own_headers.truncate(own);
            calling.own_headers.extend(self.headers.0.iter().cloned());
            let bearer = self.bearer().await;
            calling
                .own_headers
                .extend(bearer.iter().map(|token| (AUTHORIZATION.to_owned(), format!("Bearer {token}"))));
            let answer = self.outlet.send(calling.clone()).await.map_err(|error| told(&error))?;
            if !matches!(answer.status, 401 | 403) {
                return Ok(answer);
            }
            let challenge = answer.header("www-authenticate").map(str::to_owned);
            // Another server than the one the token is for may not have it renewed either.
            let asked =
                self.credentials.as_ref().filter(|_| answer.url.is_beside(&self.url) && attempt < MOST_CHALLENGES);
            let (status, url) = (answer.status, answer.url.to_string());
            let outcome = match asked {
                Some(credentials) => credentials.challenged(bearer.as_deref(), status, challenge.as_deref()).await?,
                None => Challenged::GiveUp,
            };
            if outcome == Challenged::GiveUp {
                return Err(TransportError::Unauthorized { url, status, challenge });
            }
        }
        Err(TransportError::Unauthorized { url: self.url.to_string(), status: 401, challenge: None })
    }

    /// None where the operator has written a header of that name.
    async fn bearer(&self) -> Option<String> {
        let written = self.headers.0.iter().any(|(name, _)| name.eq_ignore_ascii_case(AUTHORIZATION));
        match &self.credentials {
            Some(credentials) if !written => credentials.bearer().await,
            _ => None,
        }
    }
}

const AUTHORIZATION: &str = "Authorization";

/// The body of an error, for whoever has to understand it.
pub(super) async fn error_body(answer: Incoming) -> String {
    answer.beginning(ERROR_BODY).await
}

/// An answer that is none.
pub(super) fn refused(url: &SafeUrl, status: u16, body: &str) -> TransportError {
    let cleaned = text::clean(body).replace(['\n', '\r', '\t'], " ");
    let body = redact::beginning(&text::cut(cleaned.trim(), SHOWN_BODY)).into_owned();
    TransportError::Http { url: url.to_string(), status, body }
}

/// Only what never left is `Unreachable` or `Forbidden`.
pub(super) fn told(error: &OutboundError) -> TransportError {
    match error {
        OutboundError::Unreachable { url, .. } | OutboundError::Late { url, .. } => {
            TransportError::Unreachable { url: url.to_string(), reason: error.reason() }
        }
        OutboundError::Forbidden { url, reason } => {
            TransportError::Forbidden { url: url.to_string(), reason: reason.clone() }
        }
        OutboundError::TooLarge { limit, .. } => TransportError::TooLarge { limit: *limit },
        OutboundError::Broken { .. } | OutboundError::Led { .. } => TransportError::Closed(error.to_string()),
        OutboundError::Client(_) => TransportError::Io(error.to_string()),
    }
}
