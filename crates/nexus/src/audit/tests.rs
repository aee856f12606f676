//! The journal beside a real store: what it promises to those who wait, and at the end.

use super::*;
use nexus_core::audit::Event;

struct Desk {
    store: Store,
    journal: Arc<Journal>,
    stop: CancellationToken,
    folder: tempfile::TempDir,
}

impl Desk {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), None).await.unwrap();
        Self { store, journal: Arc::default(), stop: CancellationToken::new(), folder }
    }
}

#[tokio::test]
async fn a_durable_row_is_in_the_store_when_it_says_so_and_the_end_loses_none() {
    let Desk { store, journal, stop, folder: _folder } = Desk::open().await;
    let writing = journal.clone().write_to(store.clone(), Chain::new("home"), stop.clone());
    let using = async {
        journal.durable(Row::new(Event::Begun)).await.unwrap();
        assert_eq!(store.audit_rows().await.unwrap(), 1);
        (0..5_000).for_each(|_| journal.post(Row::new(Event::Call)));
        stop.cancel();
    };
    tokio::join!(writing, using);
    assert_eq!(store.audit_rows().await.unwrap(), 5_001);
}

#[tokio::test]
async fn a_write_does_not_wait_for_what_comes_behind_it() {
    let Desk { store, journal, stop, folder: _folder } = Desk::open().await;
    let writing = journal.clone().write_to(store.clone(), Chain::new("home"), stop.clone());
    let using = async {
        let begun = journal.durable(Row::new(Event::Begun));
        let flood = async {
            loop {
                (0..500).for_each(|_| journal.post(Row::new(Event::Call)));
                tokio::task::yield_now().await;
                if let Some(backlog) = journal.backlog() {
                    backlog.await;
                }
            }
        };
        tokio::select! {
            recorded = begun => recorded.unwrap(),
            () = flood => {}
        }
        stop.cancel();
    };
    tokio::join!(writing, using);
    assert!(journal.durable(Row::new(Event::Begun)).await.is_err(), "nobody writes any more");
}

#[tokio::test]
async fn a_store_that_refuses_fails_the_write_and_keeps_the_rows() {
    let Desk { store, journal, stop, folder: _folder } = Desk::open().await;
    store.close().await;
    let writing = journal.clone().write_to(store, Chain::new("home"), stop.clone());
    let using = async {
        // More than a batch, so that the row somebody waits for is not in the first one.
        (0..3_000).for_each(|_| journal.post(Row::new(Event::Call)));
        assert!(journal.durable(Row::new(Event::Begun)).await.is_err());
        assert_eq!(journal.unwritten(), 3_000);
        assert!(journal.is_failing());
        assert!(journal.durable(Row::new(Event::Begun)).await.is_err());
        assert!(journal.backlog().is_none());
        stop.cancel();
    };
    tokio::join!(writing, using);
}
