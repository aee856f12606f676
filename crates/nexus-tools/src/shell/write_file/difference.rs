//! What a write changed, as a unified diff of bounded size, made in bounded time.

use std::path::Path;
use std::time::Duration;

use similar::TextDiff;

use crate::clip;
use nexus_core::text::one_line;

/// After this the diff gets coarser instead of better.
const PATIENCE: Duration = Duration::from_millis(500);

/// A diff, or the reason there is none.
#[derive(Debug)]
pub(super) struct Difference {
    pub diff: Option<String>,
    pub note: Option<String>,
}

impl Difference {
    pub(super) fn without(note: &str) -> Self {
        Self { diff: None, note: Some(note.to_owned()) }
    }

    pub(super) fn between(old: &[u8], new: &str, path: &Path, cap: usize) -> Self {
        let old = match std::str::from_utf8(old) {
            Ok(old) if !old.contains('\0') => old,
            _ => return Self::without("the old content was not text, so there is no diff"),
        };
        let name = one_line(&path.to_string_lossy());
        let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(old, new);
        let diff = diff.unified_diff().context_radius(3).header(&name, &name).to_string();
        Self { diff: Some(clip::bounded(diff, cap)), note: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_with_its_surroundings() {
        let found = Difference::between(b"a\nb\nc\n", "a\nB\nc\n", Path::new("/x"), 1000);
        assert_eq!(found.diff.unwrap(), "--- /x\n+++ /x\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n");
    }

    #[test]
    fn a_diff_is_bounded_and_only_of_text() {
        let new: String = (0..10_000).map(|n| format!("line {n}\n")).collect();
        let diff = Difference::between(b"old\n", &new, Path::new("/x"), 500).diff.unwrap();
        assert!(diff.chars().count() < 600);
        assert!(diff.contains("characters left out"));
        assert!(Difference::between(b"\0", "x", Path::new("/x"), 500).diff.is_none());
        assert!(Difference::between(b"\xff", "x", Path::new("/x"), 500).note.is_some());
    }
}
