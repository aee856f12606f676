//! `list_directory`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use nexus_tools::shell::ListDirectory;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use tempfile::tempdir;

use crate::support::Bench;

#[tokio::test]
async fn entries_are_sorted_and_described() {
    let dir = tempdir().unwrap();
    let file = fs::File::create(dir.path().join("b.txt")).unwrap();
    file.set_len(5).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(86_400)).unwrap();
    fs::create_dir(dir.path().join("a")).unwrap();
    symlink("/nowhere", dir.path().join("c")).unwrap();
    mknodat(CWD, dir.path().join("d"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    fs::File::create(dir.path().join(".env")).unwrap();

    let found = Bench::new().call::<ListDirectory>(json!({ "path": dir.path() })).await.unwrap();
    let brief = |entry: &Value| format!("{} {}", entry["name"].as_str().unwrap(), entry["kind"].as_str().unwrap());
    let entries = found["entries"].as_array().unwrap();
    assert_eq!(
        entries.iter().map(brief).collect::<Vec<_>>(),
        [".env file", "a directory", "b.txt file", "c symlink", "d other"]
    );
    assert_eq!(
        entries[2],
        json!({ "name": "b.txt", "kind": "file", "size": 5, "mode": "0640", "modified": "1970-01-02T00:00:00Z" })
    );
    assert_eq!(entries[3]["target"], "/nowhere");
    assert_eq!((&found["truncated"], &found["total"]), (&json!(false), &json!(5)));
}

#[tokio::test]
async fn odd_names_are_shown_escaped() {
    let dir = tempdir().unwrap();
    for name in [&b"new\nline"[..], b"\x1b[31mred", b"latin\xe4"] {
        fs::File::create(dir.path().join(OsStr::from_bytes(name))).unwrap();
    }
    let found = Bench::new().call::<ListDirectory>(json!({ "path": dir.path() })).await.unwrap();
    let entries = found["entries"].as_array().unwrap();
    let names: Vec<_> = entries.iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names, [r"\x1b[31mred", r"latin\xe4", r"new\x0aline"]);
    assert!(entries.iter().all(|entry| entry["escaped"] == true));
}

#[tokio::test]
async fn a_full_directory_is_cut_and_says_so() {
    let dir = tempdir().unwrap();
    for n in 0..2_100 {
        fs::File::create(dir.path().join(format!("{n:05}"))).unwrap();
    }
    let found = Bench::new().call::<ListDirectory>(json!({ "path": dir.path() })).await.unwrap();
    assert_eq!(found["entries"].as_array().unwrap().len(), 2_000);
    assert_eq!(found["entries"][1999]["name"], "01999");
    assert_eq!((&found["truncated"], &found["total"]), (&json!(true), &json!(2_100)));
}

#[tokio::test]
async fn what_is_no_directory_is_refused() {
    let dir = tempdir().unwrap();
    fs::File::create(dir.path().join("file")).unwrap();
    let said = Bench::new().refusal::<ListDirectory>(json!({ "path": dir.path().join("file") })).await;
    assert!(said.ends_with("is not a directory\nhint: use read_file"), "{said}");
    let said = Bench::new().refusal::<ListDirectory>(json!({ "path": dir.path().join("none") })).await;
    assert!(said.starts_with("listing "), "{said}");
}
