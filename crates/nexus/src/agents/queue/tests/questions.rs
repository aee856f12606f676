//! A question has one answer, and an answer one question.

use super::*;

on_both! {
    a_second_question_waits_for_the_answer_to_the_first
    an_answer_can_be_bound_to_its_question
    a_question_outlives_the_silence_of_whoever_asked
    a_question_of_one_who_is_gone_is_not_the_next_ones
    an_answer_to_one_agent_is_not_heard_by_another
    a_question_that_was_never_asked_is_not_waited_for
}

async fn a_second_question_waits_for_the_answer_to_the_first(desk: Desk) {
    let id = desk.sent("a").await;
    desk.claimed("x").await.unwrap();
    let asks =
        |source: &str| desk.queue.report(Report { source: Some(source.to_owned()), ..report(id, "x", Saying::Ask) });
    let first = asks("one").await.unwrap();
    let early = asks("two").await;
    let Err(QueueError::Conflict { status: Status::InputRequired, why, .. }) = early else { panic!("{early:?}") };
    assert_eq!(why, "its question still waits for an answer");
    assert_eq!(asks("one").await.unwrap(), Reported { new: false, ..first }, "the same again is the same");
    assert_eq!(desk.task(id).await.question, Some(first.seq));
    desk.queue.answer(id, first.seq, "yes".to_owned(), "model").await.unwrap();
    let second = asks("two").await.unwrap();
    assert_eq!(desk.asked(id, "x", second.seq).await.unwrap(), (Status::InputRequired, None));
    let late = (Status::InputRequired, Some("yes".to_owned()));
    assert_eq!(desk.asked(id, "x", first.seq).await.unwrap(), late, "whoever comes late still gets the answer");
    desk.queue.answer(id, second.seq, "no".to_owned(), "model").await.unwrap();
    for (question, answer) in [(first.seq, "yes"), (second.seq, "no")] {
        let heard = (Status::InProgress, Some(answer.to_owned()));
        assert_eq!(desk.asked(id, "x", question).await.unwrap(), heard);
    }
    assert_eq!(desk.kinds(id).await, ["acknowledged", "question", "answer", "question", "answer"]);
    desk.assert_counts().await;
}

async fn an_answer_can_be_bound_to_its_question(desk: Desk) {
    let id = desk.sent("a").await;
    desk.claimed("x").await.unwrap();
    let answer = |question| desk.queue.answer(id, question, "yes".to_owned(), "model");
    let first = desk.says(id, "x", Saying::Ask).await.unwrap().seq;
    answer(first).await.unwrap();
    let second = desk.says(id, "x", Saying::Ask).await.unwrap().seq;
    let late = answer(first).await;
    assert!(matches!(late, Err(QueueError::Conflict { status: Status::InputRequired, .. })), "{late:?}");
    assert_eq!((desk.status(id).await, desk.task(id).await.question), (Status::InputRequired, Some(second)));
    assert_eq!(answer(second).await.unwrap().status, Status::InProgress);
    let again = answer(second).await;
    assert!(matches!(again, Err(QueueError::Conflict { status: Status::InProgress, .. })), "{again:?}");
    desk.assert_counts().await;
}

/// A task whose worker has asked, and was not heard since.
async fn asked_and_silent(desk: &Desk) -> (TaskId, i64) {
    desk.queue.send(NewTask { max_attempts: 3, ..message("a") }).await.unwrap();
    desk.claimed("x").await.unwrap();
    let question = desk.says(TaskId(1), "x", Saying::Ask).await.unwrap().seq;
    desk.pass(MINUTE);
    desk.sweep().await;
    assert_eq!(desk.status(TaskId(1)).await, Status::Pending);
    (TaskId(1), question)
}

async fn a_question_outlives_the_silence_of_whoever_asked(desk: Desk) {
    let (id, question) = asked_and_silent(&desk).await;
    let held = desk.queue.beat(&"homelab".into(), &["x".to_owned()]).await.unwrap();
    assert!(held[0].holds && held[0].status == Status::InputRequired, "{held:?}");
    desk.queue.answer(id, question, "yes".to_owned(), "model").await.unwrap();
    let answered = (Status::InProgress, Some("yes".to_owned()));
    assert_eq!(desk.asked(id, "x", question).await.unwrap(), answered);
    assert_eq!(desk.kinds(id).await, ["acknowledged", "question", "note", "note", "answer"]);
    assert_eq!(desk.says(id, "x", Saying::Complete).await.unwrap().status, Status::Complete);
    desk.assert_counts().await;
}

async fn a_question_of_one_who_is_gone_is_not_the_next_ones(desk: Desk) {
    let (id, question) = asked_and_silent(&desk).await;
    let task = desk.claimed("y").await.unwrap();
    assert_eq!((task.id, task.status, task.question), (id, Status::Acknowledged, None));
    let late = desk.queue.answer(id, question, "yes".to_owned(), "model").await;
    assert!(matches!(late, Err(QueueError::Conflict { status: Status::Acknowledged, .. })), "{late:?}");
    assert!(desk.says(id, "y", Saying::Ask).await.unwrap().new, "it may ask itself");
    desk.assert_counts().await;
}

async fn an_answer_to_one_agent_is_not_heard_by_another(desk: Desk) {
    let id = desk.sent("a").await;
    desk.claimed("x").await.unwrap();
    let delete = desk.says(id, "x", Saying::Ask).await.unwrap().seq;
    desk.queue.cancel(id, "no".to_owned()).await.unwrap();
    assert_eq!(desk.asked(id, "x", delete).await.unwrap(), (Status::Cancelled, None));
    desk.queue.retry(id, "model").await.unwrap();
    let by_key = Who::Claimer { claim: None, by: "worker".to_owned() };
    let lost = [desk.asked(id, "x", delete).await, desk.queue.asked(id, delete, &by_key).await];
    assert!(lost.iter().all(|lost| matches!(lost, Err(QueueError::Lost { .. }))), "it waits for nobody: {lost:?}");

    desk.claimed("y").await.unwrap();
    let print = desk.says(id, "y", Saying::Ask).await.unwrap().seq;
    desk.queue.answer(id, print, "yes".to_owned(), "model").await.unwrap();
    let lost = desk.asked(id, "x", delete).await;
    assert!(matches!(lost, Err(QueueError::Lost { .. })), "{lost:?}");
    // Both came with the same key, and gave no name.
    let over = desk.queue.asked(id, delete, &by_key).await;
    assert!(matches!(over, Err(QueueError::Conflict { status: Status::InProgress, .. })), "{over:?}");
    let answered = (Status::InProgress, Some("yes".to_owned()));
    assert_eq!(desk.asked(id, "y", print).await.unwrap(), answered);
}

async fn a_question_that_was_never_asked_is_not_waited_for(desk: Desk) {
    let id = desk.sent("a").await;
    desk.claimed("x").await.unwrap();
    for question in [0, 1, 17, i64::MAX] {
        let odd = desk.asked(id, "x", question).await;
        assert!(matches!(odd, Err(QueueError::Conflict { status: Status::Acknowledged, .. })), "{odd:?}");
    }
}
