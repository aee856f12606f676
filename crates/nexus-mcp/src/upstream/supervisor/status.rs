//! A server as it is shown.

use super::state::{Introduction, State, Status};
use super::{Upstream, tool};
use crate::upstream::client::Client;
use crate::upstream::config::{Endpoint, ServerConfig, Source};

impl Upstream {
    pub fn status(&self) -> Status {
        let condition = self.inner.condition.borrow().clone();
        let offer = self.offer();
        let client = self.inner.connected();
        let info = client.as_ref().map(Client::server).or(offer.server.as_ref());
        Status {
            name: self.name().to_string(),
            state: if self.is_about_to_be_offered(&condition.state) {
                State::Connecting
            } else {
                condition.state.clone()
            }
            .as_str(),
            why: condition.state.why().map(str::to_owned),
            since: condition.since,
            next_try: match &condition.state {
                State::Waiting { until, .. } => Some(*until),
                _ => None,
            },
            endpoint: endpoint_of(&self.inner.config),
            source: source_of(&self.inner.config),
            visibility: self.inner.visibility.to_string(),
            pid: client.as_ref().and_then(Client::pid),
            era: info.map(|info| info.era.as_str()),
            protocol: info.map(|info| info.protocol_version),
            server: info.map(|info| Introduction {
                name: info.name.clone(),
                title: info.title.clone(),
                version: info.version.clone(),
            }),
            tools: offer.allowed().count(),
            held: offer.held().map(|tool| tool::shown(&tool.original)).collect(),
            set_aside: offer.set_aside.clone(),
            prompts: offer.prompts.len(),
            resources: offer.resources.len() + offer.templates.len(),
            sessions: self.inner.sessions.len(),
            restarts: condition.restarts,
            last_error: condition.last_error,
        }
    }
}

/// Where an entry leads, in a few words for people and without secrets: arguments and queries may hold some, and
/// variables nearly always do.
pub fn endpoint_of(config: &ServerConfig) -> String {
    let plain = match (&config.endpoint, &config.written) {
        (None, _) => return "(neither a command nor a url)".into(),
        (Some(Endpoint::Stdio(_)), Some(written)) => written.clone(),
        (Some(Endpoint::Http(_)), Some(written)) => without_query(written),
        (Some(Endpoint::Stdio(program)), None) => {
            let words = std::iter::once(&program.command).chain(&program.args).map(String::as_str);
            words.collect::<Vec<_>>().join(" ")
        }
        (Some(Endpoint::Http(http)), None) => without_query(&http.url),
    };
    tool::shown(&nexus_core::redact::text(&plain))
}

/// Without credentials either.
fn without_query(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => url.to_owned(),
    }
}

/// Where an entry stands.
pub fn source_of(config: &ServerConfig) -> String {
    match &config.source {
        Source::Home { file, line } | Source::Project { file, line } => {
            tool::shown(&format!("{}:{line}", file.display()))
        }
        Source::Program => "(not from a file)".into(),
    }
}
