//! `nexus audit tail`: the newest rows, and those to come.

use std::collections::BTreeSet;
use std::io::{IsTerminal, stdout};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use nexus_core::{Chain, clock};
use tokio::time::sleep;

use super::line::{self, Look};
use super::{Which, open, put, say};
use crate::config::Loaded;
use crate::store::body::Kept;
use crate::store::position::position;
use crate::store::rows::{Entry, Filter};
use crate::store::{Store, StoreError};

/// Between two looks for new rows.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Several processes write: a row may be committed this much later than one behind it.
const LATEST_COMMIT_MS: i64 = 10_000;
/// Rows read at once.
const PAGE: u32 = 500;

#[derive(Debug, Args)]
pub struct Tail {
    /// How many rows
    #[arg(short, long = "rows", default_value_t = 20, value_name = "N")]
    n: u32,
    /// Go on with the rows to come, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    which: Which,
    /// Print the rows as they are kept: a JSON object a line
    #[arg(long)]
    json: bool,
}

impl Tail {
    pub async fn run(self, loaded: &Loaded) -> Result<ExitCode> {
        let store = open(loaded).await?;
        let filter = self.which.filter(&store).await?;
        let form = match (self.json, stdout().is_terminal()) {
            (true, _) => Form::Json,
            (false, true) => Form::Lines(Look::Coloured),
            (false, false) => Form::Lines(Look::Plain),
        };
        // What is there now is not to come. Read first: nothing falls between the two looks.
        let mut following = Following::new(form);
        if self.follow {
            following.pass_over(&store, &filter).await?;
        }
        let mut newest = store.newest(&filter, None, self.n).await?;
        newest.reverse();
        let mut read = following.show(&newest)?;
        while self.follow && read {
            read = tokio::select! {
                read = following.go_on(&store, &filter) => read?,
                interrupted = tokio::signal::ctrl_c() => {
                    interrupted?;
                    break;
                }
            };
        }
        store.close().await;
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Clone, Copy)]
enum Form {
    Json,
    Lines(Look),
}

impl Form {
    fn of(self, entry: &Entry) -> String {
        match (self, Kept::parse(&entry.body)) {
            (Form::Lines(look), Ok(row)) => line::of(&row, look),
            (Form::Lines(_), Err(_)) => format!("the row at {} cannot be read; see `nexus audit verify`", entry.pos),
            (Form::Json, _) => entry.body.clone(),
        }
    }
}

/// Where following stands.
struct Following {
    form: Form,
    /// Everything before this has been shown, or will not be.
    from: i64,
    /// What has been shown from there on.
    shown: BTreeSet<i64>,
    /// It has been said that the store cannot be read.
    told: bool,
}

impl Following {
    fn new(form: Form) -> Self {
        Self { form, from: position(clock::now_ms() - LATEST_COMMIT_MS), shown: BTreeSet::new(), told: false }
    }

    /// Takes what is there for shown.
    async fn pass_over(&mut self, store: &Store, filter: &Filter) -> Result<(), StoreError> {
        let mut after = self.from - 1;
        loop {
            let page = store.following(filter, after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.pos;
            self.shown.extend(page.iter().map(|entry| entry.pos));
        }
    }

    /// False: nobody reads it any more.
    fn show(&mut self, entries: &[Entry]) -> Result<bool> {
        let mut text = String::new();
        for entry in entries {
            text.push_str(&self.form.of(entry));
            text.push('\n');
            self.shown.insert(entry.pos);
        }
        if text.is_empty() { Ok(is_read()) } else { put(&text) }
    }

    /// Waits a little and shows what has come. False: nobody reads it any more.
    async fn go_on(&mut self, store: &Store, filter: &Filter) -> Result<bool> {
        sleep(LOOK_AGAIN).await;
        let began = clock::now_ms();
        let mut after = self.from - 1;
        loop {
            let page = match store.following(filter, after, PAGE).await {
                Ok(page) => page,
                Err(error) => {
                    if !std::mem::replace(&mut self.told, true) {
                        say(&format!("The store cannot be read now, and is tried again: {}", Chain(&error)));
                    }
                    return Ok(is_read());
                }
            };
            let next = page.last().filter(|_| page.len() >= PAGE as usize).map(|last| last.pos);
            let new = self.unseen(page);
            if !self.show(&new)? {
                return Ok(false);
            }
            match next {
                Some(last) => after = last,
                None => break,
            }
        }
        self.told = false;
        self.move_on(began);
        Ok(true)
    }

    fn unseen(&self, page: Vec<Entry>) -> Vec<Entry> {
        page.into_iter().filter(|entry| !self.shown.contains(&entry.pos)).collect()
    }

    /// Only onward: a clock that is set back shows nothing twice.
    fn move_on(&mut self, looked_ms: i64) {
        self.from = self.from.max(position(looked_ms - LATEST_COMMIT_MS));
        self.shown = self.shown.split_off(&self.from);
    }
}

/// Whether the other end of stdout is still open. A pipe tells so before it is written to.
fn is_read() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdout = stdout();
    let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
    let polled = poll(&mut watched, Some(&Timespec::default()));
    polled.is_err() || !watched[0].revents().contains(PollFlags::ERR)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Entry {
        Entry { pos: position(ms), body: "{}".to_owned() }
    }

    #[test]
    fn a_row_that_is_committed_late_is_shown_and_none_is_shown_twice() {
        let now = clock::now_ms();
        let mut following = Following::new(Form::Json);
        let early = following.unseen(vec![at(now), at(now + 20)]);
        assert_eq!(early.len(), 2);
        following.shown.extend(early.iter().map(|entry| entry.pos));
        following.move_on(now + 500);
        // The one in between came later.
        let late = following.unseen(vec![at(now), at(now + 10), at(now + 20)]);
        assert_eq!(late.iter().map(|entry| entry.pos).collect::<Vec<_>>(), [position(now + 10)]);

        let from = following.from;
        following.move_on(now - 3_600_000);
        assert_eq!(following.from, from, "a clock that is set back");
        following.move_on(now + 3_600_000);
        assert!(following.from > from && following.shown.is_empty(), "what is long past is forgotten");
    }
}
