//! How fast the record is. Figures, not promises: `benches/audit` runs them on the release build and prints them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nexus_core::audit::{CallRow, Event, Row, Sink};
use nexus_core::clock;
use nexus_core::tool::Access;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Store;
use super::chain::Chain;
use super::rows::Filter;
use super::sheaf::List;
use crate::audit::Journal;

/// On the disk that the build lies on: a folder in memory would make every fsync free.
fn folder() -> tempfile::TempDir {
    let program = std::env::current_exe().unwrap();
    tempfile::tempdir_in(program.parent().unwrap()).unwrap()
}

fn call(n: usize, session: Uuid) -> Row {
    let tool = ["list_directory", "read_file", "get_session_info", "run_command", "write_file"][n % 5];
    let outcome = if n.is_multiple_of(997) { "refused" } else { "ok" };
    let call = CallRow {
        id: clock::new_id(),
        tool: tool.into(),
        origin: None,
        access: Some(Access::Read),
        node: None,
        summary: Some(format!("look at folder {n}")),
        arguments: Arc::from(r#"{"path":"/srv/media/library","depth":2}"#),
        digest: [7; 32],
        decision: Some("allowed"),
        how: None,
        outcome: Some(outcome),
        duration_us: Some(120),
    };
    let client = Some("claude-code/2.1.325".to_owned());
    Row { session: Some(session), client, call: Some(call), ..Row::new(Event::Call) }
}

fn begun(n: usize, session: Uuid) -> Row {
    Row { event: Event::Begun, ..call(n, session) }
}

/// Rows a second that 64 writers get, each waiting until its row is safe; and what SQLite does by itself.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: benches/audit"]
async fn durable_rows() {
    const WRITERS: usize = 64;
    const TIME: Duration = Duration::from_secs(4);
    let plain = |group: usize| async move {
        let folder = folder();
        let options = SqliteConnectOptions::new()
            .filename(folder.path().join("plain.db"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full);
        #[allow(clippy::disallowed_methods, reason = "the database without our store")]
        let db = SqlitePoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
        sqlx::query("CREATE TABLE audit (pos INTEGER PRIMARY KEY, body TEXT NOT NULL)").execute(&db).await.unwrap();
        let body = super::body::write(&begun(1, clock::new_id()), "chain", 1, 1, &[0; 32]).0;
        let (started, mut rows) = (Instant::now(), 0_usize);
        while started.elapsed() < TIME {
            let mut transaction = db.begin().await.unwrap();
            for _ in 0..group {
                let insert = sqlx::query("INSERT INTO audit (body) VALUES (?)").bind(&body);
                insert.execute(&mut *transaction).await.unwrap();
            }
            transaction.commit().await.unwrap();
            rows += group;
        }
        rows as f64 / started.elapsed().as_secs_f64()
    };
    let ours = || async {
        let folder = folder();
        let store = Store::open(folder.path(), None).await.unwrap();
        let (journal, stop) = (Arc::new(Journal::default()), CancellationToken::new());
        let work = journal.clone().write_to(store, Chain::new("home"), stop.clone());
        let tasks = nexus_core::tasks::Tasks::new();
        tasks.spawn("journal", work);
        let (started, mut writers) = (Instant::now(), Vec::new());
        for n in 0..WRITERS {
            let journal = journal.clone();
            writers.push(tasks.spawn("writer", async move {
                let (session, mut rows) = (clock::new_id(), 0_usize);
                while started.elapsed() < TIME {
                    journal.durable(begun(n, session)).await.unwrap();
                    rows += 1;
                }
                rows
            }));
        }
        let mut rows = 0;
        for writer in writers {
            rows += writer.await.unwrap().unwrap();
        }
        let rate = rows as f64 / started.elapsed().as_secs_f64();
        stop.cancel();
        rate
    };
    let (mut best, mut grouped) = (0.0_f64, 0.0_f64);
    for _ in 0..2 {
        let alone = plain(1).await;
        let together = plain(WRITERS).await;
        let journal = ours().await;
        println!(
            "plain one by one {alone:.0}/s, plain in groups of {WRITERS} {together:.0}/s, the journal with {WRITERS} writers {journal:.0}/s"
        );
        (best, grouped) = (best.max(journal), grouped.max(together));
    }
    println!("RESULT durable rows: {best:.0}/s, {:.2} x plain groups", best / grouped);
}

/// A million rows: adding, proving, and looking for some of them.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: benches/audit"]
async fn a_million_rows() {
    const ROWS: usize = 1_000_000;
    let folder = folder();
    let store = Store::open(folder.path(), None).await.unwrap();
    let sessions: Vec<Uuid> = (0..40).map(|_| clock::new_id()).collect();
    let mut chain = Chain::new("home");
    let (started, cpu) = (Instant::now(), cpu_seconds());
    for batch in 0..ROWS.div_ceil(2_000) {
        let rows: Vec<Row> = (batch * 2_000..(batch + 1) * 2_000).map(|n| call(n, sessions[n / 977 % 40])).collect();
        store.append(&mut chain, &rows, List::Now).await.unwrap();
    }
    let (took, cpu) = (started.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let size = store.size().await.unwrap() / 1_000_000;
    println!("RESULT adding: {:.0} rows/s, {:.2} us CPU a row, {size} MB", ROWS as f64 / took, cpu * 1e6 / ROWS as f64);

    let started = Instant::now();
    let verified = store.verify(|_| {}).await.unwrap();
    assert!(verified.holds(), "{:?}", verified.findings);
    println!("RESULT verify: {:.0} rows/s", verified.rows as f64 / started.elapsed().as_secs_f64());
    let started = Instant::now();
    assert!(store.integrity().await.unwrap().is_empty());
    println!("RESULT SQLite's own check: {:.1} s", started.elapsed().as_secs_f64());

    let some = |text: &str| Some(text.to_owned());
    let session = Some(sessions[0].to_string());
    let filters = [
        ("none", Filter::default()),
        ("session", Filter { session: session.clone(), ..Filter::default() }),
        ("tool", Filter { tool: some("read_file"), ..Filter::default() }),
        ("outcome, rare", Filter { outcome: some("refused"), ..Filter::default() }),
        ("outcome, common", Filter { outcome: some("ok"), ..Filter::default() }),
        (
            "session, tool, outcome",
            Filter { session: session.clone(), tool: some("read_file"), outcome: some("refused"), ..Filter::default() },
        ),
        ("session, outcome nobody has", Filter { session, outcome: some("failed"), ..Filter::default() }),
        ("tool nobody has", Filter { tool: some("nothing"), ..Filter::default() }),
        (
            "since a minute",
            Filter { since_ms: Some(clock::now_ms() - 60_000), tool: some("read_file"), ..Filter::default() },
        ),
    ];
    for (name, filter) in filters {
        let mut best = Duration::MAX;
        for _ in 0..5 {
            let started = Instant::now();
            store.newest(&filter, None, 50).await.unwrap();
            best = best.min(started.elapsed());
        }
        println!("RESULT newest 50 by {name}: {:.2} ms", best.as_secs_f64() * 1e3);
    }
}

/// Of all threads of this process. The kernel counts in hundredths.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    [11, 12].map(|at: usize| fields[at].parse::<f64>().unwrap() / 100.0).iter().sum()
}
