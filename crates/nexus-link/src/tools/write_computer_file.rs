//! `write_computer_file`: a file's whole new content, sent in pieces and put in place in one step.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures_util::future::BoxFuture;
use nexus_core::clock;
use nexus_core::prelude::*;
use nexus_core::redact::{self, HIDDEN};
use nexus_core::text::one_line;
use serde::de::IgnoredAny;
use serde_json::json;

use super::given::{ComputerPath, Encoding};
use super::{MOMENT, meant, while_wanted};
use crate::computer::{Capability, Wanted};
use crate::links::{LinkError, Links};
use crate::round::Question;

/// Bytes of a file. A computer's disk has about as many.
const MOST: usize = 1 << 20;
/// Bytes sent at once; in Base64 they fit a frame.
const PIECE: usize = 60_000;
/// Characters of the summary, and bytes of the content that are looked at for it.
const SHOWN: usize = 400;
const LOOKED_AT: usize = 4096;

/// Writes a file on a linked computer whole: makes it, or replaces all of its content, in one step; at most 1 MiB.
///
/// Folders on the way are made. Until the last piece has arrived, the old file stays. Text with `[redacted]` in it is
/// refused: that would put the mark in the place of a secret.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteComputerFile {
    /// The computer: its number, its label, or `world/number`.
    computer: Wanted,
    /// The file, like `startup.lua` or `/disk/log`; paths start at `/`.
    path: ComputerPath,
    /// The whole new content.
    content: String,
    /// How `content` is written: `text` (it is stored as UTF-8) or `base64`. Without it, `text`.
    #[serde(default)]
    encoding: Encoding,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Written {
    /// Whose it is.
    computer: String,
    path: String,
    /// Bytes in the file now.
    bytes: usize,
}

#[derive(Debug, Error)]
enum BadContent {
    #[error("the content is not Base64")]
    Base64(#[from] base64::DecodeError),
    #[error("the content has {0} bytes; at most {MOST} can be written")]
    Long(usize),
    #[error(
        "the content holds `{HIDDEN}`, which is what you see in place of a secret: writing it would destroy the secret"
    )]
    WouldDestroySecrets,
}

impl From<BadContent> for ToolError {
    fn from(bad: BadContent) -> Self {
        let hint = match &bad {
            BadContent::Base64(_) => "give `encoding: \"text\"` for plain text",
            BadContent::Long(_) => "write it as several files",
            BadContent::WouldDestroySecrets => "leave those lines out; if the mark itself is meant, send it as base64",
        };
        Self::refused(bad).hint(hint)
    }
}

impl Tool<Links> for WriteComputerFile {
    const NAME: &'static str = "write_computer_file";
    const ACCESS: Access = Access::Write;
    const LONGEST_SUMMARY: usize = SHOWN;
    type Reply = Written;

    fn summary(&self) -> String {
        let (length, path, computer) = (self.content.len(), &self.path, &self.computer);
        let size = match self.encoding {
            Encoding::Text => format!("{length} bytes"),
            Encoding::Base64 => format!("{length} characters of Base64"),
        };
        // Hidden before it is cut: the half of a secret looks like nothing.
        let start = &self.content[..self.content.floor_char_boundary(LOOKED_AT)];
        let start = if start.len() < length { redact::beginning(start) } else { start.into() };
        format!("write {size} to {path} on computer {computer}: {}", one_line(&start))
    }

    fn background(&self, links: &Arc<Links>) -> Option<BoxFuture<'static, Option<String>>> {
        meant(links, &self.computer, Capability::Files)
    }

    async fn run(self, links: &Links, cx: &CallCx) -> ToolResult<Written> {
        let bytes = bytes_of(self.content, self.encoding)?;
        let seen = links.one(&self.computer, Capability::Files).await?;
        let (transfer, size) = (clock::new_id().simple().to_string(), bytes.len());
        for (offset, piece, place) in pieces(&bytes) {
            let params = json!({
                "path": self.path.as_str(),
                "transfer": transfer,
                "offset": offset,
                "data": BASE64_STANDARD.encode(piece),
                "size": size,
                "last": place == Place::Last,
            });
            let question = Question::new("files.write", MOMENT).params(params);
            while_wanted(cx, links.ask_one::<IgnoredAny>(&seen, question))
                .await
                .map_err(|error| place.failed(error))?;
            let sent = offset + piece.len();
            let message = Some(format!("{sent} of {size} bytes"));
            cx.progress(Progress { done: sent as f64, total: Some(size as f64), message });
        }
        Ok(Written { computer: seen.computer.name(), path: self.path.to_string(), bytes: size })
    }
}

fn bytes_of(content: String, encoding: Encoding) -> Result<Vec<u8>, BadContent> {
    let bytes = match encoding {
        Encoding::Text if content.contains(HIDDEN) => return Err(BadContent::WouldDestroySecrets),
        Encoding::Text => content.into_bytes(),
        Encoding::Base64 => BASE64_STANDARD.decode(content.trim())?,
    };
    if bytes.len() > MOST { Err(BadContent::Long(bytes.len())) } else { Ok(bytes) }
}

/// Where a piece stands among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Before,
    /// With it, the file is put in place.
    Last,
}

impl Place {
    /// Only with the last piece is it unsure what became of the file.
    fn failed(self, error: LinkError) -> ToolError {
        match self {
            Place::Before => ToolError::failed(error).hint("nothing was replaced: what was there before still is"),
            Place::Last => error.into(),
        }
    }
}

/// An empty file is one empty piece.
fn pieces(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8], Place)> {
    let many = bytes.len().div_ceil(PIECE).max(1);
    (0..many).map(move |at| {
        let (from, to) = (at * PIECE, bytes.len().min((at + 1) * PIECE));
        (from, &bytes[from..to], if at + 1 == many { Place::Last } else { Place::Before })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::from_value;

    #[test]
    fn pieces_cover_the_file_and_only_the_last_is_last() {
        check(0, &[(0, 0, Place::Last)]);
        check(1, &[(0, 1, Place::Last)]);
        check(60_000, &[(0, 60_000, Place::Last)]);
        check(120_001, &[(0, 60_000, Place::Before), (60_000, 60_000, Place::Before), (120_000, 1, Place::Last)]);

        #[track_caller]
        fn check(size: usize, expected: &[(usize, usize, Place)]) {
            let bytes = vec![0; size];
            let pieces: Vec<_> = pieces(&bytes).map(|(from, piece, place)| (from, piece.len(), place)).collect();
            assert_eq!(pieces, expected);
        }
    }

    #[test]
    fn content_is_checked_before_a_computer_is_asked() {
        let bytes = |content: &str, encoding| bytes_of(content.to_owned(), encoding).map_err(|error| error.to_string());
        assert_eq!(bytes("ä", Encoding::Text), Ok(vec![0xc3, 0xa4]));
        assert_eq!(bytes("AP8=\n", Encoding::Base64), Ok(vec![0, 255]));
        assert!(bytes("not base64!", Encoding::Base64).is_err());
        assert!(bytes(&format!("password={HIDDEN}"), Encoding::Text).unwrap_err().contains("destroy the secret"));
        assert!(bytes(&"x".repeat(MOST), Encoding::Text).is_ok());
        assert!(bytes(&"x".repeat(MOST + 1), Encoding::Text).unwrap_err().contains("1048577 bytes"));
    }

    #[test]
    fn the_human_sees_where_how_much_and_how_it_begins() {
        let summary = |args| from_value::<WriteComputerFile>(args).unwrap().summary();
        let text = json!({ "computer": "base", "path": "startup.lua", "content": "print(1)\nos.reboot()" });
        assert_eq!(summary(text), "write 20 bytes to startup.lua on computer base: print(1)⏎os.reboot()");
        let base64 = json!({ "computer": 12, "path": "a", "content": "AP8=", "encoding": "base64" });
        assert_eq!(summary(base64), "write 4 characters of Base64 to a on computer 12: AP8=");
        let long = json!({ "computer": 12, "path": "a", "content": "ä".repeat(5000) });
        assert!(summary(long).chars().count() < LOOKED_AT);
    }
}
