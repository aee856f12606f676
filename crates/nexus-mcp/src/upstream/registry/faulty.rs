//! Entries of the configuration that cannot be used: there is no server to them, and yet somebody looks for it.

use jiff::Timestamp;

use nexus_core::clock;
use nexus_core::name::ServerName;

use super::Registry;
use crate::upstream::error::ConfigurationError;

/// An entry that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faulty {
    pub name: String,
    /// In one line.
    pub why: String,
    /// Where it stands.
    pub source: String,
}

impl Registry {
    /// Takes over which entries cannot be used now, in place of those of before.
    pub fn note_faulty(&self, faulty: Vec<Faulty>) {
        let mut noted = self.inner.faulty.lock();
        let since = |faulty: &Faulty| noted.iter().find(|(known, _)| known == faulty).map(|(_, since)| *since);
        let now = faulty.into_iter().map(|faulty| {
            let since = since(&faulty).unwrap_or_else(clock::now);
            (faulty, since)
        });
        *noted = now.collect();
    }

    /// Why there is no server of this name.
    pub(super) fn not_usable(&self, name: &ServerName) -> ConfigurationError {
        let noted = self.inner.faulty.lock();
        match noted.iter().find(|(faulty, _)| faulty.name == name.as_str()) {
            Some((faulty, _)) => ConfigurationError::Fault(format!("the entry of `{name}` is faulty: {}", faulty.why)),
            None => ConfigurationError::Unknown(name.to_string()),
        }
    }

    /// The entries that cannot be used, and since when.
    pub fn faulty(&self) -> Vec<(Faulty, Timestamp)> {
        self.inner.faulty.lock().clone()
    }
}
