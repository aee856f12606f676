//! `list_directory`: what a folder holds. Names and facts only, never content.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use jiff::Timestamp;

use crate::file::{FileError, Kind};
use crate::prelude::*;
use crate::toolbox::Abandoned;
use nexus_core::text::one_line;

/// Entries in one reply.
const SHOWN: usize = 2_000;
/// Names that are sorted. A folder with more is listed by what the disk gives first.
const SORTED: usize = 100_000;

/// Lists a directory: names, kinds, sizes, modes and times, sorted by name.
///
/// Shows up to 2,000 entries, hidden ones too.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListDirectory {
    /// Path; `~` is the hub's home folder, and a relative path starts at the hub's working folder.
    path: GivenPath,
    /// Node to look on; without it, the hub's own machine.
    node: Option<NodeName>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Directory {
    path: String,
    entries: Vec<Item>,
    /// There are more entries than are shown.
    truncated: bool,
    /// Entries in the directory; at least that many when it has more than 100,000.
    total: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Item {
    name: String,
    /// The name holds bytes that cannot be shown; they stand as `\xNN`, a backslash as `\\`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    escaped: bool,
    kind: Kind,
    /// Where a symlink points.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    /// Bytes.
    size: Option<u64>,
    /// Permissions in octal, like `0644`.
    mode: Option<String>,
    /// Last change (RFC 3339).
    modified: Option<String>,
}

impl Tool<Toolbox> for ListDirectory {
    const NAME: &'static str = "list_directory";
    const ACCESS: Access = Access::Read;
    type Reply = Directory;

    fn summary(&self) -> String {
        format!("list {} on {}", self.path, super::on(self.node.as_ref()))
    }

    fn node(&self) -> Option<&NodeName> {
        self.node.as_ref()
    }

    async fn run(self, env: &Toolbox, _: &CallCx) -> ToolResult<Directory> {
        let Node::Local(_) = env.node(self.node.as_ref())?;
        let path = self.path.absolute(env.home())?;
        env.blocking(move |abandoned| Ok(list(&path, abandoned)?)).await
    }
}

fn list(path: &Path, abandoned: &Abandoned) -> Result<Directory, FileError> {
    let reading = || FileError::io("listing", path);
    if !fs::metadata(path).map_err(reading())?.is_dir() {
        let path = one_line(&path.to_string_lossy());
        return Err(FileError::WrongKind { path, kind: "not a directory", hint: "use read_file" });
    }
    let mut names: Vec<OsString> = Vec::new();
    let mut more = false;
    for entry in fs::read_dir(path).map_err(reading())? {
        more = names.len() >= SORTED;
        if more || abandoned.is_set() {
            break;
        }
        names.push(entry.map_err(reading())?.file_name());
    }
    names.sort_unstable();
    let entries: Vec<Item> =
        names.iter().take(SHOWN).take_while(|_| !abandoned.is_set()).map(|name| item(path, name)).collect();
    let truncated = more || names.len() > SHOWN;
    Ok(Directory { path: one_line(&path.to_string_lossy()), entries, truncated, total: names.len() })
}

/// An entry that went away meanwhile, or that may not be looked at, keeps its name.
fn item(folder: &Path, name: &OsStr) -> Item {
    let path = folder.join(name);
    let facts = fs::symlink_metadata(&path).ok();
    let target = facts.as_ref().filter(|facts| facts.is_symlink()).and_then(|_| fs::read_link(&path).ok());
    let (name, escaped) = shown_name(name);
    Item {
        name,
        escaped,
        kind: facts.as_ref().map_or(Kind::Other, |facts| Kind::of(facts.file_type())),
        target: target.map(|target| shown_name(target.as_os_str()).0),
        size: facts.as_ref().map(Metadata::len),
        mode: facts.as_ref().map(|facts| format!("{:04o}", facts.mode() & 0o7777)),
        modified: facts
            .and_then(|facts| facts.modified().ok())
            .and_then(|at| Timestamp::try_from(at).ok())
            .map(|at| at.to_string()),
    }
}

/// The name, and whether it had to be escaped. Two names never look the same.
fn shown_name(name: &OsStr) -> (String, bool) {
    if let Some(plain) = name.to_str().filter(|plain| one_line(plain) == **plain && !plain.contains('\t')) {
        return (plain.to_owned(), false);
    }
    let mut shown = String::new();
    for chunk in name.as_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => shown.push_str(r"\\"),
                c if one_line(c.encode_utf8(&mut [0; 4])).starts_with(c) && c != '\t' => shown.push(c),
                c => c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| escape(&mut shown, byte)),
            }
        }
        chunk.invalid().iter().for_each(|byte| escape(&mut shown, *byte));
    }
    (shown, true)
}

fn escape(shown: &mut String, byte: u8) {
    shown.push_str(&format!("\\x{byte:02x}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_are_escaped_and_said_to_be() {
        check(b"plain.txt", "plain.txt", false);
        check("grün".as_bytes(), "grün", false);
        check(br"back\slash", r"back\slash", false);
        check(b"new\nline", r"new\x0aline", true);
        check(b"\x1b[2J", r"\x1b[2J", true);
        check(b"latin\xe4\\", r"latin\xe4\\", true);
        check("txt\u{202e}exe".as_bytes(), r"txt\xe2\x80\xaeexe", true);

        #[track_caller]
        fn check(name: &[u8], expected: &str, escaped: bool) {
            assert_eq!(shown_name(OsStr::from_bytes(name)), (expected.to_owned(), escaped));
        }
    }
}
