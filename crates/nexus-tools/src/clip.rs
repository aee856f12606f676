//! Cuts long text in the middle: the start says what it was, the end how it went.

/// A text in three parts; the middle is what does not fit.
#[derive(Debug, PartialEq, Eq)]
pub struct Clip<'a> {
    pub head: &'a str,
    pub middle: &'a str,
    pub tail: &'a str,
}

/// Cuts so that head and tail together have `most` characters. None when the text fits whole.
pub fn middle(text: &str, most: usize) -> Option<Clip<'_>> {
    if text.len() <= most {
        return None;
    }
    let length = text.chars().count();
    if length <= most {
        return None;
    }
    let head_end = nth_char(text, most - most / 2);
    let tail_start = head_end + nth_char(&text[head_end..], length - most);
    Some(Clip { head: &text[..head_end], middle: &text[head_end..tail_start], tail: &text[tail_start..] })
}

/// The first `most` characters, and what follows them.
pub fn split(text: &str, most: usize) -> (&str, &str) {
    text.split_at(nth_char(text, most))
}

/// The text, if it fits; otherwise its two ends with a note between.
pub fn bounded(text: String, most: usize) -> String {
    match middle(&text, most) {
        None => text,
        Some(Clip { head, middle, tail }) => {
            format!("{head}\n… {} characters left out …\n{tail}", middle.chars().count())
        }
    }
}

fn nth_char(text: &str, n: usize) -> usize {
    text.char_indices().nth(n).map_or(text.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_fits_is_not_cut() {
        assert_eq!(middle("äöü", 3), None);
        assert_eq!(middle("", 0), None);
        assert_eq!(middle("abcdef", 3), Some(Clip { head: "ab", middle: "cde", tail: "f" }));
        assert_eq!(middle("äöüß", 2), Some(Clip { head: "ä", middle: "öü", tail: "ß" }));
        assert_eq!(bounded("abcdef".into(), 2), "a\n… 4 characters left out …\nf");
    }

    proptest! {
        #[test]
        fn the_parts_are_the_whole_and_the_ends_fit(text in "\\PC{0,80}", most in 0..90usize) {
            match middle(&text, most) {
                None => prop_assert!(text.chars().count() <= most),
                Some(Clip { head, middle, tail }) => {
                    prop_assert_eq!(head.chars().count() + tail.chars().count(), most);
                    prop_assert_eq!(format!("{head}{middle}{tail}"), text);
                }
            }
        }
    }
}
