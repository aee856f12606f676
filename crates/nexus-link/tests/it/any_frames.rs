//! Whatever a computer sends, the hub goes on, and so do the others.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::runtime::Builder;

use crate::support::{Hub, frame};

/// Something a program might send that is wrong, odd, or right.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let words = prop_oneof![
        Just(r#"{"type":"hello","computerId":7}"#.to_owned()),
        Just(r#"{"type":"hello","computerId":1,"world":"other"}"#.to_owned()),
        Just(r#"{"type":"response","id":"req-1","ok":true,"result":[1]}"#.to_owned()),
        Just(r#"{"type":"response","id":"req-1","ok":false,"error":{}}"#.to_owned()),
        (any::<f64>(), ".{0,20}").prop_map(|(id, label)| {
            json!({ "type": "hello", "computerId": id, "computerLabel": label, "world": "other" }).to_string()
        }),
        "[\\[\\]{}\",:a-z0-9]{0,80}",
    ];
    prop_oneof![
        4 => words.prop_map(|text| frame(0x81, text.as_bytes())),
        3 => (any::<u8>(), vec(any::<u8>(), 0..300)).prop_map(|(first, payload)| frame(first & 0x8f, &payload)),
        1 => (any::<u8>(), vec(any::<u8>(), 0..300)).prop_map(|(first, payload)| frame(first, &payload)),
        1 => vec(any::<u8>(), 0..100),
    ]
}

#[test]
fn whatever_one_computer_sends_another_still_answers() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (hub, computer) = runtime.block_on(async {
        let hub = Hub::start().await;
        let computer = hub.computer(1).await;
        (hub, parking_lot::Mutex::new(Some(computer)))
    });
    let mut runner = TestRunner::new(Config { cases: 64, failure_persistence: None, ..Config::default() });
    let mut taken = runner.run(&(vec(piece(), 1..20), any::<bool>()), |(pieces, says_hello)| {
        let mut good = computer.lock().take().expect("it comes back");
        runtime.block_on(async {
            let mut bad = hub.raw().await;
            if says_hello {
                bad.greet(7).await;
            }
            for piece in &pieces {
                // It may be sent away in the middle.
                let _ = bad.socket.write_all(piece).await;
            }
            hub.reaches(1, &mut good).await;
            drop(bad);
            hub.reaches(1, &mut good).await;
        });
        *computer.lock() = Some(good);
        Ok(())
    });
    if let Err(error) = &mut taken {
        panic!("{error}");
    }
    runtime.block_on(crate::support::until("the bad ones are gone", || hub.links.counts().computers == 1));
}
