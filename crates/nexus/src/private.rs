//! Files and folders that only the operator may read.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Makes a folder with mode 0700, or takes one that is there. One that is open to others is shut if it is empty
/// or has been ours before; anything else (`--data /tmp`) is not ours to change.
pub fn folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    if fs::metadata(path)?.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    let ours = path.join("nexus.db").exists() || fs::read_dir(path)?.next().is_none();
    if !ours {
        return Err(io::Error::other("it is open to others and holds other things; name a folder of its own"));
    }
    fs::set_permissions(path, Permissions::from_mode(0o700))
}

/// Makes an empty file with mode 0600, or leaves one that is there as it is.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// Writes a new file with mode 0600, whole or not at all. An existing one is an error.
pub fn write_new(path: &Path, content: &str) -> io::Result<()> {
    let aside = path.with_extension("new");
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&aside)?;
    file.write_all(content.as_bytes())?;
    file.sync_all()?;
    // Unlike a rename, a link does not replace what is there.
    let linked = fs::hard_link(&aside, path);
    fs::remove_file(&aside)?;
    linked
}

/// Writes a file with mode 0600 in the place of what is there, whole or not at all.
pub fn replace(path: &Path, content: &str) -> io::Result<()> {
    let name = path.file_name().ok_or_else(|| io::Error::other("it has no name"))?;
    let aside = path.with_file_name(format!(".{}.{}.part", name.to_string_lossy(), std::process::id()));
    let written = (|| {
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&aside)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        fs::rename(&aside, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&aside);
    }
    written
}

/// A new file with mode 0600 that grows. It has its name when it is complete; given up before, it leaves nothing.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    aside: PathBuf,
    file: BufWriter<File>,
}

impl NewFile {
    pub fn create(path: &Path) -> io::Result<Self> {
        if path.symlink_metadata().is_ok() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is such a file already"));
        }
        let name = path.file_name().ok_or_else(|| io::Error::other("it has no name"))?;
        let aside = path.with_file_name(format!(".{}.{}.part", name.to_string_lossy(), std::process::id()));
        let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&aside)?;
        Ok(Self { path: path.to_owned(), aside, file: BufWriter::new(file) })
    }

    pub fn write(&mut self, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes())
    }

    /// An error where somebody else has made a file of that name meanwhile.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        fs::hard_link(&self.aside, &self.path)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.aside);
    }
}

/// Reads a small file. None: it is not there.
pub fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_private_stays_so() {
        let parent = tempfile::tempdir().unwrap();
        let data = parent.path().join("a/b");
        folder(&data).unwrap();
        assert_eq!(fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
        fs::set_permissions(&data, Permissions::from_mode(0o755)).unwrap();
        folder(&data).unwrap();
        assert_eq!(fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);

        let key = data.join("key");
        write_new(&key, "secret").unwrap();
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(write_new(&key, "other").is_err());
        assert_eq!(read(&key).unwrap().as_deref(), Some("secret"));
        assert_eq!(read(&data.join("none")).unwrap(), None);

        replace(&key, "newer").unwrap();
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read(&key).unwrap().as_deref(), Some("newer"));
        assert!(replace(&data.join("none/key"), "x").is_err());

        let export = data.join("export");
        let mut half = NewFile::create(&export).unwrap();
        half.write("half").unwrap();
        drop(half);
        assert!(!export.exists());
        let mut whole = NewFile::create(&export).unwrap();
        whole.write("whole").unwrap();
        whole.finish().unwrap();
        assert_eq!(fs::metadata(&export).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(NewFile::create(&export).is_err(), "it is not replaced");
        assert_eq!(read(&export).unwrap().as_deref(), Some("whole"));
        let left = fs::read_dir(&data).unwrap().map(|file| file.unwrap().file_name());
        assert!(!left.into_iter().any(|name| name.to_string_lossy().ends_with(".part")));
        fs::set_permissions(&data, Permissions::from_mode(0o755)).unwrap();
        assert!(folder(&data).is_err(), "it holds a file that is not ours");
    }
}
