//! What is passed over quickly holds nothing.

use super::*;
use crate::redact::shapes::TOKENS;
use crate::reply::Reply;

/// Looks at every byte.
fn patiently(text: &str, end: End) -> String {
    let mut scan = Scan::new(text, end, None);
    scan.awake = usize::MAX;
    scan.run().into_owned()
}

#[test]
fn every_word_and_every_shape_has_a_clue() {
    let words = SECRET_WORDS.iter().map(|(word, _)| (*word).to_owned());
    let tokens = TOKENS.iter().map(|(prefix, _)| format!("{prefix}x"));
    let others = [
        "bearer ",
        "basic ",
        "eyJ",
        "://",
        "-----BEGIN PRIVATE KEY-----",
        "-u",
        "-U",
        "--user",
        "--proxy-user",
        "DB_PASS=",
        "pwd",
        "psk",
        "auth\"",
        "auth\\\"",
        "1:AA",
        "$6$",
        "$y$",
        "$2b$",
        "$apr1$",
        "$argon2id$",
        "hooks.slack.com",
        "SG.",
        "hvs.",
        "sk-1",
    ];
    let commands =
        ["curl", "mysql", "mysqldump", "mariadb", "sshpass", "redis-cli", "valkey-cli", "docker login", "podman login"];
    for word in words.chain(tokens).chain(others.into_iter().chain(commands).map(str::to_owned)) {
        for before in 0..12 {
            let text = format!("{}{word}", " ".repeat(before));
            assert!(clue::next(text.as_bytes(), 0) < text.len(), "{text}");
            let text = format!("{text} and something else");
            assert!(clue::next(text.as_bytes(), 0) < text.len(), "{text}");
        }
    }
    for (word, _) in SECRET_WORDS {
        assert!(clue::next(word.to_uppercase().as_bytes(), 0) < word.len(), "{word}");
    }
    assert_eq!(clue::next(b"an ordinary line of an ordinary log, and a number 17", 0), 52);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn skipping_changes_nothing(hostile in hostile(), between in "[ \n\tx,:/-]{0,12}", form in forms()) {
        let text = format!("{hostile}{between}{}{between}{hostile}", form.replace('%', "Q1abcdefghijkl"));
        for end in [End::Whole, End::Cut] {
            prop_assert_eq!(Scan::new(&text, end, None).run(), patiently(&text, end));
        }
    }
}

/// A measurement: `cargo test --release -p nexus-core how_fast -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, for release builds"]
fn how_fast() {
    learn((0..12).map(|i| format!("nxk_{:064x}", 0x1234_5678_9abc_def0_u128.wrapping_mul(i + 7))));
    let prose = "The container nginx-1 has been up for 3 days; its health check takes 12 ms and answers 200.\n";
    let listing = "drwxr-xr-x 2 root root 4096 Nov 15 12:00 backups\n-rw-r--r-- 1 root root 220 Jan 3 bash_logout\n";
    let rows = r#"{"id":"a81f","name":"web","state":"running","ports":[80,443],"labels":{"env":"lab"}},"#;
    let telling = "max_tokens: 5, see https://example.org/a?b=c for the key of the token -u me\n";
    for (what, piece) in [("prose", prose), ("listing", listing), ("json", rows), ("telling", telling)] {
        for kilobytes in [1, 50] {
            let text = piece.repeat(1024 * kilobytes / piece.len() + 1);
            // The best of many short runs: the machine has other things to do.
            let time = |work: &dyn Fn() -> usize| {
                let run = |_| {
                    let started = Instant::now();
                    assert!((0..100 / kilobytes).map(|_| work()).sum::<usize>() < usize::MAX);
                    started.elapsed().as_nanos() / (100 / kilobytes) as u128
                };
                (0..2_000).map(run).min().unwrap() * 1024 / text.len() as u128
            };
            let whole = time(&|| crate::redact::text(std::hint::black_box(&text)).len());
            let clues = time(&|| clue::next(std::hint::black_box(text.as_bytes()), 0));
            let own = time(&|| own_values(std::hint::black_box(&text)).len());
            let made = Reply::structured(&json!({ "stdout": text }), None).unwrap();
            let cloning = time(&|| std::hint::black_box(made.clone()).text().len());
            let replies = time(&|| reply(std::hint::black_box(made.clone())).text().len()) - cloning;
            println!("{what} {kilobytes} KB: {whole} ns/KB (clues {clues}, own values {own}), a reply {replies}");
        }
    }
}
