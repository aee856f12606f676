//! What a human is told of a server before they let it be used: where it comes from, what it is, what it has.

use nexus_core::name::ServerName;
use nexus_core::principal::PrincipalId;
use nexus_core::text;

use super::registry::Registry;
use super::supervisor::{Status, Upstream};

/// Names of tools that are told; a hostile server could have a thousand.
const MOST_TOOLS: usize = 20;

/// Characters of a tool's name, and of everything else that is not ours.
const LONGEST_NAME: usize = 64;
const LONGEST_PART: usize = 200;

pub(crate) fn of(upstream: &Upstream) -> String {
    let offer = upstream.offer();
    let tools: Vec<&str> = offer.allowed().map(|tool| tool.original.as_str()).collect();
    told(&upstream.status(), &tools)
}

/// The same of one that is configured, connected or not, as anybody may see it: not what is known from a connection
/// that some key has for itself. None: there is no such server.
pub(crate) fn known(registry: &Registry, server: &ServerName) -> Option<String> {
    let anybody = PrincipalId::new("");
    if let Some(upstream) = registry.get(server, &anybody) {
        return Some(of(&upstream));
    }
    let statuses = registry.statuses(Some(&anybody));
    statuses.iter().find(|status| status.name == server.as_str()).map(|status| told(status, &[]))
}

fn told(status: &Status, tools: &[&str]) -> String {
    let mut told = format!("from {}, {}", plain(&status.source, LONGEST_PART), plain(&status.endpoint, LONGEST_PART));
    if let Some(server) = &status.server {
        let (name, version) = (plain(&server.name, LONGEST_NAME), plain(&server.version, LONGEST_NAME));
        told.push_str(&format!(", calls itself {name} {version}"));
    }
    let names: Vec<String> = tools.iter().take(MOST_TOOLS).map(|name| plain(name, LONGEST_NAME)).collect();
    let more = tools.len().saturating_sub(MOST_TOOLS);
    told.push_str(&match (names.is_empty(), more) {
        (true, _) => "; its tools are not known yet".to_owned(),
        (false, 0) => format!("; its {} tools: {}", tools.len(), names.join(", ")),
        (false, more) => format!("; its {} tools: {} and {more} more", tools.len(), names.join(", ")),
    });
    if !status.held.is_empty() {
        told.push_str(&format!("; {} tools are held back", status.held.len()));
    }
    told
}

/// On one line, without what deceives, and without the marks that our own words are told by.
fn plain(text: &str, most: usize) -> String {
    let clean = text::clean(text);
    let line: String = clean.split_whitespace().collect::<Vec<_>>().join(" ");
    let line: String = line.chars().map(|c| if matches!(c, '«' | '»') { '\'' } else { c }).collect();
    text::cut(&line, most).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::supervisor::Introduction;

    fn status() -> Status {
        Status {
            name: "git\nhub".into(),
            state: "ready",
            why: None,
            since: nexus_core::clock::now(),
            next_try: None,
            endpoint: "npx -y server".into(),
            source: "/home/me/.nexus/mcp.json:3".into(),
            visibility: "shared".into(),
            pid: None,
            era: None,
            protocol: None,
            server: Some(Introduction { name: "x»\u{202e}\nAllow?".into(), title: None, version: "1".into() }),
            tools: 2,
            held: vec!["t".into()],
            set_aside: Vec::new(),
            prompts: 0,
            resources: 0,
            sessions: 0,
            restarts: 0,
            last_error: None,
        }
    }

    #[test]
    fn a_human_reads_where_a_server_comes_from_and_cannot_be_deceived_by_it() {
        let told = told(&status(), &["list\nrepos", "drop\u{1b}[2J"]);
        assert_eq!(
            told,
            "from /home/me/.nexus/mcp.json:3, npx -y server, calls itself x' Allow? 1; its 2 tools: list repos, drop; \
             1 tools are held back"
        );
    }

    #[test]
    fn an_introduction_is_short_whatever_the_server_has() {
        let name = "n".repeat(5_000);
        let tools: Vec<&str> = std::iter::repeat_n(name.as_str(), 1_000).collect();
        let told = told(&status(), &tools);
        assert!(told.len() < 3_000 && told.contains("and 980 more"), "{told}");
    }
}
