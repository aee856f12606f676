//! The life of a task, from its sending to its end.

use super::*;

on_both! {
    an_idempotency_key_holds_after_the_end
    claims_go_by_priority_and_then_by_age
    the_position_tells_how_many_come_first
    the_same_claim_gives_the_same_task_as_long_as_it_runs
    a_silent_worker_is_given_up_after_one_attempt
    a_silent_worker_is_given_up_after_three_attempts
    whoever_was_only_silent_goes_on_until_another_has_it
    what_is_done_late_is_done
    what_was_cancelled_stays_cancelled_whatever_is_said
    stop_ends_what_runs_and_is_done_itself
    urgent_ends_what_runs_and_comes_next
    an_answer_comes_back_and_silence_is_allowed_meanwhile
    a_question_of_one_who_beats_does_not_stop_the_lease
    a_retry_begins_anew_unless_the_words_are_open_elsewhere
    what_is_said_under_a_name_is_taken_once
    a_deadline_ends_what_waits_and_what_runs
    what_cannot_be_carried_goes_back_untouched
    a_carrier_brings_the_end_of_what_nobody_claimed
    old_tasks_go_with_all_that_belongs_to_them
    leases_begin_anew_when_the_hub_was_away
    a_text_with_a_nul_is_kept
    only_what_is_pending_can_be_taken_by_name
}

async fn an_idempotency_key_holds_after_the_end(desk: Desk) {
    let with = |content: &str, sender: &str| NewTask {
        idempotency_key: Some("k".to_owned()),
        sender: sender.to_owned(),
        ..message(content)
    };
    let first = desk.queue.send(with("a", "model")).await.unwrap();
    assert_eq!(first, Sent::Queued { id: TaskId(1), position: 1, stopped: vec![] });
    desk.queue.cancel(TaskId(1), "no".to_owned()).await.unwrap();
    assert_eq!(desk.queue.send(with("b", "model")).await.unwrap(), Sent::Duplicate { id: TaskId(1) });
    assert!(matches!(desk.queue.send(with("b", "another")).await.unwrap(), Sent::Queued { id: TaskId(2), .. }));
    let both = join_all([desk.queue.send(with("c", "third")), desk.queue.send(with("d", "third"))]).await;
    assert!(matches!(both[0], Ok(Sent::Queued { id: TaskId(3), .. })), "{both:?}");
    assert!(matches!(both[1], Ok(Sent::Duplicate { id: TaskId(3) })), "{both:?}");
}

async fn claims_go_by_priority_and_then_by_age(desk: Desk) {
    use Priority::{High, Low, Normal, Urgent};
    for (nth, priority) in [Low, Normal, High, Normal, Urgent, High].into_iter().enumerate() {
        desk.queue.send(NewTask { priority, ..message(&format!("m{nth}")) }).await.unwrap();
    }
    let next: Vec<i64> = desk.queue.next("homelab", 10).await.unwrap().iter().map(|task| task.id.0).collect();
    let mut order = Vec::new();
    while let Some(task) = desk.claimed(&format!("c{}", order.len())).await {
        order.push(task.id.0);
    }
    assert_eq!(order, [5, 3, 6, 2, 4, 1]);
    assert_eq!(next, order);
    desk.assert_counts().await;
}

async fn the_position_tells_how_many_come_first(desk: Desk) {
    let position = |content: &str, priority| {
        let sending = desk.queue.send(NewTask { priority, ..message(content) });
        async move {
            match sending.await.unwrap() {
                Sent::Queued { position, .. } => position,
                sent @ Sent::Duplicate { .. } => panic!("{sent:?}"),
            }
        }
    };
    assert_eq!(position("a", Priority::Normal).await, 1);
    assert_eq!(position("b", Priority::Normal).await, 2);
    assert_eq!(position("c", Priority::High).await, 1);
    assert_eq!(position("d", Priority::Low).await, 4);
    desk.claimed("x").await.unwrap();
    assert_eq!(position("e", Priority::Normal).await, 3, "what runs does not come first any more");
    let other = NewTask { target: "other".into(), ..message("a") };
    assert!(matches!(desk.queue.send(other).await.unwrap(), Sent::Queued { position: 1, .. }));
}

async fn the_same_claim_gives_the_same_task_as_long_as_it_runs(desk: Desk) {
    let (a, b) = (desk.sent("a").await, desk.sent("b").await);
    assert_eq!(desk.claimed("x").await.unwrap().id, a);
    let again = desk.claimed("x").await.unwrap();
    assert_eq!((again.id, again.attempts), (a, 1));
    assert_eq!(desk.kinds(a).await, ["acknowledged"], "claimed once");
    assert_eq!(desk.claimed("y").await.unwrap().id, b);
    assert!(desk.claimed("z").await.is_none());
    desk.says(a, "x", Saying::Complete).await.unwrap();
    assert!(desk.claimed("x").await.is_none());
    let c = desk.sent("c").await;
    assert_eq!(desk.claimed("x").await.unwrap().id, c);
    let held = desk.queue.beat(&"homelab".into(), &["x".to_owned(), "nobody".to_owned()]).await.unwrap();
    assert_eq!(held.len(), 1);
    assert!(held[0].task == c && held[0].holds);
    desk.assert_counts().await;
}

async fn a_silent_worker_is_given_up_after_one_attempt(desk: Desk) {
    let id = desk.sent("a").await;
    desk.claimed("x").await.unwrap();
    desk.pass(MINUTE / 2);
    desk.queue.beat(&"homelab".into(), &["x".to_owned()]).await.unwrap();
    desk.pass(MINUTE - Duration::from_millis(1));
    desk.sweep().await;
    assert_eq!(desk.status(id).await, Status::Acknowledged);
    desk.pass(Duration::from_millis(1));
    desk.sweep().await;
    let task = desk.task(id).await;
    assert_eq!(task.status, Status::Dead);
    assert_eq!(task.reason.as_deref(), Some("its worker was not heard for 60 s"));
    assert_eq!(desk.kinds(id).await, ["acknowledged", "dead"]);
    let held = desk.queue.beat(&"homelab".into(), &["x".to_owned()]).await.unwrap();
    assert!(!held[0].holds && held[0].reason.is_some());
    desk.assert_counts().await;
}

async fn a_silent_worker_is_given_up_after_three_attempts(desk: Desk) {
    desk.queue.send(NewTask { max_attempts: 3, ..message("a") }).await.unwrap();
    let id = TaskId(1);
    for attempt in 1..=3 {
        let task = desk.claimed(&format!("c{attempt}")).await.unwrap();
        assert_eq!((task.id, task.attempts), (id, attempt));
        desk.says(id, &format!("c{attempt}"), Saying::Progress).await.unwrap();
        desk.pass(MINUTE);
        desk.sweep().await;
        assert_eq!(desk.status(id).await, if attempt < 3 { Status::Pending } else { Status::Dead });
    }
    assert!(desk.claimed("c4").await.is_none());
    desk.assert_counts().await;
}

async fn whoever_was_only_silent_goes_on_until_another_has_it(desk: Desk) {
    desk.queue.send(NewTask { max_attempts: 9, ..message("a") }).await.unwrap();
    let (id, homelab) = (TaskId(1), Arc::from("homelab"));
    let fall_silent = || async {
        desk.pass(MINUTE);
        desk.sweep().await;
        assert_eq!(desk.status(id).await, Status::Pending);
    };
    desk.claimed("x").await.unwrap();
    fall_silent().await;
    let held = desk.queue.beat(&homelab, &["x".to_owned()]).await.unwrap();
    assert!(held[0].holds);
    assert_eq!(desk.status(id).await, Status::Acknowledged);
    fall_silent().await;
    assert_eq!(desk.says(id, "x", Saying::Progress).await.unwrap().status, Status::InProgress);
    fall_silent().await;
    assert_eq!(desk.claimed("x").await.unwrap().attempts, 1, "it is the same attempt");
    fall_silent().await;
    assert_eq!(desk.claimed("y").await.unwrap().attempts, 2);
    let lost = desk.says(id, "x", Saying::Complete).await;
    assert!(matches!(lost, Err(QueueError::Lost { task: TaskId(1) })), "{lost:?}");
    assert!(desk.queue.beat(&homelab, &["x".to_owned()]).await.unwrap().is_empty());
    fall_silent().await;
    assert_eq!(desk.says(id, "y", Saying::Complete).await.unwrap().status, Status::Complete);
    desk.assert_counts().await;
}

async fn what_is_done_late_is_done(desk: Desk) {
    let id = desk.sent("a").await;
    desk.claimed("x").await.unwrap();
    desk.pass(MINUTE);
    desk.sweep().await;
    let said = desk.says(id, "x", Saying::Progress).await.unwrap();
    assert_eq!(said.status, Status::Dead, "words alone do not bring it back");
    assert_eq!(desk.says(id, "x", Saying::Complete).await.unwrap().status, Status::Complete);
    let task = desk.task(id).await;
    assert_eq!((task.result.as_deref(), task.reason), (Some("words"), None));
    assert_eq!(desk.kinds(id).await, ["acknowledged", "dead", "progress", "complete"]);
    desk.assert_counts().await;
}

async fn what_was_cancelled_stays_cancelled_whatever_is_said(desk: Desk) {
    let id = desk.sent("a").await;
    desk.claimed("x").await.unwrap();
    desk.queue.cancel(id, "not needed".to_owned()).await.unwrap();
    for saying in [Saying::Progress, Saying::Note, Saying::Ask, Saying::Complete, Saying::Fail] {
        assert_eq!(desk.says(id, "x", saying).await.unwrap().status, Status::Cancelled);
    }
    let kinds = ["acknowledged", "cancelled", "progress", "note", "note", "note", "note"];
    assert_eq!(desk.kinds(id).await, kinds, "what was said is kept, and ends nothing");
    let task = desk.task(id).await;
    assert_eq!((task.reason.as_deref(), task.result, task.question), (Some("not needed"), None, None));
    let again = desk.queue.cancel(id, "again".to_owned()).await;
    assert!(matches!(again, Err(QueueError::Conflict { status: Status::Cancelled, .. })), "{again:?}");
    assert!(matches!(desk.queue.cancel(TaskId(99), String::new()).await, Err(QueueError::Unknown(TaskId(99)))));
    desk.assert_counts().await;
}

async fn stop_ends_what_runs_and_is_done_itself(desk: Desk) {
    let (a, b, waits) = (desk.sent("a").await, desk.sent("b").await, desk.sent("c").await);
    desk.claimed("x").await.unwrap();
    desk.claimed("y").await.unwrap();
    desk.says(b, "y", Saying::Ask).await.unwrap();
    let sent = desk.queue.send(message("STOP!")).await.unwrap();
    assert_eq!(sent, Sent::Queued { id: TaskId(4), position: 0, stopped: vec![a, b] });
    assert_eq!(desk.task(a).await.reason.as_deref(), Some("stopped by t4"));
    assert_eq!(desk.status(b).await, Status::Cancelled);
    assert_eq!(desk.status(waits).await, Status::Pending);
    let stop = desk.task(TaskId(4)).await;
    assert_eq!((stop.status, stop.result.as_deref()), (Status::Complete, Some("stopped t1, t2")));
    assert!(matches!(desk.queue.send(message("STOP!")).await.unwrap(), Sent::Queued { position: 0, .. }), "once more");
    assert!(matches!(desk.queue.retry(TaskId(4), "me").await, Err(QueueError::Conflict { .. })));
    desk.assert_counts().await;
}

async fn urgent_ends_what_runs_and_comes_next(desk: Desk) {
    let (a, high) = (desk.sent("a").await, NewTask { priority: Priority::High, ..message("b") });
    desk.claimed("x").await.unwrap();
    desk.queue.send(high).await.unwrap();
    let urgent = desk.queue.send(message("URGENT the disk is full")).await.unwrap();
    assert_eq!(urgent, Sent::Queued { id: TaskId(3), position: 1, stopped: vec![a] });
    assert_eq!(desk.claimed("y").await.unwrap().id, TaskId(3));
    let again = desk.queue.send(message("URGENT the disk is full")).await.unwrap();
    assert_eq!(again, Sent::Duplicate { id: TaskId(3) }, "it does not stop itself");
    assert_eq!(desk.status(TaskId(3)).await, Status::Acknowledged);
    desk.assert_counts().await;
}

async fn an_answer_comes_back_and_silence_is_allowed_meanwhile(desk: Desk) {
    let id = desk.sent("a").await;
    desk.queue.claim(by("x", Lease::Speaks(MINUTE))).await.unwrap().unwrap();
    let early = desk.queue.answer(id, 1, "42".to_owned(), "model").await;
    assert!(matches!(early, Err(QueueError::Conflict { .. })), "{early:?}");
    let question = desk.says(id, "x", Saying::Ask).await.unwrap();
    assert_eq!(question.status, Status::InputRequired);
    assert_eq!(desk.task(id).await.question, Some(question.seq));
    desk.pass(HOUR);
    desk.sweep().await;
    assert_eq!(desk.status(id).await, Status::InputRequired);
    assert_eq!(desk.asked(id, "x", question.seq).await.unwrap(), (Status::InputRequired, None));
    let task = desk.queue.answer(id, question.seq, "42".to_owned(), "model").await.unwrap();
    assert_eq!((task.status, task.question), (Status::InProgress, None));
    let answered = (Status::InProgress, Some("42".to_owned()));
    assert_eq!(desk.asked(id, "x", question.seq).await.unwrap(), answered);
    desk.pass(MINUTE);
    desk.sweep().await;
    assert_eq!(desk.status(id).await, Status::Dead, "from the answer on it has to be heard");
    desk.assert_counts().await;
}

async fn a_question_of_one_who_beats_does_not_stop_the_lease(desk: Desk) {
    let id = desk.sent("a").await;
    desk.claimed("x").await.unwrap();
    desk.says(id, "x", Saying::Ask).await.unwrap();
    desk.pass(MINUTE);
    desk.sweep().await;
    assert_eq!(desk.status(id).await, Status::Dead);
    let held = desk.queue.send(message("b")).await.unwrap();
    desk.queue.claim(by("y", Lease::Held)).await.unwrap().unwrap();
    desk.pass(HOUR * 1_000);
    desk.sweep().await;
    assert!(matches!(held, Sent::Queued { id: TaskId(2), .. }));
    assert_eq!(desk.status(TaskId(2)).await, Status::Acknowledged, "nobody takes it away");
}

async fn a_retry_begins_anew_unless_the_words_are_open_elsewhere(desk: Desk) {
    let deadline = Some(desk.queue.clock.now() + HOUR);
    desk.queue.send(NewTask { deadline, ..message("a") }).await.unwrap();
    let id = TaskId(1);
    let early = desk.queue.retry(id, "me").await;
    assert!(matches!(early, Err(QueueError::Conflict { status: Status::Pending, .. })), "{early:?}");
    desk.claimed("x").await.unwrap();
    desk.queue.report(Report { exit_code: Some(3), ..report(id, "x", Saying::Fail) }).await.unwrap();
    assert_eq!((desk.task(id).await.exit_code, desk.status(id).await), (Some(3), Status::Error));
    let same = desk.sent("a").await;
    let refused = desk.queue.retry(id, "me").await;
    assert!(matches!(refused, Err(QueueError::SameWords { other, .. }) if other == same), "{refused:?}");
    desk.queue.cancel(same, "no".to_owned()).await.unwrap();
    desk.pass(HOUR);
    let task = desk.queue.retry(id, "me").await.unwrap();
    assert_eq!((task.status, task.attempts, task.deadline), (Status::Pending, 0, None));
    assert!(task.claim.is_none() && task.exit_code.is_none() && task.reason.is_none() && task.completed.is_none());
    let lost = desk.says(id, "x", Saying::Complete).await;
    assert!(matches!(lost, Err(QueueError::Lost { .. })), "{lost:?}");
    assert!(matches!(desk.queue.send(message("a")).await.unwrap(), Sent::Duplicate { id: TaskId(1) }));
    desk.assert_counts().await;
}

async fn what_is_said_under_a_name_is_taken_once(desk: Desk) {
    let id = desk.sent("a").await;
    desk.claimed("x").await.unwrap();
    let named = |saying| Report { source: Some("w:x:1".to_owned()), ..report(id, "x", saying) };
    let first = desk.queue.report(named(Saying::Complete)).await.unwrap();
    assert!(first.new);
    let again = desk.queue.report(named(Saying::Complete)).await.unwrap();
    assert_eq!(again, Reported { new: false, ..first });
    let homelab = Arc::from("homelab");
    let note = || desk.queue.note(&homelab, Kind::Note, "hi".to_owned(), Some("n1".to_owned()));
    let both = join_all([note(), note()]).await;
    assert_eq!(both[0].as_ref().unwrap(), both[1].as_ref().unwrap());
    assert_eq!(note().await.unwrap(), *both[0].as_ref().unwrap());
    assert_eq!(desk.updates().await.len(), 3);
}

async fn a_deadline_ends_what_waits_and_what_runs(desk: Desk) {
    let deadline = Some(desk.queue.clock.now() + HOUR);
    for content in ["a", "b"] {
        desk.queue.send(NewTask { deadline, max_attempts: 9, ..message(content) }).await.unwrap();
    }
    desk.queue.claim(by("x", Lease::Held)).await.unwrap().unwrap();
    desk.pass(HOUR);
    assert!(desk.claimed("y").await.is_none(), "what is late is not begun");
    desk.sweep().await;
    for id in [TaskId(1), TaskId(2)] {
        let task = desk.task(id).await;
        assert_eq!((task.status, task.reason.as_deref()), (Status::Dead, Some("its deadline passed")));
    }
    let held = desk.queue.beat(&"homelab".into(), &["x".to_owned()]).await.unwrap();
    assert!(!held[0].holds);
    desk.assert_counts().await;
}

async fn what_cannot_be_carried_goes_back_untouched(desk: Desk) {
    let id = desk.sent("a").await;
    desk.claimed("x").await.unwrap();
    assert!(matches!(desk.queue.give_back(id, "y").await, Err(QueueError::Lost { .. })));
    desk.queue.give_back(id, "x").await.unwrap();
    let task = desk.task(id).await;
    assert_eq!((task.status, task.attempts, task.claim), (Status::Pending, 0, None));
    assert_eq!(desk.claimed("y").await.unwrap().attempts, 1);
    desk.queue.give_up(id, "nobody is there".to_owned()).await.unwrap();
    assert_eq!(desk.status(id).await, Status::Dead);
    desk.queue.give_back(id, "y").await.unwrap();
    assert_eq!(desk.status(id).await, Status::Dead);
    desk.assert_counts().await;
}

async fn a_carrier_brings_the_end_of_what_nobody_claimed(desk: Desk) {
    let id = desk.sent("a").await;
    let carried = |saying| Report { who: Who::Carrier, ..report(id, "", saying) };
    assert_eq!(desk.queue.report(carried(Saying::Progress)).await.unwrap().status, Status::Pending);
    let nobody = Who::Claimer { claim: None, by: "worker".to_owned() };
    let early = desk.queue.report(Report { who: nobody, ..carried(Saying::Progress) }).await;
    assert!(matches!(early, Err(QueueError::Conflict { .. })), "{early:?}");
    assert_eq!(desk.queue.report(carried(Saying::Complete)).await.unwrap().status, Status::Complete);
    desk.assert_counts().await;
}

async fn old_tasks_go_with_all_that_belongs_to_them(desk: Desk) {
    let (old, open) = (desk.sent("a").await, desk.sent("b").await);
    desk.claimed("x").await.unwrap();
    for _ in 0..600 {
        desk.says(old, "x", Saying::Progress).await.unwrap();
    }
    desk.says(old, "x", Saying::Complete).await.unwrap();
    desk.queue.telegram_sent(5, 6, old, None).await.unwrap();
    desk.queue.note(&"homelab".into(), Kind::Note, "old".to_owned(), None).await.unwrap();
    desk.queue.move_bookmark("model", None, Some(old), 3).await.unwrap();
    desk.pass(HOUR);
    let young = desk.sent("c").await;
    desk.queue.cancel(young, "no".to_owned()).await.unwrap();
    let before = desk.queue.clock.now() - Duration::from_secs(1);
    let mut steps = 0;
    while desk.queue.ask(Prune { before }).await.unwrap() == tend::Swept::Some {
        steps += 1;
    }
    assert!((2..10).contains(&steps), "in small steps: {steps}");
    assert!(desk.queue.task(old).await.unwrap().is_none());
    assert_eq!((desk.status(open).await, desk.status(young).await), (Status::Pending, Status::Cancelled));
    assert_eq!(desk.updates().await.iter().map(|update| update.task).collect::<Vec<_>>(), [Some(young)]);
    assert_eq!(desk.queue.telegram_task(5, 6).await.unwrap(), None);
    assert_eq!(desk.queue.bookmark("model", None, Some(old)).await.unwrap(), None);
    assert!(desk.queue.last_update().await.unwrap() > 600, "numbers are not used again");
    desk.assert_counts().await;
}

async fn leases_begin_anew_when_the_hub_was_away(desk: Desk) {
    let id = desk.sent("a").await;
    desk.claimed("x").await.unwrap();
    desk.pass(HOUR);
    desk.queue.ask(Grace).await.unwrap();
    desk.sweep().await;
    assert_eq!(desk.status(id).await, Status::Acknowledged);
    assert_eq!(*desk.queue.due.borrow(), Some(desk.queue.clock.now_ms() + 60_000));
    desk.pass(MINUTE);
    desk.sweep().await;
    assert_eq!(desk.status(id).await, Status::Dead);
    assert_eq!(*desk.queue.due.borrow(), None);
}

async fn a_text_with_a_nul_is_kept(desk: Desk) {
    let id = desk.sent("a\0b").await;
    assert_eq!(desk.task(id).await.content, "a\u{fffd}b");
}

async fn only_what_is_pending_can_be_taken_by_name(desk: Desk) {
    let (_, b) = (desk.sent("a").await, desk.sent("b").await);
    assert_eq!(desk.queue.claim_this(b, by("x", Lease::Held)).await.unwrap().unwrap().id, b);
    assert_eq!(desk.queue.claim_this(b, by("x", Lease::Held)).await.unwrap().unwrap().id, b, "the answer was lost");
    assert!(desk.queue.claim_this(b, by("y", Lease::Held)).await.unwrap().is_none());
    let elsewhere = Claim { target: "other".into(), ..by("z", Lease::Held) };
    assert!(desk.queue.claim_this(TaskId(1), elsewhere).await.unwrap().is_none());
    let unknown = desk.queue.claim_this(TaskId(9), by("z", Lease::Held)).await;
    assert!(matches!(unknown, Err(QueueError::Unknown(TaskId(9)))), "{unknown:?}");
}
