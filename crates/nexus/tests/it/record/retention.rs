//! What is too old or too much goes, and what is left can still be proved.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor};

use crate::support::{AuditRow, Hub};

const HOUR_MS: i64 = 3_600_000;
/// Where positions begin: 2026.
const BEGINNING_MS: i64 = 1_767_225_600_000;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn open(hub: &Hub) -> SqliteConnection {
    SqliteConnectOptions::new().filename(hub.data.join("nexus.db")).connect().await.unwrap()
}

async fn tamper(hub: &Hub, sql: &str) {
    let done = open(hub).await.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
    assert!(done.rows_affected() > 0, "{sql}");
}

/// Adds the chain of a process that ran some hours ago, written by nothing but what is said of the format.
async fn seed(hub: &Hub, rows: i64, hours: i64) {
    let id = "00000000-0000-7000-8000-000000000001";
    let home = std::fs::read_to_string(hub.data.join("home")).unwrap();
    let started = nexus_core::clock::now_ms() - hours * HOUR_MS;
    let genesis = format!("nexus audit 1\n{id}\n{home}\n{started}\n\n0\n");
    let mut hash: Vec<u8> = Sha256::digest(genesis).to_vec();
    let mut connection = open(hub).await;
    let mut all = connection.begin().await.unwrap();
    for seq in 1..=rows {
        let pos = ((started - BEGINNING_MS) << 22) + seq;
        let unhashed = format!(
            r#"{{"id":"old-{seq}","chain":"{id}","seq":{seq},"at":"2026-01-01T00:00:00Z","event":"hub_started","detail":"an old row, number {seq}""#
        );
        hash = Sha256::new()
            .chain_update(&hash)
            .chain_update(pos.to_be_bytes())
            .chain_update(&unhashed)
            .finalize()
            .to_vec();
        let body = format!(r#"{unhashed},"hash":"{}"}}"#, hex(&hash));
        let add = sqlx::query("INSERT INTO audit (pos, body) VALUES (?, ?)");
        add.bind(pos).bind(body).execute(&mut *all).await.unwrap();
        let found = sqlx::query(
            "INSERT INTO audit_place (last, session, tool, outcome, places) VALUES (?, '', '', 'hub_started', ?)",
        );
        found.bind(pos).bind(pos.to_be_bytes().to_vec()).execute(&mut *all).await.unwrap();
    }
    let add = sqlx::query(
        "INSERT INTO chain (id, home, started_ms, previous_id, previous_seq, previous_hash, head_seq, head_hash, closed_ms, \
         listed_seq) VALUES (?, ?, ?, '', 0, '', ?, ?, ?, ?)",
    );
    add.bind(id)
        .bind(home)
        .bind(started)
        .bind(rows)
        .bind(hex(&hash))
        .bind(started)
        .bind(rows)
        .execute(&mut *all)
        .await
        .unwrap();
    all.commit().await.unwrap();
}

fn old(rows: &[AuditRow]) -> usize {
    rows.iter().filter(|row| row.id.starts_with("old-")).count()
}

async fn status(hub: &Hub) -> Value {
    serde_json::from_str(&hub.nexus(&["audit", "status", "--json"]).await.ok()).unwrap()
}

/// A store with old rows, which verifies: so the format is what is said of it.
async fn aged(rows: i64) -> Hub {
    let mut hub = Hub::start().await;
    hub.stop().await;
    seed(&hub, rows, 3).await;
    assert_eq!(hub.findings().await, Vec::<String>::new());
    hub
}

#[tokio::test]
async fn rows_that_are_too_old_go_and_a_row_vouches_for_them() {
    let before = aged(1_300).await;
    let mut hub = Hub::start().data(&before.data).yaml("audit: { keep: 2h }").await;
    let rows = hub.audit_reaches(|rows| old(rows) == 0).await;
    let vouching = rows.iter().find(|row| row.event == "pruned").unwrap();
    assert!(vouching.detail.as_ref().unwrap().contains("up to row 1300"), "{vouching:?}");
    assert!(rows.iter().filter(|row| row.event == "hub_started").count() == 2, "what is younger stays");
    assert_eq!(hub.findings().await, Vec::<String>::new());
    assert_eq!(status(&hub).await["pruned_rows"], 1_300);
    hub.stop().await;
    assert_eq!(hub.findings().await, Vec::<String>::new());

    tamper(&hub, "UPDATE chain SET pruned_seq = 1299 WHERE pruned_seq = 1300").await;
    assert_ne!(hub.findings().await, Vec::<String>::new());
    tamper(&hub, "UPDATE chain SET pruned_seq = 1300 WHERE pruned_seq = 1299").await;
    assert_eq!(hub.findings().await, Vec::<String>::new());
    tamper(&hub, "DELETE FROM audit WHERE body LIKE '%\"event\":\"pruned\"%'").await;
    assert_ne!(hub.findings().await, Vec::<String>::new(), "nobody vouches for them any more");
}

#[tokio::test]
async fn rows_that_are_too_many_go_from_the_old_end() {
    let before = aged(8_000).await;
    let mut hub = Hub::start().data(&before.data).yaml("audit: { max_size: 2MB }").await;
    let client = hub.modern(&hub.key);
    client.does("list_directory", json!({ "path": "/" })).await;
    hub.audit_reaches(|rows| rows.iter().any(|row| row.event == "pruned")).await;
    let pruned = status(&hub).await["pruned_rows"].as_u64().unwrap() as usize;
    assert!((1_000..7_000).contains(&pruned), "{pruned}");
    let rows = hub.audit_reaches(|rows| old(rows) == 8_000 - pruned).await;
    let first = rows.iter().find(|row| row.id.starts_with("old-")).unwrap();
    assert_eq!(first.id, format!("old-{}", pruned + 1), "from the old end");
    assert_eq!(hub.findings().await, Vec::<String>::new());
    hub.stop().await;
    // A few tables take their room whatever is in them.
    assert!(status(&hub).await["size_bytes"].as_i64().unwrap() < 2_300_000, "{}", status(&hub).await);
}
