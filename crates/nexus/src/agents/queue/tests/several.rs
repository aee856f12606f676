//! Many at once, and several processes of one data folder.

use super::*;
use crate::store::tests::tamper;

on_both! {
    of_hundreds_who_send_the_same_words_one_wins
    numbers_are_dense_and_in_order_however_many_write
    each_task_goes_to_one_claimer
    processes_of_one_folder_hear_each_other
    a_change_that_fails_does_not_take_others_with_it
    what_was_handed_in_is_written_before_the_end
    how_far_somebody_has_read_never_goes_back
    whoever_is_heard_is_known_to_all_processes
    lists_find_what_is_chosen_newest_first
    a_list_brings_the_beginnings_of_long_words_and_the_rest_stays
    a_list_misses_no_task_that_goes_on_meanwhile
    updates_are_found_by_time_target_and_task
    a_stop_ends_all_that_runs_however_many_there_are
}

async fn of_hundreds_who_send_the_same_words_one_wins(desk: Desk) {
    let other = desk.another();
    let sending = (0..300).map(|nth| {
        let queue = if nth % 3 == 0 { &other } else { &desk.queue };
        queue.send(message(if nth % 2 == 0 { "the same\n" } else { " the same" }))
    });
    let sent: Vec<Sent> = join_all(sending).await.into_iter().map(Result::unwrap).collect();
    let queued: Vec<&Sent> = sent.iter().filter(|sent| matches!(sent, Sent::Queued { .. })).collect();
    assert_eq!(queued, [&Sent::Queued { id: TaskId(1), position: 1, stopped: vec![] }]);
    assert_eq!(sent.iter().filter(|sent| **sent == Sent::Duplicate { id: TaskId(1) }).count(), 299);
    assert_eq!(desk.sent("another").await, TaskId(2));
    desk.assert_counts().await;
}

async fn numbers_are_dense_and_in_order_however_many_write(desk: Desk) {
    let (other, homelab) = (desk.another(), Arc::from("homelab"));
    let writers = (0..40).map(|nth| {
        let queue = if nth % 2 == 0 { desk.queue.clone() } else { other.clone() };
        let homelab = &homelab;
        async move {
            let (mut ids, mut seqs) = (Vec::new(), Vec::new());
            for turn in 0..5 {
                match queue.send(message(&format!("{nth} {turn}"))).await.unwrap() {
                    Sent::Queued { id, .. } => ids.push(id.0),
                    sent @ Sent::Duplicate { .. } => panic!("{sent:?}"),
                }
                seqs.push(queue.note(homelab, Kind::Note, format!("{nth} {turn}"), None).await.unwrap());
            }
            assert!(ids.is_sorted() && seqs.is_sorted());
            (ids, seqs)
        }
    });
    let (mut ids, mut seqs) = (Vec::new(), Vec::new());
    for (more_ids, more_seqs) in join_all(writers).await {
        ids.extend(more_ids);
        seqs.extend(more_seqs);
    }
    ids.sort_unstable();
    seqs.sort_unstable();
    assert!(ids.iter().copied().eq(1..=200), "{ids:?}");
    assert!(seqs.iter().copied().eq(1..=200), "{seqs:?}");
    assert_eq!(desk.queue.last_update().await.unwrap(), 200);
    assert_eq!(desk.updates().await.iter().map(|update| update.seq).collect::<Vec<_>>(), seqs);
    desk.assert_counts().await;
}

async fn each_task_goes_to_one_claimer(desk: Desk) {
    for nth in 0..50 {
        desk.sent(&format!("m{nth}")).await;
    }
    let other = desk.another();
    let claimers = (0..100).map(|nth| {
        let queue = if nth % 2 == 0 { &desk.queue } else { &other };
        queue.claim(by(&format!("c{nth}"), Lease::Held))
    });
    let claimed = join_all(claimers).await.into_iter();
    let mut claimed: Vec<i64> = claimed.filter_map(|task| Some(task.unwrap()?.id.0)).collect();
    claimed.sort_unstable();
    assert!(claimed.iter().copied().eq(1..=50), "{claimed:?}");
    assert_eq!(desk.queue.running("homelab").await.unwrap().len(), 50);
    desk.assert_counts().await;
}

async fn processes_of_one_folder_hear_each_other(desk: Desk) {
    let other = desk.another();
    // A socket that a dead process has left.
    let left = desk.folder.path().join("bell-1-dead.sock");
    drop(std::os::unix::net::UnixDatagram::bind(&left).unwrap());
    let mut tasks = other.listen(&Topic::Tasks("homelab".into()));
    let mut updates = other.listen(&Topic::Updates);
    // What was rung before, to be told apart from what comes now, must have been heard.
    let id = desk.sent("a").await;
    let pending = async {
        while other.next("homelab", 1).await.unwrap().is_empty() {
            tasks.changed().await.unwrap();
        }
    };
    pending.await;
    assert!(!left.exists(), "what a dead process left is gone");
    desk.claimed("x").await.unwrap();
    while other.last_update().await.unwrap() < 1 {
        updates.changed().await.unwrap();
    }
    other.cancel(id, "no".to_owned()).await.unwrap();
    let mut here = desk.queue.listen(&Topic::Tasks("homelab".into()));
    while desk.status(id).await != Status::Cancelled {
        here.changed().await.unwrap();
    }
    desk.tasks.finish(MINUTE).await;
    let names = std::fs::read_dir(desk.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let bells: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with("bell-")).collect();
    assert!(bells.is_empty(), "{bells:?}");
}

async fn a_change_that_fails_does_not_take_others_with_it(desk: Desk) {
    desk.sent("before").await;
    // As no writer of ours would leave it: the number is taken.
    tamper(
        &desk.store,
        "INSERT INTO task (home, number, target, content, content_hash, priority, status, sender, max_attempts, \
         attempts, created_ms, completed_ms) SELECT home, 5, target, content, content_hash, priority, 'complete', sender, \
         max_attempts, attempts, created_ms, created_ms FROM task",
    )
    .await;
    let sent = join_all((0..8).map(|nth| desk.queue.send(message(&format!("m{nth}"))))).await;
    let (sent, failed): (Vec<_>, Vec<_>) = sent.into_iter().partition(Result::is_ok);
    assert_eq!((sent.len(), failed.len()), (3, 5), "{failed:?}");
    assert!(matches!(failed[0], Err(QueueError::Store(_))), "{failed:?}");
    desk.claimed("x").await.unwrap();
    assert_eq!(desk.queue.next("homelab", 10).await.unwrap().len(), 3);
}

async fn what_was_handed_in_is_written_before_the_end(desk: Desk) {
    let sends: Vec<NewTask> = (0..300).map(|nth| message(&format!("m{nth}"))).collect();
    // Without tokio's fairness, which would leave all beyond the first 128 for another time.
    let sending = sends.into_iter().map(|task| Box::pin(tokio::task::unconstrained(desk.queue.send(task))));
    let mut sending: Vec<_> = sending.collect();
    for one in &mut sending {
        assert!(futures_util::poll!(one).is_pending());
    }
    let (ended, sent) = tokio::join!(desk.tasks.finish(MINUTE), join_all(sending));
    assert!(ended);
    let failed: Vec<_> = sent.iter().filter_map(|sent| sent.as_ref().err()).collect();
    assert!(failed.is_empty(), "{} failed: {:?}", failed.len(), failed.first());
    assert!(matches!(desk.queue.send(message("late")).await, Err(QueueError::Ending)));
    assert_eq!(desk.queue.next("homelab", 1_000).await.unwrap().len(), 300, "one can still look");
}

async fn how_far_somebody_has_read_never_goes_back(desk: Desk) {
    let queue = &desk.queue;
    assert_eq!(queue.bookmark("model", None, None).await.unwrap(), None);
    queue.move_bookmark("model", None, None, 7).await.unwrap();
    queue.move_bookmark("model", None, None, 3).await.unwrap();
    queue.move_bookmark("model", Some("homelab"), None, 5).await.unwrap();
    assert_eq!(queue.bookmark("model", None, None).await.unwrap(), Some(7));
    assert_eq!(queue.bookmark("model", Some("homelab"), None).await.unwrap(), Some(5));
    assert_eq!(queue.bookmark("model", None, Some(TaskId(1))).await.unwrap(), None);
    assert_eq!(queue.bookmark("another", None, None).await.unwrap(), None);
}

async fn whoever_is_heard_is_known_to_all_processes(desk: Desk) {
    let other = desk.another();
    desk.queue.heard("telegram", None).await;
    desk.claimed("x").await;
    let now = desk.queue.clock.now();
    desk.pass(Duration::from_secs(1));
    desk.queue.heard("telegram", Some("409".to_owned())).await;
    desk.claimed("x").await;
    let seen = |channels: Vec<Channel>| -> Vec<(String, Option<Timestamp>, Option<String>)> {
        channels.into_iter().map(|channel| (channel.name, channel.heard, channel.trouble)).collect()
    };
    let telegram = ("telegram".to_owned(), Some(now), Some("409".to_owned()));
    let later = desk.queue.clock.now();
    let here = [("homelab".to_owned(), Some(later), None), telegram.clone()];
    assert_eq!(seen(desk.queue.channels().await.unwrap()), here);
    let there = [("homelab".to_owned(), Some(now), None), telegram];
    assert_eq!(seen(other.channels().await.unwrap()), there, "to the few seconds that the store is behind");
}

async fn lists_find_what_is_chosen_newest_first(desk: Desk) {
    for nth in 0..12 {
        let target = if nth % 2 == 0 { "homelab" } else { "other" };
        desk.queue.send(NewTask { target: target.into(), ..message(&format!("m{nth}")) }).await.unwrap();
    }
    for id in [3, 4, 8] {
        desk.queue.cancel(TaskId(id), "no".to_owned()).await.unwrap();
    }
    let all = Chosen { limit: 100, ..Chosen::default() };
    let ended = Some(vec![Status::Cancelled, Status::Dead]);
    let homelab = Some(Arc::from("homelab"));
    check(&desk, all.clone(), &[12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1]).await;
    check(&desk, Chosen { before: Some(TaskId(5)), limit: 2, ..all.clone() }, &[4, 3]).await;
    check(&desk, Chosen { target: homelab.clone(), limit: 3, ..all.clone() }, &[11, 9, 7]).await;
    check(&desk, Chosen { status: ended.clone(), ..all.clone() }, &[8, 4, 3]).await;
    check(&desk, Chosen { status: ended.clone(), before: Some(TaskId(8)), ..all.clone() }, &[4, 3]).await;
    check(&desk, Chosen { status: ended, target: homelab, ..all.clone() }, &[3]).await;
    check(&desk, Chosen { status: Some(vec![]), ..all.clone() }, &[]).await;
    check(&desk, Chosen { target: Some("nobody".into()), ..all }, &[]).await;

    async fn check(desk: &Desk, chosen: Chosen, expected: &[i64]) {
        let found: Vec<i64> = desk.queue.tasks(&chosen).await.unwrap().iter().map(|task| task.id.0).collect();
        assert_eq!(found, expected, "{chosen:?}");
    }
}

async fn a_list_misses_no_task_that_goes_on_meanwhile(desk: Desk) {
    for nth in 0..30 {
        desk.sent(&format!("{nth}")).await;
    }
    let goes_on = async {
        for nth in 0..30 {
            let claim = format!("claim {nth}");
            let task = desk.claimed(&claim).await.unwrap().id;
            desk.says(task, &claim, Saying::Progress).await.unwrap();
            desk.says(task, &claim, Saying::Complete).await.unwrap();
        }
    };
    let every = Chosen { status: Some(Status::ALL.to_vec()), limit: 100, ..Chosen::default() };
    let looks = async {
        loop {
            let tasks = desk.queue.tasks(&every).await.unwrap();
            let ids: Vec<i64> = tasks.iter().map(|task| task.id.0).collect();
            assert!(ids.iter().copied().eq((1..=30).rev()), "{ids:?}");
            if tasks.iter().all(|task| task.status == Status::Complete) {
                break;
            }
        }
    };
    within(async { tokio::join!(goes_on, looks) }).await;
}

async fn a_list_brings_the_beginnings_of_long_words_and_the_rest_stays(desk: Desk) {
    let long = |nth: usize| format!("{nth}{}", "ä".repeat(40_000));
    for nth in 0..4 {
        let target = if nth % 2 == 0 { "homelab" } else { "other" };
        desk.queue.send(NewTask { target: target.into(), ..message(&long(nth)) }).await.unwrap();
    }
    desk.claimed("x").await.unwrap();
    let queue = &desk.queue;
    check(&queue.first_running("homelab", 10).await.unwrap(), &[1]);
    check(&queue.first_waiting("homelab", 10).await.unwrap(), &[3]);
    assert_eq!(queue.next("homelab", 1).await.unwrap()[0].content, long(2), "who carries it needs it whole");
    assert_eq!(queue.running("homelab").await.unwrap()[0].content, long(0));
    let result = Report { content: long(9), ..report(TaskId(1), "x", Saying::Complete) };
    queue.report(result).await.unwrap();
    queue.cancel(TaskId(2), long(8)).await.unwrap();
    let all = Chosen { limit: 9, ..Chosen::default() };
    check(&queue.tasks(&all).await.unwrap(), &[4, 3, 2, 1]);
    let every = Some(Status::ALL.to_vec());
    check(&queue.tasks(&Chosen { status: every.clone(), ..all.clone() }).await.unwrap(), &[4, 3, 2, 1]);
    check(&queue.tasks(&Chosen { status: every.clone(), limit: 3, ..all.clone() }).await.unwrap(), &[4, 3, 2]);
    let older = Chosen { status: every, limit: 1, before: Some(TaskId(3)), ..all };
    check(&queue.tasks(&older).await.unwrap(), &[2]);

    #[track_caller]
    fn check(tasks: &[Task], ids: &[i64]) {
        assert_eq!(tasks.iter().map(|task| task.id.0).collect::<Vec<_>>(), ids);
        for task in tasks {
            assert!(task.content.chars().count() == 2_000 && task.content.ends_with('ä'));
            assert!(task.result.is_none() && task.reason.as_ref().is_none_or(|why| why.chars().count() == 2_000));
        }
    }
}

async fn a_stop_ends_all_that_runs_however_many_there_are(desk: Desk) {
    let many = 1_050;
    join_all((0..many).map(|nth| desk.queue.send(message(&format!("m{nth}"))))).await;
    let claims: Vec<Claim> = (0..many).map(|nth| by(&format!("c{nth}"), Lease::Held)).collect();
    let claimed = join_all(claims.into_iter().map(|claim| desk.queue.claim(claim))).await;
    assert!(claimed.iter().all(|task| matches!(task, Ok(Some(_)))));
    let Sent::Queued { id, stopped, .. } = desk.queue.send(message("STOP")).await.unwrap() else { panic!("queued") };
    assert!(stopped.iter().map(|id| id.0).eq(1..=many));
    assert!(desk.queue.first_running("homelab", 1).await.unwrap().is_empty());
    let result = desk.task(id).await.result.unwrap();
    assert!(result.starts_with("stopped t1, t2, ") && result.ends_with(", t100 and 950 more"), "{result}");
    desk.assert_counts().await;
}

async fn updates_are_found_by_time_target_and_task(desk: Desk) {
    let (homelab, other): (Arc<str>, Arc<str>) = ("homelab".into(), "other".into());
    let id = desk.sent("a").await;
    desk.claimed("x").await.unwrap();
    desk.queue.note(&other, Kind::Note, "2".to_owned(), None).await.unwrap();
    desk.pass(MINUTE);
    let since = Some(desk.queue.clock.now());
    desk.says(id, "x", Saying::Progress).await.unwrap();
    desk.queue.note(&homelab, Kind::Note, "4".to_owned(), None).await.unwrap();
    desk.queue.note(&other, Kind::Note, "5".to_owned(), None).await.unwrap();
    let all = Wanted { limit: 100, ..Wanted::default() };
    check(&desk, all.clone(), &[1, 2, 3, 4, 5]).await;
    check(&desk, Wanted { after: 2, limit: 2, ..all.clone() }, &[3, 4]).await;
    check(&desk, Wanted { since, ..all.clone() }, &[3, 4, 5]).await;
    check(&desk, Wanted { since, target: Some(other.clone()), ..all.clone() }, &[5]).await;
    check(&desk, Wanted { target: Some(homelab.clone()), ..all.clone() }, &[1, 3, 4]).await;
    check(&desk, Wanted { task: Some(id), ..all.clone() }, &[1, 3]).await;
    check(&desk, Wanted { task: Some(id), target: Some(other), ..all.clone() }, &[]).await;
    desk.pass(MINUTE);
    check(&desk, Wanted { since: Some(desk.queue.clock.now()), ..all }, &[]).await;
    let last = desk.queue.last_updates(id, 1).await.unwrap();
    assert_eq!(last.iter().map(|update| update.seq).collect::<Vec<_>>(), [3]);

    async fn check(desk: &Desk, wanted: Wanted, expected: &[i64]) {
        let found: Vec<i64> = desk.queue.updates(&wanted).await.unwrap().iter().map(|update| update.seq).collect();
        assert_eq!(found, expected, "{wanted:?}");
    }
}

#[tokio::test]
async fn the_record_and_the_queue_write_beside_each_other() {
    use crate::store::chain::Chain;
    use crate::store::sheaf::List;
    use nexus_core::audit::{Event, Row};

    let desk = Desk::sqlite().await;
    let mut chain = Chain::new("home");
    let recording = async {
        for _ in 0..100 {
            desk.store.append(&mut chain, &[Row::new(Event::HubStarted)], List::Now).await.unwrap();
        }
    };
    let sending = join_all((0..20).map(|who| {
        let desk = &desk;
        async move {
            for nth in 0..10 {
                desk.sent(&format!("{who} {nth}")).await;
            }
        }
    }));
    within(Box::pin(async { tokio::join!(recording, sending) })).await;
    assert_eq!(
        (desk.store.audit_rows().await.unwrap(), desk.queue.next("homelab", 1_000).await.unwrap().len()),
        (100, 200)
    );
}

#[tokio::test]
async fn whoever_holds_the_folder_ends_what_has_run_out() {
    let folder = tempfile::tempdir().unwrap();
    let (store, tasks) = (Store::open(folder.path(), None).await.unwrap(), Tasks::new());
    let queue = Queue::start(store, "home", folder.path(), &tasks).unwrap();
    let stop = CancellationToken::new();
    let tending = tasks.spawn("tend", queue.clone().tend(HOUR, stop.clone()));
    let mut changes = queue.listen(&Topic::Tasks("homelab".into()));
    // One after the other: it is told of each while it waits for nothing.
    for (nth, lease) in [(1, 1), (2, 2)] {
        queue.send(message(&format!("m{nth}"))).await.unwrap();
        queue.claim(by(&format!("c{nth}"), Lease::Beats(Duration::from_millis(lease)))).await.unwrap().unwrap();
        within(async {
            while queue.task(TaskId(nth)).await.unwrap().unwrap().status != Status::Dead {
                changes.changed().await.unwrap();
            }
        })
        .await;
    }
    let deadline = Some(queue.clock.now() + Duration::from_millis(1));
    queue.send(NewTask { deadline, ..message("late") }).await.unwrap();
    within(async {
        while queue.task(TaskId(3)).await.unwrap().unwrap().status != Status::Dead {
            changes.changed().await.unwrap();
        }
    })
    .await;
    stop.cancel();
    within(tending).await.unwrap();
}
