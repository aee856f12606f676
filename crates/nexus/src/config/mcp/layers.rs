//! Which files there may be, from far to near.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nexus_mcp::upstream::config::Source;
use rustix::fs::OFlags;

use crate::config::Config;
use crate::config::env::Env;
use crate::config::faults::Problem;

/// Bytes. A thousand servers take a third of this.
const LARGEST_FILE: u64 = 1024 * 1024;

/// Where the files are looked for.
#[derive(Clone, Debug)]
pub struct Places {
    pub home: Option<PathBuf>,
    /// Named in nexus.yaml.
    pub extra: Vec<PathBuf>,
    /// The hub's working folder.
    pub here: PathBuf,
}

/// Who writes a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The operator alone: what it says is started.
    Operator,
    /// Whoever has written the project: what it says waits for a yes.
    Project,
}

/// One file that may be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    pub file: PathBuf,
    /// Relative paths start here.
    pub base: PathBuf,
    pub trust: Trust,
}

/// What is in a file.
#[derive(Debug)]
pub enum Content {
    Absent,
    Text(String),
    Unreadable(Problem),
}

impl Places {
    pub fn of(config: &Config, env: &Env) -> io::Result<Self> {
        let extra = config.mcp.files.iter().map(|file| AsRef::<Path>::as_ref(file).to_owned()).collect();
        Ok(Self { home: env.home(), extra, here: std::env::current_dir()? })
    }

    /// The operator's own file.
    pub fn home_file(&self) -> Option<PathBuf> {
        self.home.as_ref().map(|home| home.join(".nexus/mcp.json"))
    }

    /// The file of the working folder.
    pub fn project_file(&self) -> PathBuf {
        self.here.join(".nexus/mcp.json")
    }

    /// From far to near: the later one wins.
    pub fn layers(&self) -> Vec<Layer> {
        let own = self.home_file().into_iter().chain(self.extra.iter().cloned());
        let mut folders: Vec<&Path> = self.here.ancestors().collect();
        folders.reverse();
        let projects =
            folders.into_iter().flat_map(|folder| [folder.join(".mcp.json"), folder.join(".nexus/mcp.json")]);
        let all = own.map(|file| (file, Trust::Operator)).chain(projects.map(|file| (file, Trust::Project)));
        let (mut layers, mut known): (Vec<Layer>, Vec<PathBuf>) = (Vec::new(), Vec::new());
        for (file, trust) in all {
            // The home folder may be above the working folder: its file is the operator's all the same, and read once.
            let real = file.canonicalize().unwrap_or_else(|_| file.clone());
            if !known.contains(&real) {
                known.push(real);
                layers.push(Layer { base: base_of(&file), file, trust });
            }
        }
        layers
    }
}

/// The folder a file speaks for: for `…/.nexus/mcp.json` the one that holds `.nexus`.
pub fn base_of(file: &Path) -> PathBuf {
    let folder = file.parent().unwrap_or(Path::new("/"));
    let base = if folder.ends_with(".nexus") { folder.parent().unwrap_or(folder) } else { folder };
    base.to_owned()
}

impl Layer {
    pub fn source(&self, line: usize) -> Source {
        let file = self.file.clone();
        match self.trust {
            Trust::Operator => Source::Home { file, line },
            Trust::Project => Source::Project { file, line },
        }
    }

    pub fn read(&self) -> Content {
        read(&self.file, LARGEST_FILE)
    }
}

/// Reads a file that anybody may have put there: never waits for a pipe, never takes more than a bound.
pub fn read(file: &Path, largest: u64) -> Content {
    let unreadable = |why: &str| Content::Unreadable(Problem::new(why));
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let opened = match OpenOptions::new().read(true).custom_flags(flags).open(file) {
        Ok(opened) => opened,
        // A file in the place of a folder on the way is no layer either.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Content::Absent;
        }
        Err(error) => return unreadable(&format!("cannot be read: {error}")),
    };
    if !opened.metadata().is_ok_and(|about| about.is_file()) {
        return unreadable("is not a file");
    }
    let mut bytes = Vec::new();
    if let Err(error) = opened.take(largest + 1).read_to_end(&mut bytes) {
        return unreadable(&format!("cannot be read: {error}"));
    }
    if bytes.len() as u64 > largest {
        return unreadable(&format!("is larger than {largest} bytes"));
    }
    let Ok(text) = String::from_utf8(bytes) else { return unreadable("is not text in UTF-8") };
    // An editor that writes in place has emptied the file for a moment: that is not a file without servers.
    if text.trim().is_empty() {
        return unreadable("is empty");
    }
    Content::Text(text.strip_prefix('\u{feff}').map_or_else(|| text.clone(), str::to_owned))
}
