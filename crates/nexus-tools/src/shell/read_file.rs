//! `read_file`: a text file by lines, or a few words about one that is not text.

mod binary;
mod window;

use std::num::NonZeroU64;

use crate::file::open_readable;
use crate::prelude::*;
use crate::secret::Secret;
use binary::Binary;
use window::{Reader, Window};

/// Bytes gone through to find an offset or to count the lines: about a second's work.
const SCANNED: u64 = 256 << 20;

/// Reads a text file, whole or by lines.
///
/// Long files come in pieces: read on with `offset` set to the reply's `next_offset`. Of a binary file only its kind
/// and first bytes are told. Files that hold secrets (private keys, `.env`, password files) are refused; in others
/// `[redacted]` stands where a secret is.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadFile {
    /// Path; `~` is the hub's home folder, and a relative path starts at the hub's working folder.
    path: GivenPath,
    /// First line to read, counted from 1.
    offset: Option<NonZeroU64>,
    /// Most lines to read; without it, as many as fit one reply.
    limit: Option<NonZeroU64>,
    /// Node to read on; without it, the hub's own machine.
    node: Option<NodeName>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Contents {
    /// Where the file really is, links followed.
    path: String,
    /// Bytes in the file; 0 for many files of the kernel, which have content all the same.
    size: u64,
    /// Not text: there is no content, but `mime` and `first_bytes`.
    binary: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    /// Lines in `content`.
    lines: u64,
    /// Lines in the whole file, if it was short enough to count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    total_lines: Option<u64>,
    /// There is more; read on with this offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
    /// A guess, for a binary file.
    #[serde(skip_serializing_if = "Option::is_none")]
    mime: Option<String>,
    /// In hexadecimal, for a binary file.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_bytes: Option<String>,
    /// What else you should know.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

impl Tool<Toolbox> for ReadFile {
    const NAME: &'static str = "read_file";
    const ACCESS: Access = Access::Read;
    type Reply = Contents;

    fn summary(&self) -> String {
        format!("read {} on {}", self.path, super::on(self.node.as_ref()))
    }

    fn node(&self) -> Option<&NodeName> {
        self.node.as_ref()
    }

    async fn run(self, env: &Toolbox, _: &CallCx) -> ToolResult<Contents> {
        let Node::Local(_) = env.node(self.node.as_ref())?;
        let path = self.path.absolute(env.home())?;
        let secrets = env.secrets.clone();
        let window = Window {
            first: self.offset.map_or(1, NonZeroU64::get),
            most_lines: self.limit.map_or(u64::MAX, NonZeroU64::get),
            most_chars: env.settings.output_cap,
            most_bytes: SCANNED,
        };
        env.blocking(move |abandoned| {
            let opened = open_readable(&path, &secrets)?;
            let reader = Reader::open(opened.file, &path)?;
            secrets.check_content(&path, reader.start())?;
            let mut contents = Contents::of(&opened.path.to_string_lossy(), opened.metadata.len());
            if let Some(binary) = Binary::detect(reader.start()) {
                contents.describe(&binary);
                return Ok(contents);
            }
            let read = reader.read(&window, abandoned)?;
            if read.in_key {
                return Err(Secret::private_key(&path).into());
            }
            secrets.check_content(&path, read.content.as_bytes())?;
            contents.lines = read.lines;
            contents.total_lines = read.total_lines;
            contents.next_offset = read.next;
            contents.note = read.note;
            contents.content = Some(read.content);
            Ok(contents)
        })
        .await
    }
}

impl Contents {
    fn of(path: &str, size: u64) -> Self {
        Self {
            path: nexus_core::text::one_line(path),
            size,
            binary: false,
            content: None,
            lines: 0,
            total_lines: None,
            next_offset: None,
            mime: None,
            first_bytes: None,
            note: None,
        }
    }

    fn describe(&mut self, binary: &Binary) {
        self.binary = true;
        self.mime = Some(binary.mime.to_owned());
        self.first_bytes = Some(binary.first_bytes.clone());
        self.note = Some("not text; use run_command (file, strings, xxd …) to look inside".to_owned());
    }
}
