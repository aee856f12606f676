//! All servers that are known, connected or not: for the hub, and for any other program.
//!
//! A server is connected for everybody, or privately for one key, never both: a private connection ends when the
//! server becomes shared. Nothing here needs a hub or its configuration file.

mod call;
mod connectors;
mod faulty;
mod slot;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use uuid::Uuid;

use nexus_core::name::{ServerName, ToolName};
use nexus_core::principal::{Level, PrincipalId};

use self::slot::Slot;
use super::client::ServerInfo;
use super::config::ServerConfig;
use super::error::ConfigurationError;
use super::log::{LogLine, ServerLog};
use super::supervisor::{OfferedTool, Parts, Status, Upstream};

pub use self::call::{CallError, Caller};
pub use self::connectors::{CredentialsFor, Standard};
pub use self::faulty::Faulty;
pub use super::supervisor::Visibility;

/// An entry of the configuration as it stands now.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub config: ServerConfig,
    pub agreement: Agreement,
}

/// Whether the operator has agreed to an entry that somebody else may have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// Or not needed.
    Given,
    Missing,
}

/// Whose a connection is to be, where it does not matter which key it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    Everybodys,
    OneKeys,
}

impl Entry {
    /// One that needs nobody's yes.
    pub fn agreed(config: ServerConfig) -> Self {
        Self { config, agreement: Agreement::Given }
    }
}

/// Holds all servers. Cloning is cheap; all clones mean the same.
#[derive(Clone, Debug)]
pub struct Registry {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    parts: Parts,
    slots: Mutex<BTreeMap<ServerName, Slot>>,
    /// One change at a time: closing a server takes a while, and another of its name must not be there before.
    turn: Semaphore,
    changes: watch::Sender<u64>,
    faulty: Mutex<Vec<(Faulty, Timestamp)>>,
}

/// What follows from another configuration.
#[derive(Debug, Default)]
struct Changes {
    closing: Vec<(ServerName, Vec<Upstream>)>,
    /// Those of which nothing is known any more.
    gone: Vec<ServerName>,
    starting: Vec<(ServerName, Visibility)>,
}

impl Registry {
    pub fn new(parts: Parts) -> Self {
        let (slots, turn) = (Mutex::default(), Semaphore::new(1));
        Self { inner: Arc::new(Inner { parts, slots, turn, changes: watch::Sender::new(0), faulty: Mutex::default() }) }
    }

    /// Connects a server that is not from the configuration, or whose entry is given here. `level` is that of whoever
    /// asks; without permissions nothing is connected. Comes back before the server has answered: [`Upstream::ready`]
    /// waits for that.
    pub async fn connect(
        &self,
        config: ServerConfig,
        visibility: Visibility,
        level: Option<Level>,
    ) -> Result<Upstream, ConfigurationError> {
        permitted(level)?;
        let _turn = self.turn().await;
        let entry = Entry::agreed(config);
        entry.startable()?;
        let name = entry.config.name.clone();
        let changed = {
            let mut slots = self.inner.slots.lock();
            let slot = slots.entry(name.clone()).or_insert_with(|| Slot::new(entry.clone()));
            let changed = if slot.entry.config == entry.config { Vec::new() } else { slot.take_all() };
            slot.entry = entry;
            changed
        };
        self.close(&name, changed).await;
        self.rename();
        self.open(&name, visibility).await
    }

    /// Connects a server of the configuration.
    pub async fn connect_known(
        &self,
        name: &ServerName,
        visibility: Visibility,
        level: Option<Level>,
    ) -> Result<Upstream, ConfigurationError> {
        permitted(level)?;
        let _turn = self.turn().await;
        let known = self.inner.slots.lock().get(name).map(|slot| slot.entry.startable());
        known.unwrap_or_else(|| Err(ConfigurationError::Unknown(name.to_string())))?;
        self.open(name, visibility).await
    }

    /// Whether a server of the configuration can be connected, for one key alone or not, before anybody is asked.
    pub fn connectable(&self, name: &ServerName, whose: Whose) -> Result<(), ConfigurationError> {
        let slots = self.inner.slots.lock();
        let Some(slot) = slots.get(name) else { return Err(self.not_usable(name)) };
        slot.entry.startable()?;
        match whose {
            Whose::OneKeys if slot.is_shared() => Err(ConfigurationError::Shared(name.to_string())),
            Whose::OneKeys | Whose::Everybodys => Ok(()),
        }
    }

    /// Takes over a configuration that was read again: what is unchanged stays connected, what changed is connected
    /// anew, what is gone is closed, and what is new is started, if it may be.
    pub async fn apply(&self, entries: Vec<Entry>) {
        let _turn = self.turn().await;
        let Changes { closing, gone, starting } = self.take_over(entries);
        join_all(closing.into_iter().map(|(name, upstreams)| async move { self.close(&name, upstreams).await })).await;
        self.inner.slots.lock().retain(|name, _| !gone.contains(name));
        self.rename();
        for (name, visibility) in starting {
            let may = self.inner.slots.lock().get(&name).is_some_and(|slot| slot.entry.startable().is_ok());
            if may {
                // Nothing is shared yet, so it cannot be in the way.
                let _ = self.open(&name, visibility).await;
            }
        }
        self.changed();
    }

    /// Puts the entries into their slots, and says what follows from that.
    fn take_over(&self, entries: Vec<Entry>) -> Changes {
        let mut entries: BTreeMap<ServerName, Entry> =
            entries.into_iter().map(|entry| (entry.config.name.clone(), entry)).collect();
        let mut changes = Changes::default();
        let mut slots = self.inner.slots.lock();
        for (name, slot) in slots.iter_mut() {
            match entries.remove(name) {
                Some(entry) if entry == slot.entry => {}
                Some(entry) => {
                    changes.starting.extend(slot.wants_again(name));
                    changes.closing.push((name.clone(), slot.take_all()));
                    slot.entry = entry;
                }
                None if slot.is_configured() => {
                    changes.closing.push((name.clone(), slot.take_all()));
                    changes.gone.push(name.clone());
                }
                None => {}
            }
        }
        for (name, entry) in entries {
            changes.starting.push((name.clone(), Visibility::Shared));
            slots.insert(name, Slot::new(entry));
        }
        changes
    }

    /// Names that no server's tool may have: those of our own. To be said before any server is there.
    pub fn reserve(&self, names: impl IntoIterator<Item = ToolName>) {
        self.inner.parts.names.tools.reserve(names);
    }

    /// The server as this key sees it.
    pub fn get(&self, name: &ServerName, agent: &PrincipalId) -> Option<Upstream> {
        self.inner.slots.lock().get(name)?.seen_by(agent).cloned()
    }

    /// Whose tool that is, by the name that clients use.
    pub fn find_by_tool(&self, tool: &str, agent: &PrincipalId) -> Option<(Upstream, Arc<OfferedTool>)> {
        let name = ToolName::parse(tool).ok()?;
        let slots = self.inner.slots.lock();
        let seen = slots.values().filter_map(|slot| slot.seen_by(agent));
        seen.filter_map(|upstream| Some((upstream.clone(), upstream.offer().tool(&name)?.clone()))).next()
    }

    /// The servers that this key sees.
    pub fn list_for(&self, agent: &PrincipalId) -> Vec<Upstream> {
        self.inner.slots.lock().values().filter_map(|slot| slot.seen_by(agent).cloned()).collect()
    }

    /// All of them, whoever sees them.
    pub fn all(&self) -> Vec<Upstream> {
        self.inner.slots.lock().values().flat_map(Slot::all).cloned().collect()
    }

    /// Moves when a server comes or goes: [`all`](Self::all) is different then.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    /// The entries of all that are known, by name.
    pub fn entries(&self) -> Vec<Entry> {
        self.inner.slots.lock().values().map(|slot| slot.entry.clone()).collect()
    }

    pub fn is_connected(&self, name: &ServerName, agent: &PrincipalId) -> bool {
        self.get(name, agent).is_some_and(|upstream| upstream.state().is_connected())
    }

    /// What a server says of itself.
    pub fn info(&self, name: &ServerName, agent: &PrincipalId) -> Option<ServerInfo> {
        self.get(name, agent)?.offer().server.clone()
    }

    /// What a server wrote to its standard error, and what happened to it, whether it is connected or not: of the
    /// connection that this key sees.
    pub fn log(&self, name: &ServerName, agent: &PrincipalId) -> Option<Arc<ServerLog>> {
        self.inner.slots.lock().get_mut(name).map(|slot| slot.log_for(agent))
    }

    /// The same of all its connections together, for the operator: the last `most` lines, oldest first.
    pub fn log_lines(&self, name: &ServerName, most: usize) -> Option<Vec<LogLine>> {
        let slots = self.inner.slots.lock();
        let mut lines: Vec<LogLine> = slots.get(name)?.all_logs().flat_map(|log| log.last(most)).collect();
        drop(slots);
        lines.sort_by_key(|line| line.at);
        lines.drain(..lines.len().saturating_sub(most));
        Some(lines)
    }

    /// How all are doing. For `agent`: those it sees; None: everything.
    pub fn statuses(&self, agent: Option<&PrincipalId>) -> Vec<Status> {
        self.inner.slots.lock().values().flat_map(|slot| slot.statuses(agent)).collect()
    }

    /// Asks every connected server whether it is there, all at once; one that waits is tried now.
    pub async fn check_connections(&self) -> Vec<Status> {
        let all = self.all();
        join_all(all.iter().map(Upstream::check)).await;
        self.statuses(None)
    }

    /// Closes this key's private connection of the server, or else the one that everybody shares. It stays closed
    /// until somebody connects it or its entry changes.
    pub async fn disconnect(&self, name: &ServerName, agent: &PrincipalId) -> Result<(), ConfigurationError> {
        let _turn = self.turn().await;
        let taken = match self.inner.slots.lock().get_mut(name) {
            None => return Err(ConfigurationError::Unknown(name.to_string())),
            Some(slot) => slot.take_for(agent),
        };
        self.close(name, taken.into_iter().collect()).await;
        self.inner.slots.lock().retain(|_, slot| slot.is_configured() || slot.all().next().is_some());
        self.rename();
        self.changed();
        Ok(())
    }

    /// A session is over: what servers keep for it alone is closed.
    pub fn session_ended(&self, session: Uuid) {
        for upstream in self.all() {
            upstream.session_ended(session);
        }
    }

    /// Closes everything. Comes back when nothing is left of it.
    pub async fn close_all(&self) {
        let _turn = self.turn().await;
        let taken: Vec<_> =
            self.inner.slots.lock().iter_mut().map(|(name, slot)| (name.clone(), slot.take_all())).collect();
        join_all(taken.into_iter().map(|(name, upstreams)| async move { self.close(&name, upstreams).await })).await;
        self.changed();
    }

    /// Connects what is in the slot, unless it is.
    async fn open(&self, name: &ServerName, visibility: Visibility) -> Result<Upstream, ConfigurationError> {
        let replaced = match self.inner.slots.lock().get_mut(name) {
            None => return Err(ConfigurationError::Unknown(name.to_string())),
            Some(slot) => match (&visibility, slot.there(&visibility)) {
                (_, Some(there)) => {
                    there.try_now();
                    return Ok(there.clone());
                }
                (Visibility::Private(_), None) if slot.is_shared() => {
                    return Err(ConfigurationError::Shared(name.to_string()));
                }
                (Visibility::Private(_), None) => Vec::new(),
                (Visibility::Shared, None) => slot.take_all(),
            },
        };
        self.close(name, replaced).await;
        let mut slots = self.inner.slots.lock();
        let naming = slot::all_namings(&slots).remove(name);
        let (Some(naming), Some(slot)) = (naming, slots.get_mut(name)) else {
            return Err(ConfigurationError::Unknown(name.to_string()));
        };
        let (config, log) = (slot.entry.config.clone(), slot.log_of(&visibility));
        let upstream = Upstream::start(config, visibility, naming, log, self.inner.parts.clone());
        slot.put(upstream.clone());
        drop(slots);
        self.changed();
        Ok(upstream)
    }

    /// Which servers there are has changed, and with it what the tools of some are called.
    fn rename(&self) {
        let slots = self.inner.slots.lock();
        let mut renamed = Vec::new();
        for (name, naming) in slot::all_namings(&slots) {
            let Some(slot) = slots.get(name) else { continue };
            renamed.extend(slot.all().filter(|up| up.naming() != naming).map(|up| (up.clone(), naming.clone())));
        }
        drop(slots);
        // All of them first: what one gives up may be what another gets.
        for (upstream, _) in &renamed {
            self.inner.parts.names.release(upstream.name());
        }
        for (upstream, naming) in renamed {
            upstream.rename(naming);
        }
    }

    async fn close(&self, name: &ServerName, upstreams: Vec<Upstream>) {
        if upstreams.is_empty() {
            return;
        }
        self.changed();
        join_all(upstreams.iter().map(Upstream::close)).await;
        let is_unused = self.inner.slots.lock().get(name).is_none_or(|slot| slot.all().next().is_none());
        if is_unused {
            self.inner.parts.names.release(name);
        }
    }

    fn changed(&self) {
        self.inner.changes.send_modify(|revision| *revision += 1);
    }

    async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // Never closed, so it is always given.
        self.inner.turn.acquire().await.ok()
    }
}

/// Whether one with this level may use other servers at all.
fn permitted(level: Option<Level>) -> Result<(), ConfigurationError> {
    match level {
        Some(Level::Trusted | Level::Yolo) => Ok(()),
        Some(Level::Sandboxed) => Err(ConfigurationError::Denied { who: "a sandboxed key".into() }),
        None => Err(ConfigurationError::Denied { who: "one without permissions".into() }),
    }
}
