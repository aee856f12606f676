//! Telegram takes 4096 UTF-16 units in a message; what is longer becomes several.

/// UTF-16 units in one message.
pub const LONGEST: usize = 4096;

/// How Telegram counts.
#[cfg(test)]
pub fn units(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// The text in pieces of at most `most` units: cut between paragraphs, else lines, else words, else anywhere between
/// two characters. None of them is blank, since Telegram refuses those.
pub fn parts(text: &str, most: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_end();
    while !rest.trim_start().is_empty() {
        let (part, left) = match end_of(rest, most) {
            None => (rest, ""),
            Some(end) => cut(rest, end),
        };
        if !part.trim().is_empty() {
            parts.push(part.trim_end());
        }
        rest = left;
    }
    parts
}

/// Cuts to that many units, and says how much is missing.
pub fn shortened(text: &str, most: usize) -> String {
    match end_of(text, most) {
        None => text.to_owned(),
        Some(end) => format!("{}\n… and {} characters more", text[..end].trim_end(), text[end..].chars().count()),
    }
}

/// Where the first `most` units end; None: all of it fits.
fn end_of(text: &str, most: usize) -> Option<usize> {
    let mut room = most;
    for (at, c) in text.char_indices() {
        match room.checked_sub(c.len_utf16()) {
            Some(left) => room = left,
            // A message takes at least one character, whatever was asked for.
            None => return Some(if at == 0 { c.len_utf8() } else { at }),
        }
    }
    None
}

/// The best place before `end`. A paragraph or line that would leave the message almost empty is not worth it.
fn cut(text: &str, end: usize) -> (&str, &str) {
    let (window, worth) = (&text[..end], end / 4);
    for gap in ["\n\n", "\n", " "] {
        // A gap that begins right behind the window is one, too.
        let at = match text[end..].starts_with(gap) {
            true => Some(end),
            false => window.rfind(gap),
        };
        if let Some(at) = at.filter(|at| *at > worth) {
            let left = &text[at..];
            return (&text[..at], left.strip_prefix(gap).unwrap_or(left));
        }
    }
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_is_cut_where_a_reader_would() {
        check("short", 10, &["short"]);
        check("one two three", 8, &["one two", "three"]);
        check("first line\nsecond line", 15, &["first line", "second line"]);
        check("a first paragraph\n\nanother one here", 25, &["a first paragraph", "another one here"]);
        check("    indented\n    again", 14, &["    indented", "    again"]);
        check("abcdefghij", 4, &["abcd", "efgh", "ij"]);
        check(" \n ", 4, &[]);
        check("", 4, &[]);

        #[track_caller]
        fn check(text: &str, most: usize, expected: &[&str]) {
            assert_eq!(parts(text, most), expected, "{text:?}");
        }
    }

    #[test]
    fn a_character_outside_the_first_plane_counts_twice_and_is_not_torn() {
        assert_eq!(units("a🦀"), 3);
        assert_eq!(parts("🦀🦀🦀", 5), ["🦀🦀", "🦀"]);
        assert_eq!(parts("🦀🦀", 1), ["🦀", "🦀"]);
        assert_eq!(parts(&"🦀".repeat(2049), LONGEST).len(), 2);
    }

    #[test]
    fn what_is_shortened_says_so() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("abcdef", 3), "abc\n… and 3 characters more");
    }

    proptest! {
        #[test]
        fn nothing_but_blanks_is_lost_and_no_part_is_too_long(
            text in "(?s)([a-z🦀é]{0,9}[ \n\t]{0,3}){0,60}|\\PC{0,200}", most in 2_usize..60
        ) {
            let parts = parts(&text, most);
            for part in &parts {
                prop_assert!(units(part) <= most, "{part:?}");
                prop_assert!(!part.trim().is_empty());
            }
            let solid = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            prop_assert_eq!(solid(&parts.concat()), solid(&text));
        }
    }
}
