//! Walks over real stores: nothing is left out, nothing comes twice, whoever wrote it and whenever it was committed.

use nexus_core::audit::{Event, Row};
use nexus_core::clock;
use sqlx::{ConnectOptions, SqliteConnection};
use tempfile::TempDir;

use super::*;
use crate::store::chain::{Chain, position};

const SMALL: Size = Size { rows: 7, bytes: 1_000_000 };
const HOME: &str = "home";

struct Desk {
    folder: TempDir,
    store: Store,
    course: Course,
}

impl Desk {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), None).await.unwrap();
        Self { folder, store, course: Course::default() }
    }

    async fn write(&self, chain: &mut Chain, rows: usize) {
        let rows: Vec<Row> = (0..rows).map(|n| Row::new(Event::HubStarted).detail(n)).collect();
        self.store.append(chain, &rows).await.unwrap();
    }

    async fn sql(&self) -> SqliteConnection {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(self.folder.path().join("nexus.db"));
        options.connect().await.unwrap()
    }

    /// Walks as the shipper does, to the end. What was found, as `chain number:seq`.
    async fn ship(&mut self, chains: &[&Chain]) -> Vec<String> {
        let mut found = Vec::new();
        loop {
            let clear = position(clock::now_ms());
            let lagging = self.store.lagging(HOME).await.unwrap();
            if lagging.is_empty() {
                self.course.clear = clear;
                return found;
            }
            let mut walk = Walk::new(&lagging, &self.course);
            while let Some(batch) = walk.next(&self.store, SMALL).await.unwrap() {
                assert!(batch.rows.len() <= SMALL.rows);
                for passed in batch.rows.iter().filter(|passed| passed.body.is_some()) {
                    let nth = chains.iter().position(|chain| chain.id == passed.shipped.chain).unwrap();
                    found.push(format!("{nth}:{}", passed.shipped.seq));
                }
                self.store.shipped(&batch.upto(batch.rows.len()), &[]).await.unwrap();
            }
            let ended = walk.end(&mut self.course, clear);
            self.store.shipped(&ended, &[]).await.unwrap();
        }
    }
}

fn seqs(chain: usize, seqs: impl IntoIterator<Item = i64>) -> Vec<String> {
    seqs.into_iter().map(|seq| format!("{chain}:{seq}")).collect()
}

#[tokio::test]
async fn rows_of_all_chains_come_once_and_in_the_order_of_writing() {
    let mut desk = Desk::open().await;
    let (mut a, mut b, mut other) = (Chain::new(HOME), Chain::new(HOME), Chain::new("another home"));
    desk.write(&mut a, 10).await;
    desk.write(&mut b, 10).await;
    desk.write(&mut other, 3).await;
    desk.write(&mut a, 10).await;
    let first = desk.ship(&[&a, &b]).await;
    assert_eq!(first, [seqs(0, 1..=10), seqs(1, 1..=10), seqs(0, 11..=20)].concat());
    assert!(desk.ship(&[&a, &b]).await.is_empty());
    desk.write(&mut b, 1).await;
    assert_eq!(desk.ship(&[&a, &b]).await, ["1:11"]);
}

#[tokio::test]
async fn a_row_that_is_committed_late_is_not_left_out() {
    let mut desk = Desk::open().await;
    let (mut a, mut b) = (Chain::new(HOME), Chain::new(HOME));
    desk.write(&mut a, 5).await;
    desk.write(&mut b, 5).await;
    // As if the process behind `a` had its rows ready and waited for the lock.
    let mut sql = desk.sql().await;
    for away in [
        "CREATE TABLE late AS SELECT * FROM audit WHERE body LIKE '%\"chain\":\"' || (SELECT MIN(id) FROM chain) || '\"%'",
        "CREATE TABLE late_chain AS SELECT * FROM chain WHERE id = (SELECT MIN(id) FROM chain)",
        "DELETE FROM audit WHERE pos IN (SELECT pos FROM late)",
        "DELETE FROM chain WHERE id IN (SELECT id FROM late_chain)",
    ] {
        sqlx::query(away).execute(&mut sql).await.unwrap();
    }
    assert_eq!(desk.ship(&[&a, &b]).await, seqs(1, 1..=5));
    // Everything before now is taken for shipped, though the writer is an hour late.
    desk.course.clear = position(clock::now_ms() + 1_000);
    for back in ["INSERT INTO audit SELECT * FROM late", "INSERT INTO chain SELECT * FROM late_chain"] {
        sqlx::query(back).execute(&mut sql).await.unwrap();
    }
    assert_eq!(desk.ship(&[&a, &b]).await, seqs(0, 1..=5));
}

#[tokio::test]
async fn rows_that_are_not_there_do_not_hold_up_the_others() {
    let mut desk = Desk::open().await;
    let mut a = Chain::new(HOME);
    desk.write(&mut a, 20).await;
    let mut sql = desk.sql().await;
    let holes = "DELETE FROM audit WHERE pos IN (SELECT pos FROM audit WHERE body LIKE '%\"seq\":4,%' OR body LIKE '%\"seq\":19,%' OR body LIKE '%\"seq\":20,%')";
    sqlx::query(holes).execute(&mut sql).await.unwrap();
    assert_eq!(desk.ship(&[&a]).await, [seqs(0, 1..=3), seqs(0, 5..=18)].concat());
    desk.write(&mut a, 1).await;
    assert_eq!(desk.ship(&[&a]).await, ["0:21"]);
}

#[tokio::test]
async fn what_is_pruned_counts_as_shipped() {
    let mut desk = Desk::open().await;
    let mut a = Chain::new(HOME);
    desk.write(&mut a, 20).await;
    let mut sql = desk.sql().await;
    for prune in [
        "UPDATE chain SET pruned_seq = 15",
        "DELETE FROM audit WHERE pos IN (SELECT pos FROM audit ORDER BY pos LIMIT 15)",
    ] {
        sqlx::query(prune).execute(&mut sql).await.unwrap();
    }
    assert_eq!(desk.store.shipping(HOME).await.unwrap().unshipped, 5);
    assert_eq!(desk.ship(&[&a]).await, seqs(0, 16..=20));
    assert_eq!(desk.store.shipping(HOME).await.unwrap().unshipped, 0);
}

#[tokio::test]
async fn the_rows_of_pushes_are_passed_and_not_pushed() {
    let mut desk = Desk::open().await;
    let mut a = Chain::new(HOME);
    let pushed = |status: &str| Row::new(Event::Outbound).detail(format!("POST http://loki:3100/loki/api/v1/push {status}, 3 rows"));
    let others = [
        Row::new(Event::Outbound).detail("POST http://ntfy/topic 200, 1 row"),
        Row { principal: Some(nexus_core::principal::PrincipalId::new("robot")), ..pushed("204") },
        Row::new(Event::KeyRefused).detail("POST http://x/loki/api/v1/push \"event\":\"outbound\""),
    ];
    desk.write(&mut a, 1).await;
    desk.store.append(&mut a, &[pushed("204"), pushed("did not answer: connection refused")]).await.unwrap();
    desk.store.append(&mut a, &others).await.unwrap();
    assert_eq!(desk.ship(&[&a]).await, ["0:1", "0:4", "0:5", "0:6"]);
    let shipping = desk.store.shipping(HOME).await.unwrap();
    assert!(shipping.last_push.unwrap().told.contains("did not answer"));
    assert!(shipping.last_taken.unwrap().told.contains(" 204,"));
    assert_eq!((shipping.unshipped, shipping.oldest_ms, shipping.aside), (0, None, 0));
}
