//! What a running command has said and the hub has not got yet: gathered into few updates, in order, and bounded.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::lines::Ends;
use super::questions::Asked;
use super::tail::Tail;

/// Bytes of an update, as long as the hub takes them as fast as they come.
const USUAL: usize = 4096;
/// When it does not, they grow: a program that says much should not have to be told apart line by line.
const LARGE: usize = 16 * 1024;
/// So many that wait mean that the hub is behind.
const BEHIND: usize = 8;

/// Reports that are still told of a task that was stopped.
const FEW: usize = 4;

/// What a command may print in all, and as much again may it say on purpose. Of output beyond that only the last lines are
/// kept.
const MOST_UPDATES: u64 = 10_000;
const MOST_BYTES: usize = 10 * 1024 * 1024;

/// A program writes its lines one after the other: those of one moment belong together.
const MOMENT: Duration = Duration::from_millis(10);
/// Between two updates of output.
const RHYTHM: Duration = Duration::from_millis(100);

/// What becomes of what still waits when a command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    All,
    /// The task was stopped: whoever waits for the next one does not wait for all this to be told.
    Few,
}

/// One report to the hub.
#[derive(Debug)]
pub enum Item {
    Output(String),
    /// Said on purpose (`nexus agent say`).
    Said(String),
    Question(String, Asked),
}

#[derive(Debug, Default)]
pub struct Outbox {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Item>,
    /// When the first words of the waiting output came, or when what was before them was given away.
    since: Option<Instant>,
    /// When output was last given away.
    last: Option<Instant>,
    printed: Spent,
    said: Spent,
    left_out: u64,
    tail: Tail,
    given: u64,
    closed: bool,
}

impl Outbox {
    /// A piece of output.
    pub fn heard(&self, piece: &str, ends: Ends) {
        self.state.lock().heard(piece, ends, Instant::now());
        self.news.notify_one();
    }

    pub fn say(&self, words: String) -> Result<(), String> {
        self.push(Item::Said(words))
    }

    /// Not limited: the next one waits for the answer to this one.
    pub fn ask(&self, question: String, asked: Asked) -> Result<(), String> {
        self.push(Item::Question(question, asked))
    }

    fn push(&self, item: Item) -> Result<(), String> {
        let mut state = self.state.lock();
        if state.closed {
            return Err("the task has ended".to_owned());
        }
        if let Item::Said(words) = &item {
            if !state.said.leaves(words.len()) {
                return Err("the task has said too much already".to_owned());
            }
            state.said.count(words.len());
        }
        state.waiting.push_back(item);
        drop(state);
        self.news.notify_one();
        Ok(())
    }

    /// Nothing more will come. Tells what was left out.
    pub fn close(&self, rest: Rest) {
        let mut state = self.state.lock();
        if rest == Rest::Few {
            state.shorten();
        }
        if state.left_out > 0 {
            let words = format!("{} lines were left out: the task has said too much", state.left_out);
            state.waiting.push_back(Item::Said(words));
        }
        state.closed = true;
        drop(state);
        self.news.notify_one();
    }

    /// The task was stopped after its command had ended: what is left is told shortly.
    pub fn hurry(&self) {
        let mut state = self.state.lock();
        if state.closed && state.waiting.len() > FEW + 1 {
            state.shorten();
        }
    }

    /// The last words of the output.
    pub fn tail(&self) -> String {
        self.state.lock().tail.text()
    }

    /// The next number for a report.
    pub fn number(&self) -> u64 {
        let mut state = self.state.lock();
        state.given += 1;
        state.given
    }

    /// The next report, once it is time for it. None: all is given away, and nothing more will come.
    pub async fn next(&self) -> Option<Item> {
        loop {
            let due = {
                let (mut state, now) = (self.state.lock(), Instant::now());
                match state.due(now) {
                    Due::Now => return state.take(now),
                    Due::Never => return None,
                    Due::At(then) => Some(then),
                    Due::Unknown => None,
                }
            };
            match due {
                None => self.news.notified().await,
                Some(then) => tokio::select! {
                    () = sleep_until(then) => {}
                    () = self.news.notified() => {}
                },
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Due {
    Now,
    At(Instant),
    /// When something is there.
    Unknown,
    Never,
}

impl State {
    fn heard(&mut self, piece: &str, ends: Ends, now: Instant) {
        let end = if ends == Ends::Line { "\n" } else { "" };
        let bytes = piece.len() + end.len();
        self.tail.push(piece);
        self.tail.push(end);
        let limit = if self.waiting.len() > BEHIND { LARGE } else { USUAL };
        let grows = matches!(self.waiting.back(), Some(Item::Output(last)) if last.len() + bytes <= limit);
        // What is joined to another costs no update of its own.
        if self.left_out > 0 || (!grows && !self.printed.leaves(bytes)) || self.printed.bytes + bytes > MOST_BYTES {
            self.left_out += u64::from(ends == Ends::Line);
            return;
        }
        match self.waiting.back_mut() {
            Some(Item::Output(last)) if grows => {
                last.push_str(piece);
                last.push_str(end);
                self.printed.bytes += bytes;
            }
            _ => {
                self.printed.count(bytes);
                self.since.get_or_insert(now);
                self.waiting.push_back(Item::Output(format!("{piece}{end}")));
            }
        }
    }

    /// Keeps the last few reports.
    fn shorten(&mut self) {
        let many = self.waiting.len().saturating_sub(FEW);
        let dropped = self.waiting.drain(..many).map(|item| match item {
            Item::Output(text) | Item::Said(text) => text.lines().count(),
            Item::Question(..) => 1,
        });
        let lines: usize = dropped.sum();
        if lines > 0 {
            self.waiting.push_front(Item::Said(format!("{lines} lines were left out: the task was stopped")));
        }
    }

    fn due(&self, now: Instant) -> Due {
        match self.waiting.front() {
            None if self.closed => Due::Never,
            None => Due::Unknown,
            // More may come and be joined to it.
            Some(Item::Output(text)) if self.waiting.len() == 1 && !self.closed && text.len() < USUAL / 2 => {
                let moment = self.since.unwrap_or(now) + MOMENT;
                let due = self.last.map_or(moment, |last| moment.max(last + RHYTHM));
                if due <= now { Due::Now } else { Due::At(due) }
            }
            Some(_) => Due::Now,
        }
    }

    fn take(&mut self, now: Instant) -> Option<Item> {
        let item = self.waiting.pop_front();
        if let Some(Item::Output(_)) = item {
            self.last = Some(now);
        }
        self.since = (!self.waiting.is_empty()).then_some(now);
        item
    }
}

/// What was taken of a task's words.
#[derive(Debug, Default)]
struct Spent {
    updates: u64,
    bytes: usize,
}

impl Spent {
    /// Whether there is room for an update of so many bytes.
    fn leaves(&self, bytes: usize) -> bool {
        self.updates < MOST_UPDATES && self.bytes + bytes <= MOST_BYTES
    }

    fn count(&mut self, bytes: usize) {
        self.updates += 1;
        self.bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(item: Option<Item>) -> String {
        match item {
            Some(Item::Output(text) | Item::Said(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn lines_of_one_moment_are_one_update_and_one_that_comes_alone_waits_for_no_other() {
        let (mut state, begun) = (State::default(), Instant::now());
        assert_eq!(state.due(begun), Due::Unknown);
        state.heard("a", Ends::Line, begun);
        state.heard("b", Ends::Line, begun + MOMENT / 2);
        assert_eq!(state.due(begun), Due::At(begun + MOMENT));
        assert_eq!(state.due(begun + MOMENT), Due::Now);
        assert_eq!(output(state.take(begun + MOMENT)), "a\nb\n");

        let soon = begun + MOMENT * 2;
        state.heard("c", Ends::Line, soon);
        assert_eq!(state.due(soon), Due::At(begun + MOMENT + RHYTHM), "not too often");
        state.heard(&"d".repeat(USUAL / 2), Ends::Line, soon);
        assert_eq!(state.due(soon), Due::Now, "enough for an update");
        state.take(soon);

        let later = soon + RHYTHM;
        state.heard("e", Ends::Line, later);
        assert_eq!(state.due(later), Due::At(later + MOMENT));
        state.closed = true;
        assert_eq!(state.due(later), Due::Now);
        state.take(later);
        assert_eq!(state.due(later), Due::Never);
    }

    #[test]
    fn what_is_left_behind_another_report_becomes_due_by_itself() {
        let (mut state, begun) = (State::default(), Instant::now());
        // One write of more than an update holds.
        state.heard(&"x".repeat(USUAL - 1), Ends::Line, begun);
        state.heard("the rest", Ends::Line, begun);
        assert_eq!(output(state.take(begun)).len(), USUAL);
        let due = begun + RHYTHM;
        assert_eq!((state.due(begun), state.due(due - MOMENT), state.due(due)), (Due::At(due), Due::At(due), Due::Now));
        assert_eq!(output(state.take(due)), "the rest\n");

        state.heard("before", Ends::Line, due);
        state.waiting.push_back(Item::Said("between".to_owned()));
        state.heard("after", Ends::Line, due);
        let later = due + RHYTHM;
        assert_eq!(output(state.take(later)), "before\n");
        assert_eq!(output(state.take(later)), "between");
        assert_eq!(state.due(later + MOMENT), Due::At(later + RHYTHM));
        assert_eq!(state.due(later + RHYTHM), Due::Now);
    }

    #[tokio::test]
    async fn a_question_comes_behind_what_was_said_before_it() {
        let outbox = Outbox::default();
        outbox.heard("before", Ends::Line);
        let (asked, _) = tokio::sync::watch::channel(None);
        outbox.ask("really?".to_owned(), asked).unwrap();
        outbox.heard("after", Ends::Line);
        outbox.close(Rest::All);
        assert_eq!(output(outbox.next().await), "before\n");
        assert!(matches!(outbox.next().await, Some(Item::Question(words, _)) if words == "really?"));
        assert_eq!(output(outbox.next().await), "after\n");
        assert!(outbox.next().await.is_none());
        assert!(outbox.say("too late".to_owned()).is_err());
    }

    #[tokio::test]
    async fn a_flood_becomes_few_large_updates_and_an_end() {
        let outbox = Outbox::default();
        let line = "x".repeat(99);
        for _ in 0..200_000 {
            outbox.heard(&line, Ends::Line);
        }
        outbox.close(Rest::All);
        let (mut updates, mut bytes, mut last) = (0, 0, String::new());
        while let Some(item) = outbox.next().await {
            last = output(Some(item));
            updates += 1;
            bytes += last.len();
            assert!(last.len() <= LARGE && last.lines().all(|line| line.len() == 99 || line.contains("left out")));
        }
        assert!((600..700).contains(&updates), "{updates}");
        assert!(bytes <= MOST_BYTES + 100);
        let kept = MOST_BYTES / 100;
        assert_eq!(last, format!("{} lines were left out: the task has said too much", 200_000 - kept));
        assert!(outbox.tail().ends_with(&format!("\n{line}")));
    }

    #[tokio::test]
    async fn of_a_task_that_was_stopped_the_last_words_are_told() {
        let outbox = Outbox::default();
        let line = "x".repeat(3000);
        (0..20).for_each(|_| outbox.heard(&line, Ends::Line));
        let waiting: usize = outbox.state.lock().waiting.iter().map(output_lines).sum();
        assert_eq!(waiting, 20);
        outbox.heard("the end", Ends::Line);
        outbox.close(Rest::Few);
        let mut told = Vec::new();
        while let Some(item) = outbox.next().await {
            told.push(output(Some(item)));
        }
        assert_eq!(told.len(), FEW + 1);
        let kept: usize = told[1..].iter().map(|text| text.lines().count()).sum();
        assert_eq!(told[0], format!("{} lines were left out: the task was stopped", 21 - kept));
        assert!(told[FEW].ends_with("the end\n"));

        fn output_lines(item: &Item) -> usize {
            match item {
                Item::Output(text) => text.lines().count(),
                other => panic!("{other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn updates_are_counted_too_and_a_question_can_always_be_asked() {
        let outbox = Outbox::default();
        for _ in 0..MOST_UPDATES {
            outbox.say("x".to_owned()).unwrap();
            outbox.heard("y", Ends::Line);
        }
        assert!(outbox.say("x".to_owned()).is_err());
        let (asked, _) = tokio::sync::watch::channel(None);
        outbox.ask("may I?".to_owned(), asked).unwrap();
        outbox.heard("and more", Ends::Line);
        outbox.close(Rest::All);
        let mut last = None;
        while let Some(item) = outbox.next().await {
            last = Some(item);
        }
        assert!(output(last).starts_with("1 lines were left out"));
    }
}
