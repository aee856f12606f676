//! Notices when one of the files changes, by looking at them twice a second.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::Upstreams;

const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

/// What tells one state of a file from another without reading it. None: it is not there.
type Stamp = Option<(u64, u64, i64, i64, i64)>;

/// The files as they were when they were last put into force.
pub struct Watch {
    upstreams: Arc<Upstreams>,
    files: Arc<[PathBuf]>,
    applied: Vec<Stamp>,
    reading: Outcome,
}

impl Watch {
    /// Reads the files for the first time.
    pub async fn begin(upstreams: Arc<Upstreams>) -> Self {
        let files: Arc<[PathBuf]> = upstreams.places.layers().into_iter().map(|layer| layer.file).collect();
        let applied = look(&files).await;
        let reading = read(&upstreams).await;
        Self { upstreams, files, applied, reading }
    }

    /// Runs until the hub ends.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut before = self.applied.clone();
        loop {
            tokio::select! {
                () = tokio::time::sleep(BETWEEN_LOOKS) => {}
                () = stop.cancelled() => return,
            }
            let now = look(&self.files).await;
            // Whoever writes a file in several steps has taken the last one when it looks the same twice.
            let settled = now == before;
            before = now;
            if settled && (before != self.applied || matches!(self.reading, Outcome::Failed)) {
                self.applied = before.clone();
                self.reading = read(&self.upstreams).await;
            }
        }
    }
}

enum Outcome {
    Done,
    Failed,
}

/// One that failed is tried again at the next look: the store may be away for a moment.
async fn read(upstreams: &Upstreams) -> Outcome {
    match upstreams.refresh().await {
        Ok(()) => Outcome::Done,
        Err(error) => {
            warn!("mcp.json is not put into force, and tried again: {error:#}");
            Outcome::Failed
        }
    }
}

async fn look(files: &Arc<[PathBuf]>) -> Vec<Stamp> {
    let files = files.clone();
    // A home folder on a network may make a look wait.
    let looked = tokio::task::spawn_blocking(move || files.iter().map(|file| stamp(file)).collect());
    looked.await.unwrap_or_default()
}

fn stamp(file: &Path) -> Stamp {
    let about = std::fs::metadata(file).ok()?;
    Some((about.ino(), about.len(), about.mtime(), about.mtime_nsec(), about.ctime_nsec() ^ about.ctime()))
}
