//! Who is linked now.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use nexus_core::clock;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::computer::{Address, Computer, Wanted};
use crate::frame::code;
use crate::link::Link;
use crate::protocol::Fault;
use crate::record::Record;

/// Connections that have not said hello yet.
const MOST_STRANGERS: usize = 1024;

/// One very link, not stopped since it was looked up. A chain of requests to it ends when the computer links anew or
/// all computers are stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, u32, u32)", into = "(u64, u32, u32)")] // short: thousands of them go to another process
pub struct Target {
    pub(crate) link: u64,
    pub(crate) stops: u32,
    pub(crate) moves: u32,
}

impl From<(u64, u32, u32)> for Target {
    fn from((link, stops, moves): (u64, u32, u32)) -> Self {
        Self { link, stops, moves }
    }
}

impl From<Target> for (u64, u32, u32) {
    fn from(Target { link, stops, moves }: Target) -> Self {
        (link, stops, moves)
    }
}

/// A linked computer, as it was when it was looked up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seen {
    pub computer: Arc<Computer>,
    pub target: Target,
    /// When it said hello first on this link.
    pub since: Timestamp,
    /// Seconds since anything came from it.
    pub heard_s: u64,
    pub from: IpAddr,
}

/// Numbers that `/health` shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub computers: usize,
    /// Connections that were not let in.
    pub refused: u64,
    /// Frames that were not understood.
    pub faults: u64,
    /// Answers that nobody waited for any more.
    pub late: u64,
}

#[derive(Debug, Default)]
pub struct Tally {
    pub refused: AtomicU64,
    pub faults: AtomicU64,
    pub late: AtomicU64,
}

pub struct Registry {
    linked: Mutex<Linked>,
    pub tally: Tally,
    pub record: Record,
    serials: AtomicU64,
    ids: AtomicU64,
    /// Computers that can be linked at once.
    most: usize,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("computers", &self.count()).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Linked {
    by_address: BTreeMap<Address, Arc<Link>>,
    by_serial: HashMap<u64, Arc<Link>>,
}

impl Registry {
    pub fn new(record: Record, most: usize) -> Self {
        // No number is given twice, not even by the next run of the hub: an answer may be a long time under way, and a
        // door beside the hub may still aim at links of the last one.
        let first = u64::try_from(clock::now_ms()).unwrap_or_default() * 1000;
        Self {
            linked: Mutex::default(),
            tally: Tally::default(),
            record,
            serials: AtomicU64::new(first),
            ids: AtomicU64::new(first),
            most,
        }
    }

    pub fn next_serial(&self) -> u64 {
        self.serials.fetch_add(1, Ordering::Relaxed)
    }

    /// The first of so many ids that nobody else gets.
    pub fn ids(&self, many: usize) -> u64 {
        self.ids.fetch_add(many as u64, Ordering::Relaxed)
    }

    /// Puts a computer in its place. Whoever had that place is sent away.
    pub fn register(&self, link: &Arc<Link>, computer: Computer) -> Result<(), Fault> {
        let computer = Arc::new(computer);
        let mut linked = self.linked.lock();
        let known = linked.by_serial.contains_key(&link.serial);
        // Its place was taken while this hello was on its way, and it is being sent away.
        if !known && link.is_greeted() {
            return Ok(());
        }
        if !known && linked.by_address.len() >= self.most && !linked.by_address.contains_key(&computer.address) {
            return Err(Fault("too many computers are linked; try again later"));
        }
        let before = link.introduce(&computer);
        if let Some(before) = before.as_ref().filter(|before| before.address != computer.address) {
            linked.by_address.remove(&before.address);
        }
        let replaced = linked.by_address.insert(computer.address.clone(), link.clone());
        let replaced = replaced.filter(|old| old.serial != link.serial);
        if let Some(old) = &replaced {
            linked.by_serial.remove(&old.serial);
        }
        linked.by_serial.insert(link.serial, link.clone());
        drop(linked);
        if let Some(old) = replaced {
            old.close(code::REPLACED, "the computer linked anew");
            self.record.replaced(&computer, link.from);
        } else if before.is_none_or(|before| before.address != computer.address) {
            self.record.linked(&computer, link.from);
        }
        Ok(())
    }

    /// The link has ended.
    pub fn forget(&self, link: &Link, why: &str) {
        let Some(computer) = link.computer() else { return };
        let mut linked = self.linked.lock();
        // Only its own place: another link may have taken it.
        if linked.by_serial.remove(&link.serial).is_none() {
            return;
        }
        linked.by_address.remove(&computer.address);
        drop(linked);
        self.record.went(&computer, why);
    }

    /// Somebody was not let in.
    pub fn refused(&self, from: IpAddr, why: &'static str) {
        self.tally.refused.fetch_add(1, Ordering::Relaxed);
        self.record.refused(from, why);
    }

    /// All of them, by number and then by world.
    pub fn all(&self) -> Vec<Seen> {
        let linked = self.linked.lock();
        let mut seen = Vec::with_capacity(linked.by_address.len());
        seen.extend(linked.by_address.values().filter_map(|link| link.seen()));
        seen
    }

    pub fn links(&self) -> Vec<Arc<Link>> {
        self.linked.lock().by_serial.values().cloned().collect()
    }

    /// Those whose serial number is one of `groups` by remainder.
    pub fn group(&self, group: u64, groups: u64) -> Vec<Arc<Link>> {
        let linked = self.linked.lock();
        linked.by_serial.values().filter(|link| link.serial % groups == group).cloned().collect()
    }

    /// Those that are meant: none, one, or several.
    pub fn find(&self, wanted: &Wanted) -> Vec<Seen> {
        let linked = self.linked.lock();
        let seen = |link: &Arc<Link>| link.seen().filter(|seen| wanted.means(&seen.computer));
        match wanted.number() {
            Some((id, _)) => {
                let from = Address { id, world: None };
                let same = linked.by_address.range(from..).take_while(|(address, _)| address.id == id);
                same.filter_map(|(_, link)| seen(link)).collect()
            }
            None => linked.by_address.values().filter_map(seen).collect(),
        }
    }

    /// The links that are meant by some targets, in their order.
    pub fn aim(&self, whom: Vec<Target>) -> Vec<(Target, Option<Arc<Link>>)> {
        let linked = self.linked.lock();
        whom.into_iter().map(|target| (target, linked.by_serial.get(&target.link).cloned())).collect()
    }

    /// Connections that need not have said hello yet.
    pub fn most_strangers(&self) -> usize {
        (self.most / 3).clamp(2, MOST_STRANGERS)
    }

    pub fn count(&self) -> usize {
        self.linked.lock().by_address.len()
    }

    pub fn counts(&self) -> Counts {
        Counts {
            computers: self.count(),
            refused: self.tally.refused.load(Ordering::Relaxed),
            faults: self.tally.faults.load(Ordering::Relaxed),
            late: self.tally.late.load(Ordering::Relaxed),
        }
    }
}
