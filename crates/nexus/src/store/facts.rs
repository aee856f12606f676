//! Facts about the record that are told without going through it.

use super::position::written_ms;
use super::{Store, StoreError};

/// The record at a glance.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    pub rows: i64,
    /// Bytes, roughly.
    pub size: i64,
    /// When the oldest and the newest row were written, in milliseconds since 1970.
    pub oldest_ms: Option<i64>,
    pub newest_ms: Option<i64>,
    pub chains: i64,
    /// Chains that nobody has closed: of running processes, and of dead ones.
    pub open: i64,
    /// Rows that retention has taken away.
    pub pruned: i64,
    /// Writes that have begun and not ended.
    pub unended: i64,
}

const ENDS: &str = "SELECT (SELECT MIN(pos) FROM audit), (SELECT MAX(pos) FROM audit)";
const CHAINS: &str = "SELECT COUNT(*), CAST(COUNT(*) - COUNT(closed_ms) AS BIGINT), \
     CAST(COALESCE(SUM(pruned_seq), 0) AS BIGINT) FROM chain";
const SESSIONS: &str = "SELECT (SELECT MIN(session) FROM audit_place WHERE session >= $1 AND session <= $2), \
     (SELECT MAX(session) FROM audit_place WHERE session >= $1 AND session <= $2)";

/// A session's name by how it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sessions {
    One(String),
    None,
    Several,
}

impl Store {
    pub async fn facts(&self) -> Result<Facts, StoreError> {
        let (rows, size) = (self.audit_rows().await?, self.size().await?);
        Ok(on_db!(self, |db| {
            let (oldest, newest): (Option<i64>, Option<i64>) = sqlx::query_as(ENDS).fetch_one(db).await?;
            let (chains, open, pruned): (i64, i64, i64) = sqlx::query_as(CHAINS).fetch_one(db).await?;
            let unended = sqlx::query_scalar("SELECT COUNT(*) FROM begun").fetch_one(db).await?;
            let (oldest_ms, newest_ms) = (oldest.map(written_ms), newest.map(written_ms));
            Facts { rows, size, oldest_ms, newest_ms, chains, open, pruned, unended }
        }))
    }

    /// The session that begins so.
    pub async fn session_of(&self, beginning: &str) -> Result<Sessions, StoreError> {
        // The first and the last name of that beginning have the form of all others, so that every database
        // puts them in the same order.
        let Some((first, last)) = filled(beginning, '0').zip(filled(beginning, 'f')) else { return Ok(Sessions::None) };
        let found: (Option<String>, Option<String>) =
            on_db!(self, |db| sqlx::query_as(SESSIONS).bind(first).bind(last).fetch_one(db).await?);
        Ok(match found {
            (Some(first), Some(last)) if first == last => Sessions::One(first),
            (Some(_), Some(_)) => Sessions::Several,
            _ => Sessions::None,
        })
    }
}

/// The beginning of a UUID made whole. None: it is not one.
fn filled(beginning: &str, with: char) -> Option<String> {
    const FORM: &str = "00000000-0000-0000-0000-000000000000";
    let fits = beginning.len() <= FORM.len()
        && beginning.chars().zip(FORM.chars()).all(|(c, form)| match form {
            '-' => c == '-',
            _ => c.is_ascii_hexdigit(),
        });
    let rest = FORM.get(beginning.len()..).unwrap_or_default();
    fits.then(|| beginning.to_ascii_lowercase() + &rest.replace('0', &with.to_string()))
}
