//! What a server says with its 401 or 403: the `WWW-Authenticate` header (RFC 9110, RFC 6750, RFC 9728).

/// Bytes of a header that are looked at.
const LONGEST: usize = 8 * 1024;

/// The parts of a challenge that matter here. All of it is the server's word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Challenge {
    /// Where the server describes itself.
    pub resource_metadata: Option<String>,
    /// What the request would have needed.
    pub scopes: Vec<String>,
    pub error: Option<String>,
}

impl Challenge {
    /// The one with the scheme `Bearer`; nothing where there is none.
    pub fn parse(header: &str) -> Self {
        let mut challenge = Self::default();
        let mut bearer = false;
        let mut rest = Rest(&header[..header.floor_char_boundary(LONGEST)]);
        while let Some(part) = rest.next() {
            match part {
                Part::Scheme(scheme) => bearer = scheme.eq_ignore_ascii_case("bearer"),
                Part::Parameter(name, value) if bearer => match name.to_ascii_lowercase().as_str() {
                    "resource_metadata" => challenge.resource_metadata = Some(value),
                    "scope" => challenge.scopes = scopes(&value),
                    "error" => challenge.error = Some(value),
                    _ => {}
                },
                Part::Parameter(..) => {}
            }
        }
        challenge
    }

    /// The token is good, and not for this.
    pub fn wants_more(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }
}

/// At most this many scopes are asked for, each of at most so many bytes.
const MOST_SCOPES: usize = 100;
const LONGEST_SCOPE: usize = 200;

/// The scopes of a list with spaces between them. What cannot be one (RFC 6749, 3.3) is left out.
pub fn scopes(list: &str) -> Vec<String> {
    named(list.split(' '))
}

/// The same for a list that is one already.
pub fn named<'a>(list: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for scope in list {
        let plain = scope.bytes().all(|b| matches!(b, 0x21 | 0x23..=0x5b | 0x5d..=0x7e));
        if !scope.is_empty() && scope.len() <= LONGEST_SCOPE && plain && !kept.iter().any(|known| known == scope) {
            kept.push(scope.to_owned());
        }
        if kept.len() == MOST_SCOPES {
            break;
        }
    }
    kept
}

enum Part<'a> {
    Scheme(&'a str),
    Parameter(&'a str, String),
}

/// What is still to be read of a header.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn next(&mut self) -> Option<Part<'a>> {
        self.0 = self.0.trim_start_matches([',', ' ', '\t']);
        let end = self.0.find(|c: char| !is_token(c)).unwrap_or(self.0.len());
        if end == 0 {
            return None;
        }
        let (word, after) = self.0.split_at(end);
        self.0 = after;
        // A word is the name of a parameter when `=` follows, and a scheme otherwise.
        match after.trim_start_matches([' ', '\t']).strip_prefix('=') {
            None => Some(Part::Scheme(word)),
            Some(value) => {
                self.0 = value.trim_start_matches([' ', '\t']);
                Some(Part::Parameter(word, self.value()))
            }
        }
    }

    fn value(&mut self) -> String {
        let Some(quoted) = self.0.strip_prefix('"') else {
            let end = self.0.find([',', ' ', '\t']).unwrap_or(self.0.len());
            let (value, after) = self.0.split_at(end);
            self.0 = after;
            return value.to_owned();
        };
        let mut value = String::new();
        let mut escaped = false;
        for (at, c) in quoted.char_indices() {
            match c {
                _ if escaped => {
                    value.push(c);
                    escaped = false;
                }
                '\\' => escaped = true,
                '"' => {
                    self.0 = &quoted[at + 1..];
                    return value;
                }
                _ => value.push(c),
            }
        }
        self.0 = "";
        value
    }
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bearer_challenge_is_found_among_others() {
        check(r#"Bearer resource_metadata="https://a/b", scope="x y""#, Some("https://a/b"), &["x", "y"], None);
        check(
            r#"Basic realm="a, Bearer scope=\"no\"", bearer error=insufficient_scope,scope="w""#,
            None,
            &["w"],
            Some("insufficient_scope"),
        );
        check(r#"DPoP scope="no", resource_metadata="no""#, None, &[], None);
        check(r#"Bearer scope = "x x  y\"z", error="invalid_token""#, None, &["x"], Some("invalid_token"));
        check("Bearer", None, &[], None);
        check("", None, &[], None);

        #[track_caller]
        fn check(header: &str, metadata: Option<&str>, scopes: &[&str], error: Option<&str>) {
            let found = Challenge::parse(header);
            assert_eq!(found.resource_metadata.as_deref(), metadata, "{header}");
            assert_eq!(found.scopes, scopes, "{header}");
            assert_eq!(found.error.as_deref(), error, "{header}");
        }
    }

    #[test]
    fn a_list_of_scopes_is_bounded() {
        let many: String = (0..1000).map(|n| format!("s{n} ")).collect();
        assert_eq!(scopes(&many).len(), MOST_SCOPES);
        assert!(scopes(&"x".repeat(LONGEST_SCOPE + 1)).is_empty());
    }

    proptest! {
        #[test]
        fn whatever_stands_there_is_read_to_an_end(header in ".*") {
            Challenge::parse(&header);
        }
    }
}
