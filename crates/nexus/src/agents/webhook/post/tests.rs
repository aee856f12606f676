//! One letter after the other, to a server that answers as it is told.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use nexus_core::audit::Nowhere;
use nexus_core::tasks::Tasks;

use super::*;

#[test]
fn an_answer_takes_refuses_or_puts_off() {
    let not_now = |why: &str, whose| Came::NotNow { why: format!("it answers {why}"), asked: None, whose };
    check(200, "", &Came::Taken);
    check(204, "", &Came::Taken);
    check(400, "no\u{1b}[2J such\nfield", &Came::Refused("it answers HTTP 400: no such field".to_owned()));
    for status in [410, 413, 415, 422] {
        check(status, "", &Came::Refused(format!("it answers HTTP {status}")));
    }
    for status in [401, 403, 404, 405, 451] {
        check(status, "", &not_now(&format!("HTTP {status}"), Whose::Letter));
    }
    check(408, "", &not_now("HTTP 408", Whose::Letter));
    check(409, "busy", &not_now("HTTP 409: busy", Whose::Letter));
    check(425, "", &not_now("HTTP 425", Whose::Letter));
    check(500, "", &not_now("HTTP 500", Whose::Letter));
    check(302, "", &not_now("HTTP 302", Whose::Letter));
    check(429, "", &not_now("HTTP 429", Whose::Target));
    check(503, "", &not_now("HTTP 503", Whose::Target));

    #[track_caller]
    fn check(status: u16, body: &str, expected: &Came) {
        assert_eq!(&meaning(&Answer { status, retry_after: None, body: body.to_owned() }), expected);
    }
}

#[test]
fn what_the_other_side_says_is_kept_short() {
    let Came::Refused(why) = meaning(&Answer { status: 400, retry_after: None, body: "x".repeat(4096) }) else {
        panic!()
    };
    assert!(why.chars().count() < LONGEST_REASON + 40, "{why}");
}

#[test]
fn pauses_grow_to_five_minutes_and_a_wish_counts_but_not_for_ever() {
    for (failures, most) in [(1, 1), (2, 2), (3, 4), (9, 256), (10, 300), (60, 300)] {
        let now = pause(failures, None).as_secs_f64();
        assert!(now >= f64::from(most) / 2.0 && now <= f64::from(most), "{now} of {most}");
    }
    assert_eq!(pause(1, Some(Duration::from_secs(90))), Duration::from_secs(90));
    assert_eq!(pause(1, Some(Duration::from_secs(1 << 40))), LONGEST_ASKED);
}

/// A way to a server that gives these answers, and then takes everything.
struct Street {
    post: Post,
    _folder: TempDir,
    tasks: Tasks,
}

const TAKEN: &str = "200 OK\r\nContent-Length: 0";

impl Street {
    async fn with(answers: &[&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = SafeUrl::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let (tasks, answers) = (Tasks::new(), Mutex::new(VecDeque::from(answers.to_vec())));
        tasks.spawn("server", async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut buffer = [0; 4096];
                let _ = stream.read(&mut buffer).await;
                let answer = answers.lock().pop_front().unwrap_or(TAKEN);
                let _ = stream.write_all(format!("HTTP/1.1 {answer}\r\nConnection: close\r\n\r\n").as_bytes()).await;
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let store = crate::store::Store::open(folder.path(), None).await.unwrap();
        let queue = Queue::start(store, "home", folder.path(), &tasks).unwrap();
        let signer = Signer::parse("a secret of some length").unwrap();
        let post = Post::to(Arc::from("hook"), url, signer, queue, Arc::new(Nowhere)).unwrap();
        Self { post, _folder: folder, tasks }
    }

    async fn trouble(&self) -> Option<String> {
        self.post.queue.channels().await.unwrap().pop().and_then(|channel| channel.trouble)
    }
}

fn letter() -> Letter {
    Letter { id: "msg_1".to_owned(), body: b"{}".to_vec(), what: "a letter".to_owned() }
}

fn in_an_hour() -> Timestamp {
    clock::now() + SignedDuration::from_hours(1)
}

#[tokio::test]
async fn a_letter_whose_time_is_over_before_the_next_try_is_late() {
    let street = Street::with(&["500 Oh\r\nContent-Length: 0"]).await;
    let soon = clock::now() + SignedDuration::from_millis(400);
    let delivery = street.post.deliver(&letter(), soon, &CancellationToken::new()).await;
    assert_eq!(delivery, Delivery::Late("it answers HTTP 500".to_owned()));
    assert_eq!(street.trouble().await.as_deref(), Some("it answers HTTP 500"));
}

#[tokio::test]
async fn a_letter_whose_time_was_over_before_anybody_tried_is_tried_once() {
    let street = Street::with(&["500 Oh\r\nContent-Length: 0"]).await;
    let over = clock::now() - SignedDuration::from_hours(1);
    let deliver = async || street.post.deliver(&letter(), over, &CancellationToken::new()).await;
    assert_eq!(deliver().await, Delivery::Late("it answers HTTP 500".to_owned()));
    assert_eq!(deliver().await, Delivery::Taken);
}

#[tokio::test]
async fn a_target_that_refuses_a_letter_is_heard() {
    let street = Street::with(&["500 Oh\r\nContent-Length: 0", "422 No\r\nContent-Length: 0"]).await;
    let soon = clock::now() + SignedDuration::from_millis(400);
    street.post.deliver(&letter(), soon, &CancellationToken::new()).await;
    let delivery = street.post.deliver(&letter(), in_an_hour(), &CancellationToken::new()).await;
    assert_eq!((delivery, street.trouble().await), (Delivery::Refused("it answers HTTP 422".to_owned()), None));
}

#[tokio::test]
async fn a_letter_that_rests_holds_up_no_other_and_can_be_called_back() {
    let street = Street::with(&["500 Oh\r\nContent-Length: 0\r\nRetry-After: 3000"]).await;
    let (mut standing, back, first) = (street.post.standing(), CancellationToken::new(), letter());
    let resting = async {
        standing.wait_for(|standing| standing.resting == 1).await.unwrap();
        let delivery = street.post.deliver(&letter(), in_an_hour(), &CancellationToken::new()).await;
        assert_eq!((delivery, street.trouble().await), (Delivery::Taken, None));
        back.cancel();
    };
    let (delivery, ()) = tokio::join!(street.post.deliver(&first, in_an_hour(), &back), resting);
    assert_eq!(delivery, Delivery::Stopped(Gone::Perhaps));
    assert_eq!(street.post.standing().borrow().resting, 0);
    street.tasks.stopping().cancel();
}

#[tokio::test]
async fn a_target_that_wants_to_be_left_alone_is_left_alone_by_all() {
    let street = Street::with(&["503 Later\r\nContent-Length: 0\r\nRetry-After: 3000"]).await;
    let mut standing = street.post.standing();
    let (back, other, first, second) = (CancellationToken::new(), CancellationToken::new(), letter(), letter());
    let closed = async {
        standing.wait_for(|standing| !standing.is_open()).await.unwrap();
        other.cancel();
        let delivery = street.post.deliver(&second, in_an_hour(), &other).await;
        assert_eq!(delivery, Delivery::Stopped(Gone::No), "nothing was sent");
        back.cancel();
    };
    let (delivery, ()) = tokio::join!(street.post.deliver(&first, in_an_hour(), &back), closed);
    assert_eq!(delivery, Delivery::Stopped(Gone::Perhaps));
}
