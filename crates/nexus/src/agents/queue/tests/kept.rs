//! What is remembered: the keys of messages, the order of what was said whatever the clock does, and who has what.

use super::*;

on_both! {
    a_key_of_what_was_there_already_means_that_task_for_good
    a_key_is_forgotten_with_its_task
    what_was_said_since_is_found_when_the_clock_was_set_back
    who_looks_keeps_what_it_has
    what_a_key_has_and_what_it_had_last_are_told_apart
}

fn keyed(content: &str, key: &str) -> NewTask {
    NewTask { idempotency_key: Some(key.to_owned()), ..message(content) }
}

async fn a_key_of_what_was_there_already_means_that_task_for_good(desk: Desk) {
    let (first, urgent) = (desk.sent("a").await, desk.sent("URGENT b").await);
    // Those that come together, and one after the other.
    let again = [keyed("a", "k"), keyed("a", "k"), keyed("c", "k"), keyed("a", "another")];
    let sent = join_all(again.into_iter().map(|task| desk.queue.send(task))).await;
    assert!(sent.iter().all(|sent| *sent.as_ref().unwrap() == Sent::Duplicate { id: first }), "{sent:?}");
    assert_eq!(desk.queue.send(keyed("URGENT b", "u")).await.unwrap(), Sent::Duplicate { id: urgent });
    for id in [first, urgent] {
        desk.queue.cancel(id, "no".to_owned()).await.unwrap();
    }
    for (content, key, id) in [("a", "k", first), ("d", "another", first), ("URGENT b", "u", urgent)] {
        assert_eq!(desk.queue.send(keyed(content, key)).await.unwrap(), Sent::Duplicate { id }, "{key}");
    }
    let other = NewTask { sender: "another".to_owned(), ..keyed("a", "k") };
    assert!(matches!(desk.queue.send(other).await.unwrap(), Sent::Queued { .. }), "the keys of others are their own");
    desk.assert_counts().await;
}

async fn a_key_is_forgotten_with_its_task(desk: Desk) {
    let old = desk.sent("a").await;
    assert_eq!(desk.queue.send(keyed("a", "k")).await.unwrap(), Sent::Duplicate { id: old });
    desk.queue.cancel(old, "no".to_owned()).await.unwrap();
    desk.pass(HOUR);
    let before = desk.queue.clock.now();
    while desk.queue.ask(Prune { before }).await.unwrap() == tend::Swept::Some {}
    assert!(matches!(desk.queue.send(keyed("a", "k")).await.unwrap(), Sent::Queued { .. }));
}

async fn what_was_said_since_is_found_when_the_clock_was_set_back(desk: Desk) {
    let now = desk.queue.clock.now();
    let note = async || desk.queue.note(&"homelab".into(), Kind::Note, "a".to_owned(), None).await.unwrap();
    note().await;
    desk.pass(2 * HOUR);
    assert_eq!((note().await, note().await), (2, 3));
    // As whoever sets a clock would that was wrong.
    desk.at.fetch_sub(i64::try_from(HOUR.as_millis()).unwrap(), Ordering::Relaxed);
    assert_eq!((note().await, note().await), (4, 5));

    check(&desk, now, &[1, 2, 3, 4, 5]).await;
    check(&desk, now + HOUR, &[2, 3, 4, 5]).await;
    check(&desk, now + HOUR + MINUTE, &[2, 3]).await;
    check(&desk, now + 2 * HOUR, &[2, 3]).await;
    check(&desk, now + 2 * HOUR + MINUTE, &[]).await;
    desk.pass(2 * HOUR);
    assert_eq!(note().await, 6);
    check(&desk, now + 2 * HOUR + MINUTE, &[6]).await;

    #[track_caller]
    fn check<'a>(desk: &'a Desk, since: Timestamp, expected: &'a [i64]) -> impl Future<Output = ()> + 'a {
        let at = std::panic::Location::caller();
        async move {
            let wanted = Wanted { since: Some(since), limit: 100, ..Wanted::default() };
            let found = desk.queue.updates(&wanted).await.unwrap();
            assert_eq!(found.iter().map(|update| update.seq).collect::<Vec<_>>(), expected, "{at}");
        }
    }
}

async fn who_looks_keeps_what_it_has(desk: Desk) {
    let (spoken, beaten, others) = (desk.sent("a").await, desk.sent("b").await, desk.sent("c").await);
    desk.queue.claim(by("x", Lease::Speaks(MINUTE))).await.unwrap().unwrap();
    desk.claimed("y").await.unwrap();
    let other = Claim { by: "another".to_owned(), ..by("z", Lease::Speaks(MINUTE)) };
    desk.queue.claim(other).await.unwrap().unwrap();
    for _ in 0..3 {
        desk.pass(MINUTE / 2);
        desk.queue.seen(&"homelab".into(), "worker").await.unwrap();
        desk.sweep().await;
    }
    assert_eq!(desk.status(spoken).await, Status::Acknowledged);
    // A program beats for each of its claims: another one with its key does not know whether it still runs.
    assert_eq!((desk.status(beaten).await, desk.status(others).await), (Status::Dead, Status::Dead));
    desk.pass(MINUTE);
    desk.sweep().await;
    assert_eq!(desk.status(spoken).await, Status::Dead);
}

async fn what_a_key_has_and_what_it_had_last_are_told_apart(desk: Desk) {
    let began = desk.queue.clock.now();
    for (nth, claim) in ["v", "w", "x", "y"].into_iter().enumerate() {
        desk.queue.send(NewTask { max_attempts: 2, ..message(claim) }).await.unwrap();
        desk.claimed(claim).await.unwrap();
        assert_eq!(desk.held("worker").await.len(), nth + 1);
    }
    let ids = [1, 2, 3, 4].map(TaskId);
    assert_eq!(desk.held("another").await, Vec::<TaskId>::new());
    desk.says(ids[1], "w", Saying::Complete).await.unwrap();
    desk.pass(MINUTE / 2);
    desk.queue.cancel(ids[0], "no".to_owned()).await.unwrap();
    desk.queue.beat(&"homelab".into(), &["y".to_owned()]).await.unwrap();
    desk.pass(MINUTE / 2);
    desk.sweep().await;
    assert_eq!((desk.status(ids[2]).await, desk.status(ids[3]).await), (Status::Pending, Status::Acknowledged));
    assert_eq!(desk.held("worker").await, ids[2..], "what was put back is its own until somebody takes it");
    assert_eq!(desk.had("worker", began).await, [ids[0], ids[1]], "the last one first");
    assert_eq!(desk.had("worker", began + MINUTE / 4).await, [ids[0]]);
    assert_eq!(desk.had("another", began).await, Vec::<TaskId>::new());
}

impl Desk {
    async fn held(&self, by: &str) -> Vec<TaskId> {
        self.queue.held_by("homelab", by, 100).await.unwrap().iter().map(|task| task.id).collect()
    }

    async fn had(&self, by: &str, since: Timestamp) -> Vec<TaskId> {
        self.queue.was_held_by("homelab", by, since, 100).await.unwrap().iter().map(|task| task.id).collect()
    }
}
