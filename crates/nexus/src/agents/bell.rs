//! Tells whoever waits that something has changed: in this process, and in the others of the same data folder.
//!
//! Each process listens at `bell-PID-RANDOM.sock`. After a commit the others are poked there; that is all they are told,
//! and they look into the store themselves. Should a poke be lost, they look every few seconds anyway.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram as Poker;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nexus_core::clock;
use nexus_core::tasks::Tasks;
use parking_lot::Mutex;
use tokio::net::UnixDatagram;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tracing::{debug, warn};
use uuid::Uuid;

use super::queue::Topic;

/// Waiters look again at least so often, whatever they were told.
const LOOK: Duration = Duration::from_secs(5);
/// A folder that changed less long ago than this may have changed again within the same tick of its clock.
const SETTLED_MS: i64 = 1_000;

const TASKS: u8 = 1;
const UPDATES: u8 = 2;
/// It was another process who told.
const POKED: u8 = 4;

/// What a commit has changed.
#[derive(Debug, Default)]
pub struct Rung {
    pub updates: bool,
    /// The targets of which tasks have changed.
    pub tasks: HashSet<Arc<str>>,
}

#[derive(Debug)]
pub struct Bell {
    topics: Mutex<HashMap<Topic, watch::Sender<u64>>>,
    poker: Poker,
    /// Open, so that a socket in it has a short address, however deep it lies.
    folder: File,
    data: PathBuf,
    own: String,
    others: Mutex<Others>,
    /// Counts what other processes have told.
    pokes: watch::Sender<u64>,
}

/// The sockets of other processes, and when the folder looked like that.
#[derive(Debug, Default)]
struct Others {
    names: Vec<String>,
    /// None: look again.
    folder_changed: Option<(i64, i64)>,
}

impl Bell {
    /// Listens to other processes until the program ends.
    pub fn hang(data: &Path, tasks: &Tasks) -> io::Result<Arc<Self>> {
        let own = format!("bell-{}-{}.sock", std::process::id(), Uuid::new_v4().simple());
        let folder = File::open(data)?;
        let poker = Poker::unbound()?;
        poker.set_nonblocking(true)?;
        let (topics, others) = (Mutex::default(), Mutex::default());
        let pokes = watch::Sender::new(0);
        let bell = Arc::new(Self { topics, poker, folder, data: data.to_owned(), own, others, pokes });
        let ear = UnixDatagram::bind(bell.address(&bell.own))?;
        fs::set_permissions(data.join(&bell.own), Permissions::from_mode(0o600))?;
        let (stop, listening) = (tasks.stopping(), bell.clone());
        tasks.spawn("bell", async move {
            tokio::select! {
                () = listening.listen_to(&ear) => {}
                () = stop.cancelled() => {}
            }
            let _ = fs::remove_file(listening.data.join(&listening.own));
        });
        Ok(bell)
    }

    pub fn listen(&self, topic: &Topic) -> watch::Receiver<u64> {
        let mut topics = self.topics.lock();
        match topics.get(topic) {
            Some(sender) => sender.subscribe(),
            None => topics.entry(topic.clone()).or_default().subscribe(),
        }
    }

    /// Counts whenever another process has changed something.
    pub fn pokes(&self) -> watch::Receiver<u64> {
        self.pokes.subscribe()
    }

    /// After a commit: tells this process and the others.
    pub fn ring(&self, rung: &Rung) {
        let bits = if rung.tasks.is_empty() { 0 } else { TASKS } | if rung.updates { UPDATES } else { 0 };
        if bits == 0 {
            return;
        }
        self.ring_here(|topic| match topic {
            Topic::Updates => rung.updates,
            Topic::Tasks(target) => rung.tasks.contains(target),
        });
        self.poke(bits);
    }

    fn ring_here(&self, concerns: impl Fn(&Topic) -> bool) {
        self.topics.lock().retain(|topic, sender| {
            if concerns(topic) {
                sender.send_modify(|count| *count = count.wrapping_add(1));
            }
            // Nobody listens any more: whoever does next makes it anew.
            !sender.is_closed()
        });
    }

    async fn listen_to(&self, ear: &UnixDatagram) {
        let mut look = interval_at(Instant::now() + LOOK, LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut poke = [0; 8];
        loop {
            let bits = tokio::select! {
                heard = ear.recv(&mut poke) => match heard {
                    Ok(_) => poke[0] | POKED,
                    Err(error) => {
                        warn!(%error, "other processes are not heard for a while");
                        look.tick().await;
                        TASKS | UPDATES
                    }
                },
                _ = look.tick() => TASKS | UPDATES,
            };
            self.ring_here(|topic| match topic {
                Topic::Updates => bits & UPDATES != 0,
                Topic::Tasks(_) => bits & TASKS != 0,
            });
            if bits & POKED != 0 {
                self.pokes.send_modify(|count| *count = count.wrapping_add(1));
            }
        }
    }

    fn poke(&self, bits: u8) {
        let mut others = self.others.lock();
        self.find_others(&mut others);
        let gone = |name: &String| match self.poker.send_to(&[bits], self.address(name)) {
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {
                // Nobody is behind it, and nobody can come back to it.
                let _ = fs::remove_file(self.data.join(name));
                true
            }
            // Its pokes are not read at the moment. One that waits tells as much as two.
            Err(error) => {
                debug!(%error, "a process that shares the data folder was not told");
                false
            }
            Ok(_) => false,
        };
        others.names.retain(|name| !gone(name));
    }

    /// Looks for sockets if the folder has changed since.
    fn find_others(&self, others: &mut Others) {
        let changed = self.folder.metadata().ok().map(|folder| (folder.mtime(), folder.mtime_nsec()));
        if changed.is_some() && changed == others.folder_changed {
            return;
        }
        let settled = |(seconds, _): &(i64, i64)| clock::now_ms() - seconds * 1_000 > SETTLED_MS + 1_000;
        others.folder_changed = changed.filter(settled);
        let names = fs::read_dir(&self.data).into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let bells = names.filter(|name| name.starts_with("bell-") && name.ends_with(".sock") && *name != self.own);
        others.names = bells.collect();
    }

    fn address(&self, name: &str) -> PathBuf {
        format!("/proc/self/fd/{}/{name}", self.folder.as_raw_fd()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn processes_poke_each_other_however_deep_their_folder_lies() {
        let (top, tasks) = (tempfile::tempdir().unwrap(), Tasks::new());
        let data = top.path().join("d".repeat(120)).join("e".repeat(120));
        fs::create_dir_all(&data).unwrap();
        let (here, there) = (Bell::hang(&data, &tasks).unwrap(), Bell::hang(&data, &tasks).unwrap());
        let mode = fs::metadata(data.join(&here.own)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut pokes = there.pokes();
        let (updates, homelab) = (there.listen(&Topic::Updates), there.listen(&Topic::Tasks("homelab".into())));
        let own = here.pokes();
        here.ring(&Rung { updates: true, tasks: HashSet::new() });
        tokio::time::timeout(Duration::from_secs(60), pokes.changed()).await.unwrap().unwrap();
        assert!(updates.has_changed().unwrap());
        assert!(!homelab.has_changed().unwrap(), "no task has changed");
        assert!(!own.has_changed().unwrap(), "nobody pokes itself");
        here.ring(&Rung { updates: false, tasks: ["other".into()].into() });
        tokio::time::timeout(Duration::from_secs(60), pokes.changed()).await.unwrap().unwrap();
        assert!(homelab.has_changed().unwrap(), "which task it was is not told across");
        assert!(tasks.finish(Duration::from_secs(60)).await);
        assert_eq!(fs::read_dir(&data).unwrap().count(), 0);
    }
}
