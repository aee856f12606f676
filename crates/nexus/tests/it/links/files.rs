//! Files of computers: in pages and pieces, whole or not at all.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tokio::join;

use super::{failure, with_turtle};
use crate::support::Hub;
use crate::support::computers::{Computer, turtle};

/// Answers for a piece of a file, as a client does.
async fn sends(computer: &mut Computer, file: &[u8], offset: usize, length: usize) {
    let data = BASE64_STANDARD.encode(&file[offset..file.len().min(offset + length)]);
    let params = json!({ "path": "log", "offset": offset, "length": length });
    let size = file.len() as f64;
    computer.answers("files.read", params, json!({ "data": data, "size": size, "modified": 1.8e12 })).await;
}

#[tokio::test]
async fn a_folder_is_listed_page_by_page() {
    let (hub, mut computer) = with_turtle().await;
    let robot = hub.robot();
    let (listed, ()) = join!(robot.does("list_computer_files", json!({ "computer": 12 })), async {
        let first = json!([
            { "name": "a.lua", "kind": "file", "size": 12.0, "readOnly": false, "modified": 1_800_000_000_000.0 },
            { "name": "disk", "kind": "folder", "size": 0 },
        ]);
        let page = json!({ "path": "/", "entries": first, "more": true });
        computer.answers("files.list", json!({ "path": "/" }), page).await;
        let second = json!([{ "name": "rom\u{e4}", "kind": "folder", "readOnly": true, "modified": {} }]);
        let page = json!({ "path": "/", "entries": second, "more": true });
        computer.answers("files.list", json!({ "path": "/", "after": "disk" }), page).await;
        let page = json!({ "entries": {} });
        computer.answers("files.list", json!({ "path": "/", "after": "rom\u{e4}" }), page).await;
    });
    let entries = json!([
        { "name": "a.lua", "kind": "file", "size": 12, "modified": "2027-01-15T08:00:00Z" },
        { "name": "disk", "kind": "folder" },
        { "name": "romä", "kind": "folder", "read_only": true },
    ]);
    let expected = json!({ "computer": "12 (base-turtle)", "path": "/", "entries": entries, "more": false });
    assert_eq!(listed, expected);
    let (refused, ()) = join!(
        robot.call("list_computer_files", json!({ "computer": 12, "path": "/no" })),
        computer.refuses("files.list", json!({ "path": "/no" }), "/no: No such file")
    );
    assert!(failure(&refused).contains("the computer said: /no: No such file"), "{refused}");
}

#[tokio::test]
async fn a_large_file_is_read_in_pieces_and_comes_whole() {
    let (hub, mut computer) = with_turtle().await;
    let robot = hub.robot();
    let file: String = (0..15_000).map(|line| format!("line {line:04}\n")).collect();
    let (read, ()) = join!(robot.does("read_computer_file", json!({ "computer": 12, "path": "log" })), async {
        for offset in [0, 60_000] {
            sends(&mut computer, file.as_bytes(), offset, 60_000).await;
        }
        sends(&mut computer, file.as_bytes(), 120_000, file.len() - 120_000).await;
    });
    assert_eq!((&read["size"], &read["encoding"]), (&json!(file.len()), &json!("text")));
    assert!(read["content"] == file, "it is another file");
    assert_eq!(read.get("next_offset"), None);

    let window = json!({ "computer": 12, "path": "log", "offset": 10_000, "length": 50 });
    // What stands before is looked at, too: a secret may begin there.
    let (read, ()) =
        join!(robot.does("read_computer_file", window), sends(&mut computer, file.as_bytes(), 5_904, 4_146));
    assert_eq!(read["content"], file[10_000..10_050]);
    assert_eq!(read["next_offset"], 10_050);
}

#[tokio::test]
async fn what_is_not_text_comes_as_base64_and_nothing_as_nothing() {
    let (hub, mut computer) = with_turtle().await;
    let robot = hub.robot();
    let arguments = json!({ "computer": 12, "path": "log" });
    for (file, encoding, content) in
        [(&b"\x00\xff\xfe"[..], "base64", "AP/+"), (b"", "text", ""), ("grüße\n".as_bytes(), "text", "grüße\n")]
    {
        let (read, ()) =
            join!(robot.does("read_computer_file", arguments.clone()), sends(&mut computer, file, 0, 60_000));
        let expected = json!({
            "computer": "12 (base-turtle)", "path": "log", "size": file.len(), "encoding": encoding, "content": content,
        });
        assert_eq!(read, expected);
    }
}

#[tokio::test]
async fn a_secret_does_not_come_as_base64_either() {
    let hub = Hub::start().robot().env("CC_LINK_TOKEN", "tok-hunter-abcdefgh-1234").await;
    let mut hello = turtle(12, "base-turtle");
    hello["token"] = "tok-hunter-abcdefgh-1234".into();
    let (mut computer, robot) = (hub.computer(hello).await, hub.robot());
    // As a computer keeps its settings. One byte is Latin-1, so it is not text.
    let file = b"{\n  [ \"nexus.token\" ] = \"tok-hunter-abcdefgh-1234\",\n  motd = \"gr\xfcn\",\n}";
    for (offset, length) in [(0, 100), (30, 100), (48, 20)] {
        let arguments = json!({ "computer": 12, "path": "log", "offset": offset, "length": length });
        let (read, ()) =
            join!(robot.call("read_computer_file", arguments), sends(&mut computer, file, 0, offset + length));
        assert!(
            failure(&read).contains("it is not text, and holds what looks like a secret, from byte 25 on"),
            "{read}"
        );
    }
    let behind = json!({ "computer": 12, "path": "log", "offset": 49, "length": 100 });
    let (read, ()) = join!(robot.does("read_computer_file", behind), sends(&mut computer, file, 0, 149));
    assert_eq!(read["content"], BASE64_STANDARD.encode(&file[49..]));
}

#[tokio::test]
async fn a_file_that_changes_under_the_reading_or_comes_in_wrong_pieces_is_an_error() {
    let (hub, mut computer) = with_turtle().await;
    let robot = hub.robot();
    let arguments = json!({ "computer": 12, "path": "log" });
    let whole = vec![b'x'; 100_000];
    let second = json!({ "path": "log", "offset": 60_000, "length": 40_000 });
    let data = BASE64_STANDARD.encode(&whole[60_000..]);
    let other_size = json!({ "data": data, "size": 100_001, "modified": 1.8e12 });
    let other_time = json!({ "data": data, "size": 100_000, "modified": 1.8e12 + 1.0 });
    let short = json!({ "data": "eHg=", "size": 100_000, "modified": 1.8e12 });
    let no_base64 = json!({ "data": "???", "size": 100_000, "modified": 1.8e12 });
    for (answer, words) in [
        (other_size, "log was changed while it was read"),
        (other_time, "log was changed while it was read"),
        (short, "something else than the piece of log"),
        (no_base64, "something else than the piece of log"),
        (json!({ "size": 100_000 }), "answered with something else"),
    ] {
        let (read, ()) = join!(robot.call("read_computer_file", arguments.clone()), async {
            sends(&mut computer, &whole, 0, 60_000).await;
            computer.answers("files.read", second.clone(), answer).await;
        });
        assert!(failure(&read).contains(words), "{read}");
    }
}

#[tokio::test]
async fn a_file_larger_than_a_frame_arrives_whole() {
    let (hub, mut computer) = with_turtle().await;
    let robot = hub.robot();
    let content: String = (0..30_000).map(|line| format!("grün {line:03}\n")).take(300_000 / 11).collect();
    let bytes = content.as_bytes();
    assert!(bytes.len() > 290_000, "{}", bytes.len());
    let arguments = json!({ "computer": 12, "path": "/disk/big.txt", "content": content });
    let (written, arrived) = join!(robot.does("write_computer_file", arguments), async {
        let (mut arrived, mut transfer) = (Vec::<u8>::new(), Value::Null);
        loop {
            let heard = computer.heard().await;
            let params = &heard["params"];
            let piece = BASE64_STANDARD.decode(params["data"].as_str().unwrap()).unwrap();
            let last = arrived.len() + piece.len() == bytes.len();
            let name = params["transfer"].as_str().unwrap();
            assert!(name.len() >= 16 && name.chars().all(|c| c.is_ascii_hexdigit()), "{name}");
            assert!(transfer.is_null() || transfer == params["transfer"], "one transfer has one name");
            transfer = params["transfer"].clone();
            let expected = json!({
                "path": "/disk/big.txt", "transfer": transfer, "offset": arrived.len(), "data": params["data"],
                "size": bytes.len(), "last": last,
            });
            assert_eq!((&heard["method"], params), (&json!("files.write"), &expected));
            assert!(piece.len() <= 60_000);
            arrived.extend(&piece);
            computer.result(heard["id"].as_str().unwrap(), json!({ "written": piece.len() as f64 })).await;
            if last {
                break arrived;
            }
        }
    });
    assert!(arrived == bytes, "another file arrived");
    let expected = json!({ "computer": "12 (base-turtle)", "path": "/disk/big.txt", "bytes": bytes.len() });
    assert_eq!(written, expected);
}

#[tokio::test]
async fn only_with_the_last_piece_is_it_unsure_what_became_of_a_file() {
    let (hub, mut computer) = with_turtle().await;
    let robot = hub.robot();
    let arguments = json!({ "computer": 12, "path": "a", "content": "x".repeat(100_000) });
    for (last, told) in [(false, "nothing was replaced: what was there before still is"), (true, "perhaps it was done")]
    {
        let (written, ()) = join!(robot.call("write_computer_file", arguments.clone()), async {
            let mut heard = computer.heard().await;
            if last {
                computer.result(heard["id"].as_str().unwrap(), json!({ "written": 60_000 })).await;
                heard = computer.heard().await;
            }
            assert_eq!(heard["params"]["last"], last);
            let anew = hub.computer(turtle(12, "base-turtle")).await;
            assert_eq!(std::mem::replace(&mut computer, anew).closed().await, 4001);
        });
        assert!(failure(&written).contains("another connection took its place"), "{written}");
        assert!(written.to_string().contains(told), "{written}");
        assert_eq!(written.to_string().contains("perhaps"), last, "{written}");
    }
}

#[tokio::test]
async fn a_write_that_the_computer_refuses_ends_there() {
    let (hub, mut computer) = with_turtle().await;
    let robot = hub.robot();
    let content = "x".repeat(100_000);
    let arguments = json!({ "computer": 12, "path": "rom/x", "content": content });
    let (written, ()) = join!(robot.call("write_computer_file", arguments), async {
        let heard = computer.heard().await;
        let id = &heard["id"];
        computer.say(&json!({ "type": "response", "id": id, "ok": false, "error": "rom/x: Access denied" })).await;
    });
    assert!(failure(&written).contains("the computer said: rom/x: Access denied"), "{written}");
    let back = json!({ "computer": 12, "path": "x", "content": "key: [redacted]" });
    let refused = robot.call("write_computer_file", back).await;
    assert!(failure(&refused).contains("would destroy the secret"), "{refused}");
    let base64 = json!({ "computer": 12, "path": "x", "content": "AP8=", "encoding": "base64" });
    // The next thing that it hears is another file: nothing more of the first was sent.
    let (written, heard) = join!(robot.does("write_computer_file", base64), async {
        let heard = computer.heard().await;
        computer.result(heard["id"].as_str().unwrap(), json!({})).await;
        heard["params"].clone()
    });
    assert_eq!((&heard["data"], &heard["last"], &heard["size"]), (&json!("AP8="), &json!(true), &json!(2)), "{heard}");
    assert_eq!(written["bytes"], 2);
}
