//! `read_file`: lines, binaries, what has no end, and secrets by every way around.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nexus_tools::Settings;
use nexus_tools::shell::ReadFile;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use tempfile::tempdir;

use crate::support::{Bench, put};

#[tokio::test]
async fn lines_are_read_from_an_offset_to_a_limit() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("list");
    put(&file, "one\ntwo\nthree\n");
    let whole = read(&file).await;
    assert_eq!(
        (&whole["content"], &whole["lines"], &whole["total_lines"]),
        (&json!("one\ntwo\nthree\n"), &json!(3), &json!(3))
    );
    assert_eq!((&whole["size"], &whole["binary"]), (&json!(14), &json!(false)));
    assert!(whole.get("next_offset").is_none());

    let some = Bench::new().call::<ReadFile>(json!({ "path": file, "offset": 2, "limit": 1 })).await.unwrap();
    assert_eq!((&some["content"], &some["next_offset"]), (&json!("two\n"), &json!(3)));
    let beyond = Bench::new().call::<ReadFile>(json!({ "path": file, "offset": 9 })).await.unwrap();
    assert_eq!((&beyond["content"], &beyond["note"]), (&json!(""), &json!("the file has 3 lines")));
}

#[tokio::test]
async fn a_huge_file_is_read_in_bounded_pieces() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("huge");
    put(&file, "short\n");
    // A hole: a terabyte that takes no room, on one line.
    fs::File::options().write(true).open(&file).unwrap().set_len(1 << 40).unwrap();
    let found = read(&file).await;
    assert_eq!(found["binary"], true);
    put(&file, "0123456789 äöü\n".repeat(100_000));
    let found = read(&file).await;
    assert!(found["content"].as_str().unwrap().chars().count() <= 50_000);
    assert_eq!(found["total_lines"], 100_000);
    assert_eq!(found["next_offset"], found["lines"].as_u64().unwrap() + 1);
}

#[tokio::test]
async fn a_binary_is_described_and_not_shown() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("picture");
    put(&file, b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    let found = read(&file).await;
    assert_eq!((&found["binary"], &found["mime"]), (&json!(true), &json!("image/png")));
    assert_eq!(found["first_bytes"], "89504e470d0a1a0a0000000d49484452");
    assert!(found.get("content").is_none());
}

#[tokio::test]
async fn what_has_no_end_or_no_content_is_refused_by_its_kind() {
    let dir = tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let socket = dir.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    let link = dir.path().join("link");
    symlink("/dev/zero", &link).unwrap();
    check(&fifo, "is a FIFO").await;
    check(&socket, "is a socket").await;
    check(&link, "is a device").await;
    check(Path::new("/dev/zero"), "is a device").await;
    check(dir.path(), "is a directory\nhint: use list_directory").await;
    check(&dir.path().join("nothing"), "opening ").await;

    async fn check(path: &Path, expected: &str) {
        let said = refused(path).await;
        assert!(said.contains(expected), "{said}");
    }
}

#[tokio::test]
async fn files_of_the_kernel_are_read_though_they_have_no_size() {
    let found = read(Path::new("/proc/self/status")).await;
    assert_eq!(found["size"], 0);
    assert!(found["content"].as_str().unwrap().starts_with("Name:"));
}

#[tokio::test]
async fn a_secret_is_refused_by_every_name_it_has() {
    let dir = tempdir().unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    put(&dir.path().join(".env"), "TOKEN=x");
    put(&dir.path().join("key.txt"), "# my key\n-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n");
    put(&dir.path().join("sub/id_ed25519"), "abc");
    symlink(dir.path().join(".env"), dir.path().join("harmless")).unwrap();
    symlink("harmless", dir.path().join("twice")).unwrap();
    symlink(dir.path().join("sub"), dir.path().join("there")).unwrap();
    symlink("/etc/shadow", dir.path().join("notes")).unwrap();
    symlink("/proc/self", dir.path().join("me")).unwrap();
    symlink("/", dir.path().join("root")).unwrap();
    for name in [
        ".env",
        "sub/../.env",
        "./.env",
        "sub//..//.env",
        "harmless",
        "twice",
        "there/id_ed25519",
        "there/../.env",
        "key.txt",
        "notes",
        "me/environ",
        "root/etc/shadow",
    ] {
        let said = refused(&dir.path().join(name)).await;
        assert!(said.contains("is not shown: it holds"), "{name}: {said}");
        assert!(said.contains("hint: nobody is asked before a read"), "{name}: {said}");
    }
    let through_fd = fs::File::open(dir.path().join(".env")).unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&through_fd);
    for path in [
        "/etc/shadow",
        "//etc/./shadow",
        "/etc/../etc/shadow",
        "/proc/self/root/etc/shadow",
        "/proc/self/environ",
        "/proc/1/environ",
        "/proc/self/task/../environ",
        "/proc/thread-self/environ",
        "/proc/self/mem",
        "/proc/self/cwd/../../../../../../etc/shadow",
        &format!("/proc/self/fd/{fd}"),
        &format!("/dev/fd/{fd}"),
    ] {
        let said = refused(Path::new(path)).await;
        assert!(said.contains("is not shown: it holds"), "{path}: {said}");
    }
}

#[tokio::test]
async fn a_link_that_is_swapped_all_the_time_never_gives_the_secret() {
    let dir = tempdir().unwrap();
    let (link, next) = (dir.path().join("link"), dir.path().join("next"));
    put(&dir.path().join("plain"), "harmless");
    put(&dir.path().join(".env"), "TOKEN=hunter2");
    symlink("plain", &link).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let (swapping, swapped_link) = (done.clone(), link.clone());
    let swap = tokio::task::spawn_blocking(move || {
        for target in [".env", "plain"].into_iter().cycle().take_while(|_| !swapping.load(Ordering::Relaxed)) {
            symlink(target, &next).unwrap();
            fs::rename(&next, &swapped_link).unwrap();
        }
    });
    let bench = Bench::new();
    let (mut shown, mut refused) = (0, 0);
    while shown < 100 || refused < 100 {
        match bench.call::<ReadFile>(json!({ "path": link })).await {
            Ok(found) => {
                assert_eq!(found["content"], "harmless");
                shown += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains("is not shown"), "{error}");
                refused += 1;
            }
        }
    }
    done.store(true, Ordering::Relaxed);
    swap.await.unwrap();
}

#[tokio::test]
async fn a_hard_link_to_a_named_secret_does_not_open_it() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("combination");
    put(&file, "1234");
    fs::hard_link(&file, dir.path().join("plain")).unwrap();
    let secret_paths = vec![file.to_str().unwrap().to_owned()];
    let bench = Bench::with(Settings { secret_paths, ..Settings::default() });
    let said = bench.refusal::<ReadFile>(json!({ "path": dir.path().join("plain") })).await;
    assert!(said.contains("is not shown: it holds a secret under another name"), "{said}");
    assert_eq!(read(&dir.path().join("plain")).await["content"], "1234");
}

#[tokio::test]
async fn a_key_after_its_certificate_is_found_and_an_offset_does_not_skip_the_look() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("site.txt");
    put(&file, "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\nMIIEvQ\n");
    let said = Bench::new().refusal::<ReadFile>(json!({ "path": file, "offset": 5 })).await;
    assert!(said.contains("a private key"), "{said}");
    let late = dir.path().join("late.txt");
    put(&late, format!("{}-----BEGIN PRIVATE KEY-----\nMIIEvQ\n", "filler\n".repeat(20_000)));
    let said = Bench::new().refusal::<ReadFile>(json!({ "path": late, "offset": 20_000 })).await;
    assert!(said.contains("a private key"), "{said}");
}

/// Where the key stands in the file: far behind what is looked at first.
const KEY_AT: u64 = 20_001;

#[tokio::test]
async fn the_inside_of_a_key_does_not_come_out_wherever_reading_begins() {
    let pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIhunter2\nhunter2hunter2\nhunter2==\n-----END RSA PRIVATE KEY-----\n";
    let putty = "PuTTY-User-Key-File-3: ssh-rsa\nPrivate-Lines: 2\nhunter2\nhunter2==\nPrivate-MAC: 12\n";
    let quoted = format!(
        "KEY='-----BEGIN PRIVATE KEY-----\n{0}\n{0}\nhunter2\n-----END PRIVATE KEY-----'\n",
        "hunter2".repeat(9)
    );
    for key in [pem, putty, &quoted] {
        let dir = tempdir().unwrap();
        let file = dir.path().join("log.txt");
        let (before, after) = ("filler\n".repeat(20_000), "filler\n".repeat(20_000));
        put(&file, [before.as_str(), key, after.as_str()].concat());
        for offset in KEY_AT - 3..KEY_AT + 5 {
            for limit in [1, 2, 3, 100] {
                let args = json!({ "path": file, "offset": offset, "limit": limit });
                match Bench::new().call::<ReadFile>(args.clone()).await {
                    Ok(found) => assert!(!found.to_string().contains("hunter2"), "{args}: {found}"),
                    Err(error) => assert!(error.to_string().contains("it holds a private key"), "{args}: {error}"),
                }
            }
        }
        let inside = json!({ "path": file, "offset": KEY_AT + 2 });
        assert!(Bench::new().refusal::<ReadFile>(inside).await.contains("it holds a private key"));
        // What stands before it and after it is free.
        for (offset, limit) in [(1, 100), (KEY_AT - 5, 5), (KEY_AT + 5, 100), (KEY_AT + 10_000, 1)] {
            let args = json!({ "path": file, "offset": offset, "limit": limit });
            assert_eq!(Bench::new().call::<ReadFile>(args).await.unwrap()["lines"], limit);
        }
    }
}

#[tokio::test]
async fn the_inside_of_a_key_without_an_end_does_not_come_out_either() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("log.txt");
    put(&file, format!("{}-----BEGIN PRIVATE KEY-----\n{}", "filler\n".repeat(20_000), "hunter2\n".repeat(40_000)));
    for offset in [20_002, 30_000, 60_000] {
        let said = Bench::new().refusal::<ReadFile>(json!({ "path": file, "offset": offset })).await;
        assert!(said.contains("it holds a private key"), "{said}");
    }
}

#[tokio::test]
async fn the_hubs_secret_files_are_refused_by_every_name_whenever_they_are_made() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for folder in ["etc", "versions", "other"] {
        fs::create_dir(at(folder)).unwrap();
    }
    symlink(at("etc"), at("conf")).unwrap();
    symlink(at("etc"), at("door")).unwrap();
    symlink("../versions/1", at("etc/turned")).unwrap();
    put(&at("versions/1"), "hunter2");
    put(&at("etc/plain"), "open");
    // Named through a folder that is a link. Only `turned` is there at the start.
    let secret_files = ["conf/late", "conf/turned", "nowhere/key"].map(&at).to_vec();
    let bench = Bench::with(Settings { secret_files, home: Some(dir.path().to_owned()), ..Settings::default() });

    put(&at("etc/late"), "hunter2");
    fs::hard_link(at("etc/late"), at("other/hard")).unwrap();
    symlink(at("door/late"), at("other/soft")).unwrap();
    put(&at("versions/2"), "hunter2");
    fs::remove_file(at("etc/turned")).unwrap();
    symlink("../versions/2", at("etc/turned")).unwrap();
    fs::hard_link(at("versions/2"), at("other/hard-2")).unwrap();
    for name in [
        "conf/late",
        "etc/late",
        "etc/../conf/./late",
        "door/late",
        "other/hard",
        "other/soft",
        "conf/turned",
        "etc/turned",
        "door/turned",
        // What the hub read at its start, and what it would read now.
        "versions/1",
        "versions/2",
        "other/hard-2",
    ] {
        for path in [format!("~/{name}"), format!("/proc/self/root/{}", at(name).display())] {
            let said = bench.refusal::<ReadFile>(json!({ "path": path })).await;
            assert!(said.contains("is not shown: it holds"), "{path}: {said}");
        }
    }
    assert_eq!(bench.call::<ReadFile>(json!({ "path": "~/conf/plain" })).await.unwrap()["content"], "open");

    let open = fs::File::open(at("etc/late")).unwrap();
    fs::remove_file(at("etc/late")).unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open));
    let said = bench.refusal::<ReadFile>(json!({ "path": path })).await;
    assert!(said.contains("a key or password of the hub"), "{said}");
}

#[tokio::test]
async fn the_hubs_folder_and_the_operators_list_are_secret_through_links_too() {
    let dir = tempdir().unwrap();
    for folder in ["data", "vault", "open"] {
        fs::create_dir(dir.path().join(folder)).unwrap();
        put(&dir.path().join(folder).join("x"), "content");
    }
    symlink(dir.path().join("data"), dir.path().join("data-link")).unwrap();
    symlink(dir.path().join("vault"), dir.path().join("vault-link")).unwrap();
    put(&dir.path().join("open/a.private"), "content");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let bench = Bench::with(Settings {
        data_dir: Some(dir.path().join("data-link")),
        secret_paths: vec![text(&dir.path().join("vault-link")), "*.private".to_owned()],
        home: Some(dir.path().to_owned()),
        ..Settings::default()
    });
    for path in ["~/data/x", "~/data-link/x", "~/vault/x", "~/vault-link/x", "~/open/../data/x", "~/open/a.private"] {
        let said = bench.refusal::<ReadFile>(json!({ "path": path })).await;
        assert!(said.contains("is not shown"), "{path}: {said}");
    }
    assert_eq!(bench.call::<ReadFile>(json!({ "path": "~/open/x" })).await.unwrap()["content"], "content");
}

#[tokio::test]
async fn a_path_with_escapes_in_it_is_read_and_told_without_them() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("a\n\u{1b}[31mb");
    put(&file, "content\u{1b}[2J\n");
    let found = read(&file).await;
    assert_eq!(found["content"], "content\n");
    assert!(found["path"].as_str().unwrap().ends_with("a⏎\\u{1b}[31mb"), "{found}");
}

async fn read(path: &Path) -> Value {
    Bench::new().call::<ReadFile>(json!({ "path": path })).await.unwrap()
}

async fn refused(path: &Path) -> String {
    Bench::new().refusal::<ReadFile>(json!({ "path": path })).await
}
