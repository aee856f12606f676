//! What is known of one server: its entry, and its connections.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use nexus_core::clock;
use nexus_core::name::ServerName;
use nexus_core::principal::PrincipalId;

use super::{Agreement, Entry, Visibility};
use crate::upstream::config::Source;
use crate::upstream::error::ConfigurationError;
use crate::upstream::log::ServerLog;
use crate::upstream::names::{Naming, namings};
use crate::upstream::supervisor::{State, Status, Upstream, endpoint_of, source_of};

impl Entry {
    /// Whether it can be connected at all.
    pub(super) fn startable(&self) -> Result<(), ConfigurationError> {
        let name = self.config.name.to_string();
        match (&self.config.endpoint, &self.agreement) {
            _ if !self.config.enabled => Err(ConfigurationError::Disabled(name)),
            (None, _) => Err(ConfigurationError::Nowhere(name)),
            (Some(_), Agreement::Missing) => Err(ConfigurationError::Unagreed { name, file: source_of(&self.config) }),
            (Some(_), Agreement::Given) => Ok(()),
        }
    }
}

#[derive(Debug)]
pub struct Slot {
    pub entry: Entry,
    /// Outlive its connections: what it said before it died is what one wants to read. What it said to one key alone is
    /// not for others.
    logs: BTreeMap<Visibility, Arc<ServerLog>>,
    shared: Option<Upstream>,
    private: BTreeMap<PrincipalId, Upstream>,
    /// Without a connection since then.
    since: Timestamp,
}

impl Slot {
    pub fn new(entry: Entry) -> Self {
        Self { entry, logs: BTreeMap::new(), shared: None, private: BTreeMap::new(), since: clock::now() }
    }

    /// From a file, whose next reading decides about it.
    pub fn is_configured(&self) -> bool {
        self.entry.config.source != Source::Program
    }

    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    pub fn all(&self) -> impl Iterator<Item = &Upstream> {
        self.shared.iter().chain(self.private.values())
    }

    pub fn seen_by(&self, agent: &PrincipalId) -> Option<&Upstream> {
        self.private.get(agent).or(self.shared.as_ref())
    }

    /// The connection of exactly this visibility.
    pub fn there(&self, visibility: &Visibility) -> Option<&Upstream> {
        match visibility {
            Visibility::Shared => self.shared.as_ref(),
            Visibility::Private(owner) => self.private.get(owner),
        }
    }

    /// What a connection of this visibility writes to.
    pub fn log_of(&mut self, visibility: &Visibility) -> Arc<ServerLog> {
        self.logs.entry(visibility.clone()).or_default().clone()
    }

    /// The log of the connection that this key sees, or of the last one.
    pub fn log_for(&mut self, agent: &PrincipalId) -> Arc<ServerLog> {
        let own = Visibility::Private(agent.clone());
        let is_own = self.private.contains_key(agent) || (self.shared.is_none() && self.logs.contains_key(&own));
        self.log_of(if is_own { &own } else { &Visibility::Shared })
    }

    pub fn all_logs(&self) -> impl Iterator<Item = &Arc<ServerLog>> {
        self.logs.values()
    }

    pub fn put(&mut self, upstream: Upstream) {
        match upstream.visibility().clone() {
            Visibility::Shared => self.shared = Some(upstream),
            Visibility::Private(owner) => drop(self.private.insert(owner, upstream)),
        }
    }

    pub fn take_for(&mut self, agent: &PrincipalId) -> Option<Upstream> {
        self.since = clock::now();
        self.private.remove(agent).or_else(|| self.shared.take())
    }

    pub fn take_all(&mut self) -> Vec<Upstream> {
        self.since = clock::now();
        self.shared.take().into_iter().chain(std::mem::take(&mut self.private).into_values()).collect()
    }

    /// What is to be connected when its entry has changed: what was, and for everybody if nothing was.
    pub fn wants_again(&self, name: &ServerName) -> Vec<(ServerName, Visibility)> {
        let private = self.private.keys().map(|owner| (name.clone(), Visibility::Private(owner.clone())));
        let mut wanted: Vec<_> = private.collect();
        if wanted.is_empty() {
            wanted.push((name.clone(), Visibility::Shared));
        }
        wanted
    }

    pub fn statuses(&self, agent: Option<&PrincipalId>) -> Vec<Status> {
        let sees = |upstream: &&Upstream| agent.is_none_or(|agent| upstream.visibility().is_seen_by(agent));
        let statuses: Vec<Status> = self.all().filter(sees).map(Upstream::status).collect();
        if statuses.is_empty() { vec![self.unconnected()] } else { statuses }
    }

    fn unconnected(&self) -> Status {
        let state = match self.entry.startable() {
            // This is told to those who do not see these connections.
            Ok(()) if !self.private.is_empty() => {
                State::Stopped { why: "it is connected privately by another key".into() }
            }
            Ok(()) => State::Stopped { why: "it is not connected".into() },
            Err(error @ ConfigurationError::Unagreed { .. }) => State::Denied { why: error.to_string() },
            Err(error) => State::Stopped { why: error.to_string() },
        };
        Status {
            name: self.entry.config.name.to_string(),
            state: state.as_str(),
            why: state.why().map(str::to_owned),
            since: self.since,
            next_try: None,
            endpoint: endpoint_of(&self.entry.config),
            source: source_of(&self.entry.config),
            visibility: Visibility::Shared.to_string(),
            pid: None,
            era: None,
            protocol: None,
            server: None,
            tools: 0,
            held: Vec::new(),
            set_aside: Vec::new(),
            prompts: 0,
            resources: 0,
            sessions: 0,
            restarts: 0,
            last_error: None,
        }
    }
}

/// How the tools of all servers are named. What waits for a yes has no say in that.
pub fn all_namings(slots: &BTreeMap<ServerName, Slot>) -> BTreeMap<&ServerName, Naming> {
    let agreed = slots.iter().filter(|(_, slot)| slot.entry.agreement == Agreement::Given);
    let servers: Vec<_> = agreed.map(|(name, slot)| (name, slot.entry.config.prefix.as_deref())).collect();
    namings(&servers)
}
