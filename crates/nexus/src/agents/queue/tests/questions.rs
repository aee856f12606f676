//! A question has one answer, and an answer one question.

use super::*;

on_both! {
    a_second_question_waits_for_the_answer_to_the_first
    an_answer_can_be_bound_to_its_question
    a_question_outlives_the_silence_of_whoever_asked
    a_question_of_one_who_is_gone_is_not_the_next_ones
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
    desk.queue.answer(id, None, "yes".to_owned(), "model").await.unwrap();
    let second = asks("two").await.unwrap();
    assert!(desk.queue.answer_to(id, second.seq).await.unwrap().is_none());
    assert_eq!(desk.queue.answer_to(id, first.seq).await.unwrap().unwrap().content, "yes");
    assert_eq!(desk.kinds(id).await, ["acknowledged", "question", "answer", "question"]);
    desk.assert_counts().await;
}

async fn an_answer_can_be_bound_to_its_question(desk: Desk) {
    let id = desk.sent("a").await;
    desk.claimed("x").await.unwrap();
    let answer = |question| desk.queue.answer(id, Some(question), "yes".to_owned(), "model");
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
    desk.queue.answer(id, Some(question), "yes".to_owned(), "model").await.unwrap();
    assert_eq!(desk.queue.answer_to(id, question).await.unwrap().unwrap().content, "yes");
    assert_eq!(desk.kinds(id).await, ["acknowledged", "question", "note", "note", "answer"]);
    assert_eq!(desk.says(id, "x", Saying::Complete).await.unwrap().status, Status::Complete);
    desk.assert_counts().await;
}

async fn a_question_of_one_who_is_gone_is_not_the_next_ones(desk: Desk) {
    let (id, question) = asked_and_silent(&desk).await;
    let task = desk.claimed("y").await.unwrap();
    assert_eq!((task.id, task.status, task.question), (id, Status::Acknowledged, None));
    let late = desk.queue.answer(id, Some(question), "yes".to_owned(), "model").await;
    assert!(matches!(late, Err(QueueError::Conflict { status: Status::Acknowledged, .. })), "{late:?}");
    assert!(desk.says(id, "y", Saying::Ask).await.unwrap().new, "it may ask itself");
    desk.assert_counts().await;
}
