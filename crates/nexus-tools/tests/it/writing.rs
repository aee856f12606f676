//! `write_file`: in one step, with the old file's looks, and told by a diff.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::Duration;

use nexus_tools::Settings;
use nexus_tools::shell::WriteFile;
use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat};
use serde_json::{Value, json};
use tempfile::tempdir;

use crate::support::{Bench, put};

#[tokio::test]
async fn a_file_is_made_then_changed_then_left_alone() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("note");
    let made = write(&file, "a\nb\n").await;
    assert_eq!((&made["outcome"], &made["bytes"], &made["mode"]), (&json!("created"), &json!(4), &json!("0644")));
    assert!(made.get("diff").is_none());

    let changed = write(&file, "a\nB\n").await;
    assert_eq!(changed["outcome"], "changed");
    assert!(changed["diff"].as_str().unwrap().ends_with("@@ -1,2 +1,2 @@\n a\n-b\n+B\n"), "{changed}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "a\nB\n");

    let before = fs::metadata(&file).unwrap().ino();
    assert_eq!(write(&file, "a\nB\n").await["outcome"], "unchanged");
    assert_eq!(fs::metadata(&file).unwrap().ino(), before);
    assert_eq!(names(dir.path()), ["note"]);
}

#[tokio::test]
async fn mode_owner_and_attributes_stay() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("script");
    fs::File::create(&file).unwrap();
    let owned = chown(&file, Some(1234), Some(2345)).is_ok();
    fs::set_permissions(&file, Permissions::from_mode(0o4751)).unwrap();
    let labelled = rustix::fs::setxattr(&file, "user.label", b"red", XattrFlags::empty()).is_ok();
    assert_eq!(write(&file, "#!/bin/sh\n").await["mode"], "4751");
    let facts = fs::metadata(&file).unwrap();
    assert_eq!(facts.mode() & 0o7777, 0o4751);
    if owned {
        assert_eq!((facts.uid(), facts.gid()), (1234, 2345));
    }
    if labelled {
        let mut value = [0; 3];
        rustix::fs::getxattr(&file, "user.label", &mut value[..]).unwrap();
        assert_eq!(&value, b"red");
    }
}

#[tokio::test]
async fn a_link_stays_and_what_it_points_to_is_replaced() {
    let dir = tempdir().unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    let file = dir.path().join("sub/file");
    put(&file, "old");
    let link = dir.path().join("link");
    symlink("sub/file", &link).unwrap();
    symlink("link", dir.path().join("second")).unwrap();
    let changed = write(&dir.path().join("second"), "new").await;
    assert_eq!(changed["path"], fs::canonicalize(&file).unwrap().to_str().unwrap());
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&file).unwrap(), "new");

    let dangling = dir.path().join("dangling");
    symlink("sub/fresh", &dangling).unwrap();
    assert_eq!(write(&dangling, "x").await["outcome"], "created");
    assert_eq!(fs::read_to_string(dir.path().join("sub/fresh")).unwrap(), "x");

    symlink("loop-b", dir.path().join("loop-a")).unwrap();
    symlink("loop-a", dir.path().join("loop-b")).unwrap();
    assert!(refused(&dir.path().join("loop-a")).await.contains("links without an end"));
}

#[tokio::test]
async fn a_reader_that_has_it_open_keeps_the_old_file() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("file");
    put(&file, "old content");
    let mut open = fs::File::open(&file).unwrap();
    write(&file, "new").await;
    let mut seen = String::new();
    std::io::Read::read_to_string(&mut open, &mut seen).unwrap();
    assert_eq!(seen, "old content");
}

#[tokio::test]
async fn other_hard_links_keep_the_old_content_and_the_reply_says_so() {
    let dir = tempdir().unwrap();
    put(&dir.path().join("a"), "old");
    fs::hard_link(dir.path().join("a"), dir.path().join("b")).unwrap();
    let changed = write(&dir.path().join("a"), "new").await;
    assert!(changed["note"].as_str().unwrap().contains("2 hard links"), "{changed}");
    assert_eq!(fs::read_to_string(dir.path().join("b")).unwrap(), "old");
}

#[tokio::test]
async fn what_is_no_file_is_not_replaced() {
    let dir = tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    assert!(refused(dir.path()).await.contains("is a directory"));
    assert!(refused(&fifo).await.contains("is a FIFO"));
    assert!(refused(Path::new("/dev/null")).await.contains("is a device"));
    assert!(refused(Path::new("/")).await.contains("a directory"));
    assert!(refused(&dir.path().join("new/")).await.contains("a directory's name"));
    let said = refused(&dir.path().join("no/such/file")).await;
    assert!(said.contains("does not exist\nhint: make it first: run_command with mkdir -p"), "{said}");
    assert_eq!(names(dir.path()), ["fifo"]);
}

#[tokio::test]
async fn old_content_that_is_binary_or_secret_is_not_in_the_diff() {
    let dir = tempdir().unwrap();
    put(&dir.path().join("picture"), b"\x89PNG\0");
    let changed = write(&dir.path().join("picture"), "text").await;
    assert!(changed.get("diff").is_none());
    assert!(changed["note"].as_str().unwrap().contains("not text"), "{changed}");

    put(&dir.path().join(".env"), "TOKEN=hunter2");
    symlink(".env", dir.path().join("link")).unwrap();
    for name in [".env", "link"] {
        let changed = write(&dir.path().join(name), &format!("written through {name}")).await;
        assert_eq!(changed["outcome"], "changed");
        assert!(!changed.to_string().contains("hunter2"), "{changed}");
    }
    put(&dir.path().join("plain"), "-----BEGIN PRIVATE KEY-----\nhunter2\n");
    assert!(!write(&dir.path().join("plain"), "x").await.to_string().contains("hunter2"));
}

#[tokio::test]
async fn a_hard_link_does_not_bring_a_secret_into_the_diff() {
    let dir = tempdir().unwrap();
    put(&dir.path().join("key"), "hunter2\n");
    fs::hard_link(dir.path().join("key"), dir.path().join("plain")).unwrap();
    let bench = Bench::with(Settings { secret_files: vec![dir.path().join("key")], ..Settings::default() });
    let args = json!({ "path": dir.path().join("plain"), "content": "x" });
    let changed = bench.call::<WriteFile>(args).await.unwrap();
    assert!(!changed.to_string().contains("hunter2"), "{changed}");
}

#[tokio::test]
async fn a_cancelled_write_does_not_happen() {
    let dir = tempdir().unwrap();
    put(&dir.path().join("old"), "old");
    let bench = Bench::new();
    bench.cx.cancel.cancel();
    for name in ["old", "new"] {
        let said = bench.refusal::<WriteFile>(json!({ "path": dir.path().join(name), "content": "x" })).await;
        assert_eq!(said, "the call was cancelled; nothing was written");
    }
    assert_eq!(names(dir.path()), ["old"]);
    assert_eq!(fs::read_to_string(dir.path().join("old")).unwrap(), "old");
}

#[test]
fn a_write_that_was_dropped_before_it_began_does_not_happen() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("file");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        // The only thread for files is taken until the call is gone.
        let (release, held) = std::sync::mpsc::channel::<()>();
        let holding = tokio::task::spawn_blocking(move || held.recv());
        let bench = Bench::new();
        let call = bench.call::<WriteFile>(json!({ "path": file, "content": "x" }));
        assert!(tokio::time::timeout(Duration::ZERO, call).await.is_err());
        release.send(()).unwrap();
        holding.await.unwrap().unwrap();
        // Behind the write in the same queue.
        tokio::task::spawn_blocking(|| {}).await.unwrap();
    });
    assert_eq!(names(dir.path()), Vec::<String>::new());
}

#[tokio::test]
async fn writers_at_the_same_time_leave_one_whole_file_and_no_litter() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("file");
    let bench = Bench::new();
    let contents: Vec<String> = (0..20).map(|n| format!("{n}\n").repeat(10_000)).collect();
    let calls = contents.iter().map(|content| bench.call::<WriteFile>(json!({ "path": file, "content": content })));
    for reply in futures_util::future::join_all(calls).await {
        reply.unwrap();
    }
    assert!(contents.contains(&fs::read_to_string(&file).unwrap()));
    assert_eq!(names(dir.path()), ["file"]);
}

#[tokio::test]
async fn a_tilde_leads_home() {
    let dir = tempdir().unwrap();
    let bench = Bench::with(Settings { home: Some(dir.path().to_owned()), ..Settings::default() });
    bench.call::<WriteFile>(json!({ "path": "~/x", "content": "y" })).await.unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("x")).unwrap(), "y");
}

async fn write(path: &Path, content: &str) -> Value {
    Bench::new().call::<WriteFile>(json!({ "path": path, "content": content })).await.unwrap()
}

async fn refused(path: &Path) -> String {
    Bench::new().refusal::<WriteFile>(json!({ "path": path, "content": "x" })).await
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_mark_in_a_secrets_place_is_not_written_back() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("app.conf");
    let bench = Bench::new();
    let refused = |content: &str| bench.refusal::<WriteFile>(json!({ "path": file, "content": content.to_owned() }));
    let read_back = "user=me\nsetting=[redacted]\n";
    assert!(refused(read_back).await.contains("would destroy the secret\nhint: "), "{}", refused(read_back).await);
    assert!(!file.exists());

    put(&file, "user=me\nsetting=hunter2\n");
    refused(read_back).await;
    assert_eq!(fs::read_to_string(&file).unwrap(), "user=me\nsetting=hunter2\n");

    // It stood there before, a long way down and across the pieces it is looked for in.
    for before in [0, (1 << 20) - 5, 3 << 20] {
        put(&file, format!("{}[redacted]\n", "x".repeat(before)));
        refused("[redacted] [redacted]").await;
        assert_eq!(write(&file, "a [redacted]\n").await["outcome"], "changed");
    }
}
