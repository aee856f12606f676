//! Notes of calls to other servers, taken the moment before they leave.
//!
//! Waiting for the disk before each of them would cost a millisecond. A line in a file costs microseconds, and is
//! there after `kill -9` of this process; the store has the same row a tenth of a second later. Only a power cut within
//! that time loses it. Two files take turns: one is emptied when the store has all that stands in it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use nexus_core::audit::Row;

use crate::private;
use crate::store::body::{self, Kept};

/// Bytes after which the other file is taken.
const PAGE: u64 = 1024 * 1024;

/// The notes of one process.
#[derive(Debug)]
pub struct Notes {
    pages: Mutex<Pages>,
}

#[derive(Debug)]
struct Pages {
    files: [File; 2],
    current: usize,
    length: u64,
    /// Notes in each that the store does not have yet.
    unwritten: [usize; 2],
    /// The last line may have no end.
    torn: bool,
}

impl Notes {
    pub fn open(data: &Path, chain: &str) -> io::Result<Self> {
        let [a, b] = paths(data, chain);
        let files = [private::create(&a)?, private::create(&b)?];
        Ok(Self { pages: Mutex::new(Pages { files, current: 0, length: 0, unwritten: [0; 2], torn: false }) })
    }

    /// Writes a row down.
    pub fn take(&self, row: &Row) -> io::Result<()> {
        let (mut line, _) = body::write(row, "", 0, 0, &[0; 32]);
        line.push('\n');
        let mut pages = self.pages.lock();
        pages.turn()?;
        let current = pages.current;
        if std::mem::take(&mut pages.torn) {
            line.insert(0, '\n');
        }
        if let Err(error) = pages.files[current].write_all(line.as_bytes()) {
            // Half of a line may stand there: the next must not go on in it.
            pages.torn = true;
            return Err(error);
        }
        pages.length += line.len() as u64;
        pages.unwritten[current] += 1;
        Ok(())
    }

    /// The store has so many more of them, in the order in which they were taken.
    pub fn written(&self, count: usize) {
        if count == 0 {
            return;
        }
        let mut pages = self.pages.lock();
        let (current, other) = (pages.current, 1 - pages.current);
        let earlier = count.min(pages.unwritten[other]);
        pages.unwritten[other] -= earlier;
        pages.unwritten[current] = pages.unwritten[current].saturating_sub(count - earlier);
    }
}

impl Pages {
    /// Takes the other file when this one is long and nothing in the other is needed any more.
    fn turn(&mut self) -> io::Result<()> {
        let other = 1 - self.current;
        if self.length < PAGE || self.unwritten[other] > 0 {
            return Ok(());
        }
        self.files[other].set_len(0)?;
        (self.current, self.length) = (other, 0);
        Ok(())
    }
}

/// What a process that is gone had noted. A line that is not whole was never acted on.
pub fn left(data: &Path, chain: &str) -> Vec<Kept> {
    let texts = paths(data, chain).into_iter().filter_map(|path| fs::read(path).ok());
    let texts: Vec<String> = texts.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect();
    texts.iter().flat_map(|text| text.lines()).filter_map(|line| Kept::parse(line).ok()).collect()
}

pub fn forget(data: &Path, chain: &str) {
    for path in paths(data, chain) {
        let _ = fs::remove_file(path);
    }
}

fn paths(data: &Path, chain: &str) -> [PathBuf; 2] {
    ["a", "b"].map(|page| data.join("chains").join(format!("{chain}.{page}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_core::audit::{CallRow, Event};
    use nexus_core::clock;
    use nexus_core::name::ServerName;
    use nexus_core::provider::Origin;
    use nexus_core::tool::Access;

    fn begun(words: usize) -> Row {
        let call = CallRow {
            id: clock::new_id(),
            tool: "mcp_x_y".into(),
            origin: Some(Origin::Upstream(ServerName::new("x"))),
            access: Some(Access::Write),
            node: None,
            summary: Some("s".repeat(words)),
            arguments: "{}".into(),
            digest: [1; 32],
            decision: Some("allowed"),
            how: None,
            outcome: None,
            duration_us: None,
        };
        Row { call: Some(call), ..Row::new(Event::Begun) }
    }

    #[test]
    fn what_was_noted_is_there_after_the_process_and_a_torn_line_is_passed_over() {
        let data = tempfile::tempdir().unwrap();
        private::folder(&data.path().join("chains")).unwrap();
        let notes = Notes::open(data.path(), "c").unwrap();
        let rows = [begun(3), begun(3)];
        rows.iter().for_each(|row| notes.take(row).unwrap());
        notes.pages.lock().files[0].write_all(b"{\"id\":\"torn").unwrap();
        drop(notes);
        let left = left(data.path(), "c");
        let ids: Vec<_> = left.iter().map(|kept| kept.id.clone()).collect();
        assert_eq!(ids, rows.map(|row| row.id.to_string()));
        forget(data.path(), "c");
        assert!(super::left(data.path(), "c").is_empty());
    }

    #[test]
    fn the_files_stay_small_and_nothing_is_emptied_that_the_store_does_not_have() {
        let data = tempfile::tempdir().unwrap();
        private::folder(&data.path().join("chains")).unwrap();
        let notes = Notes::open(data.path(), "c").unwrap();
        let first = begun(100);
        notes.take(&first).unwrap();
        let rows: Vec<Row> = (0..40).map(|_| begun(100_000)).collect();
        for row in &rows {
            notes.take(row).unwrap();
        }
        assert!(left(data.path(), "c").len() == 41, "nothing was written to the store yet");
        notes.written(1);
        notes.written(rows.len());
        for row in (0..200).map(|_| begun(100_000)) {
            notes.take(&row).unwrap();
            notes.written(1);
        }
        let bytes: u64 = paths(data.path(), "c").iter().map(|path| fs::metadata(path).unwrap().len()).sum();
        assert!(bytes < 6 * PAGE, "{bytes}");
    }
}
