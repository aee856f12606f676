//! What is carried to somebody has no lease: it is taken away when its carrier is gone.

use super::*;

on_both! {
    only_what_another_carrier_holds_is_found
    what_reached_nobody_waits_again_and_costs_no_attempt
    what_may_have_reached_somebody_is_given_up_or_waits_again
    what_was_heard_of_those_who_are_gone_is_forgotten
}

async fn carried(desk: &Desk, content: &str, by: &str, most: u32) -> Task {
    let sent = desk.queue.send(NewTask { max_attempts: most, ..message(content) }).await.unwrap();
    let Sent::Queued { id, .. } = sent else { panic!("{sent:?}") };
    let claim = Claim { by: by.to_owned(), ..self::by(&format!("claim of {id}"), Lease::Held) };
    desk.queue.claim_this(id, claim).await.unwrap().unwrap()
}

async fn only_what_another_carrier_holds_is_found(desk: Desk) {
    let posted = carried(&desk, "a", "webhook:homelab", 1).await.id;
    let said = carried(&desk, "b", "telegram:bot", 1).await.id;
    desk.says(said, &format!("claim of {said}"), Saying::Progress).await.unwrap();
    let asked = carried(&desk, "c", "telegram:bot", 1).await.id;
    desk.says(asked, &format!("claim of {asked}"), Saying::Ask).await.unwrap();
    let done = carried(&desk, "d", "telegram:bot", 1).await.id;
    desk.says(done, &format!("claim of {done}"), Saying::Complete).await.unwrap();
    desk.sent("for a worker").await;
    desk.claimed("x").await.unwrap();
    let found = async |target: &str, way: &str| {
        let mut found: Vec<TaskId> =
            desk.queue.carried_otherwise(target, way).await.unwrap().iter().map(|task| task.id).collect();
        found.sort_unstable();
        found
    };
    assert_eq!(found("homelab", "worker").await, [posted, said, asked]);
    assert_eq!(found("homelab", "webhook").await, [said, asked]);
    assert_eq!(found("homelab", "telegram").await, [posted]);
    assert_eq!(found("other", "worker").await, []);
}

async fn what_reached_nobody_waits_again_and_costs_no_attempt(desk: Desk) {
    let task = carried(&desk, "a", "telegram:bot", 1).await;
    assert!(desk.queue.take_away(&task, Arrived::Never, "gone".to_owned()).await.unwrap());
    let back = desk.task(task.id).await;
    assert_eq!((back.status, back.attempts, back.claimed_by), (Status::Pending, 0, None));
    assert_eq!(desk.kinds(task.id).await, ["acknowledged", "note"]);
    assert!(!desk.queue.take_away(&task, Arrived::Never, "gone".to_owned()).await.unwrap(), "once is enough");
    assert_eq!(desk.claimed("x").await.unwrap().attempts, 1);
    assert!(!desk.queue.take_away(&task, Arrived::Perhaps, "gone".to_owned()).await.unwrap(), "it is another's now");
    desk.assert_counts().await;
}

async fn what_may_have_reached_somebody_is_given_up_or_waits_again(desk: Desk) {
    let (once, twice) = (carried(&desk, "a", "webhook:homelab", 1).await, carried(&desk, "b", "telegram:bot", 2).await);
    desk.says(twice.id, &format!("claim of {}", twice.id), Saying::Ask).await.unwrap();
    for task in [&once, &twice] {
        assert!(desk.queue.take_away(task, Arrived::Perhaps, "gone".to_owned()).await.unwrap());
    }
    let dead = desk.task(once.id).await;
    assert_eq!((dead.status, dead.reason.as_deref()), (Status::Dead, Some("gone")));
    let back = desk.task(twice.id).await;
    assert_eq!((back.status, back.attempts, back.question), (Status::Pending, 1, None));
    assert_eq!(desk.updates().await.pop().unwrap().content, "gone; it waits again, 1 of 2 attempts are used");
    let again = desk.claimed("x").await.unwrap();
    assert_eq!((again.id, again.attempts, again.reason), (twice.id, 2, None));
    // Whoever had it and has done it after all has done it.
    desk.says(once.id, &format!("claim of {}", once.id), Saying::Complete).await.unwrap();
    assert_eq!(desk.status(once.id).await, Status::Complete);
    desk.assert_counts().await;
}

async fn what_was_heard_of_those_who_are_gone_is_forgotten(desk: Desk) {
    let names = async |queue: &Queue| -> Vec<String> {
        queue.channels().await.unwrap().into_iter().map(|channel| channel.name).collect()
    };
    desk.queue.heard("homelab", None).await;
    desk.queue.heard("the bot", Some("no token".to_owned())).await;
    let other = desk.another();
    assert_eq!(names(&other).await, ["homelab", "the bot"]);
    desk.queue.keep_channels(&["homelab", "attic"].into()).await.unwrap();
    assert_eq!(
        (names(&desk.queue).await, names(&other).await),
        (vec!["homelab".to_owned()], vec!["homelab".to_owned()])
    );
    // Whoever comes back is heard at once.
    desk.queue.heard("the bot", None).await;
    assert_eq!(names(&other).await, ["homelab", "the bot"]);
}
