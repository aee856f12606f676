//! Servers that want to know who asks: finding their authorization server, logging in there, keeping the tokens fresh.
//!
//! [`OAuth`] is the [`Credentials`] of one HTTP server. It sends the token it has, renews it when it is about to expire
//! or is refused, and logs in where a [`Browser`] is at hand; the hub itself has none, and waits for
//! `nexus mcp login NAME`. Every request goes out through nexus-system: bounded, recorded, its address checked.
//!
//! As MCP 2026-07-28 has it: metadata of the server (RFC 9728) and of the issuer (RFC 8414), PKCE, the issuer compared
//! letter by letter (RFC 9207), `resource` in every request (RFC 8707), credentials bound to their issuer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::future::BoxFuture;

use nexus_core::tasks::Tasks;

use super::error::TransportError;
use super::transport::http::{Challenged, Credentials};

mod callback;
mod challenge;
mod discovery;
mod encode;
mod error;
mod flow;
mod keeper;
mod registration;
mod store;
#[cfg(test)]
mod tests;
mod web;

pub use callback::{Callback, PATIENCE_MINUTES};
pub use error::OAuthError;
pub use registration::{Identity, Registered};
pub use store::{Client, Grant, InMemory, Proof, TokenStore};
pub use url::Url;
pub use web::Web;

use challenge::Challenge;
use flow::Login;
use keeper::Keeper;

/// Logins in the life of one connection. A server that refuses what it asked for would otherwise ask for ever.
const MOST_LOGINS: u32 = 3;

/// Shows the authorization page to somebody, and knows where it sent them.
pub trait Browser: fmt::Debug + Send + Sync {
    /// Where the page is to send them.
    fn redirect_uri(&self) -> String;

    /// Comes back with the address they were sent to: the redirect address with this `state` and the answer behind it.
    fn visit<'a>(&'a self, page: &'a Url, state: &'a str) -> BoxFuture<'a, Result<Url, OAuthError>>;
}

/// The credentials of one server.
#[derive(Debug)]
pub struct OAuth {
    keeper: Arc<Keeper>,
    identity: Identity,
    browser: Option<Arc<dyn Browser>>,
    logins: AtomicU32,
}

impl OAuth {
    pub fn new(web: Web, identity: Identity, store: Arc<dyn TokenStore>, tasks: Tasks) -> Self {
        let keeper = Arc::new(Keeper::new(web, store, tasks));
        Self { keeper, identity, browser: None, logins: AtomicU32::new(0) }
    }

    /// Logs in when the server demands it, in place of giving up.
    #[must_use]
    pub fn with_browser(mut self, browser: Arc<dyn Browser>) -> Self {
        self.browser = Some(browser);
        self
    }

    /// Logs in now. `challenge` is the server's `WWW-Authenticate`, where it was asked before.
    pub async fn login(&self, challenge: Option<&str>) -> Result<Arc<Grant>, OAuthError> {
        let _turn = self.keeper.turn().await;
        let Some(browser) = &self.browser else {
            return Err(OAuthError::Unusable("there is nobody to show the login to".to_owned()));
        };
        self.authorize(browser.as_ref(), &Challenge::parse(challenge.unwrap_or_default())).await
    }

    /// What to do about a refusal of `sent`.
    async fn refused(&self, sent: Option<&str>, status: u16, challenge: &Challenge) -> Result<Challenged, OAuthError> {
        let turn = self.keeper.turn().await;
        let held = self.keeper.look();
        // Renewed or logged in meanwhile, by another request or another process.
        if held.as_ref().is_some_and(|grant| Some(grant.access_token.as_str()) != sent) {
            return Ok(Challenged::Retry);
        }
        match status {
            401 => {
                if let Some(grant) = held.filter(|_| !self.keeper.is_new())
                    && self.keeper.renew(&grant, &turn).await.is_some()
                {
                    return Ok(Challenged::Retry);
                }
            }
            // What was asked for before and is refused still would be refused again.
            403 if challenge.wants_more() => {
                let asked = held.as_ref().map(|grant| grant.scopes.as_slice()).unwrap_or_default();
                if challenge.scopes.iter().all(|scope| asked.contains(scope)) {
                    return Ok(Challenged::GiveUp);
                }
            }
            _ => return Ok(Challenged::GiveUp),
        }
        match &self.browser {
            None => Ok(Challenged::GiveUp),
            Some(browser) => self.authorize(browser.as_ref(), challenge).await.map(|_| Challenged::Retry),
        }
    }

    async fn authorize(&self, browser: &dyn Browser, challenge: &Challenge) -> Result<Arc<Grant>, OAuthError> {
        if self.logins.fetch_add(1, Ordering::Relaxed) >= MOST_LOGINS {
            return Err(OAuthError::TooOften(MOST_LOGINS));
        }
        let web = &self.keeper.web;
        let resource = discovery::resource(web, challenge).await?;
        let issuer = discovery::issuer(web, self.choose(&resource.issuers), resource.published).await?;
        let before = self.keeper.look().filter(|grant| grant.issuer == issuer.issuer);
        let scopes = self.scopes(challenge, &resource.scopes, &issuer.scopes_supported, before.as_deref());
        let known = before.as_ref().map(|grant| &grant.client);
        let redirect_uri = browser.redirect_uri();
        let client = registration::client(web, &issuer, &self.identity, &redirect_uri, known, &scopes).await?;
        let login = Login::new(web.server(), resource.id, issuer, client, scopes);
        let came_to = browser.visit(&login.page(web)?, login.state()).await?;
        self.keeper.keep(login.finish(web, &came_to).await?)
    }

    /// The issuer at which the operator has registered us, if it is one of the server's; else the server's first.
    fn choose<'a>(&self, issuers: &'a [String]) -> &'a str {
        let registered = self.identity.registered.as_ref().and_then(|registered| registered.issuer.as_deref());
        let known = issuers.iter().find(|issuer| Some(issuer.as_str()) == registered);
        known.or(issuers.first()).map_or("", String::as_str)
    }

    /// What to ask for: what the refusal names, else what the server has; with it all that was asked for before, so
    /// that a step up does not take anything away.
    fn scopes(
        &self,
        challenge: &Challenge,
        server: &[String],
        issuer: &[String],
        before: Option<&Grant>,
    ) -> Vec<String> {
        let wanted = match (&self.identity.scopes[..], &challenge.scopes[..]) {
            ([], []) => server,
            ([], named) => named,
            (own, _) => own,
        };
        let earlier = before.map(|grant| grant.scopes.as_slice()).unwrap_or_default();
        let needed = if challenge.wants_more() { &challenge.scopes[..] } else { &[] };
        let mut scopes = challenge::named(earlier.iter().chain(wanted).chain(needed).map(String::as_str));
        // A refresh token is asked for where there is such a scope; alone it would narrow the login to nothing.
        let offline = issuer.iter().any(|scope| scope == flow::OFFLINE);
        if offline && !scopes.is_empty() && !scopes.iter().any(|scope| scope == flow::OFFLINE) {
            scopes.push(flow::OFFLINE.to_owned());
        }
        scopes
    }
}

impl Credentials for OAuth {
    fn bearer(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(self.keeper.token())
    }

    fn challenged<'a>(
        &'a self,
        sent: Option<&'a str>,
        status: u16,
        challenge: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Challenged, TransportError>> {
        Box::pin(async move {
            let challenge = Challenge::parse(challenge.unwrap_or_default());
            let outcome = self.refused(sent, status, &challenge).await;
            outcome.map_err(|error| TransportError::Login { url: self.keeper.web.name(), reason: error.to_string() })
        })
    }
}
