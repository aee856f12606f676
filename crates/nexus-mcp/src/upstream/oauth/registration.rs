//! What we are to an authorization server: a client it knows already, a page that describes us, or a new registration.

use std::fmt;

use serde::Deserialize;
use serde_json::json;

use super::discovery::Issuer;
use super::error::OAuthError;
use super::store::{Client, Proof};
use super::web::{Body, Web};

/// Who logs in.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// Shown on the authorization page.
    pub name: String,
    /// The page that describes this client, for authorization servers that read such pages.
    pub metadata_url: Option<String>,
    pub registered: Option<Registered>,
    /// Asked for in place of what the server suggests.
    pub scopes: Vec<String>,
}

/// A client that the operator has registered by hand.
#[derive(Clone)]
pub struct Registered {
    pub id: String,
    pub secret: Option<String>,
    /// Where; then it is shown to nobody else. None: at the server's authorization server, whichever that is.
    pub issuer: Option<String>,
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered").field("id", &self.id).field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

/// The client to log in with at this issuer. `known` is the one of an earlier login there.
pub async fn client(
    web: &Web,
    issuer: &Issuer,
    identity: &Identity,
    redirect_uri: &str,
    known: Option<&Client>,
    scopes: &[String],
) -> Result<Client, OAuthError> {
    let redirect_uri = redirect_uri.to_owned();
    if let Some(Registered { id, secret, issuer: at }) = &identity.registered {
        if at.as_deref().is_some_and(|at| at != issuer.issuer) {
            return Err(OAuthError::Unusable(format!(
                "the client {id} is registered elsewhere, not at {}",
                issuer.issuer
            )));
        }
        let proof = proof(issuer, secret.as_deref(), None);
        return Ok(Client { id: id.clone(), secret: secret.clone(), proof, redirect_uri });
    }
    if let Some(page) = identity.metadata_url.as_ref().filter(|_| issuer.client_id_metadata_document_supported) {
        return Ok(Client { id: page.clone(), secret: None, proof: Proof::None, redirect_uri });
    }
    // One that was registered with another page would be refused.
    if let Some(known) = known.filter(|known| known.redirect_uri == redirect_uri) {
        return Ok(known.clone());
    }
    register(web, issuer, identity, redirect_uri, scopes).await
}

#[derive(Deserialize)]
struct Registration {
    client_id: String,
    #[serde(default)]
    client_secret: Option<String>,
    #[serde(default)]
    token_endpoint_auth_method: Option<String>,
}

/// RFC 7591.
async fn register(
    web: &Web,
    issuer: &Issuer,
    identity: &Identity,
    redirect_uri: String,
    scopes: &[String],
) -> Result<Client, OAuthError> {
    let Some(endpoint) = &issuer.registration_endpoint else {
        return Err(OAuthError::NoRegistration { issuer: issuer.issuer.clone() });
    };
    let mut wish = json!({
        "client_name": identity.name,
        "application_type": "native",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": wanted(issuer).as_str(),
    });
    if !scopes.is_empty() {
        wish["scope"] = scopes.join(" ").into();
    }
    let made: Registration = web.post(&web.parse(endpoint)?, Body::Json(wish.to_string()), None).await?;
    let proof = proof(issuer, made.client_secret.as_deref(), made.token_endpoint_auth_method.as_deref());
    Ok(Client { id: made.client_id, secret: made.client_secret, proof, redirect_uri })
}

/// A program on a desk cannot keep a secret, so none is wished for where that is possible.
fn wanted(issuer: &Issuer) -> Proof {
    let Some(methods) = &issuer.token_endpoint_auth_methods_supported else { return Proof::None };
    let known = |proof: &Proof| methods.iter().any(|method| method == proof.as_str());
    [Proof::None, Proof::Basic, Proof::Post].into_iter().find(known).unwrap_or(Proof::None)
}

/// How to prove it: as was said at registration, else the best way the issuer knows. Without a list it knows the
/// password in the header (RFC 8414, 2).
fn proof(issuer: &Issuer, secret: Option<&str>, said: Option<&str>) -> Proof {
    if secret.is_none() {
        return Proof::None;
    }
    if let Some(said) = said.and_then(Proof::parse) {
        return said;
    }
    let Some(methods) = &issuer.token_endpoint_auth_methods_supported else { return Proof::Basic };
    let known = |proof: &Proof| methods.iter().any(|method| method == proof.as_str());
    [Proof::Basic, Proof::Post, Proof::None].into_iter().find(known).unwrap_or(Proof::Basic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_proves_itself_as_the_issuer_wants_it() {
        check(None, None, None, Proof::None, Proof::None);
        check(None, Some("s"), None, Proof::None, Proof::Basic);
        check(None, Some("s"), Some("client_secret_post"), Proof::None, Proof::Post);
        check(Some(&["client_secret_post"]), Some("s"), None, Proof::Post, Proof::Post);
        check(Some(&["client_secret_post", "client_secret_basic"]), Some("s"), None, Proof::Basic, Proof::Basic);
        check(Some(&["none"]), Some("s"), None, Proof::None, Proof::None);
        check(Some(&["none"]), Some("s"), Some("private_key_jwt"), Proof::None, Proof::None);
        check(Some(&["client_secret_basic"]), None, None, Proof::Basic, Proof::None);

        #[track_caller]
        fn check(methods: Option<&[&str]>, secret: Option<&str>, said: Option<&str>, wish: Proof, shown: Proof) {
            let issuer: Issuer = serde_json::from_value(json!({
                "issuer": "i", "authorization_endpoint": "a", "token_endpoint": "t",
                "token_endpoint_auth_methods_supported": methods,
            }))
            .unwrap();
            assert_eq!(wanted(&issuer), wish, "wish for {methods:?}");
            assert_eq!(proof(&issuer, secret, said), shown, "proof for {methods:?}");
        }
    }
}
