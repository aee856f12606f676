//! Protocol versions and which of the two eras they belong to.

use nexus_core::session::Era;

/// Versions with `initialize` and sessions, newest first.
pub const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The version in which every request stands alone.
pub const MODERN: &str = "2026-07-28";

/// The first version whose clients can be asked to put a question to a human.
pub const FIRST_WITH_ELICITATION: &str = "2025-06-18";

/// The last version whose peers may send several messages in one JSON array.
pub const LAST_WITH_BATCHES: &str = "2025-03-26";

/// What this hub speaks (`server.protocol`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    #[default]
    Dual,
    Legacy,
    Modern,
}

impl Protocol {
    pub fn speaks(self, era: Era) -> bool {
        match era {
            Era::Legacy => self != Protocol::Modern,
            Era::Modern => self != Protocol::Legacy,
        }
    }

    /// All versions it speaks, newest first.
    pub fn versions(self) -> Vec<&'static str> {
        let modern = self.speaks(Era::Modern).then_some(MODERN);
        let legacy = LEGACY.into_iter().filter(|_| self.speaks(Era::Legacy));
        modern.into_iter().chain(legacy).collect()
    }
}

/// Versions are dates: from this one on a peer means the modern era, whether we know the version or not.
pub fn era_of(version: &str) -> Era {
    let is_date = version.len() == 10 && version.as_bytes().iter().all(|c| c.is_ascii_digit() || *c == b'-');
    if is_date && version < MODERN { Era::Legacy } else { Era::Modern }
}

/// The legacy version to speak with a client that asked for `wanted`.
pub fn negotiate(wanted: &str) -> &'static str {
    LEGACY.into_iter().find(|known| *known == wanted).unwrap_or(LEGACY[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_client_gets_its_version_and_a_strange_one_the_newest_legacy() {
        assert_eq!(negotiate("2024-11-05"), "2024-11-05");
        assert_eq!(negotiate("2026-07-28"), "2025-11-25");
        assert_eq!(negotiate("1.0"), "2025-11-25");
    }

    #[test]
    fn the_era_is_read_off_the_date() {
        assert_eq!(era_of("2025-11-25"), Era::Legacy);
        assert_eq!(era_of("2026-07-28"), Era::Modern);
        assert_eq!(era_of("2027-01-01"), Era::Modern);
        assert_eq!(era_of("v999.0.0"), Era::Modern);
    }
}
