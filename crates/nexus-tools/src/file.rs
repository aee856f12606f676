//! Opens files without being fooled: what was checked is what is read.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nexus_core::ToolError;
use rustix::fs::{Mode, OFlags, open};
use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;

use crate::secret::Secrets;
use nexus_core::text::one_line;

/// What stands under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    File,
    Directory,
    Symlink,
    /// A device, a FIFO or a socket.
    Other,
}

impl Kind {
    pub fn of(kind: FileType) -> Self {
        match kind {
            kind if kind.is_file() => Self::File,
            kind if kind.is_dir() => Self::Directory,
            kind if kind.is_symlink() => Self::Symlink,
            _ => Self::Other,
        }
    }
}

#[derive(Debug, Error)]
pub enum FileError {
    #[error("{action} {path}")]
    Io { action: &'static str, path: String, source: io::Error },
    #[error("{path} is {kind}")]
    WrongKind { path: String, kind: &'static str, hint: &'static str },
}

impl FileError {
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = one_line(&path.to_string_lossy());
        move |source| Self::Io { action, path, source }
    }

    /// The file is not of a kind that can be read or replaced as a whole.
    pub fn not_regular(path: &Path, kind: FileType) -> Self {
        let (kind, hint) = match kind {
            kind if kind.is_dir() => ("a directory", "use list_directory"),
            kind if kind.is_fifo() => ("a FIFO", "reading it could wait for ever; use run_command with a timeout"),
            kind if kind.is_socket() => ("a socket", "it has no content; talk to it with run_command"),
            _ => ("a device", "it may have no end; use run_command, for example with head -c"),
        };
        Self::WrongKind { path: one_line(&path.to_string_lossy()), kind, hint }
    }
}

impl From<FileError> for ToolError {
    fn from(error: FileError) -> Self {
        use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied, WouldBlock};
        match &error {
            FileError::WrongKind { hint, .. } => {
                let hint = *hint;
                Self::refused(error).hint(hint)
            }
            FileError::Io { source, .. } => match source.kind() {
                NotFound | NotADirectory => Self::failed(error).hint("list_directory shows what is there"),
                PermissionDenied => {
                    Self::failed(error).hint("the hub's user may not; run_command could use sudo, if that is set up")
                }
                WouldBlock => Self::failed(error).hint("it has nothing to say now; use run_command with a timeout"),
                _ => Self::failed(error),
            },
        }
    }
}

/// A regular file, open for reading.
#[derive(Debug)]
pub struct Opened {
    pub file: File,
    pub metadata: Metadata,
    /// Where it really is.
    pub path: PathBuf,
}

/// Opens a regular file that is no secret.
///
/// The name is resolved once, to a handle that cannot read and has no side effect on a device. Kind and real path are
/// asked of that handle, and it is the handle that is opened: a link that is swapped in between changes nothing.
pub fn open_readable(path: &Path, secrets: &Secrets) -> Result<Opened, ToolError> {
    secrets.check_path(path)?;
    let handle = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(io::Error::from);
    let handle = handle.map_err(FileError::io("opening", path))?;
    let link = PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()));
    let real = std::fs::read_link(&link).map_err(FileError::io("following", path))?;
    let real = without_deleted(real);
    secrets.check_path(&real)?;
    let handle = File::from(handle);
    let metadata = handle.metadata().map_err(FileError::io("looking at", path))?;
    if !metadata.is_file() {
        return Err(FileError::not_regular(path, metadata.file_type()).into());
    }
    secrets.check_inode(path, &metadata)?;
    // Some files of the kernel wait for news; they say so instead.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(&link).map_err(FileError::io("opening", path))?;
    Ok(Opened { file, metadata, path: real })
}

/// The kernel marks the path of a file that was removed meanwhile.
fn without_deleted(path: PathBuf) -> PathBuf {
    match path.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
        Some(was) => PathBuf::from(std::ffi::OsStr::from_bytes(was)),
        None => path,
    }
}
