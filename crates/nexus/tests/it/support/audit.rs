//! The record, read from the store as it is on disk.

use std::path::Path;

use sqlx::{ConnectOptions, FromRow};

use super::{DEADLINE, Hub, LOOK_AGAIN};

/// One row, without what changes from run to run.
#[derive(Clone, Debug, FromRow)]
pub struct AuditRow {
    pub event: String,
    pub principal: Option<String>,
    pub transport: Option<String>,
    pub era: Option<String>,
    pub client: Option<String>,
    pub call_id: Option<String>,
    pub tool: Option<String>,
    pub access: Option<String>,
    pub arguments: Option<String>,
    pub decision: Option<String>,
    pub how: Option<String>,
    pub outcome: Option<String>,
    pub detail: Option<String>,
}

impl AuditRow {
    /// `write_file allowed ok`: what a call came to.
    pub fn told(&self) -> String {
        let parts = [&self.tool, &self.decision, &self.outcome];
        let parts: Vec<&str> = parts.into_iter().filter_map(|part| part.as_deref()).collect();
        format!("{} {}", self.event, parts.join(" "))
    }

    pub fn is(&self, told: &str) -> bool {
        self.told() == told
    }
}

/// All rows, oldest first.
pub async fn rows(data: &Path) -> Vec<AuditRow> {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(data.join("nexus.db")).read_only(true);
    let mut connection = options.connect().await.unwrap();
    let all = "SELECT event, principal, transport, era, client, call_id, tool, access, arguments, \
               decision, how, outcome, detail FROM audit ORDER BY rowid";
    sqlx::query_as(all).fetch_all(&mut connection).await.unwrap()
}

impl Hub {
    pub async fn audit(&self) -> Vec<AuditRow> {
        rows(&self.data).await
    }

    /// Waits until the record is so, and gives it.
    pub async fn audit_reaches(&self, so: impl Fn(&[AuditRow]) -> bool) -> Vec<AuditRow> {
        let started = std::time::Instant::now();
        loop {
            let rows = self.audit().await;
            if so(&rows) {
                return rows;
            }
            assert!(started.elapsed() < DEADLINE, "the record is {rows:#?}");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits for a row that tells this.
    pub async fn audit_has(&self, told: &str) -> AuditRow {
        let rows = self.audit_reaches(|rows| rows.iter().any(|row| row.is(told))).await;
        rows.into_iter().find(|row| row.is(told)).unwrap()
    }
}
