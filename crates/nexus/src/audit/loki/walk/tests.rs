//! Walks over real stores: nothing is left out, nothing comes twice, whoever wrote it and whenever it was committed.

use nexus_core::audit::{Event, Row};
use nexus_core::clock;

use super::*;
use crate::store::chain::Chain;
use crate::store::position::position;
use crate::store::sheaf::List;
use crate::store::ship::Aside;
use crate::store::tests::{own_database, tamper};

const SMALL: Size = Size { rows: 7, bytes: 1_000_000 };
const HOME: &str = "home";

/// Runs a case on SQLite and on PostgreSQL.
macro_rules! on_both {
    ($($name:ident)*) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                let folder = tempfile::tempdir().unwrap();
                let store = super::Store::open(folder.path(), None).await.unwrap();
                super::$name(super::Desk { store, course: super::Course::default() }).await;
            })*
        }
        mod postgres {
            $(#[tokio::test]
            async fn $name() {
                let store = super::own_database().await;
                super::$name(super::Desk { store, course: super::Course::default() }).await;
            })*
        }
    };
}

on_both! {
    rows_of_all_chains_come_once_and_in_the_order_of_writing
    a_row_that_is_committed_late_is_not_left_out
    rows_that_are_not_there_do_not_hold_up_the_others
    what_is_pruned_counts_as_shipped
    the_rows_of_pushes_are_passed_and_not_pushed
    what_is_set_aside_is_counted_and_named
}

struct Desk {
    store: Store,
    course: Course,
}

impl Desk {
    async fn write(&self, chain: &mut Chain, rows: usize) {
        let rows: Vec<Row> = (0..rows).map(|n| Row::new(Event::HubStarted).detail(n)).collect();
        self.store.append(chain, &rows, List::Now).await.unwrap();
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

async fn rows_of_all_chains_come_once_and_in_the_order_of_writing(mut desk: Desk) {
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

async fn a_row_that_is_committed_late_is_not_left_out(mut desk: Desk) {
    let (mut a, mut b) = (Chain::new(HOME), Chain::new(HOME));
    desk.write(&mut b, 5).await;
    assert_eq!(desk.ship(&[&a, &b]).await, seqs(1, 1..=5));
    desk.write(&mut b, 5).await;
    desk.write(&mut a, 5).await;
    // As if their writer had waited for an hour, with a clock that was a month behind.
    tamper(&desk.store, &format!("UPDATE audit SET pos = pos - {} WHERE body LIKE '%{}%'", 1_i64 << 53, a.id)).await;
    desk.course.clear = position(clock::now_ms());
    assert_eq!(desk.ship(&[&a, &b]).await, [seqs(0, 1..=5), seqs(1, 6..=10)].concat());
    assert!(desk.ship(&[&a, &b]).await.is_empty());
}

async fn rows_that_are_not_there_do_not_hold_up_the_others(mut desk: Desk) {
    let mut a = Chain::new(HOME);
    desk.write(&mut a, 20).await;
    for seq in [4, 19, 20] {
        tamper(&desk.store, &format!("DELETE FROM audit WHERE body LIKE '%\"seq\":{seq},%'")).await;
    }
    assert_eq!(desk.ship(&[&a]).await, [seqs(0, 1..=3), seqs(0, 5..=18)].concat());
    desk.write(&mut a, 1).await;
    assert_eq!(desk.ship(&[&a]).await, ["0:21"]);
}

async fn what_is_pruned_counts_as_shipped(mut desk: Desk) {
    let mut a = Chain::new(HOME);
    desk.write(&mut a, 20).await;
    tamper(&desk.store, "UPDATE chain SET pruned_seq = 15").await;
    tamper(&desk.store, "DELETE FROM audit WHERE pos IN (SELECT pos FROM audit ORDER BY pos LIMIT 15)").await;
    let shipping = desk.store.shipping(HOME).await.unwrap();
    assert_eq!(shipping.unshipped, 5);
    assert!((clock::now_ms() - shipping.oldest_ms.unwrap()) < 60_000);
    assert_eq!(desk.ship(&[&a]).await, seqs(0, 16..=20));
    assert_eq!(desk.store.shipping(HOME).await.unwrap().unshipped, 0);
}

async fn the_rows_of_pushes_are_passed_and_not_pushed(mut desk: Desk) {
    let mut a = Chain::new(HOME);
    let pushed = |status: &str| {
        Row::new(Event::Outbound).detail(format!("POST http://loki:3100/loki/api/v1/push {status}, 3 rows"))
    };
    let others = [
        Row::new(Event::Outbound).detail("POST http://ntfy/topic 200, 1 row"),
        Row { principal: Some(nexus_core::principal::PrincipalId::new("robot")), ..pushed("204") },
        Row::new(Event::KeyRefused).detail("POST http://x/loki/api/v1/push \"event\":\"outbound\""),
    ];
    desk.write(&mut a, 1).await;
    desk.store.append(&mut a, &[pushed("204"), pushed("did not answer: connection refused")], List::Now).await.unwrap();
    desk.store.append(&mut a, &others, List::Now).await.unwrap();
    assert_eq!(desk.ship(&[&a]).await, ["0:1", "0:4", "0:5", "0:6"]);
    let shipping = desk.store.shipping(HOME).await.unwrap();
    assert!(shipping.last_push.unwrap().told.contains("did not answer"));
    assert!(shipping.last_taken.unwrap().told.contains(" 204,"));
    assert_eq!((shipping.unshipped, shipping.oldest_ms, shipping.aside), (0, None, 0));
}

async fn what_is_set_aside_is_counted_and_named(desk: Desk) {
    let mut a = Chain::new(HOME);
    desk.write(&mut a, 3).await;
    let lagging = desk.store.lagging(HOME).await.unwrap();
    let batch = Walk::new(&lagging, &desk.course).next(&desk.store, SMALL).await.unwrap().unwrap();
    let aside = |nth: usize| Aside { pos: batch.rows[nth].shipped.pos, reason: format!("reason {nth}") };
    desk.store.shipped(&batch.upto(2), &[aside(0), aside(1)]).await.unwrap();
    // Again, as after a crash; and a cursor does not go back.
    desk.store.shipped(&batch.upto(1), &[aside(1)]).await.unwrap();
    let shipping = desk.store.shipping(HOME).await.unwrap();
    assert_eq!((shipping.unshipped, shipping.aside), (1, 2));
    assert_eq!(shipping.last_reason.as_deref(), Some("reason 1"));
    assert_eq!(desk.store.lagging(HOME).await.unwrap()[0].shipped_seq, 2);
}
