//! How fast the queue is. Figures against limits: `benches/queue` runs them on the release build and prints them.

use std::fmt;
use std::time::Instant;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::*;

/// The numbers. A build that is not optimised only shows that it works.
const FINISHED: i64 = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };
const OPEN: i64 = if cfg!(debug_assertions) { 2_000 } else { 100_000 };
const TIME: Duration = if cfg!(debug_assertions) { Duration::from_secs(1) } else { Duration::from_secs(4) };
const ROUNDS: usize = if cfg!(debug_assertions) { 3 } else { 9 };
const SENDERS: usize = 64;

/// On the disk that the build lies on: a folder in memory would make every fsync free.
fn folder() -> TempDir {
    let program = std::env::current_exe().unwrap();
    tempfile::tempdir_in(program.parent().unwrap()).unwrap()
}

struct Desk {
    queue: Arc<Queue>,
    store: Store,
    folder: TempDir,
    tasks: Tasks,
}

impl Desk {
    async fn new() -> Self {
        let folder = folder();
        let store = Store::open(folder.path(), None).await.unwrap();
        let tasks = Tasks::new();
        let queue = Queue::start(store.clone(), "/var/lib/nexus", folder.path(), &tasks).unwrap();
        Self { queue, store, folder, tasks }
    }

    async fn filled() -> Self {
        let desk = Self::new().await;
        let started = Instant::now();
        desk.store.fill("/var/lib/nexus", "homelab", FINISHED, OPEN).await;
        println!("{FINISHED} finished and {OPEN} open tasks written in {:.0} s", started.elapsed().as_secs_f64());
        desk
    }

    async fn end(self) {
        assert!(self.tasks.finish(Duration::from_secs(10)).await);
    }
}

fn message(content: String) -> NewTask {
    NewTask {
        target: "homelab".into(),
        content,
        priority: Priority::Normal,
        deadline: None,
        max_attempts: 1,
        idempotency_key: None,
        sender: "model".to_owned(),
    }
}

fn words(who: usize, nth: usize) -> String {
    format!("please look at the disk of node {who} and tell what takes the space, for the {nth}th time")
}

/// Microseconds of one send.
async fn one(desk: &Desk, round: usize, nth: usize) -> f64 {
    let started = Instant::now();
    let sent = desk.queue.send(message(words(1_000 + round, nth))).await.unwrap();
    assert!(matches!(sent, Sent::Queued { .. }), "{sent:?}");
    started.elapsed().as_secs_f64() * 1e6
}

/// Messages a second of as many senders, each waiting until its own is safe.
async fn all_together(desk: &Desk, round: usize, time: Duration) -> f64 {
    let (started, mut senders) = (Instant::now(), Vec::new());
    for who in 0..SENDERS {
        let queue = desk.queue.clone();
        senders.push(desk.tasks.spawn("sender", async move {
            let mut sent = 0;
            while started.elapsed() < time {
                queue.send(message(words(who + 100 * (round + 100), sent))).await.unwrap();
                sent += 1;
            }
            sent
        }));
    }
    let mut sent = 0;
    for sender in senders {
        sent += sender.await.unwrap().unwrap();
    }
    sent as f64 / started.elapsed().as_secs_f64()
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_unstable_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Prints a figure, and remembers whether it was as it must be.
#[derive(Default)]
struct Limits {
    missed: Vec<String>,
}

impl Limits {
    fn check(&mut self, holds: bool, figure: impl fmt::Display) {
        println!("RESULT {figure}: {}", if holds { "ok" } else { "MISSED" });
        if !holds {
            self.missed.push(figure.to_string());
        }
    }

    fn settle(self) {
        assert!(cfg!(debug_assertions) || self.missed.is_empty(), "missed: {:?}", self.missed);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: benches/queue"]
async fn a_full_queue_costs_no_more_than_an_empty_one() {
    let (empty, full) = (Desk::new().await, Desk::filled().await);
    let (mut on_empty, mut on_full, mut together) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        for nth in 0..200 {
            // In turns: the machine is not the same from one moment to the next.
            if nth % 2 == 0 {
                on_empty.push(one(&empty, round, nth).await);
                on_full.push(one(&full, round, nth).await);
            } else {
                on_full.push(one(&full, round, nth).await);
                on_empty.push(one(&empty, round, nth).await);
            }
        }
    }
    for round in 0..ROUNDS {
        let time = TIME / 8;
        let (on_empty, on_full) = (all_together(&empty, round, time).await, all_together(&full, round, time).await);
        together.push(on_empty / on_full);
    }
    let (on_empty, on_full) = (median(on_empty), median(on_full));
    let ratio = on_full / on_empty;
    let mut limits = Limits::default();
    limits.check(
        ratio <= 1.2,
        format_args!(
            "a send with {FINISHED} finished and {OPEN} open tasks: {ratio:.2} x of an empty queue, \
             {on_full:.0} us against {on_empty:.0} us (limit 1.2)"
        ),
    );
    println!("RESULT the same with {SENDERS} senders at once: {:.2} x the time a message", median(together));
    empty.end().await;
    full.end().await;
    limits.settle();
}

/// The plainest writer: whatever rows are there, one statement each, and one commit.
async fn plain(time: Duration) -> f64 {
    type Row = (String, oneshot::Sender<()>);
    let folder = folder();
    let options = SqliteConnectOptions::new()
        .filename(folder.path().join("plain.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .page_size(16_384)
        .pragma("cache_size", "-8000")
        .pragma("wal_autocheckpoint", "1000")
        .pragma("temp_store", "memory");
    #[allow(clippy::disallowed_methods, reason = "the database without our store")]
    let db: SqlitePool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
    sqlx::query("CREATE TABLE message (id INTEGER PRIMARY KEY, body TEXT NOT NULL)").execute(&db).await.unwrap();
    let (tasks, (inbox, mut coming)) = (Tasks::new(), mpsc::channel::<Row>(INBOX));
    tasks.spawn("plain writer", async move {
        while let Some(first) = coming.recv().await {
            let mut rows = vec![first];
            while rows.len() < 256
                && let Ok(row) = coming.try_recv()
            {
                rows.push(row);
            }
            let mut transaction = db.begin().await.unwrap();
            for (body, _) in &rows {
                let insert = sqlx::query("INSERT INTO message (body) VALUES (?)").bind(body);
                insert.execute(&mut *transaction).await.unwrap();
            }
            transaction.commit().await.unwrap();
            rows.into_iter().for_each(|(_, answer)| answer.send(()).unwrap());
        }
    });
    let (started, mut senders) = (Instant::now(), Vec::new());
    for who in 0..SENDERS {
        let inbox = inbox.clone();
        senders.push(tasks.spawn("sender", async move {
            let mut sent = 0;
            while started.elapsed() < time {
                let (answer, answered) = oneshot::channel();
                inbox.send((words(who, sent), answer)).await.unwrap();
                answered.await.unwrap();
                sent += 1;
            }
            sent
        }));
    }
    let mut sent = 0;
    for sender in senders {
        sent += sender.await.unwrap().unwrap();
    }
    sent as f64 / started.elapsed().as_secs_f64()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: benches/queue"]
async fn many_senders_are_as_fast_as_plain_groups() {
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    for round in 0..5 {
        let desk = Desk::new().await;
        let (ours, theirs) = match round % 2 {
            0 => (all_together(&desk, round, TIME / 2).await, plain(TIME / 2).await),
            _ => {
                let theirs = plain(TIME / 2).await;
                (all_together(&desk, round, TIME / 2).await, theirs)
            }
        };
        println!("{SENDERS} senders: the queue {ours:.0}/s, plain groups {theirs:.0}/s");
        ratios.push(ours / theirs);
        rates.push(ours);
        desk.end().await;
    }
    let (ratio, rate) = (median(ratios), median(rates));
    let mut limits = Limits::default();
    let figure = format_args!("{SENDERS} senders: {rate:.0} messages/s, {ratio:.2} x plain groups (limit 0.8)");
    limits.check(ratio >= 0.8, figure);
    limits.settle();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: benches/queue"]
async fn an_update_is_heard_in_milliseconds() {
    let desk = Desk::new().await;
    // As another process has it: told through its socket.
    let other = Queue::start(desk.store.clone(), "/var/lib/nexus", desk.folder.path(), &desk.tasks).unwrap();
    let mut limits = Limits::default();
    for (place, listening) in [("in the same process", &desk.queue), ("in another", &other)] {
        let mut took = Vec::new();
        for _ in 0..300 {
            let mut bell = listening.listen(&Topic::Updates);
            let after = listening.last_update().await.unwrap();
            let (queue, started) = (desk.queue.clone(), Instant::now());
            let said = desk.tasks.spawn("agent", async move {
                queue.note(&"homelab".into(), Kind::Progress, "a line".to_owned(), None).await.unwrap()
            });
            let wanted = Wanted { after, limit: 100, ..Wanted::default() };
            while listening.updates(&wanted).await.unwrap().is_empty() {
                bell.changed().await.unwrap();
            }
            took.push(started.elapsed().as_secs_f64() * 1e3);
            said.await.unwrap();
        }
        took.sort_unstable_by(f64::total_cmp);
        let (half, most) = (took[took.len() / 2], took[took.len() * 99 / 100]);
        let figure =
            format_args!("an update is read by a waiter {place} after {half:.2} ms, p99 {most:.2} ms (limit 10)");
        limits.check(half <= 10.0, figure);
    }
    desk.end().await;
    limits.settle();
}
