//! Images and other files of a result: saved where the person can open them, never over anything.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Bytes of one file. A result is not larger than ten million.
const LARGEST: usize = 10_000_000;

/// Names that are tried before it is given up.
const MOST_TRIES: u32 = 10_000;

/// Saves what stands in base64 and gives the file's path: `shot-1.png`, or the next number that is free.
pub fn save(folder: &Path, tool: &str, kind: &str, base64: &str) -> Result<PathBuf> {
    let Some(bytes) = decode(base64) else { bail!("what should be a file of type {kind} is not base64") };
    if bytes.len() > LARGEST {
        bail!("a file of {} bytes is not saved", bytes.len());
    }
    let (stem, ending) = (stem(tool), ending(kind));
    for number in 1..=MOST_TRIES {
        let path = folder.join(format!("{stem}-{number}.{ending}"));
        match write(&path, &bytes) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("saving {}", path.display())),
        }
    }
    bail!("{} has {MOST_TRIES} files of {stem} already", folder.display())
}

/// A new file: what is there already, a link included, is not touched.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().create_new(true).write(true).open(path)?.write_all(bytes)
}

/// A tool's name as a file's: nothing that leads elsewhere.
fn stem(tool: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let stem: String = tool.chars().take(64).map(plain).collect();
    if stem.is_empty() { "result".to_owned() } else { stem }
}

fn ending(kind: &str) -> &'static str {
    let kind = kind.split(';').next().unwrap_or_default().trim();
    match kind.to_ascii_lowercase().as_str() {
        "image/png" => "png",
        "image/jpeg" | "image/jpg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "image/svg+xml" => "svg",
        "image/bmp" => "bmp",
        "image/tiff" => "tiff",
        "audio/wav" | "audio/x-wav" | "audio/wave" => "wav",
        "audio/mpeg" | "audio/mp3" => "mp3",
        "audio/ogg" => "ogg",
        "audio/flac" => "flac",
        "video/mp4" => "mp4",
        "application/pdf" => "pdf",
        "application/zip" => "zip",
        "application/json" => "json",
        "text/plain" => "txt",
        "text/html" => "html",
        "text/csv" => "csv",
        _ => "bin",
    }
}

/// Base64 of either alphabet, with or without padding, broken into lines or not.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut held, mut bits) = (0_u32, 0);
    let mut letters = text.bytes().filter(|c| !c.is_ascii_whitespace());
    for c in letters.by_ref() {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            b'=' => break,
            _ => return None,
        };
        held = held << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits & 0xff).ok()?);
            held &= (1 << bits) - 1;
        }
    }
    // One letter alone is no byte; behind the padding there is only padding.
    (bits < 6 && letters.all(|c| c == b'=')).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read_or_refused() {
        check("", Some(""));
        check("aGVsbG8=", Some("hello"));
        check("aGVsbG8", Some("hello"));
        check("aGVs\nbG8h\n", Some("hello!"));
        check("_-8", None);
        check("a", None);
        check("aGV*", None);
        check("aG=V", None);

        #[track_caller]
        fn check(text: &str, expected: Option<&str>) {
            let bytes = decode(text).and_then(|bytes| String::from_utf8(bytes).ok());
            assert_eq!(bytes.as_deref(), expected, "{text}");
        }
        assert_eq!(decode("_-8"), Some(vec![0xff, 0xef]));
    }

    #[test]
    fn a_file_has_a_harmless_name_and_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let first = save(folder.path(), "../shot", "image/png", "aGVsbG8=").unwrap();
        let second = save(folder.path(), "../shot", "image/png; q=1", "aGVsbG8=").unwrap();
        assert_eq!(first, folder.path().join("___shot-1.png"));
        assert_eq!(second, folder.path().join("___shot-2.png"));
        assert_eq!(std::fs::read(first).unwrap(), b"hello");
        assert!(save(folder.path(), "x", "image/png", "not base64!").is_err());
        assert_eq!(save(folder.path(), "", "what/ever", "").unwrap(), folder.path().join("result-1.bin"));
    }
}
