//! A piece of a file as text, without the halves of secrets that its ends may have cut in two.

use std::borrow::Cow;
use std::iter::repeat_n;

use nexus_core::redact::{self, HIDDEN};
use nexus_core::text;

/// A piece of a file, with a few bytes before it.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    pub bytes: &'a [u8],
    /// How many of the bytes stand before it.
    pub before: usize,
    /// The file goes on after it.
    pub more: bool,
}

impl Window<'_> {
    /// The text, from letter to letter, and where among the bytes it ends. None: it is none, or it holds characters
    /// that a reply must not have and that would get lost.
    pub fn text(&self) -> Option<(String, usize)> {
        let start = self.before + self.rest_of_a_letter();
        let bytes = &self.bytes[start..];
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) if self.more && error.error_len().is_none() && error.valid_up_to() > 0 => {
                std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()?
            }
            Err(_) => return None,
        };
        if matches!(text::clean(text), Cow::Owned(_)) {
            return None;
        }
        let before = String::from_utf8_lossy(&self.bytes[..start]);
        Some((self.without_halves(&before, text), start + text.len()))
    }

    /// Where among the bytes a secret begins that a part of the piece is of, taken for letters as far as it can be.
    pub fn secret(&self) -> Option<usize> {
        let letters = letters(self.bytes);
        let shown = self.redacted(&letters);
        // What ends as it would be shown anyway may be shown. Secrets that stand before it have no part in it.
        if shown.as_bytes().ends_with(&letters.as_bytes()[self.before..]) {
            return None;
        }
        Some(letters.bytes().zip(shown.bytes()).take_while(|(a, b)| a == b).count())
    }

    fn redacted<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.more { redact::beginning(text) } else { redact::text(text) }
    }

    /// The text without secrets, also without what is left of one that began before it.
    fn without_halves(&self, before: &str, text: &str) -> String {
        let joined = format!("{before}{text}");
        let (alone, together) = (self.redacted(text), self.redacted(&joined));
        if together.ends_with(&*alone) {
            return alone.into_owned();
        }
        // Up to where both agree, it means something else than it seems to.
        let same = alone.chars().rev().zip(together.chars().rev()).take_while(|(a, b)| a == b);
        let same: usize = same.map(|(letter, _)| letter.len_utf8()).sum();
        format!("{HIDDEN}{}", &alone[alone.len() - same..])
    }

    /// Bytes at its start that belong to a letter which began before it.
    fn rest_of_a_letter(&self) -> usize {
        let rest = self.bytes[self.before..].iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
        let is_letter = |begun: usize| {
            let letter = &self.bytes[self.before - begun..self.before + rest];
            std::str::from_utf8(letter).is_ok_and(|letter| letter.chars().nth(1).is_none())
        };
        if rest > 0 && (1..=self.before.min(3)).any(is_letter) { rest } else { 0 }
    }
}

/// As many bytes, and all of them text: something that ends no word stands for each that is none.
fn letters(bytes: &[u8]) -> String {
    let mut letters = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        letters.push_str(chunk.valid());
        letters.extend(repeat_n('\u{1a}', chunk.invalid().len()));
    }
    letters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_hidden_wherever_the_piece_begins_or_ends() {
        redact::learn(["0-learnt-by-this-test"]);
        check("token = ", "hunter2hunter2hunter2");
        check("[ \"nexus.token\" ] = ", "0-learnt-by-this-test"); // as a computer keeps its settings

        #[track_caller]
        fn check(name: &str, secret: &str) {
            let file = format!("{{\n  motd = true,\n  {name}\"{secret}\",\n  x = 1,\n}}");
            let (from, to) = (file.find(secret).unwrap(), file.find("\",\n  x").unwrap());
            for at in 0..file.len() {
                let rest = Window { bytes: file.as_bytes(), before: at, more: false }.text().unwrap().0;
                let rest = redact::text(&rest).into_owned();
                assert!(at <= from || at >= to || rest.starts_with(HIDDEN), "{at}: {rest}");
                assert!(!rest.contains(&secret[..4]), "{at}: {rest}");
                assert!(at > to || rest.ends_with("\",\n  x = 1,\n}"), "{at}: {rest}");
                let start = Window { bytes: &file.as_bytes()[..at], before: 0, more: true }.text();
                assert!(!start.is_some_and(|(start, _)| start.contains(&secret[..4])), "{at}");
            }
            // Fewer than four letters are not known for the beginning of anything.
            for at in from + 4..to {
                let letter = Window { bytes: &file.as_bytes()[..=at], before: at, more: true }.text().unwrap().0;
                assert_eq!(letter, HIDDEN, "nor letter by letter: {at}");
            }
        }
    }

    #[test]
    fn another_secret_far_behind_the_first_is_hidden_too() {
        let secret = "1-learnt-by-this-test";
        redact::learn([secret]);
        for filler in 8_100..8_220 {
            let file = format!("{secret}{}{secret} end", " ".repeat(filler));
            let text = Window { bytes: file.as_bytes(), before: 10, more: false }.text().unwrap().0;
            assert!(text.starts_with(HIDDEN) && text.ends_with(&format!(" {HIDDEN} end")), "{filler}: {text}");
        }
    }

    #[test]
    fn what_is_no_secret_stays_wherever_the_piece_begins() {
        let file = "print(1)\nlocal x = \"grün\"\nreturn x -- ✅\n";
        for at in 0..=file.len() {
            let (text, end) = Window { bytes: file.as_bytes(), before: at, more: false }.text().unwrap();
            assert_eq!((text.as_str(), end), (&file[file.ceil_char_boundary(at)..], file.len()));
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_not_taken_for_the_end_of_a_letter() {
        let latin = b"a\xe4\xa4plain";
        assert!(Window { bytes: latin, before: 2, more: false }.text().is_none());
        assert_eq!(Window { bytes: latin, before: 3, more: false }.text(), Some(("plain".to_owned(), 8)));
    }
}
