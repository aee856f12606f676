//! Whatever is done, in whatever order: the queue does what a plain list of tasks would do.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Deed {
    Send { text: usize, priority: usize, attempts: u32, deadline: bool, key: Option<u8> },
    Claim { name: usize, speaks: bool },
    Say { task: usize, name: usize, saying: usize },
    Beat { name: usize },
    Answer { task: usize },
    Cancel { task: usize },
    GiveUp { task: usize },
    GiveBack { task: usize, name: usize },
    Retry { task: usize },
    Pass { seconds: u64 },
}

const TEXTS: [&str; 6] = ["a", "b", "c", "d", "URGENT e", "STOP"];
const NAMES: [&str; 3] = ["x", "y", "z"];
const SAYINGS: [Saying; 5] = [Saying::Progress, Saying::Note, Saying::Ask, Saying::Complete, Saying::Fail];
const LEASE: u64 = 60_000;
const DEADLINE: u64 = 100_000;

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let (task, name) = (0..12_usize, 0..NAMES.len());
    let deed = prop_oneof![
        6 => (0..TEXTS.len(), 0..4_usize, 1..3_u32, any::<bool>(), prop::option::weighted(0.2, 0..3_u8)).prop_map(
            |(text, priority, attempts, deadline, key)| Deed::Send { text, priority, attempts, deadline, key }
        ),
        6 => (name.clone(), any::<bool>()).prop_map(|(name, speaks)| Deed::Claim { name, speaks }),
        8 => (task.clone(), name.clone(), 0..SAYINGS.len()).prop_map(|(task, name, saying)| Deed::Say { task, name, saying }),
        3 => name.clone().prop_map(|name| Deed::Beat { name }),
        3 => task.clone().prop_map(|task| Deed::Answer { task }),
        2 => task.clone().prop_map(|task| Deed::Cancel { task }),
        1 => task.clone().prop_map(|task| Deed::GiveUp { task }),
        1 => (task.clone(), name).prop_map(|(task, name)| Deed::GiveBack { task, name }),
        2 => task.prop_map(|task| Deed::Retry { task }),
        3 => (1..90_u64).prop_map(|seconds| Deed::Pass { seconds }),
    ];
    prop::collection::vec(deed, 1..60)
}

/// A task as plainly as can be. Times in milliseconds.
#[derive(Clone, Debug)]
struct Plain {
    text: usize,
    priority: Priority,
    status: Status,
    attempts: i64,
    most: i64,
    claim: Option<usize>,
    speaks: bool,
    asks: bool,
    lease: Option<u64>,
    deadline: Option<u64>,
    keys: Vec<u8>,
    /// In which order it ended.
    ended: usize,
}

#[derive(Debug, Default)]
struct Model {
    tasks: Vec<Plain>,
    now: u64,
    endings: usize,
}

/// What can be seen of the outcome of a deed.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Queued(i64, i64, Vec<i64>),
    Duplicate(i64),
    Task(Option<i64>),
    Status(Status),
    Held(Option<(i64, bool)>),
    Refused(&'static str),
    Done,
}

impl Model {
    fn act(&mut self, at: usize, act: Act) -> bool {
        let Some(next) = self.tasks[at].status.after(act) else { return false };
        let task = &mut self.tasks[at];
        task.status = next;
        if next.is_finished() {
            self.endings += 1;
            (task.lease, task.asks, task.ended) = (None, false, self.endings);
        }
        true
    }

    fn order(&self) -> Vec<usize> {
        let mut waiting: Vec<usize> =
            (0..self.tasks.len()).filter(|at| self.tasks[*at].status == Status::Pending).collect();
        waiting.sort_by_key(|at| (std::cmp::Reverse(self.tasks[*at].priority), *at));
        waiting
    }

    fn of_claim(&self, name: usize) -> Option<usize> {
        let theirs = || (0..self.tasks.len()).filter(|at| self.tasks[*at].claim == Some(name));
        theirs()
            .find(|at| !self.tasks[*at].status.is_finished())
            .or_else(|| theirs().max_by_key(|at| self.tasks[*at].ended))
    }

    fn renew(&mut self, at: usize) {
        let (task, until) = (&mut self.tasks[at], self.now + LEASE);
        // Only what is worth writing is written.
        if task.lease.is_some_and(|lease| lease < self.now + LEASE * 3 / 4) {
            task.lease = Some(until);
        }
    }

    fn resume(&mut self, at: usize) {
        if self.act(at, Act::Claim) {
            self.tasks[at].lease = Some(self.now + LEASE);
            // Its question waits on.
            assert!(!self.tasks[at].asks || self.act(at, Act::Ask));
        } else if self.tasks[at].status.is_running() {
            self.renew(at);
        }
    }

    fn send(&mut self, text: usize, priority: usize, most: u32, deadline: bool, key: Option<u8>) -> Seen {
        if let Some(same) = self.tasks.iter().position(|task| key.is_some_and(|key| task.keys.contains(&key))) {
            return Seen::Duplicate(number(same));
        }
        if let Some(same) = self.tasks.iter().position(|task| task.text == text && !task.status.is_finished()) {
            // From now on the key means that one.
            self.tasks[same].keys.extend(key);
            return Seen::Duplicate(number(same));
        }
        let call = crate::agents::task::Call::of(TEXTS[text]);
        let ordinary = call == crate::agents::task::Call::Ordinary;
        let priority = if ordinary { Priority::ALL[priority] } else { Priority::Urgent };
        let id = self.tasks.len();
        self.tasks.push(Plain {
            text,
            priority,
            status: Status::Pending,
            attempts: 0,
            most: i64::from(most),
            claim: None,
            speaks: false,
            asks: false,
            lease: None,
            deadline: deadline.then_some(self.now + DEADLINE),
            keys: key.into_iter().collect(),
            ended: 0,
        });
        let position = self.order().iter().filter(|at| self.tasks[**at].priority >= priority).count();
        if ordinary {
            return Seen::Queued(number(id), i64::try_from(position).unwrap(), vec![]);
        }
        let running: Vec<usize> = (0..id).filter(|at| self.tasks[*at].status.is_running()).collect();
        running.iter().for_each(|at| assert!(self.act(*at, Act::Cancel)));
        let stopped = running.into_iter().map(number).collect();
        if call == crate::agents::task::Call::Stop {
            self.act(id, Act::Claim);
            self.act(id, Act::Complete);
            return Seen::Queued(number(id), 0, stopped);
        }
        Seen::Queued(number(id), i64::try_from(position).unwrap(), stopped)
    }

    fn claim(&mut self, name: usize, speaks: bool) -> Seen {
        if let Some(same) = self.of_claim(name).filter(|at| !self.tasks[*at].status.is_finished()) {
            self.resume(same);
            return Seen::Task(Some(number(same)));
        }
        let in_time = |at: &usize| self.tasks[*at].deadline.is_none_or(|deadline| deadline > self.now);
        let Some(next) = self.order().into_iter().find(in_time) else { return Seen::Task(None) };
        assert!(self.act(next, Act::Claim));
        let lease = Some(self.now + LEASE);
        let task = &mut self.tasks[next];
        (task.claim, task.speaks, task.asks, task.lease) = (Some(name), speaks, false, lease);
        task.attempts += 1;
        Seen::Task(Some(number(next)))
    }

    fn say(&mut self, at: usize, name: usize, saying: Saying) -> Seen {
        if self.tasks[at].claim != Some(name) {
            return Seen::Refused("lost");
        }
        if saying == Saying::Ask && self.tasks[at].asks {
            return Seen::Refused("conflict");
        }
        if !self.tasks[at].status.is_finished() {
            self.resume(at);
        }
        let act = match saying {
            Saying::Progress => Some(Act::Say),
            Saying::Note => None,
            Saying::Ask => Some(Act::Ask),
            Saying::Complete => Some(Act::Complete),
            Saying::Fail => Some(Act::Fail),
        };
        let done = act.is_some_and(|act| self.act(at, act));
        if done && saying == Saying::Ask {
            let task = &mut self.tasks[at];
            (task.asks, task.lease) = (true, task.lease.filter(|_| !task.speaks));
        }
        Seen::Status(self.tasks[at].status)
    }

    fn sweep(&mut self) {
        for at in 0..self.tasks.len() {
            if !self.tasks[at].status.is_finished() && self.tasks[at].deadline.is_some_and(|end| end <= self.now) {
                assert!(self.act(at, Act::GiveUp));
            }
        }
        for at in 0..self.tasks.len() {
            if self.tasks[at].lease.is_none_or(|lease| lease > self.now) {
                continue;
            }
            let spent = self.tasks[at].attempts >= self.tasks[at].most;
            assert!(self.act(at, if spent { Act::GiveUp } else { Act::Requeue }));
            self.tasks[at].lease = None;
        }
    }

    fn settle(&mut self, at: usize, act: Act) -> Seen {
        if self.act(at, act) { Seen::Status(self.tasks[at].status) } else { Seen::Refused("conflict") }
    }

    fn retry(&mut self, at: usize) -> Seen {
        let (text, now) = (self.tasks[at].text, self.now);
        if !self.tasks[at].status.is_finished() || TEXTS[text] == "STOP" {
            return Seen::Refused("conflict");
        }
        if self.tasks.iter().any(|task| task.text == text && !task.status.is_finished()) {
            return Seen::Refused("same words");
        }
        assert!(self.act(at, Act::Retry));
        let task = &mut self.tasks[at];
        (task.attempts, task.claim, task.lease) = (0, None, None);
        task.deadline = task.deadline.filter(|deadline| *deadline > now);
        Seen::Status(Status::Pending)
    }

    fn give_back(&mut self, at: usize, name: usize) -> Seen {
        if self.tasks[at].claim != Some(name) {
            return Seen::Refused("lost");
        }
        if !self.tasks[at].status.is_finished() {
            self.act(at, Act::Requeue);
            let task = &mut self.tasks[at];
            task.attempts -= 1;
            (task.claim, task.asks, task.lease) = (None, false, None);
        }
        Seen::Done
    }

    fn does(&mut self, deed: &Deed) -> Seen {
        let task = |at: usize| if at < self.tasks.len() { Ok(at) } else { Err(Seen::Refused("unknown")) };
        let found = match *deed {
            Deed::Say { task: at, .. }
            | Deed::Answer { task: at }
            | Deed::Cancel { task: at }
            | Deed::GiveUp { task: at }
            | Deed::GiveBack { task: at, .. }
            | Deed::Retry { task: at } => task(at),
            _ => Ok(0),
        };
        if let Err(unknown) = found {
            return unknown;
        }
        match *deed {
            Deed::Send { text, priority, attempts, deadline, key } => {
                self.send(text, priority, attempts, deadline, key)
            }
            Deed::Claim { name, speaks } => self.claim(name, speaks),
            Deed::Say { task, name, saying } => self.say(task, name, SAYINGS[saying]),
            Deed::Beat { name } => {
                let found = self.of_claim(name);
                if let Some(at) = found.filter(|at| !self.tasks[*at].status.is_finished()) {
                    self.resume(at);
                }
                Seen::Held(found.map(|at| (number(at), self.tasks[at].status.is_running())))
            }
            Deed::Answer { task } => {
                let seen = self.settle(task, Act::Answer);
                if seen == Seen::Status(Status::InProgress) {
                    (self.tasks[task].asks, self.tasks[task].lease) = (false, Some(self.now + LEASE));
                }
                seen
            }
            Deed::Cancel { task } => self.settle(task, Act::Cancel),
            Deed::GiveUp { task } => self.settle(task, Act::GiveUp),
            Deed::GiveBack { task, name } => self.give_back(task, name),
            Deed::Retry { task } => self.retry(task),
            Deed::Pass { seconds } => {
                self.now += seconds * 1_000;
                self.sweep();
                Seen::Done
            }
        }
    }
}

fn number(at: usize) -> i64 {
    i64::try_from(at).unwrap() + 1
}

fn id(at: usize) -> TaskId {
    TaskId(number(at))
}

fn refused(error: &QueueError) -> Seen {
    Seen::Refused(match error {
        QueueError::Unknown(_) => "unknown",
        QueueError::Conflict { .. } => "conflict",
        QueueError::Lost { .. } => "lost",
        QueueError::SameWords { .. } => "same words",
        QueueError::Store(_) | QueueError::Ending => panic!("{error}"),
    })
}

impl Desk {
    async fn does(&self, deed: &Deed) -> Seen {
        let lease = Duration::from_millis(LEASE);
        let status = |task: Result<Task, QueueError>| match task {
            Ok(task) => Seen::Status(task.status),
            Err(error) => refused(&error),
        };
        match *deed {
            Deed::Send { text, priority, attempts, deadline, key } => {
                let task = NewTask {
                    priority: Priority::ALL[priority],
                    max_attempts: attempts,
                    deadline: deadline.then(|| self.queue.clock.now() + Duration::from_millis(DEADLINE)),
                    idempotency_key: key.map(|key| key.to_string()),
                    ..message(TEXTS[text])
                };
                match self.queue.send(task).await.unwrap() {
                    Sent::Queued { id, position, stopped } => {
                        Seen::Queued(id.0, position, stopped.into_iter().map(|id| id.0).collect())
                    }
                    Sent::Duplicate { id } => Seen::Duplicate(id.0),
                }
            }
            Deed::Claim { name, speaks } => {
                let lease = if speaks { Lease::Speaks(lease) } else { Lease::Beats(lease) };
                Seen::Task(self.queue.claim(by(NAMES[name], lease)).await.unwrap().map(|task| task.id.0))
            }
            Deed::Say { task, name, saying } => match self.says(id(task), NAMES[name], SAYINGS[saying]).await {
                Ok(said) => Seen::Status(said.status),
                Err(error) => refused(&error),
            },
            Deed::Beat { name } => {
                let held = self.queue.beat(&"homelab".into(), &[NAMES[name].to_owned()]).await.unwrap();
                Seen::Held(held.first().map(|held| (held.task.0, held.holds)))
            }
            Deed::Answer { task } => {
                let waits = self.queue.task(id(task)).await.unwrap().and_then(|task| task.question);
                status(self.queue.answer(id(task), waits.unwrap_or(0), "42".to_owned(), "model").await)
            }
            Deed::Cancel { task } => status(self.queue.cancel(id(task), "no".to_owned()).await),
            Deed::GiveUp { task } => status(self.queue.give_up(id(task), "no".to_owned()).await),
            Deed::GiveBack { task, name } => match self.queue.give_back(id(task), NAMES[name]).await {
                Ok(()) => Seen::Done,
                Err(error) => refused(&error),
            },
            Deed::Retry { task } => status(self.queue.retry(id(task), "me").await),
            Deed::Pass { seconds } => {
                self.pass(Duration::from_secs(seconds));
                self.sweep().await;
                Seen::Done
            }
        }
    }
}

async fn same(deeds: Vec<Deed>) {
    let (desk, mut model) = (Desk::sqlite().await, Model::default());
    for (nth, deed) in deeds.iter().enumerate() {
        // One that ends at the same moment as another would be found by chance.
        desk.pass(Duration::from_millis(1));
        model.now += 1;
        let (expected, seen) = (model.does(deed), desk.does(deed).await);
        assert_eq!(seen, expected, "step {nth}: {deed:?}\n{model:#?}");
    }
    for (at, plain) in model.tasks.iter().enumerate() {
        let task = desk.task(id(at)).await;
        let claim = plain.claim.map(|name| NAMES[name]);
        assert_eq!(
            (task.status, task.attempts, task.claim.as_deref()),
            (plain.status, plain.attempts, claim),
            "{task:?}"
        );
        assert_eq!(task.completed.is_some(), task.status.is_finished());
    }
    let order: Vec<i64> = desk.queue.next("homelab", 1_000).await.unwrap().iter().map(|task| task.id.0).collect();
    assert_eq!(order, model.order().into_iter().map(number).collect::<Vec<_>>());
    assert!(desk.updates().await.iter().map(|update| update.seq).eq(1..=desk.queue.last_update().await.unwrap()));
    desk.assert_counts().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_queue_does_what_a_plain_list_would_do(deeds in deeds()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(within(same(deeds)));
    }
}
