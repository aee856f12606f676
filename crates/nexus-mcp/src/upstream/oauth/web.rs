//! The requests of a login: small, short, recorded, and only to addresses that may be called.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use url::{Host, Url};

use nexus_core::audit::Sink;
use nexus_system::outbound::{Calling, Named, OutboundError, Outlet, Reach, Redirects, SafeUrl};

use super::error::{OAuthError, shown};
use crate::upstream::config::HttpEndpoint;

/// From the start to the last byte of an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes. The largest metadata of real providers is a few kilobytes.
const LARGEST: usize = 256 * 1024;

const AGENT: &str = concat!("nexus/", env!("CARGO_PKG_VERSION"));

/// The way out of one server's logins.
#[derive(Debug)]
pub struct Web {
    server: Url,
    outlet: Outlet,
    /// A server on this machine may send us to its neighbours; one out there may not send us here.
    named: Named,
}

/// What is posted.
pub(super) enum Body {
    Json(String),
    Form(String),
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Body")
    }
}

impl Web {
    pub fn new(endpoint: &HttpEndpoint, audit: Arc<dyn Sink>) -> Result<Self, OAuthError> {
        let Ok(server) = Url::parse(&endpoint.url) else { return Err(not_an_address(&endpoint.url)) };
        if !matches!(server.scheme(), "http" | "https") || !server.has_host() {
            return Err(not_an_address(&endpoint.url));
        }
        let private = &endpoint.allow_private;
        let outlet = Outlet::new(AGENT, Reach::new(private.all, &private.some), audit);
        let named = if is_here(&server) { Named::ByOperator } else { Named::ByServer };
        Ok(Self { server, outlet, named })
    }

    /// The MCP server.
    pub fn server(&self) -> &Url {
        &self.server
    }

    /// The same for people, without what may be secret in it.
    pub(super) fn name(&self) -> String {
        SafeUrl::parse(self.server.as_str()).map_or_else(|_| String::new(), |url| url.to_string())
    }

    /// An address that a server names. Encrypted, unless it is on this machine or where the operator has written an
    /// address without encryption.
    pub(super) fn parse(&self, address: &str) -> Result<Url, OAuthError> {
        let url = Url::parse(address).map_err(|_| not_an_address(address))?;
        match url.scheme() {
            "https" if url.has_host() => Ok(url),
            "http" if is_here(&url) || url.host() == self.server.host() && self.server.scheme() == "http" => Ok(url),
            "http" => Err(OAuthError::Unusable(format!("{} is not encrypted", shown(address)))),
            _ => Err(not_an_address(address)),
        }
    }

    /// What stands at a well-known address, if anything does.
    pub(super) async fn metadata<T: DeserializeOwned>(&self, place: &Url) -> Result<Option<T>, OAuthError> {
        let mut calling = self.calling("GET", place, "metadata of a login")?;
        calling.headers = vec![("accept".to_owned(), "application/json".to_owned())];
        let (status, body) = self.send(calling).await?;
        match status {
            200 => Ok(serde_json::from_slice(&body).ok()),
            500.. => Err(answered(place, status, &body)),
            _ => Ok(None),
        }
    }

    /// Posts, and reads the answer. `authorization` is the header of that name.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        place: &Url,
        body: Body,
        authorization: Option<&str>,
    ) -> Result<T, OAuthError> {
        let (kind, text) = match body {
            Body::Json(text) => ("application/json", text),
            Body::Form(text) => ("application/x-www-form-urlencoded", text),
        };
        let mut calling = self.calling("POST", place, "a login")?;
        calling.own_headers =
            vec![("accept".to_owned(), "application/json".to_owned()), ("content-type".to_owned(), kind.to_owned())];
        calling.own_headers.extend(authorization.map(|value| ("authorization".to_owned(), value.to_owned())));
        calling.body = text.into();
        // It holds codes, tokens and secrets, which are for this server alone.
        calling.redirects = Redirects::SameOrigin;
        let (status, body) = self.send(calling).await?;
        if (200..300).contains(&status) {
            // Without the answer: it has the tokens in it.
            return serde_json::from_slice(&body)
                .map_err(|_| OAuthError::Unusable(format!("the answer of {place} makes no sense")));
        }
        match serde_json::from_slice::<Refusal>(&body) {
            Ok(said) => Err(OAuthError::refused(&said.error, said.error_description.as_deref())),
            Err(_) => Err(answered(place, status, &body)),
        }
    }

    fn calling(&self, method: &'static str, place: &Url, what: &str) -> Result<Calling, OAuthError> {
        let url = SafeUrl::parse(place.as_str()).map_err(|_| not_an_address(place.as_str()))?;
        let named = if place.origin() == self.server.origin() { Named::ByOperator } else { self.named };
        Ok(Calling { named, ..Calling::new(method, url, what) })
    }

    async fn send(&self, calling: Calling) -> Result<(u16, Vec<u8>), OAuthError> {
        let url = calling.url.to_string();
        let asking = async {
            let answer = self.outlet.send(calling).await?;
            let status = answer.status;
            Ok::<_, OutboundError>((status, answer.whole(LARGEST).await?))
        };
        match timeout(PATIENCE, asking).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(OAuthError::Unreachable { reason: error.to_string() }),
            Err(_) => Err(OAuthError::Unreachable { reason: format!("{url} takes too long") }),
        }
    }
}

/// The body of an answer that is a no (RFC 6749, 5.2).
#[derive(Deserialize)]
struct Refusal {
    error: String,
    #[serde(default)]
    error_description: Option<String>,
}

/// On this machine, by an address or the name that always means it.
fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn not_an_address(address: &str) -> OAuthError {
    OAuthError::Unusable(format!("{} is not an address that can be called", shown(address)))
}

fn answered(place: &Url, status: u16, body: &[u8]) -> OAuthError {
    let said = shown(&String::from_utf8_lossy(&body[..body.len().min(2048)]));
    OAuthError::Answered { url: place.to_string(), status, said }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::Redirect;
    use nexus_core::audit::Nowhere;
    use nexus_core::tasks::Tasks;

    #[test]
    fn addresses_that_a_server_names_are_encrypted_or_near() {
        check("https://lab.example/mcp", "https://as.example/", true);
        check("https://lab.example/mcp", "http://as.example/", false);
        check("https://lab.example/mcp", "http://lab.example/", false);
        check("http://lab.example/mcp", "http://lab.example:9000/", true);
        check("http://lab.example/mcp", "http://as.example/", false);
        check("https://lab.example/mcp", "http://localhost:9000/", true);
        check("https://lab.example/mcp", "javascript:alert(1)", false);
        check("https://lab.example/mcp", "file:///etc/passwd", false);
        check("https://lab.example/mcp", "/relative", false);

        #[track_caller]
        fn check(server: &str, address: &str, expected: bool) {
            let web = Web::new(&HttpEndpoint::new(server), Arc::new(Nowhere)).unwrap();
            assert_eq!(web.parse(address).is_ok(), expected, "{server} names {address}");
        }
    }

    #[tokio::test]
    async fn the_secrets_of_a_login_are_not_led_to_another_server() {
        let elsewhere = serve(axum::Router::new().fallback(async || "{}")).await;
        let there = elsewhere.to_string();
        let first = serve(axum::Router::new().fallback(async move || Redirect::temporary(&there))).await;
        let mut endpoint = HttpEndpoint::new(first.as_str());
        endpoint.allow_private.some = vec!["127.0.0.1".to_owned()];
        let web = Web::new(&endpoint, Arc::new(Nowhere)).unwrap();
        let post = |place| web.post::<serde_json::Value>(place, Body::Form("code=secret".to_owned()), None);
        let led = post(&first).await.unwrap_err();
        assert!(led.to_string().contains("leads elsewhere"), "{led}");
        post(&elsewhere).await.unwrap();

        async fn serve(app: axum::Router) -> Url {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
            Tasks::new().spawn("server", async move { axum::serve(listener, app).await });
            url
        }
    }

    #[tokio::test]
    async fn a_server_out_there_cannot_make_the_hub_call_this_machine() {
        let web = Web::new(&HttpEndpoint::new("https://lab.example/mcp"), Arc::new(Nowhere)).unwrap();
        for place in ["http://127.0.0.1:9/", "http://localhost:9/", "https://169.254.169.254/"] {
            let refused = web.metadata::<serde_json::Value>(&Url::parse(place).unwrap()).await.unwrap_err();
            assert!(refused.to_string().contains("may not be called"), "{place}: {refused}");
        }
    }
}
