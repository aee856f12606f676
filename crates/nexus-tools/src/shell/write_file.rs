//! `write_file`: a file's whole new content, put in place in one step, and what it changed.

mod difference;
mod replace;

use std::path::Path;

use nexus_core::redact::{self, HIDDEN};

use crate::clip;
use crate::file::FileError;
use crate::prelude::*;
use crate::secret::Secrets;
use difference::Difference;
use nexus_core::text::one_line;
use replace::Target;

/// Characters of the content that the human sees who is asked, and bytes that are looked at for them.
const SHOWN: usize = 200;
const LOOKED_AT: usize = 4096;

/// Writes a text file whole: makes it, or replaces all of its content, in one step.
///
/// A reader sees the old file or the new one, never half of it. Mode, owner and access lists of an existing file stay;
/// a new one gets 0644. A symlink is followed and its target replaced. A file with several hard links is parted from
/// the others. The folder must exist. The reply has a unified diff of what changed. Content with `[redacted]` in it is
/// refused: that would put the mark in the place of the secret.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteFile {
    /// Path; `~` is the hub's home folder, and a relative path starts at the hub's working folder.
    path: GivenPath,
    /// The whole new content.
    content: String,
    /// Node to write on; without it, the hub's own machine.
    node: Option<NodeName>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Written {
    outcome: Outcome,
    /// Where the file really is, links followed.
    path: String,
    /// Bytes in the file now.
    bytes: usize,
    /// Its permissions in octal, like `0644`.
    mode: String,
    /// What changed, as a unified diff; absent for a new file.
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
    /// What else you should know.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Created,
    Changed,
    /// It had this content already; nothing was touched.
    Unchanged,
}

/// A file that was read with its secrets hidden must not be written back like that.
#[derive(Debug, Error)]
#[error(
    "the content holds `{HIDDEN}`, which is what you see in place of a secret: writing it would destroy the secret"
)]
struct WouldDestroySecrets;

impl Tool<Toolbox> for WriteFile {
    const NAME: &'static str = "write_file";
    const ACCESS: Access = Access::Write;
    type Reply = Written;

    fn summary(&self) -> String {
        let (lines, bytes) = (self.content.lines().count(), self.content.len());
        let s = if lines == 1 { "" } else { "s" };
        let (path, node) = (&self.path, super::on(self.node.as_ref()));
        format!("write {lines} line{s} ({bytes} bytes) to {path} on {node}{}", beginning(&self.content))
    }

    fn node(&self) -> Option<&NodeName> {
        self.node.as_ref()
    }

    async fn run(self, env: &Toolbox, cx: &CallCx) -> ToolResult<Written> {
        let Node::Local(_) = env.node(self.node.as_ref())?;
        let path = self.path.absolute(env.home())?;
        if self.path.is_a_folders() {
            let path = self.path.to_string();
            return Err(
                FileError::WrongKind { path, kind: "a directory's name", hint: "give the file's name, too" }.into()
            );
        }
        let (secrets, cap) = (env.secrets.clone(), env.settings.output_cap);
        let cancel = cx.cancel.clone();
        env.blocking(move |abandoned| {
            let called_off = || cancel.is_cancelled() || abandoned.is_set();
            write(&path, &self.content, &secrets, cap, &called_off)
        })
        .await
    }
}

/// The start of the content, on one line. Secrets are hidden before it is cut: the half of one looks like nothing.
fn beginning(content: &str) -> String {
    let looked_at = &content[..content.floor_char_boundary(LOOKED_AT)];
    let hidden = if looked_at.len() < content.len() { redact::beginning(looked_at) } else { redact::text(looked_at) };
    let line = one_line(&hidden);
    let (shown, rest) = clip::split(&line, SHOWN);
    let more = if rest.is_empty() && looked_at.len() == content.len() { "" } else { " …" };
    if shown.is_empty() { String::new() } else { format!(": {shown}{more}") }
}

fn write(
    path: &Path,
    content: &str,
    secrets: &Secrets,
    cap: usize,
    called_off: &dyn Fn() -> bool,
) -> ToolResult<Written> {
    let target = Target::resolve(path)?;
    let marks = content.matches(HIDDEN).count();
    if marks > 0 && target.old.as_ref().map_or(0, |old| old.count(HIDDEN, marks)) < marks {
        return Err(ToolError::refused(WouldDestroySecrets).hint(
            "change only the other lines of the file, in place, with run_command (sed -i), or leave the lines with it \
             out; a secret's new value is the operator's to enter",
        ));
    }
    let Some(old) = &target.old else {
        let mode = target.put(content.as_bytes(), called_off)?;
        return Ok(Written::of(Outcome::Created, &target, content, mode));
    };
    let before = old.content(content.len());
    if before.as_deref() == Some(content.as_bytes()) {
        return Ok(Written::of(Outcome::Unchanged, &target, content, old.mode()));
    }
    let is_secret = [path, &target.path].into_iter().any(|path| secrets.check_path(path).is_err())
        || secrets.check_inode(path, old.facts()).is_err()
        || before.as_ref().is_some_and(|before| secrets.check_content(path, before).is_err());
    let difference = match before {
        _ if is_secret => Difference::without("the old content is secret, so no diff is shown"),
        None => Difference::without("the old content is too long or may not be read, so there is no diff"),
        Some(before) => Difference::between(&before, content, &target.path, cap),
    };
    let links = old.links();
    let mode = target.put(content.as_bytes(), called_off)?;
    let mut written = Written::of(Outcome::Changed, &target, content, mode);
    written.diff = difference.diff;
    let parted = (links > 1).then(|| format!("the file had {links} hard links; the other names keep the old content"));
    written.note = [difference.note, parted].into_iter().flatten().reduce(|a, b| format!("{a}; {b}"));
    Ok(written)
}

impl Written {
    fn of(outcome: Outcome, target: &Target, content: &str, mode: u32) -> Self {
        let path = one_line(&target.path.to_string_lossy());
        Self { outcome, path, bytes: content.len(), mode: format!("{mode:04o}"), diff: None, note: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_human_sees_where_how_much_and_how_it_begins() {
        check("/etc/x", "a\nb\n", "write 2 lines (4 bytes) to /etc/x on local: a⏎b⏎");
        check("/etc/x", "", "write 0 lines (0 bytes) to /etc/x on local");
        let long = format!("write 1 line (5000 bytes) to /etc/x on local: {} …", "ä".repeat(SHOWN));
        check("/etc/x", &"ä".repeat(2_500), &long);
        let hidden = "write 1 line (29 bytes) to /etc/x on local: password=[redacted]";
        check("/etc/x", "password=correct-horse-staple", hidden);
        check("x\ny\u{1b}[2J", "a", "write 1 line (1 bytes) to x⏎y\\u{1b}[2J on local: a");

        #[track_caller]
        fn check(path: &str, content: &str, expected: &str) {
            let tool: WriteFile = serde_json::from_value(json!({ "path": path, "content": content })).unwrap();
            assert_eq!(tool.summary(), expected);
        }
    }
}
