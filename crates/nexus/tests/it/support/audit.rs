//! The record, read from the store as it is on disk.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sqlx::ConnectOptions;

use super::{Ask, DEADLINE, Hub, LOOK_AGAIN};

/// One row, as its body in the store tells it.
#[derive(Clone, Debug, Deserialize)]
pub struct AuditRow {
    pub id: String,
    pub chain: String,
    pub seq: i64,
    pub at: String,
    pub event: String,
    pub session: Option<String>,
    pub principal: Option<String>,
    pub transport: Option<String>,
    pub era: Option<String>,
    pub client: Option<String>,
    #[serde(rename = "call")]
    pub call_id: Option<String>,
    pub tool: Option<String>,
    pub origin: Option<String>,
    pub access: Option<String>,
    pub node: Option<String>,
    pub summary: Option<String>,
    #[serde(default, deserialize_with = "as_text")]
    pub arguments: Option<String>,
    pub digest: Option<String>,
    pub decision: Option<String>,
    pub how: Option<String>,
    pub outcome: Option<String>,
    pub duration_us: Option<u64>,
    pub detail: Option<String>,
    pub hash: String,
}

/// Arguments as the text that they are.
fn as_text<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<Box<RawValue>>::deserialize(from)?.map(|raw| raw.get().to_owned()))
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
    let bodies: Vec<String> =
        sqlx::query_scalar("SELECT body FROM audit ORDER BY pos").fetch_all(&mut connection).await.unwrap();
    bodies.iter().map(|body| serde_json::from_str(body).unwrap()).collect()
}

/// Rows as `nexus audit export` writes them.
pub fn parsed(lines: &str) -> Vec<AuditRow> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

impl Hub {
    pub async fn health(&self) -> Value {
        self.ask(&Ask::get("/health")).await.json()
    }

    /// Waits until the hub says of itself that it can, or cannot, record.
    pub async fn is_recording(&self, so: bool) {
        let look = async {
            while self.health().await["ok"] != so {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        super::within("/health to tell whether it records", look).await;
    }

    /// What `nexus audit verify` finds; empty if the record holds.
    pub async fn findings(&self) -> Vec<String> {
        let ran = self.nexus(&["audit", "verify", "--json"]).await;
        let told: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
        let found: Vec<String> = serde_json::from_value(told["findings"].clone()).unwrap();
        assert_eq!((told["holds"] == true, ran.code), (found.is_empty(), Some(i32::from(!found.is_empty()))), "{told}");
        found
    }

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
