//! The store takes nothing: what cannot be recorded does not happen, and nothing that did is forgotten.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Executor};
use tempfile::TempDir;

use crate::support::{AuditRow, Client, Hub, Setup, secret};

fn note(hub: &Hub, name: &str) -> (PathBuf, Value) {
    let path = hub.path(name);
    let arguments = json!({ "path": path, "content": "x" });
    (path, arguments)
}

fn robot() -> Setup {
    Hub::start().key("robot", "level: yolo")
}

async fn fine(hub: &Hub, client: &Client, name: &str) {
    let (path, arguments) = note(hub, name);
    client.does("write_file", arguments).await;
    assert!(path.exists());
    read(hub, client, &format!("READ_{name}")).await;
}

/// A read that can be told from others.
async fn read(hub: &Hub, client: &Client, name: &str) {
    let folder = hub.path(name);
    std::fs::create_dir(&folder).unwrap();
    client.does("list_directory", json!({ "path": folder })).await;
}

fn has_read(rows: &[AuditRow], name: &str) -> bool {
    let named = |row: &AuditRow| row.arguments.as_ref().is_some_and(|given| given.contains(name));
    rows.iter().filter(|row| row.is("call list_directory allowed ok") && named(row)).count() == 1
}

/// While nothing can be written: writes fail and did not happen, reads go on, and the hub says so.
async fn refuses_writes(hub: &Hub, client: &Client) {
    let (path, arguments) = note(hub, "refused");
    for _ in 0..2 {
        let failed = client.call("write_file", arguments.clone()).await;
        assert_eq!(failed["isError"], true, "{failed}");
        assert_eq!(failed["structuredContent"]["error"]["kind"], "failed", "{failed}");
        assert!(failed["content"][0]["text"].as_str().unwrap().contains("nothing was changed"), "{failed}");
        assert!(!path.exists());
    }
    for n in 0..5 {
        read(hub, client, &format!("MEANWHILE_{n}")).await;
    }
    hub.is_recording(false).await;
    assert!(hub.health().await["audit"]["unwritten"].as_i64().unwrap() > 0);
}

/// All works again, and what was read meanwhile is in the record, once.
async fn recovers(hub: &mut Hub, client: &Client) {
    hub.is_recording(true).await;
    fine(hub, client, "after").await;
    let whole = |rows: &[AuditRow]| has_read(rows, "READ_after");
    let rows = hub.audit_reaches(whole).await;
    for name in ["READ_before", "MEANWHILE_0", "MEANWHILE_4"] {
        assert!(has_read(&rows, name), "{name} in {rows:#?}");
    }
    let failed = rows.iter().filter(|row| row.is("call write_file allowed failed")).count();
    assert_eq!(failed, 2, "{rows:#?}");
    assert_eq!(hub.health().await["audit"]["lost"], 0);
    hub.stop().await;
    assert_eq!(hub.findings().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_write_does_not_run_while_another_process_holds_the_database() {
    let mut hub = robot().await;
    let client = hub.modern(&secret("robot"));
    fine(&hub, &client, "before").await;
    let options = SqliteConnectOptions::new().filename(hub.data.join("nexus.db"));
    let mut holder: SqliteConnection = options.connect().await.unwrap();
    holder.execute("BEGIN EXCLUSIVE").await.unwrap();
    refuses_writes(&hub, &client).await;
    holder.execute("ROLLBACK").await.unwrap();
    recovers(&mut hub, &client).await;
}

#[tokio::test]
async fn a_write_does_not_run_while_the_stores_file_may_not_grow() {
    let mut hub = robot().await;
    let client = hub.modern(&secret("robot"));
    fine(&hub, &client, "before").await;
    hub.audit_reaches(|rows| has_read(rows, "READ_before")).await;
    let log = std::fs::metadata(hub.data.join("nexus.db-wal")).unwrap().len();
    let pid = Pid::from_raw(i32::try_from(hub.pid).unwrap());
    let limit = |current| prlimit(pid, Resource::Fsize, Rlimit { current, maximum: None }).unwrap();
    limit(Some(log + 100));
    refuses_writes(&hub, &client).await;
    limit(None);
    recovers(&mut hub, &client).await;
}

/// A small disk of its own, until it is dropped.
struct Disk(PathBuf);

impl Disk {
    /// None: only root may.
    fn mount(at: &Path) -> Option<Self> {
        std::fs::create_dir(at).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("none", at, "tmpfs", flags, c"size=8m,mode=700").ok()?;
        Some(Self(at.to_owned()))
    }

    /// Writes until nothing more fits.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        let mut file = File::create(&path).unwrap();
        while file.write_all(&[0; 512]).is_ok() {}
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[tokio::test]
async fn a_write_does_not_run_while_the_disk_is_full() {
    let folder = TempDir::new().unwrap();
    let Some(disk) = Disk::mount(&folder.path().join("disk")) else {
        println!("not run: only root may mount a disk of its own");
        return;
    };
    let mut hub = robot().data(&disk.0).await;
    let client = hub.modern(&secret("robot"));
    fine(&hub, &client, "before").await;
    hub.audit_reaches(|rows| has_read(rows, "READ_before")).await;
    let filler = disk.fill();
    refuses_writes(&hub, &client).await;
    std::fs::remove_file(filler).unwrap();
    recovers(&mut hub, &client).await;
}
