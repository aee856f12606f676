//! Tells text from what is not, and guesses what it is.

use std::fmt::Write;

/// Bytes looked at, as git does.
const LOOK: usize = 8_000;
const SHOWN: usize = 32;

const MAGIC: &[(usize, &[u8], &str)] = &[
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF8", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (0, b"%PDF-", "application/pdf"),
    (0, b"PK\x03\x04", "application/zip"),
    (0, b"\x1f\x8b", "application/gzip"),
    (0, b"\x28\xb5\x2f\xfd", "application/zstd"),
    (0, b"\xfd7zXZ\0", "application/x-xz"),
    (0, b"BZh", "application/x-bzip2"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (257, b"ustar", "application/x-tar"),
    (0, b"\x7fELF", "application/x-executable"),
    (0, b"SQLite format 3\0", "application/vnd.sqlite3"),
    (0, b"\0asm", "application/wasm"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1a\x45\xdf\xa3", "video/x-matroska"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"\xff\xfe", "text/plain; charset=utf-16le"),
    (0, b"\xfe\xff", "text/plain; charset=utf-16be"),
];

/// What can be said of a file that is not text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Binary {
    pub mime: &'static str,
    pub first_bytes: String,
}

impl Binary {
    /// None when it is text. A NUL is in no text; neither is one byte in ten that is no character.
    pub(super) fn detect(start: &[u8]) -> Option<Self> {
        let start = &start[..start.len().min(LOOK)];
        if !start.contains(&0) && strange(start) * 10 <= start.len() {
            return None;
        }
        let known = MAGIC.iter().find(|(at, magic, _)| start.get(*at..).is_some_and(|rest| rest.starts_with(magic)));
        let mime = known.map_or("application/octet-stream", |(_, _, mime)| mime);
        let mut first_bytes = String::new();
        for byte in start.iter().take(SHOWN) {
            let _ = write!(first_bytes, "{byte:02x}");
        }
        Some(Self { mime, first_bytes })
    }
}

/// Bytes that are no characters, and controls that no text uses.
fn strange(bytes: &[u8]) -> usize {
    let control = |byte: &&u8| matches!(byte, 0..=6 | 0xe..=0x1a | 0x1c..=0x1f);
    let broken: usize = bytes.utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
    broken + bytes.iter().filter(control).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_told_from_binary() {
        check(b"", None);
        check("plain ümläut\n".as_bytes(), None);
        check(b"one latin1 \xe4 among many letters\n", None);
        check(b"\x1b[31mred\x1b[0m\n", None);
        check(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", Some("image/png"));
        check(b"\x7fELF\x02\x01\x01\0", Some("application/x-executable"));
        check(b"\xff\xfeh\0i\0", Some("text/plain; charset=utf-16le"));
        check(b"a\0b", Some("application/octet-stream"));
        check(&[0x80; 50], Some("application/octet-stream"));

        #[track_caller]
        fn check(start: &[u8], mime: Option<&str>) {
            assert_eq!(Binary::detect(start).map(|binary| binary.mime), mime);
        }
    }

    #[test]
    fn the_first_bytes_are_shown() {
        assert_eq!(Binary::detect(b"\0\x01\xff").unwrap().first_bytes, "0001ff");
        assert_eq!(Binary::detect(&[0; 99]).unwrap().first_bytes.len(), 2 * SHOWN);
    }
}
