//! Keys: who has which, how fast each may call, and how those who guess are slowed.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::watch;

use nexus_core::clock;
use nexus_core::principal::{Principal, PrincipalId};

/// SHA-256 of a key. The key itself is kept nowhere.
pub type KeyDigest = [u8; 32];

pub fn digest(key: &str) -> KeyDigest {
    Sha256::digest(key.as_bytes()).into()
}

/// A key as the door knows it.
#[derive(Clone, Debug)]
pub struct Key {
    pub digest: KeyDigest,
    pub principal: Arc<Principal>,
    pub expires: Option<Timestamp>,
}

/// All keys in force. Replaced as a whole when one is made or revoked.
#[derive(Debug)]
pub struct Keys {
    table: RwLock<Arc<Table>>,
    changes: watch::Sender<u64>,
    rate: Rate,
}

/// Looked up by the first bytes of the digest, which tells an attacker nothing about the key;
/// the digests are then compared in constant time.
type Table = HashMap<[u8; 8], Vec<Holder>>;

#[derive(Clone, Debug)]
struct Holder {
    key: Key,
    bucket: Arc<Bucket>,
}

/// Who a key belongs to, and its allowance.
#[derive(Clone, Debug)]
pub struct Known {
    pub principal: Arc<Principal>,
    bucket: Arc<Bucket>,
}

impl Keys {
    pub fn new(rate: Rate) -> Self {
        Self { table: RwLock::default(), changes: watch::Sender::new(0), rate }
    }

    /// From now on these and no others are in force.
    pub fn replace(&self, keys: Vec<Key>) {
        let mut table = Table::new();
        let before = self.table.read().clone();
        for key in keys {
            let same = before
                .get(&prefix(&key.digest))
                .and_then(|held| held.iter().find(|held| held.key.digest == key.digest));
            let bucket = same.map_or_else(|| Arc::new(Bucket::new(self.rate)), |held| held.bucket.clone());
            let holder = Holder { bucket, key };
            table.entry(prefix(&holder.key.digest)).or_default().push(holder);
        }
        *self.table.write() = Arc::new(table);
        self.changes.send_modify(|revision| *revision += 1);
    }

    /// Whether there is no key at all.
    pub fn is_empty(&self) -> bool {
        self.table.read().is_empty()
    }

    pub fn find(&self, key: &str) -> Option<Known> {
        let given = digest(key);
        let table = self.table.read().clone();
        let holder = table.get(&prefix(&given))?.iter().find(|holder| holder.key.digest.ct_eq(&given).into())?;
        if holder.key.expires.is_some_and(|expires| expires <= clock::now()) {
            return None;
        }
        Some(Known { principal: holder.key.principal.clone(), bucket: holder.bucket.clone() })
    }

    /// Takes several more calls from a key's allowance. False: it does not have them.
    pub fn charge(&self, principal: &Principal, times: usize) -> bool {
        let table = self.table.read().clone();
        let holder = table.values().flatten().find(|holder| holder.key.principal.id == principal.id);
        holder.is_none_or(|holder| (0..times).all(|_| holder.bucket.take().is_ok()))
    }

    /// Whether a principal still has a key, for streams that outlive the request that opened them.
    pub fn admits(&self, principal: &PrincipalId) -> bool {
        self.held_by(principal).is_some()
    }

    /// A principal with what its key has now. None: it has no key any more.
    pub fn now(&self, principal: &Principal) -> Option<Arc<Principal>> {
        self.held_by(&principal.id)
    }

    fn held_by(&self, id: &PrincipalId) -> Option<Arc<Principal>> {
        let now = clock::now();
        let table = self.table.read().clone();
        let in_force = |holder: &&Holder| holder.key.expires.is_none_or(|expires| expires > now);
        let mut held = table.values().flatten().filter(|holder| holder.key.principal.id == *id);
        held.find(in_force).map(|holder| holder.key.principal.clone())
    }

    /// Tells the open streams to look again when a key has run out. The door calls it now and then.
    pub fn expire(&self) {
        let (now, table) = (clock::now(), self.table.read().clone());
        let ran_out = |holder: &Holder| holder.key.expires.is_some_and(|expires| expires <= now);
        if table.values().flatten().any(ran_out) {
            self.changes.send_modify(|revision| *revision += 1);
        }
    }

    /// Moves when a key is made or revoked, or has run out.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

fn prefix(digest: &KeyDigest) -> [u8; 8] {
    let mut prefix = [0; 8];
    prefix.copy_from_slice(&digest[..8]);
    prefix
}

/// How often a key may call.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    pub per_second: u32,
    pub burst: u32,
}

impl Known {
    /// Takes one call from the allowance, or says how long to wait for the next.
    pub fn spend(&self) -> Result<(), Duration> {
        self.bucket.take()
    }
}

/// A leaky bucket in one word: the time at which it will be empty again.
#[derive(Debug)]
pub struct Bucket {
    born: Instant,
    empty_at_ns: AtomicU64,
    step_ns: u64,
    depth_ns: u64,
}

impl Bucket {
    pub fn new(rate: Rate) -> Self {
        let step_ns = 1_000_000_000 / u64::from(rate.per_second.max(1));
        Self {
            born: Instant::now(),
            empty_at_ns: AtomicU64::new(0),
            step_ns,
            depth_ns: step_ns.saturating_mul(u64::from(rate.burst.max(1))),
        }
    }

    /// Takes one, or says how long to wait for the next.
    pub fn take(&self) -> Result<(), Duration> {
        self.spend(self.born.elapsed())
    }

    fn spend(&self, now: Duration) -> Result<(), Duration> {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let spent = self.empty_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |empty_at| {
            let next = empty_at.max(now) + self.step_ns;
            (next - now <= self.depth_ns).then_some(next)
        });
        spent
            .map(|_| ())
            .map_err(|empty_at| Duration::from_nanos((empty_at + self.step_ns).saturating_sub(now + self.depth_ns)))
    }
}

/// Addresses that sent wrong keys of late.
#[derive(Debug, Default)]
pub struct Failures {
    by_address: Mutex<HashMap<IpAddr, Failed>>,
}

#[derive(Clone, Copy, Debug)]
struct Failed {
    times: u32,
    last: Instant,
    recorded: Option<Instant>,
    /// Tries since the last recorded one.
    unrecorded: u32,
}

/// Wrong keys that cost nothing: a person pasting the wrong one.
const FREE_TRIES: u32 = 3;
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// A quiet address is forgiven after this.
const FORGIVEN_AFTER: Duration = Duration::from_secs(600);
/// Addresses remembered at most; the quietest goes first.
const REMEMBERED: usize = 4096;
/// The first tries are recorded one by one; later ones of the same address at most this often, with their number: a flood must not fill the disk.
const RECORD_EACH: u32 = 20;
const RECORD_EVERY: Duration = Duration::from_secs(1);

/// What becomes of a wrong key.
#[derive(Debug, PartialEq, Eq)]
pub struct Slowed {
    /// The refusal waits this long.
    pub wait: Duration,
    /// Whether it is recorded, and how many before it were not.
    pub record: Option<u32>,
}

impl Failures {
    /// Notes a wrong key.
    pub fn note(&self, address: IpAddr) -> Slowed {
        let (now, address) = (Instant::now(), neighbourhood(address));
        let mut by_address = self.by_address.lock();
        if by_address.len() >= REMEMBERED && !by_address.contains_key(&address) {
            let quietest = by_address.iter().min_by_key(|(_, failed)| failed.last).map(|(address, _)| *address);
            quietest.and_then(|address| by_address.remove(&address));
        }
        let new = Failed { times: 0, last: now, recorded: None, unrecorded: 0 };
        let failed = by_address.entry(address).or_insert(new);
        if now.duration_since(failed.last) > FORGIVEN_AFTER {
            failed.times = 0;
        }
        failed.times = failed.times.saturating_add(1);
        failed.last = now;
        let due =
            failed.times <= RECORD_EACH || failed.recorded.is_none_or(|last| now.duration_since(last) >= RECORD_EVERY);
        let record = if due {
            failed.recorded = Some(now);
            Some(std::mem::take(&mut failed.unrecorded))
        } else {
            failed.unrecorded = failed.unrecorded.saturating_add(1);
            None
        };
        Slowed { wait: wait_after(failed.times), record }
    }
}

/// Whoever has one IPv6 address usually has 2^64 of them.
pub(super) fn neighbourhood(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
        v4 => v4,
    }
}

fn wait_after(times: u32) -> Duration {
    match times.saturating_sub(FREE_TRIES) {
        0 => Duration::ZERO,
        over => Duration::from_millis(100).saturating_mul(1 << over.min(10)).min(LONGEST_WAIT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_core::principal::Level;

    fn keys(names: &[(&str, &str)]) -> Keys {
        let keys = Keys::new(Rate { per_second: 100, burst: 2 });
        keys.replace(
            names
                .iter()
                .map(|(name, key)| Key {
                    digest: digest(key),
                    principal: Arc::new(Principal::new(name, Level::Trusted)),
                    expires: None,
                })
                .collect(),
        );
        keys
    }

    #[test]
    fn a_key_is_found_by_itself_only() {
        let keys = keys(&[("a", "key-of-a"), ("b", "key-of-b")]);
        assert_eq!(keys.find("key-of-b").unwrap().principal.id.as_str(), "b");
        assert!(keys.find("key-of-c").is_none());
        assert!(keys.find("").is_none());
    }

    #[test]
    fn a_revoked_or_expired_key_is_gone_at_once() {
        let keys = keys(&[("a", "key-of-a")]);
        let mut changes = keys.changes();
        assert!(keys.admits(&PrincipalId::new("a")));
        let expired = Key {
            digest: digest("old"),
            principal: Arc::new(Principal::new("old", Level::Yolo)),
            expires: Some(Timestamp::UNIX_EPOCH),
        };
        keys.replace(vec![expired]);
        assert!(keys.find("key-of-a").is_none());
        assert!(keys.find("old").is_none());
        assert!(!keys.admits(&PrincipalId::new("a")));
        assert!(!keys.admits(&PrincipalId::new("old")));
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
    }

    #[test]
    fn the_bucket_allows_a_burst_and_then_a_rate() {
        let bucket = Bucket::new(Rate { per_second: 10, burst: 3 });
        let at = Duration::from_millis;
        assert!((0..3).all(|_| bucket.spend(at(0)).is_ok()));
        assert_eq!(bucket.spend(at(0)), Err(at(100)));
        assert!(bucket.spend(at(100)).is_ok());
        assert!(bucket.spend(at(100)).is_err());
        assert!((0..3).all(|_| bucket.spend(at(10_000)).is_ok()));
        assert!(bucket.spend(at(10_000)).is_err());
    }

    #[test]
    fn guessing_gets_slower_and_is_bounded() {
        assert_eq!(wait_after(3), Duration::ZERO);
        assert_eq!(wait_after(4), Duration::from_millis(200));
        assert!(wait_after(5) > wait_after(4));
        assert_eq!(wait_after(u32::MAX), LONGEST_WAIT);
        let failures = Failures::default();
        let tries = |address: &str, times: usize| {
            (0..times).map(|_| failures.note(address.parse().unwrap())).collect::<Vec<_>>()
        };
        let slowed = tries("192.0.2.1", 50);
        assert!(slowed.windows(2).all(|pair| pair[0].wait <= pair[1].wait));
        assert_eq!(slowed[49].wait, LONGEST_WAIT);
        assert_eq!(tries("192.0.2.2", 1)[0].wait, Duration::ZERO);
        assert_eq!(tries("2001:db8::1", 4).len(), 4);
        assert!(tries("2001:db8::2", 1)[0].wait > Duration::ZERO, "the same network");
    }

    #[test]
    fn a_flood_of_wrong_keys_is_counted_not_written_out() {
        let failures = Failures::default();
        let slowed: Vec<Slowed> = (0..1_000).map(|_| failures.note("192.0.2.1".parse().unwrap())).collect();
        let recorded = slowed.iter().filter(|slowed| slowed.record.is_some()).count();
        assert!((20..=40).contains(&recorded), "{recorded}");
    }
}
