//! One byte of the database is not what it was: it is found, wherever the record has that byte.

use std::ops::Range;
use std::path::Path;

use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use tempfile::TempDir;

use super::{loaded, mixed_load};
use crate::support::{Program, Ran};

/// A database file, as far as its format goes: the trees of pages under a table or an index.
struct Tree {
    /// Head and cell pointers of each page.
    heads: Vec<Range<usize>>,
    /// What is in the tree now; pages also hold leftovers.
    cells: Vec<Range<usize>>,
}

/// A number of one to nine bytes, and where it ends.
fn number(bytes: &[u8], mut at: usize) -> (usize, usize) {
    let mut value = 0;
    for _ in 0..8 {
        value = value << 7 | usize::from(bytes[at] & 0x7f);
        at += 1;
        if bytes[at - 1] < 0x80 {
            return (value, at);
        }
    }
    (value << 8 | usize::from(bytes[at]), at + 1)
}

fn big(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |value, byte| value << 8 | usize::from(*byte))
}

fn page_size(bytes: &[u8]) -> usize {
    big(&bytes[16..18])
}

impl Tree {
    fn at(bytes: &[u8], root: usize) -> Self {
        let mut tree = Self { heads: Vec::new(), cells: Vec::new() };
        tree.add(bytes, root);
        tree
    }

    fn add(&mut self, bytes: &[u8], page: usize) {
        let size = page_size(bytes);
        let start = (page - 1) * size;
        let kind = bytes[start];
        let (is_leaf, is_table) = (kind & 8 != 0, kind & 1 != 0);
        let head = if is_leaf { 8 } else { 12 };
        let count = big(&bytes[start + 3..start + 5]);
        self.heads.push(start..start + head + 2 * count);
        if !is_leaf {
            self.add(bytes, big(&bytes[start + 8..start + 12]));
        }
        for n in 0..count {
            let pointer = start + head + 2 * n;
            let cell = start + big(&bytes[pointer..pointer + 2]);
            let mut at = cell;
            if !is_leaf {
                self.add(bytes, big(&bytes[at..at + 4]));
                at += 4;
            }
            // Where a table only leads on, any number that parts left from right will do.
            if is_leaf || !is_table {
                let (payload, behind) = number(bytes, at);
                let behind = if is_table { number(bytes, behind).1 } else { behind };
                // A long row goes on elsewhere; what is here of it is enough.
                self.cells.push(cell..(behind + payload).min(behind + 400).min(start + size));
            } else {
                self.cells.push(cell..cell + 4);
            }
        }
    }
}

struct Flipping {
    bytes: Vec<u8>,
    folder: TempDir,
    audit: Tree,
    /// By which rows and chains are found.
    indexes: Vec<Tree>,
    /// Position and body of each row.
    rows: Vec<(i64, String)>,
    chain: Tree,
    /// Name and last hash of each chain.
    chains: Vec<(String, String)>,
}

fn find(bytes: &[u8], within: &Range<usize>, words: &str) -> Option<usize> {
    let seen = bytes[within.start..(within.end + 4_000).min(bytes.len())].windows(words.len());
    seen.enumerate().find(|(_, seen)| *seen == words.as_bytes()).map(|(at, _)| within.start + at)
}

impl Flipping {
    /// The store of a hub that has seen everything, and has ended.
    async fn start() -> Self {
        let mut hub = loaded().await;
        mixed_load(&hub).await;
        hub.stop().await;
        assert!(!hub.data.join("nexus.db-wal").exists(), "all is in one file");
        let bytes = std::fs::read(hub.data.join("nexus.db")).unwrap();
        let options = SqliteConnectOptions::new().filename(hub.data.join("nexus.db")).read_only(true);
        let mut store = options.connect().await.unwrap();
        let trees: Vec<(String, i64)> = sqlx::query_as(
            "SELECT name, rootpage FROM sqlite_master WHERE tbl_name IN ('audit', 'audit_place', 'chain')",
        )
        .fetch_all(&mut store)
        .await
        .unwrap();
        let tree = |name: &str| {
            let (_, root) = trees.iter().find(|(known, _)| known == name).unwrap();
            Tree::at(&bytes, usize::try_from(*root).unwrap())
        };
        let indexes =
            ["audit_place", "audit_place_tool", "audit_place_session", "sqlite_autoindex_chain_1"].map(tree).into();
        let rows = sqlx::query_as("SELECT pos, body FROM audit ORDER BY pos").fetch_all(&mut store).await.unwrap();
        let chains = sqlx::query_as("SELECT id, head_hash FROM chain").fetch_all(&mut store).await.unwrap();
        Self {
            audit: tree("audit"),
            chain: tree("chain"),
            indexes,
            rows,
            chains,
            bytes,
            folder: TempDir::new().unwrap(),
        }
    }

    /// `nexus audit verify` where this one byte is another: it is found. Gives what it says.
    async fn found(&self, at: usize, by: u8) -> String {
        let mut bytes = self.bytes.clone();
        bytes[at] ^= by;
        let ran = verified(self.folder.path(), &bytes).await;
        assert_eq!(ran.code, Some(1), "byte {at} ({:#x} of its page) ^ {by:#x}: {ran:?}", at % page_size(&self.bytes));
        assert!(ran.stdout.contains("Looked at"), "a finding, not a crash: {ran:?}");
        ran.stdout
    }

    /// Where each row's body lies, of those that lie in one piece.
    fn bodies(&self) -> Vec<(i64, Range<usize>)> {
        let place = |(pos, body): &(i64, String)| {
            let mut cells = self.audit.cells.iter().filter(|cell| body.len() < 3_000 && cell.len() > 100);
            let start = cells.find_map(|cell| {
                let at = find(&self.bytes, cell, body)?;
                (at < cell.end).then_some(at)
            })?;
            Some((*pos, start..start + body.len()))
        };
        self.rows.iter().filter_map(place).collect()
    }
}

#[allow(clippy::disallowed_methods, reason = "a damaged store is what is wanted")]
async fn verified(folder: &Path, bytes: &[u8]) -> Ran {
    for left in ["nexus.db", "nexus.db-wal", "nexus.db-shm"] {
        let _ = std::fs::remove_file(folder.join(left));
    }
    std::fs::write(folder.join("nexus.db"), bytes).unwrap();
    Program::new(&["audit", "verify"]).data(folder).run().await
}

/// Numbers that are the same in every run.
fn scattered(seed: usize) -> usize {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11
}

#[tokio::test]
async fn a_flipped_byte_in_a_row_is_found_and_the_row_is_named() {
    let store = Flipping::start().await;
    let whole = verified(store.folder.path(), &store.bytes).await;
    assert!(whole.code == Some(0) && whole.stdout.contains("The record holds"), "{whole:?}");
    let bodies = store.bodies();
    assert!(bodies.len() > 40, "{}", bodies.len());
    for (n, (pos, body)) in bodies.iter().enumerate() {
        for (m, by) in [[0x01, 0x80], [0x20, 0xff]][n % 2].into_iter().enumerate() {
            let at = body.start + scattered(n * 4 + m) % body.len();
            let told = store.found(at, by).await;
            assert!(told.contains(&format!("at {pos}")), "the row at {pos}: {told}");
        }
    }
    // The row's head says that the body is text; it may say bytes.
    for (_, body) in bodies.iter().step_by(20) {
        store.found(body.start - 1, 0x01).await;
    }
    // Another spelling of the same hash is a change too: `a` and `A`, `0` and `+`.
    for (digit, by) in [(b'a', 0x20), (b'0', b'0' ^ b'+')] {
        let mut places = bodies.iter().flat_map(|(_, body)| (body.end - 66..body.end - 2).step_by(2));
        let at = places.find(|at| store.bytes[*at] == digit).unwrap();
        store.found(at, by).await;
    }
}

#[tokio::test]
async fn a_flipped_byte_in_indexes_and_page_structure_is_found() {
    let store = Flipping::start().await;
    let mut places: Vec<usize> = Vec::new();
    for tree in store.indexes.iter().chain([&store.audit]) {
        places.extend(tree.heads.iter().take(3).flat_map(|head| head.clone().take(16)));
    }
    // A row's own head, and the entries of the indexes.
    for cell in store.audit.cells.iter().step_by(4) {
        places.extend(cell.clone().take(18));
    }
    for tree in &store.indexes {
        places.extend(tree.cells.iter().step_by(6).flat_map(|cell| cell.clone().step_by(11)));
    }
    // What a chain says of itself: its name, and the hash of its last row.
    for cell in &store.chain.cells {
        for (id, head) in &store.chains {
            let texts = [id, head].map(|text| find(&store.bytes, cell, text).filter(|at| *at < cell.end));
            places.extend(texts.into_iter().flatten().flat_map(|at| [at, at + 30]));
        }
    }
    places.sort_unstable();
    places.dedup();
    assert!(places.len() > 200, "{}", places.len());
    for (n, at) in places.into_iter().enumerate() {
        store.found(at, [0x02, 0x80, 0x10, 0xff][n % 4]).await;
    }
}

#[tokio::test]
async fn what_is_no_database_any_more_is_a_finding_too() {
    let store = Flipping::start().await;
    let half = &store.bytes[..store.bytes.len() / 2 + 100];
    let noise: Vec<u8> = (0..20_000).map(|n| (scattered(n) % 256) as u8).collect();
    for bytes in [half, &noise] {
        let ran = verified(store.folder.path(), bytes).await;
        assert!(ran.code == Some(1) && ran.stdout.contains("Looked at"), "{ran:?}");
        assert!(ran.stderr.contains("does not hold"), "{ran:?}");
    }
}
