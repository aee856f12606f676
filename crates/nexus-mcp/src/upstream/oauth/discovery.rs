//! Who gives out tokens for a server: its own metadata (RFC 9728), then its authorization server's (RFC 8414, OpenID).

use serde::Deserialize;
use url::Url;

use super::challenge::{Challenge, named};
use super::error::{OAuthError, shown};
use super::web::Web;

/// What a server says about itself, once it is checked.
#[derive(Debug)]
pub struct Resource {
    /// Sent on as it was published: an authorization server may compare it letter by letter.
    pub id: String,
    /// At least one.
    pub issuers: Vec<String>,
    pub scopes: Vec<String>,
    /// Whether it was published at all: servers of 2025-03-26 have no such page, and are their own issuer.
    pub published: Published,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    Yes,
    No,
}

/// Issuers of one server that are looked at.
const MOST_ISSUERS: usize = 10;

#[derive(Deserialize)]
struct RawResource {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
}

/// Asks the server where it wants its tokens from.
pub async fn resource(web: &Web, challenge: &Challenge) -> Result<Resource, OAuthError> {
    let server = web.server();
    let places = match &challenge.resource_metadata {
        Some(named) => vec![web.parse(named)?],
        None => well_known(server, "oauth-protected-resource"),
    };
    for place in &places {
        let Some(found) = web.metadata::<RawResource>(place).await? else { continue };
        if !covers(&found.resource, server) {
            let other = shown(&found.resource);
            return Err(OAuthError::Unusable(format!("{} publishes itself as another server, {other}", web.name())));
        }
        let issuers: Vec<String> = found.authorization_servers.into_iter().take(MOST_ISSUERS).collect();
        if issuers.is_empty() {
            return Err(OAuthError::Unusable(format!("{place} names no authorization server")));
        }
        let scopes = named(found.scopes_supported.iter().map(String::as_str));
        return Ok(Resource { id: found.resource, issuers, scopes, published: Published::Yes });
    }
    if challenge.resource_metadata.is_some() {
        return Err(OAuthError::Unusable(format!("{} has nothing about {}", places[0], web.name())));
    }
    let (id, issuers) = (canonical(server), vec![server.origin().ascii_serialization()]);
    Ok(Resource { id, issuers, scopes: Vec::new(), published: Published::No })
}

/// An authorization server's own words.
#[derive(Clone, Debug, Deserialize)]
pub struct Issuer {
    pub issuer: String,
    pub authorization_endpoint: String,
    pub token_endpoint: String,
    #[serde(default)]
    pub registration_endpoint: Option<String>,
    #[serde(default)]
    pub scopes_supported: Vec<String>,
    #[serde(default)]
    pub token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    code_challenge_methods_supported: Vec<String>,
    #[serde(default)]
    pub client_id_metadata_document_supported: bool,
    /// It names itself in every authorization answer (RFC 9207).
    #[serde(default)]
    pub authorization_response_iss_parameter_supported: bool,
}

/// Asks an authorization server for its addresses.
pub async fn issuer(web: &Web, name: &str, published: Published) -> Result<Issuer, OAuthError> {
    let url = web.parse(name)?;
    for place in issuer_places(&url) {
        let Some(found) = web.metadata::<Issuer>(&place).await? else { continue };
        // A slash at the end is the one difference that is forgiven: many deployments have it on one side only.
        if found.issuer.trim_end_matches('/') != name.trim_end_matches('/') {
            let other = shown(&found.issuer);
            return Err(OAuthError::Unusable(format!("{place} describes another authorization server, {other}")));
        }
        if !found.code_challenge_methods_supported.iter().any(|method| method == "S256") {
            return Err(OAuthError::Unusable(format!("{url} does not protect its codes (PKCE with S256)")));
        }
        return Ok(found);
    }
    match published {
        Published::Yes => {
            Err(OAuthError::Unusable(format!("{url} does not describe itself as an authorization server")))
        }
        // 2025-03-26: without metadata the addresses are fixed.
        Published::No => Ok(Issuer {
            issuer: name.to_owned(),
            authorization_endpoint: format!("{name}/authorize"),
            token_endpoint: format!("{name}/token"),
            registration_endpoint: Some(format!("{name}/register")),
            scopes_supported: Vec::new(),
            token_endpoint_auth_methods_supported: None,
            code_challenge_methods_supported: Vec::new(),
            client_id_metadata_document_supported: false,
            authorization_response_iss_parameter_supported: false,
        }),
    }
}

/// `/.well-known/NAME` with the path of the address behind it, then without.
fn well_known(url: &Url, name: &str) -> Vec<Url> {
    let root = at(url, &format!("/.well-known/{name}"));
    match url.path().trim_end_matches('/') {
        "" => vec![root],
        path => vec![at(url, &format!("/.well-known/{name}{path}")), root],
    }
}

/// With a path, the root is not asked: another tenant may live there.
fn issuer_places(url: &Url) -> Vec<Url> {
    match url.path().trim_end_matches('/') {
        "" => vec![at(url, "/.well-known/oauth-authorization-server"), at(url, "/.well-known/openid-configuration")],
        path => vec![
            at(url, &format!("/.well-known/oauth-authorization-server{path}")),
            at(url, &format!("/.well-known/openid-configuration{path}")),
            at(url, &format!("{path}/.well-known/openid-configuration")),
        ],
    }
}

fn at(url: &Url, path: &str) -> Url {
    let mut place = url.clone();
    place.set_path(path);
    place.set_query(None);
    place.set_fragment(None);
    // Neither fails on an address with a host, which `Web` has seen to.
    let _ = place.set_username("");
    let _ = place.set_password(None);
    place
}

/// Whether a published name is the server's own, or one above it on the same host.
fn covers(published: &str, server: &Url) -> bool {
    let Ok(published) = Url::parse(published) else { return false };
    let above = published.path().trim_end_matches('/');
    let below = server.path().strip_prefix(above);
    published.origin() == server.origin()
        && published.fragment().is_none()
        && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The server's address as a name: without user, query and fragment.
fn canonical(server: &Url) -> String {
    at(server, server.path()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_looked_for_where_the_standards_say() {
        check(well_known, "https://a/mcp", &["/.well-known/x/mcp", "/.well-known/x"]);
        check(well_known, "https://a", &["/.well-known/x"]);
        check(well_known, "https://a/?q#f", &["/.well-known/x"]);
        let places = |url: &Url, _: &str| issuer_places(url);
        check(places, "https://a/", &["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"]);
        check(
            places,
            "https://a/t/1/",
            &[
                "/.well-known/oauth-authorization-server/t/1",
                "/.well-known/openid-configuration/t/1",
                "/t/1/.well-known/openid-configuration",
            ],
        );

        #[track_caller]
        fn check(places: fn(&Url, &str) -> Vec<Url>, url: &str, expected: &[&str]) {
            let found = places(&Url::parse(url).unwrap(), "x");
            let expected: Vec<String> = expected.iter().map(|path| format!("https://a{path}")).collect();
            assert_eq!(found.iter().map(Url::as_str).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn a_server_may_only_publish_itself() {
        check("https://a/mcp", true);
        check("https://a/mcp/", true);
        check("https://a", true);
        check("https://a/", true);
        check("https://A/mcp", true);
        check("https://a/m", false);
        check("https://a/mcp/deeper", false);
        check("https://a/mcp#f", false);
        check("https://a:8443/mcp", false);
        check("http://a/mcp", false);
        check("https://evil.example.com/mcp", false);
        check("nonsense", false);

        #[track_caller]
        fn check(published: &str, expected: bool) {
            assert_eq!(covers(published, &Url::parse("https://a/mcp").unwrap()), expected, "{published}");
        }
    }
}
