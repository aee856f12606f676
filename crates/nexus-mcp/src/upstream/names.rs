//! What the tools, prompts and resources of other servers are called here, and the way back.
//!
//! A tool `list-repos` of the server `GitHub API` is `mcp_github_api_list_repos`: lower case, `[a-z0-9_]`, at most 64
//! characters, which every known client takes. Where two would get the same name, or one is too long, a part of a
//! hash tells them apart; the same server with the same tools always gives the same names.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use sha2::{Digest, Sha256};

use nexus_core::name::{ServerName, ToolName};

/// Characters of a name. Anthropic's and OpenAI's interfaces take no more.
const LONGEST: usize = 64;

/// Hex digits of the hash, each longer one for when the one before it is taken too.
const HASH_DIGITS: [usize; 3] = [6, 12, 32];

/// How the names of one server are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    server: ServerName,
    /// Before the name of a tool or prompt: `mcp_github_api_`.
    tools: String,
    /// Before a URI: `mcp-github-api+`.
    uris: String,
    /// What other servers have before their names, where it begins with ours: `mcp_a_b_` beside `mcp_a_`. A name that
    /// begins so is theirs, whether they have a tool of that name or not.
    theirs: Vec<String>,
}

impl Naming {
    /// `prefix` replaces `mcp_{server}_`; an empty one leaves everything as the server calls it.
    pub fn new(server: &ServerName, prefix: Option<&str>) -> Self {
        match prefix {
            Some(prefix) => Self::with_prefix(server, prefix),
            None => Self::with_slug(server, &slug_of(server)),
        }
    }

    /// For a server whose name reads like another's: `GitHub API` beside `github-api`.
    pub fn distinct(server: &ServerName) -> Self {
        Self::with_slug(server, &format!("{}_{}", slug_of(server), hash(server, "", HASH_DIGITS[0])))
    }

    fn with_slug(server: &ServerName, slug: &str) -> Self {
        let (tools, uris) = (format!("mcp_{slug}_"), format!("mcp-{}+", slug.replace('_', "-")));
        Self { server: server.clone(), tools, uris, theirs: Vec::new() }
    }

    fn with_prefix(server: &ServerName, prefix: &str) -> Self {
        let slug = sanitised(prefix);
        let tools = match (slug.as_str(), prefix.ends_with(|c: char| !c.is_ascii_alphanumeric())) {
            ("", _) => String::new(),
            (slug, true) => format!("{slug}_"),
            (slug, false) => slug.to_owned(),
        };
        // A scheme starts with a letter.
        let first = if slug.starts_with(|c: char| c.is_ascii_digit()) { "x" } else { "" };
        let uris = if slug.is_empty() { String::new() } else { format!("{first}{}+", slug.replace('_', "-")) };
        Self { server: server.clone(), tools, uris, theirs: Vec::new() }
    }

    /// The same beside these others.
    #[must_use]
    pub fn beside<'a>(mut self, others: impl IntoIterator<Item = &'a Naming>) -> Self {
        let tools = others.into_iter().map(|other| &other.tools);
        self.theirs =
            tools.filter(|theirs| **theirs != self.tools && theirs.starts_with(&self.tools)).cloned().collect();
        self.theirs.sort_unstable();
        self
    }

    pub fn server(&self) -> &ServerName {
        &self.server
    }

    /// A resource's URI, or the template of one, as clients see it.
    pub fn expose_uri(&self, uri: &str) -> String {
        format!("{}{uri}", self.uris)
    }

    /// The server's own URI. None: it is not one of this server's.
    pub fn original_uri<'a>(&self, exposed: &'a str) -> Option<&'a str> {
        exposed.strip_prefix(&self.uris)
    }

    /// The name before anybody else's is looked at.
    fn plain(&self, original: &str) -> String {
        let name = format!("{}{}", self.tools, sanitised(original));
        let is_theirs = self.theirs.iter().any(|theirs| name.starts_with(theirs));
        if is_theirs || name.len() > LONGEST || sanitised(original).is_empty() {
            return self.hashed(original, HASH_DIGITS[0]);
        }
        name
    }

    fn hashed(&self, original: &str, digits: usize) -> String {
        let mut name = format!("{}{}", self.tools, sanitised(original));
        name.truncate(LONGEST - digits - 1);
        let kept = name.trim_end_matches('_');
        let hash = hash(&self.server, original, digits);
        // With an empty prefix there may be nothing to put it behind.
        if kept.is_empty() { format!("x_{hash}") } else { format!("{kept}_{hash}") }
    }
}

/// How the tools of all these servers are named, each given with the `prefix` of its entry. Depends on nothing else: not
/// on when a server came, nor on whether it is there. Of servers whose names read alike, who is called exactly that has
/// the plain names, else the first in the alphabet.
pub fn namings<'a>(servers: &[(&'a ServerName, Option<&str>)]) -> BTreeMap<&'a ServerName, Naming> {
    let rank = |server: &ServerName, slug: &str| (server.as_str() != slug, server.clone());
    let mut first: HashMap<String, &ServerName> = HashMap::new();
    for (server, _) in servers.iter().filter(|(_, prefix)| prefix.is_none()) {
        let slug = slug_of(server);
        let there = first.entry(slug.clone()).or_insert(server);
        if rank(server, &slug) < rank(there, &slug) {
            *there = server;
        }
    }
    let alone = |(server, prefix): &(&'a ServerName, Option<&str>)| match prefix {
        None if first.get(&slug_of(server)) != Some(server) => (*server, Naming::distinct(server)),
        prefix => (*server, Naming::new(server, *prefix)),
    };
    let all: BTreeMap<&ServerName, Naming> = servers.iter().map(alone).collect();
    all.iter().map(|(server, naming)| (*server, naming.clone().beside(all.values()))).collect()
}

/// Which of two spellings of a server's name come to the same: `GitHub API` and `github-api`.
pub fn slug_of(server: &ServerName) -> String {
    let slug = sanitised(server.as_str());
    if slug.is_empty() { hash(server, "", HASH_DIGITS[0]) } else { slug }
}

/// Lower case, every run of anything but letters and digits one `_`, none at the ends.
fn sanitised(part: &str) -> String {
    let mut name = String::with_capacity(part.len().min(2 * LONGEST));
    // What is cut off anyway need not be looked at; the hash is of the whole.
    for c in part.chars().take(16 * LONGEST) {
        match c.to_ascii_lowercase() {
            c if c.is_ascii_alphanumeric() => name.push(c),
            _ if name.is_empty() || name.ends_with('_') => {}
            _ => name.push('_'),
        }
    }
    name.truncate(name.trim_end_matches('_').len());
    name
}

fn hash(server: &ServerName, original: &str, digits: usize) -> String {
    let mut digest = Sha256::new();
    digest.update(server.as_str());
    digest.update([0]);
    digest.update(original);
    let mut hex = digest.finalize().iter().fold(String::with_capacity(64), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    hex.truncate(digits);
    hex
}

/// The names of one server's tools, or prompts, both ways.
#[derive(Clone, Debug, Default)]
pub struct Names {
    originals: HashMap<ToolName, Arc<str>>,
    exposed: HashMap<Arc<str>, ToolName>,
}

impl Names {
    /// Names them all. The order in which they are given does not matter; a name given twice counts once.
    pub fn of<'a>(naming: &Naming, originals: impl IntoIterator<Item = &'a str>, claims: &Claims) -> Self {
        let mut names = Self::default();
        let mut wanted: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        let mut seen = HashSet::new();
        for original in originals.into_iter().filter(|original| seen.insert(*original)) {
            wanted.entry(naming.plain(original)).or_default().push(original);
        }
        let mut late = Vec::new();
        for (name, mut who) in wanted {
            // Who is called exactly that keeps it, else the first in the alphabet.
            who.sort_unstable_by_key(|original| (sanitised(original) != *original, *original));
            let mut who = who.into_iter();
            if let Some(first) = who.next()
                && !names.take(naming, first, &name, claims)
            {
                late.push(first);
            }
            late.extend(who);
        }
        late.sort_unstable();
        for original in late {
            HASH_DIGITS.iter().any(|digits| names.take(naming, original, &naming.hashed(original, *digits), claims));
        }
        names
    }

    fn take(&mut self, naming: &Naming, original: &str, name: &str, claims: &Claims) -> bool {
        let Ok(name) = ToolName::parse(name) else { return false };
        if self.originals.contains_key(&name) || !claims.take(&name, &naming.server) {
            return false;
        }
        let original: Arc<str> = original.into();
        self.originals.insert(name.clone(), original.clone());
        self.exposed.insert(original, name);
        true
    }

    /// What the server itself calls it.
    pub fn original(&self, exposed: &ToolName) -> Option<&str> {
        self.originals.get(exposed).map(|original| &**original)
    }

    /// What it is called here.
    pub fn exposed(&self, original: &str) -> Option<&ToolName> {
        self.exposed.get(original)
    }

    pub fn len(&self) -> usize {
        self.originals.len()
    }

    pub fn is_empty(&self) -> bool {
        self.originals.is_empty()
    }
}

/// Who has which name, over all servers: `a` + `b_c` and `a_b` + `c` would be called the same. The first one keeps it.
/// Cloning is cheap; all clones mean the same.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    taken: Arc<Mutex<HashMap<ToolName, ServerName>>>,
    reserved: Arc<RwLock<HashSet<ToolName>>>,
}

impl Claims {
    /// Names that no server may have: those of our own tools.
    pub fn reserving(names: impl IntoIterator<Item = ToolName>) -> Self {
        let claims = Self::default();
        claims.reserve(names);
        claims
    }

    /// The same from now on. Who has such a name already keeps it until its tools are named again.
    pub fn reserve(&self, names: impl IntoIterator<Item = ToolName>) {
        self.reserved.write().extend(names);
    }

    fn take(&self, name: &ToolName, server: &ServerName) -> bool {
        if self.reserved.read().contains(name) {
            return false;
        }
        *self.taken.lock().entry(name.clone()).or_insert_with(|| server.clone()) == *server
    }

    /// The server is gone; others may have its names.
    pub fn release(&self, server: &ServerName) {
        self.taken.lock().retain(|_, owner| owner != server);
    }
}

#[cfg(test)]
mod tests;
