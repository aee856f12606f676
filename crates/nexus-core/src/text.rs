//! Takes out of text what would deceive the one who reads it: terminal escapes, bidi controls, invisible tags.

use std::borrow::Cow;

/// The text without terminal escape sequences, control characters (tab and line ends stay),
/// bidirectional controls and the invisible tag characters used to hide instructions.
pub fn clean(text: &str) -> Cow<'_, str> {
    if !needs_cleaning(text.as_bytes()) || !text.chars().any(deceives) {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => skip_escape(&mut rest),
            '\u{9b}' => skip_control_sequence(&mut rest),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => skip_string(&mut rest),
            c if deceives(c) => {}
            c => kept.push(c),
        }
    }
    Cow::Owned(kept)
}

/// Cuts to at most `most` characters, with an ellipsis where something is missing.
pub fn cut(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        None => Cow::Borrowed(text),
        Some((at, _)) => Cow::Owned(format!("{}…", &text[..at])),
    }
}

/// On one line and without deceit: line ends as `⏎`, whatever a terminal would act on as an escape.
pub fn one_line(words: &str) -> String {
    let mut line = String::with_capacity(words.len());
    for c in words.chars() {
        match c {
            '\n' => line.push('⏎'),
            '\t' => line.push(c),
            c if c.is_control() || deceives(c) => line.extend(c.escape_default()),
            c => line.push(c),
        }
    }
    line
}

/// A quick look at the bytes: C0 and DEL, or the lead bytes under which C1, bidi controls and tags are.
fn needs_cleaning(bytes: &[u8]) -> bool {
    bytes.iter().any(|b| matches!(b, 0..=8 | 0x0b | 0x0c | 0x0e..=0x1f | 0x7f | 0xc2 | 0xd8 | 0xe2 | 0xf3))
}

fn deceives(c: char) -> bool {
    matches!(c,
        '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        | '\u{e0000}'..='\u{e007f}')
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// After ESC: a control sequence, a string (OSC, DCS, APC, PM, SOS), or intermediates and one final character.
fn skip_escape(rest: &mut Chars<'_>) {
    match rest.peek() {
        Some('[') => {
            rest.next();
            skip_control_sequence(rest);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            rest.next();
            skip_string(rest);
        }
        _ => {
            while rest.next_if(|c| matches!(c, ' '..='/')).is_some() {}
            rest.next_if(|c| matches!(c, '0'..='~'));
        }
    }
}

/// Parameters and intermediates, then one final character; anything else ends it unread.
fn skip_control_sequence(rest: &mut Chars<'_>) {
    while rest.next_if(|c| matches!(c, ' '..='?')).is_some() {}
    rest.next_if(|c| matches!(c, '@'..='~'));
}

/// Up to BEL or the string terminator. An unterminated one ends with its line, so that a
/// stray escape cannot swallow a whole log.
fn skip_string(rest: &mut Chars<'_>) {
    while let Some(c) = rest.next_if(|c| *c != '\n') {
        match c {
            '\u{7}' | '\u{9c}' => return,
            '\u{1b}' => {
                rest.next_if(|c| *c == '\\');
                return;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes_go_and_text_stays() {
        check("plain\ttext\r\n", "plain\ttext\r\n");
        check("\u{1b}[31mred\u{1b}[0m", "red");
        check("\u{1b}]0;title\u{7}after", "after");
        check("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link");
        check("\u{1b}(Bascii", "ascii");
        check("\u{9b}2Jc1", "c1");
        check("user\u{202e}txt.exe", "usertxt.exe");
        check("tag\u{e0041}ged", "tagged");
        check("unterminated \u{1b}]0;x\nnext line", "unterminated \nnext line");
        check("ümläut → 日本 🎉", "ümläut → 日本 🎉");

        #[track_caller]
        fn check(dirty: &str, expected: &str) {
            assert_eq!(clean(dirty), expected);
        }
    }

    proptest! {
        #[test]
        fn one_line_is_one_clean_line(words in ".*") {
            let line = one_line(&words);
            prop_assert!(!line.contains('\n'));
            prop_assert_eq!(clean(&line), line.as_str());
        }

        #[test]
        fn nothing_that_deceives_is_left_and_cleaning_twice_changes_nothing(text in ".*") {
            let once = clean(&text).into_owned();
            prop_assert!(!once.chars().any(deceives));
            prop_assert_eq!(clean(&once), once.as_str());
        }
    }
}
