//! One login: the authorization page, its answer, and the tokens for it (OAuth 2.1, code grant with PKCE).

use std::fmt;

use serde::Deserialize;
use url::Url;

use nexus_core::clock;

use super::discovery::Issuer;
use super::encode;
use super::error::OAuthError;
use super::store::{Client, Grant, Proof};
use super::web::{Body, Web};

/// Bytes. Larger tokens do not fit the headers most servers accept.
const LONGEST_TOKEN: usize = 16 * 1024;

/// Seconds. A token is renewed so long before it runs out, or after three quarters of a short life.
const BEFORE_ITS_END: f64 = 30.0;

/// A login that waits for its page.
pub struct Login {
    server: String,
    resource: String,
    issuer: Issuer,
    client: Client,
    scopes: Vec<String>,
    state: String,
    verifier: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("issuer", &self.issuer.issuer)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}

impl Login {
    pub fn new(server: &Url, resource: String, issuer: Issuer, client: Client, scopes: Vec<String>) -> Self {
        let (state, verifier) = (encode::secret(), encode::secret());
        Self { server: server.to_string(), resource, issuer, client, scopes, state, verifier }
    }

    pub fn state(&self) -> &str {
        &self.state
    }

    /// The page for a person to visit.
    pub fn page(&self, web: &Web) -> Result<Url, OAuthError> {
        let mut page = web.parse(&self.issuer.authorization_endpoint)?;
        let mut query = page.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.client.id)
            .append_pair("redirect_uri", &self.client.redirect_uri)
            .append_pair("state", &self.state)
            .append_pair("code_challenge", &encode::s256(&self.verifier))
            .append_pair("code_challenge_method", "S256")
            .append_pair("resource", &self.resource);
        if !self.scopes.is_empty() {
            query.append_pair("scope", &self.scopes.join(" "));
        }
        // Without it, OpenID providers leave the refresh token out although it is among the scopes.
        if self.scopes.iter().any(|scope| scope == OFFLINE) {
            query.append_pair("prompt", "consent");
        }
        drop(query);
        Ok(page)
    }

    /// Takes the address the page sent the browser to, and gets the tokens.
    pub async fn finish(self, web: &Web, came_to: &Url) -> Result<Grant, OAuthError> {
        let code = self.code(came_to)?;
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code.as_str()),
            ("redirect_uri", self.client.redirect_uri.as_str()),
            ("code_verifier", self.verifier.as_str()),
            ("resource", self.resource.as_str()),
        ];
        let endpoint = web.parse(&self.issuer.token_endpoint)?;
        let tokens = tokens(web, &endpoint, &self.client, &fields).await?;
        Ok(Grant {
            server: self.server,
            resource: self.resource,
            issuer: self.issuer.issuer,
            token_endpoint: endpoint.to_string(),
            client: self.client,
            renew_ms: tokens.renew_ms(),
            access_token: tokens.access_token,
            refresh_token: tokens.refresh_token,
            scopes: self.scopes,
        })
    }

    /// The code in the answer, if the answer is to this very question and from the very issuer that was asked (RFC 9207:
    /// compared letter by letter).
    fn code(&self, came_to: &Url) -> Result<String, OAuthError> {
        let field = |name: &str| -> Result<Option<String>, OAuthError> {
            let mut all = came_to.query_pairs().filter(|(key, _)| key == name).map(|(_, value)| value.into_owned());
            match (all.next(), all.next()) {
                (first, None) => Ok(first),
                (_, Some(_)) => Err(OAuthError::Forged("it says something twice")),
            }
        };
        if field("state")?.as_deref() != Some(&self.state) {
            return Err(OAuthError::Forged("the state is another one"));
        }
        match field("iss")? {
            Some(iss) if iss != self.issuer.issuer => return Err(OAuthError::Forged("another issuer sent it")),
            None if self.issuer.authorization_response_iss_parameter_supported => {
                return Err(OAuthError::Forged("the issuer promised to name itself and did not"));
            }
            _ => {}
        }
        if let Some(error) = field("error")? {
            return Err(OAuthError::refused(&error, field("error_description")?.as_deref()));
        }
        field("code")?.filter(|code| !code.is_empty()).ok_or(OAuthError::Forged("there is no code in it"))
    }
}

/// The scope that stands for a refresh token.
pub const OFFLINE: &str = "offline_access";

/// New tokens for an old grant.
pub async fn renew(web: &Web, grant: &Grant) -> Result<Grant, OAuthError> {
    let refresh_token = grant.refresh_token.as_deref().unwrap_or_default();
    let fields =
        [("grant_type", "refresh_token"), ("refresh_token", refresh_token), ("resource", grant.resource.as_str())];
    let tokens = tokens(web, &web.parse(&grant.token_endpoint)?, &grant.client, &fields).await?;
    Ok(Grant {
        renew_ms: tokens.renew_ms(),
        access_token: tokens.access_token,
        // Without a new one the old one stays good (RFC 6749, 6).
        refresh_token: tokens.refresh_token.or_else(|| Some(refresh_token.to_owned())),
        ..grant.clone()
    })
}

#[derive(Deserialize)]
struct Tokens {
    access_token: String,
    token_type: String,
    #[serde(default)]
    expires_in: Option<f64>,
    #[serde(default)]
    refresh_token: Option<String>,
}

impl Tokens {
    /// A little before they run out.
    fn renew_ms(&self) -> Option<i64> {
        // At most a year: what is longer is a mistake, and asking again costs nothing.
        let seconds = self.expires_in?.clamp(0.0, 365.0 * 86_400.0);
        Some(clock::now_ms() + ((seconds - (seconds / 4.0).min(BEFORE_ITS_END)) * 1000.0) as i64)
    }
}

async fn tokens(web: &Web, endpoint: &Url, client: &Client, fields: &[(&str, &str)]) -> Result<Tokens, OAuthError> {
    let mut fields = fields.to_vec();
    let secret = client.secret.as_deref().unwrap_or_default();
    let header = match client.proof {
        Proof::Basic => Some(encode::basic(&client.id, secret)),
        Proof::None => {
            fields.push(("client_id", &client.id));
            None
        }
        Proof::Post => {
            fields.extend([("client_id", client.id.as_str()), ("client_secret", secret)]);
            None
        }
    };
    let tokens: Tokens = web.post(endpoint, Body::Form(encode::form(&fields)), header.as_deref()).await?;
    let fits =
        |token: &str| !token.is_empty() && token.len() <= LONGEST_TOKEN && token.bytes().all(|b| b.is_ascii_graphic());
    if !tokens.token_type.eq_ignore_ascii_case("bearer") {
        return Err(OAuthError::Unusable(format!("{endpoint} gives out tokens of a kind that is not known here")));
    }
    match fits(&tokens.access_token) && tokens.refresh_token.as_deref().is_none_or(fits) {
        true => Ok(tokens),
        false => Err(OAuthError::Unusable(format!("{endpoint} gave a token that fits no header"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn login(promises_iss: bool) -> Login {
        let issuer = serde_json::from_value(json!({
            "issuer": "https://as", "authorization_endpoint": "https://as/authorize?tenant=1", "token_endpoint": "https://as/t",
            "authorization_response_iss_parameter_supported": promises_iss,
        }))
        .unwrap();
        let redirect_uri = "http://127.0.0.1:1/callback".to_owned();
        let client = Client { id: "me".to_owned(), secret: None, proof: Proof::None, redirect_uri };
        let server = Url::parse("https://server/mcp").unwrap();
        let mut login = Login::new(&server, "https://server/mcp".to_owned(), issuer, client, Vec::new());
        login.state = "S".to_owned();
        login
    }

    #[test]
    fn only_the_answer_to_our_own_question_has_a_code() {
        check(false, "code=C&state=S", Ok("C"));
        check(false, "code=C&state=S&iss=https://as", Ok("C"));
        check(true, "code=C&state=S&iss=https://as", Ok("C"));
        check(true, "code=C&state=S", Err("promised"));
        check(true, "code=C&state=S&iss=https://as/", Err("another issuer"));
        check(false, "code=C&state=S&iss=https://evil", Err("another issuer"));
        check(false, "code=C&state=T", Err("state"));
        check(false, "code=C", Err("state"));
        check(false, "code=C&state=S&state=S", Err("twice"));
        check(false, "code=C&code=D&state=S", Err("twice"));
        check(false, "code=&state=S", Err("no code"));
        check(
            false,
            "error=access_denied&error_description=no%1b[1m%0away&state=S",
            Err("says no: access_denied (no way)"),
        );

        #[track_caller]
        fn check(promises_iss: bool, query: &str, expected: Result<&str, &str>) {
            let came_to = Url::parse(&format!("http://127.0.0.1:1/callback?{query}")).unwrap();
            match (login(promises_iss).code(&came_to), expected) {
                (Ok(code), Ok(expected)) => assert_eq!(code, expected, "{query}"),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{query}: {error}"),
                (came, _) => panic!("{query}: {came:?}"),
            }
        }
    }
}
