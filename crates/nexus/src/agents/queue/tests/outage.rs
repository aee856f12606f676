//! A store that is away for a while, or slow: nobody pays for it who was there.

use super::*;
use crate::store::tests::{alter, tamper};

on_both! {
    a_silence_while_the_store_was_away_ends_nothing
    a_silence_while_the_store_was_slow_ends_nothing
    a_change_that_cannot_be_written_keeps_nobody_alive
    whoever_was_heard_in_vain_is_told_of_the_next_time
}

async fn a_silence_while_the_store_was_away_ends_nothing(desk: Desk) {
    // Without the one beats cannot be looked up, without the other they cannot be written.
    for table in ["task", "agent_number"] {
        let id = desk.sent(table).await;
        desk.claimed(table).await.unwrap();
        alter(&desk.store, &format!("ALTER TABLE {table} RENAME TO away")).await;
        desk.pass(MINUTE);
        let beaten = desk.queue.beat(&"homelab".into(), &[table.to_owned()]).await;
        assert!(matches!(beaten, Err(QueueError::Store(_))), "{beaten:?}");
        alter(&desk.store, &format!("ALTER TABLE away RENAME TO {table}")).await;
        desk.sweep().await;
        assert_eq!(desk.status(id).await, Status::Acknowledged, "{table}");
        desk.pass(MINUTE);
        desk.sweep().await;
        assert_eq!(desk.status(id).await, Status::Dead, "{table}: from then on it has to be heard");
    }
}

async fn a_silence_while_the_store_was_slow_ends_nothing(desk: Desk) {
    let id = desk.sent("a").await;
    desk.claimed("x").await.unwrap();
    let mut other = desk.store.begin().await.unwrap();
    other.numbers("home").await.unwrap();
    let homelab = Arc::from("homelab");
    let mut note = Box::pin(desk.queue.note(&homelab, Kind::Note, "waits".to_owned(), None));
    assert!(futures_util::poll!(&mut note).is_pending());
    // The writer has taken it, and waits for its turn in the store.
    while desk.queue.inbox.capacity() < desk.queue.inbox.max_capacity() {
        tokio::task::yield_now().await;
    }
    desk.pass(MINUTE);
    other.give_up().await;
    note.await.unwrap();
    desk.sweep().await;
    assert_eq!(desk.status(id).await, Status::Acknowledged);
    desk.pass(MINUTE);
    desk.sweep().await;
    assert_eq!(desk.status(id).await, Status::Dead);
}

async fn a_change_that_cannot_be_written_keeps_nobody_alive(desk: Desk) {
    let id = desk.sent("a").await;
    desk.claimed("x").await.unwrap();
    // As no writer of ours would leave it: the number is taken.
    tamper(
        &desk.store,
        "INSERT INTO task_update (home, seq, target, kind, content, created_ms, peak_ms) \
         VALUES ('home', 2, 'x', 'note', '', 0, 0)",
    )
    .await;
    let failed = desk.queue.note(&"homelab".into(), Kind::Note, "b".to_owned(), None).await;
    assert!(matches!(failed, Err(QueueError::Store(_))), "{failed:?}");
    tamper(&desk.store, "DELETE FROM task_update WHERE seq = 2").await;
    desk.pass(MINUTE);
    desk.sweep().await;
    assert_eq!(desk.status(id).await, Status::Dead);
}

async fn whoever_was_heard_in_vain_is_told_of_the_next_time(desk: Desk) {
    let (other, homelab) = (desk.another(), Arc::from("homelab"));
    let says = || desk.queue.note(&homelab, Kind::Note, "here".to_owned(), None);
    alter(&desk.store, "ALTER TABLE task_update RENAME TO away").await;
    // Under a name it fails at once, without one when all is written.
    assert!(says().await.is_err());
    let named = desk.queue.note(&homelab, Kind::Note, "here".to_owned(), Some("n".to_owned())).await;
    assert!(named.is_err());
    alter(&desk.store, "ALTER TABLE away RENAME TO task_update").await;
    assert!(other.channels().await.unwrap().is_empty());
    says().await.unwrap();
    let known: Vec<String> = other.channels().await.unwrap().into_iter().map(|channel| channel.name).collect();
    assert_eq!(known, ["homelab"]);
}
