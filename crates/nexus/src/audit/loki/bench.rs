//! Fills a store for `benches/loki`, which then ships it with the release program.

use std::path::Path;
use std::sync::Arc;

use nexus_core::audit::{CallRow, Event, Row};
use nexus_core::clock;
use nexus_core::tool::Access;

use crate::audit::alive;
use crate::private;
use crate::store::Store;
use crate::store::chain::Chain;

const BATCH: usize = 2_000;

fn call(n: usize) -> Row {
    let call = CallRow {
        id: clock::new_id(),
        tool: ["list_directory", "read_file", "get_session_info", "run_command", "write_file"][n % 5].into(),
        origin: None,
        access: Some(Access::Read),
        node: None,
        summary: Some(format!("look at folder {n}")),
        arguments: Arc::from(format!(r#"{{"path":"/srv/media/library/{n}","depth":2}}"#)),
        digest: [7; 32],
        decision: Some("allowed"),
        how: None,
        outcome: Some("ok"),
        duration_us: Some(120),
    };
    Row {
        session: Some(clock::new_id()),
        client: Some("claude-code/2.1.325".to_owned()),
        call: Some(call),
        ..Row::new(Event::Call)
    }
}

/// Rows in the data folder that the environment names, as a hub that had no Loki would have left them.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a part of benches/loki"]
#[allow(clippy::disallowed_methods, reason = "how the script tells a test what to do")]
async fn fill() {
    let folder = std::env::var("NEXUS_BENCH_DATA").unwrap();
    let rows: usize = std::env::var("NEXUS_BENCH_ROWS").unwrap().parse().unwrap();
    let folder = Path::new(&folder);
    private::folder(folder).unwrap();
    let store = Store::open(folder, None).await.unwrap();
    let mut chain = Chain::new(&alive::home(folder).unwrap());
    for first in (0..rows).step_by(BATCH) {
        let batch: Vec<Row> = (first..rows.min(first + BATCH)).map(call).collect();
        store.append(&mut chain, &batch, crate::store::sheaf::List::Now).await.unwrap();
    }
    store.close().await;
}
