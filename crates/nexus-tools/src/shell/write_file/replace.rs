//! Puts new content in a file's place in one step: a complete file beside it takes over its name.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, XattrFlags, fgetxattr, flistxattr, fsetxattr};
use uuid::Uuid;

use crate::file::FileError;
use crate::prelude::*;
use nexus_core::text::one_line;

/// As the kernel has it.
const MOST_LINKS: usize = 40;
/// Bytes of old content that are compared with the new, unless the new is longer.
const COMPARED: usize = 1 << 20;

#[derive(Debug, Error)]
enum CannotWrite {
    #[error("the folder {0} does not exist")]
    NoFolder(String),
    #[error("{0} is a chain of links without an end")]
    EndlessLinks(String),
    #[error("the owner of {path} cannot be kept")]
    Owner { path: String, source: io::Error },
    #[error("{path} cannot be replaced in one step")]
    Held { path: String, source: io::Error },
}

impl From<CannotWrite> for ToolError {
    fn from(error: CannotWrite) -> Self {
        let hint = match &error {
            CannotWrite::NoFolder(_) => "make it first: run_command with mkdir -p",
            CannotWrite::EndlessLinks(_) => "look at it with list_directory",
            CannotWrite::Owner { .. } => {
                "nothing was changed; run_command could write into the file as it is (cat >file)"
            }
            CannotWrite::Held { .. } => {
                "nothing was changed; it is a mount point, and run_command could write into it (cat >file)"
            }
        };
        match error {
            CannotWrite::NoFolder(_) | CannotWrite::EndlessLinks(_) => Self::refused(error).hint(hint),
            CannotWrite::Owner { .. } | CannotWrite::Held { .. } => Self::failed(error).hint(hint),
        }
    }
}

/// Nobody wants the write any more, and it has not been done.
#[derive(Debug, Error)]
#[error("the call was cancelled; nothing was written")]
struct CalledOff;

/// A name in a real folder, and the file that has it now.
#[derive(Debug)]
pub(super) struct Target {
    pub path: PathBuf,
    folder: PathBuf,
    pub old: Option<Old>,
}

/// The file that is to be replaced.
#[derive(Debug)]
pub(super) struct Old {
    path: PathBuf,
    facts: Metadata,
}

impl Target {
    /// Follows links to the name whose file is meant, whether it exists or not.
    pub(super) fn resolve(path: &Path) -> ToolResult<Self> {
        let mut next = path.to_owned();
        for _ in 0..MOST_LINKS {
            let (Some(folder), Some(name)) = (next.parent(), next.file_name()) else {
                return Err(FileError::WrongKind {
                    path: shown(path),
                    kind: "a directory",
                    hint: "give a file's name",
                }
                .into());
            };
            let folder = fs::canonicalize(folder).map_err(|error| match error.kind() {
                ErrorKind::NotFound => CannotWrite::NoFolder(shown(folder)).into(),
                _ => ToolError::from(FileError::io("following", folder)(error)),
            })?;
            let here = folder.join(name);
            match fs::symlink_metadata(&here) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self { path: here, folder, old: None }),
                Err(error) => return Err(FileError::io("looking at", &here)(error).into()),
                Ok(facts) if facts.is_symlink() => {
                    next = folder.join(fs::read_link(&here).map_err(FileError::io("following", &here))?);
                }
                Ok(facts) if facts.is_file() => {
                    return Ok(Self { path: here.clone(), folder, old: Some(Old { path: here, facts }) });
                }
                Ok(facts) => return Err(FileError::not_regular(path, facts.file_type()).into()),
            }
        }
        Err(CannotWrite::EndlessLinks(shown(path)).into())
    }

    /// Writes the content beside it, to the disk, and lets it take the name. Gives back its mode.
    ///
    /// Until that last step it can be called off, and nothing has changed. After it the file is written, whatever
    /// `called_off` says then.
    pub(super) fn put(&self, content: &[u8], called_off: &dyn Fn() -> bool) -> ToolResult<u32> {
        let go_on = || if called_off() { Err(ToolError::failed(CalledOff)) } else { Ok(()) };
        go_on()?;
        let writing = || FileError::io("writing", &self.path);
        // The kernel takes the umask off a new file's mode; an old file's mode is set below, before anyone can look.
        let mode = if self.old.is_some() { 0o600 } else { 0o644 };
        let beside = Beside(self.folder.join(format!(".nexus-{}", Uuid::new_v4().simple())));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside.0).map_err(writing())?;
        file.write_all(content).map_err(writing())?;
        if let Some(old) = &self.old {
            old.lend_its_looks(&file)?;
        }
        let mode = file.metadata().map_err(writing())?.mode() & 0o7777;
        file.sync_all().map_err(writing())?;
        go_on()?;
        fs::rename(&beside.0, &self.path).map_err(|source| match source.kind() {
            ErrorKind::ResourceBusy => CannotWrite::Held { path: shown(&self.path), source }.into(),
            _ => ToolError::from(writing()(source)),
        })?;
        // The new file has its name already; a folder that cannot be synced is no reason to say it has not.
        let _ = File::open(&self.folder).and_then(|folder| folder.sync_all());
        Ok(mode)
    }
}

impl Old {
    pub(super) fn mode(&self) -> u32 {
        self.facts.mode() & 0o7777
    }

    pub(super) fn facts(&self) -> &Metadata {
        &self.facts
    }

    pub(super) fn links(&self) -> u64 {
        self.facts.nlink()
    }

    /// All of it. None when it is long and cannot be the same as `new_length` bytes, or may not be read.
    pub(super) fn content(&self, new_length: usize) -> Option<Vec<u8>> {
        let most = COMPARED.max(new_length) as u64;
        if self.facts.len() > most {
            return None;
        }
        let mut content = Vec::new();
        self.open().ok()?.take(most + 1).read_to_end(&mut content).ok()?;
        (content.len() as u64 <= most).then_some(content)
    }

    /// How often it holds the word, as far as up to `most` times. What may not be read holds nothing.
    pub(super) fn count(&self, word: &str, most: usize) -> usize {
        let (mut found, mut window) = (0, Vec::new());
        let Ok(file) = self.open() else { return 0 };
        while found < most {
            match (&file).take(COMPARED as u64).read_to_end(&mut window) {
                Ok(length) if length > 0 => {}
                _ => break,
            }
            let mut at = 0;
            while let Some(next) = window[at..].windows(word.len()).position(|part| part == word.as_bytes()) {
                (found, at) = (found + 1, at + next + word.len());
            }
            // The word may begin in this piece and end in the next.
            window.drain(..at.max(window.len().saturating_sub(word.len() - 1)));
        }
        found
    }

    fn open(&self) -> io::Result<File> {
        let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
        OpenOptions::new().read(true).custom_flags(flags).open(&self.path)
    }

    /// Owner first: giving a file away takes special bits off its mode.
    fn lend_its_looks(&self, file: &File) -> ToolResult<()> {
        let writing = || FileError::io("writing", &self.path);
        let fresh = file.metadata().map_err(writing())?;
        if (fresh.uid(), fresh.gid()) != (self.facts.uid(), self.facts.gid()) {
            fchown(file, Some(self.facts.uid()), Some(self.facts.gid()))
                .map_err(|source| CannotWrite::Owner { path: shown(&self.path), source })?;
        }
        if let Ok(old) = self.open() {
            copy_attributes(&old, file);
        }
        file.set_permissions(Permissions::from_mode(self.mode())).map_err(writing())?;
        Ok(())
    }
}

/// Access lists and labels, as far as the file systems take them. Capabilities were given to the old content.
fn copy_attributes(old: &File, new: &File) {
    let mut names = vec![0_u8; 64 << 10];
    let Ok(length) = flistxattr(old, &mut names[..]) else { return };
    let names =
        names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty() && *name != b"security.capability");
    let mut value = vec![0_u8; 64 << 10];
    for name in names {
        if let Ok(length) = fgetxattr(old, name, &mut value[..]) {
            let _ = fsetxattr(new, name, &value[..length], XattrFlags::empty());
        }
    }
}

/// The file beside the target. Removed when it is dropped under this name, which after the rename nobody has.
struct Beside(PathBuf);

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn shown(path: &Path) -> String {
    one_line(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_write_is_called_off_up_to_its_last_step_and_stands_after_it() {
        check(0, false);
        check(1, false);
        check(2, true);

        /// Called off after so many looks.
        #[track_caller]
        fn check(looks: u32, written: bool) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("file");
            File::create(&path).unwrap().write_all(b"old").unwrap();
            let looked = Cell::new(0);
            let called_off = || looked.replace(looked.get() + 1) >= looks;
            let put = Target::resolve(&path).unwrap().put(b"new", &called_off);
            assert_eq!(put.is_ok(), written);
            assert!(called_off());
            assert_eq!(fs::read_to_string(&path).unwrap(), if written { "new" } else { "old" });
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }
}
