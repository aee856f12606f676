//! Addresses: listeners, hosts, origins, networks and URLs.

use std::fmt::{self, Display};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Serialize, Serializer};

use super::text;
use crate::config::faults::{Problem, shown};
use crate::config::section::Value;

impl Value for IpAddr {
    fn kind() -> String {
        "an IP address".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Problem> {
        match text {
            "localhost" => Ok(Ipv4Addr::LOCALHOST.into()),
            _ => text.parse().map_err(|_| Problem::not(text, "an IP address").hint("127.0.0.1, or 0.0.0.0 for all")),
        }
    }
}

/// A host as a `Host` header names it, in lower case; without a port it stands for all of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// A name, or an address without brackets.
    pub host: String,
    pub port: Option<u16>,
}

impl Value for HostPort {
    fn kind() -> String {
        "a host, with or without a port".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Problem> {
        host_port(text).ok_or_else(|| {
            let hint =
                text.split_once("://").map_or("nexus.lan or nexus.lan:8765", |_| "only the host, without scheme");
            Problem::not(text, Self::kind()).hint(hint)
        })
    }
}

impl Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]", self.host)?,
            false => f.write_str(&self.host)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl Serialize for HostPort {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An origin as browsers send it: lower case, without the scheme's own port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Origin(String);

impl AsRef<str> for Origin {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Value for Origin {
    fn kind() -> String {
        "an origin (`scheme://host[:port]`)".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Problem> {
        let wrong = || Problem::not(text, Self::kind()).hint("https://nexus.example.org");
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let scheme = scheme.to_ascii_lowercase();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.chars().all(plain) {
            return Err(wrong());
        }
        if let Some(bare) = rest.strip_suffix('/').filter(|bare| !bare.contains('/')) {
            return Err(wrong().note("no `/` at the end").hint(format!("{scheme}://{bare}")));
        }
        let mut host = host_port(rest).ok_or_else(wrong)?;
        if matches!((scheme.as_str(), host.port), ("http", Some(80)) | ("https", Some(443))) {
            host.port = None;
        }
        Ok(Self(format!("{scheme}://{host}")))
    }
}

text! {
    /// A network, or one address.
    IpNet, "an IP address or a network like `10.0.0.0/8`",
    |text| {
        let (address, prefix) = text.split_once('/').unwrap_or((text, "0"));
        let widest = |address: IpAddr| if address.is_ipv4() { 32 } else { 128 };
        address.parse().is_ok_and(|address| prefix.parse::<u8>().is_ok_and(|prefix| prefix <= widest(address)))
    }
}

/// An address that upstream servers may have although it is private.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Reachable {
    Net(IpNet),
    Host(HostPort),
}

impl Value for Reachable {
    fn kind() -> String {
        "a host, an IP address or a network like `10.0.0.0/8`".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Problem> {
        let net = IpNet::parse(text).map(Self::Net);
        net.or_else(|_| host_port(text).map(Self::Host).ok_or_else(|| Problem::not(text, Self::kind())))
    }
}

/// An `http` or `https` URL without credentials, without a `/` at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HttpUrl(String);

impl HttpUrl {
    /// Host and port, as far as the URL says.
    pub fn host(&self) -> Option<HostPort> {
        let rest = self.0.split_once("://").map_or("", |(_, rest)| rest);
        host_port(rest.split('/').next().unwrap_or(rest))
    }
}

impl AsRef<str> for HttpUrl {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Value for HttpUrl {
    fn kind() -> String {
        "a URL".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Problem> {
        let wrong = || Problem::not(text, "a URL");
        let Some((scheme, rest)) = text.split_once("://") else {
            let host = text.split('/').next().and_then(host_port);
            return Err(host.map_or(wrong(), |_| wrong().hint(format!("http://{text}"))));
        };
        let scheme = scheme.to_ascii_lowercase();
        if !matches!(scheme.as_str(), "http" | "https") {
            return Err(wrong().note("`http` or `https`"));
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if authority.contains('@') {
            let problem = Problem::new(format!("`{}` holds credentials", shown(text)));
            return Err(problem.hint("leave them out: secrets have variables of their own"));
        }
        let host = host_port(authority).ok_or_else(wrong)?;
        let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '<' | '>' | '\\' | '`' | '#' | '?');
        if !path.chars().all(plain) {
            return Err(wrong().hint("scheme, host, port and path; no query, no spaces"));
        }
        Ok(Self(format!("{scheme}://{host}{}", path.trim_end_matches('/'))))
    }
}

text! {
    /// Where a Docker engine listens.
    DockerHost, "a Docker host (`ssh://user@host`, `tcp://host:port` or `unix:///path`)",
    |text| match text.split_once("://") {
        Some(("ssh", rest)) => {
            let (user, host) = rest.split_once('@').unwrap_or(("root", rest));
            is_word(user) && host_port(host).is_some()
        }
        Some(("tcp", rest)) => host_port(rest).is_some(),
        Some(("unix", path)) => path.starts_with('/') && !path.contains(char::is_control),
        _ => false,
    }
}

/// Who to log in as, and where. The user may be left to the ssh configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshTarget {
    pub user: Option<String>,
    pub host: String,
}

impl Value for SshTarget {
    fn kind() -> String {
        "an ssh target (`user@host`)".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Problem> {
        let wrong = || Problem::not(text, Self::kind()).hint("admin@192.168.1.12");
        let (user, host) = text.split_once('@').map_or((None, text), |(user, host)| (Some(user), host));
        if user.is_some_and(|user| !is_word(user)) {
            return Err(wrong());
        }
        match host_port(host).ok_or_else(wrong)? {
            HostPort { port: Some(_), .. } => Err(wrong().note("the port has its own key").hint("port: 22")),
            HostPort { host, port: None } => Ok(Self { user: user.map(str::to_owned), host }),
        }
    }
}

impl Display for SshTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.user.as_ref().map_or(Ok(()), |user| write!(f, "{user}@"))?;
        f.write_str(&self.host)
    }
}

impl Serialize for SshTarget {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A user name that ssh cannot take for an option.
fn is_word(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

pub(super) fn host_port(text: &str) -> Option<HostPort> {
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Some(HostPort { host: address.to_string(), port: None });
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let host = address.parse::<Ipv6Addr>().ok()?.to_string();
        return Some(HostPort { host, port: port_after(port)? });
    }
    let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && label.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_'))
    };
    let fits = host.len() <= 253 && host.split('.').all(label);
    fits.then(|| Some(HostPort { host: host.to_ascii_lowercase(), port: port_after(port)? }))?
}

/// `:8080` or nothing.
fn port_after(text: &str) -> Option<Option<u16>> {
    match text.strip_prefix(':') {
        None => text.is_empty().then_some(None),
        Some(port) => port.parse().ok().filter(|port| *port > 0).map(Some),
    }
}
