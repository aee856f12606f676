//! The configuration: found, read, checked as a whole, and then only values that cannot be wrong.
//!
//! [`load`] looks at file and environment and gives back everything it found amiss at once.
//! A new key is one line in `sections.rs`, a new variable one in `env.rs`.

pub mod check;
pub mod env;
pub mod faults;
pub mod mcp;
pub mod reference;
pub mod section;
pub mod sections;
mod tree;
pub mod values;

use std::io::Read;
use std::path::{Path, PathBuf};

pub use check::Config;
pub use env::Env;
pub use faults::Faults;
pub use reference::{reference, show};

use env::EnvVar;
use faults::Problem;
use tree::Node;

/// Bytes. The configuration of a large lab is a hundredth of this.
const LARGEST_FILE: u64 = 1024 * 1024;

/// What the program starts with.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub config: Config,
    /// Where it came from; `None` when there is no file at all.
    pub file: Option<PathBuf>,
    /// Absolute. Not created here.
    pub data: PathBuf,
}

/// Finds, reads and checks the configuration. The flags are those of the command line.
pub fn load(config_flag: Option<&Path>, data_flag: Option<&Path>, env: &Env) -> Result<Loaded, Faults> {
    let mut faults = Faults::default();
    let file = find_file(config_flag, env, &mut faults);
    let data = find_data(data_flag, env, &mut faults);
    let root = file.as_deref().and_then(|file| read(file, &mut faults)).unwrap_or_else(Node::nothing);
    let base = file.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
    let base = std::path::absolute(base.join(".")).unwrap_or_else(|_| base.to_owned());
    match (check::check(&root, &base, env, &mut faults), data) {
        (Some(config), Some(data)) if faults.is_empty() => Ok(Loaded { config, file, data }),
        _ => Err(faults),
    }
}

/// The data folder alone, for those who need no configuration. None: there is no place for one.
pub fn data_folder(flag: Option<&Path>, env: &Env) -> Option<PathBuf> {
    find_data(flag, env, &mut Faults::default())
}

/// A file that was named must be there; the usual places are only looked at.
fn find_file(flag: Option<&Path>, env: &Env, faults: &mut Faults) -> Option<PathBuf> {
    let variable = env.path(EnvVar::NexusConfig, faults);
    if let Some(named) = flag.map(Path::to_owned).or(variable) {
        return Some(named);
    }
    let usual = [Some(PathBuf::from("nexus.yaml")), env.config_home().map(|home| home.join("nexus/nexus.yaml"))];
    usual.into_iter().flatten().find(|path| path.exists())
}

fn find_data(flag: Option<&Path>, env: &Env, faults: &mut Faults) -> Option<PathBuf> {
    let variable = env.path(EnvVar::NexusData, faults);
    let usual = || Some(env.data_home()?.join("nexus"));
    let Some(folder) = flag.map(Path::to_owned).or(variable).or_else(usual) else {
        let problem = Problem::new("there is no place for the data: HOME is not set");
        faults.start(problem.hint("--data DIR, or NEXUS_DATA"));
        return None;
    };
    match std::path::absolute(&folder) {
        Ok(folder) => Some(folder),
        Err(error) => {
            faults.start(Problem::new(format!("the data folder `{}`: {error}", folder.display())));
            None
        }
    }
}

fn read(file: &Path, faults: &mut Faults) -> Option<Node> {
    faults.in_file(file, "");
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file).and_then(|opened| opened.take(LARGEST_FILE + 1).read_to_end(&mut bytes));
    if let Err(error) = opened {
        faults.file(Problem::new(format!("cannot be read: {error}")));
        return None;
    }
    if bytes.len() as u64 > LARGEST_FILE {
        faults.file(Problem::new(format!("is larger than {LARGEST_FILE} bytes; this is no configuration")));
        return None;
    }
    let Ok(text) = String::from_utf8(bytes) else {
        faults.file(Problem::new("is not text in UTF-8"));
        return None;
    };
    // Editors on Windows put a byte order mark before everything, which is no part of line 1.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    faults.in_file(file, text);
    let (root, problems) = tree::parse(text);
    for (spot, problem) in problems {
        faults.at(spot, problem);
    }
    Some(root)
}

#[cfg(test)]
mod tests;
