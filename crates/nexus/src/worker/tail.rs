//! The last words of an output.

/// Bytes.
const LONGEST: usize = 4096;

#[derive(Debug, Default)]
pub struct Tail {
    /// At most twice as much as is shown, so that not every line moves all of it.
    text: String,
    /// Something before it is gone.
    cut: bool,
}

impl Tail {
    pub fn push(&mut self, piece: &str) {
        self.text.push_str(piece);
        if self.text.len() > 2 * LONGEST {
            self.text = last(&self.text, LONGEST).to_owned();
            self.cut = true;
        }
    }

    /// All of a short output; of a long one the last lines, behind an ellipsis.
    pub fn text(&self) -> String {
        let text = self.text.trim_end();
        let shown = last(text, LONGEST);
        if !self.cut && shown.len() == text.len() {
            return text.to_owned();
        }
        let whole_lines = shown.split_once('\n').map_or(shown, |(_, rest)| rest);
        format!("…\n{whole_lines}")
    }
}

/// At most so many bytes of the end.
fn last(text: &str, most: usize) -> &str {
    let mut at = text.len().saturating_sub(most);
    while !text.is_char_boundary(at) {
        at += 1;
    }
    &text[at..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_output_is_kept() {
        let said = |lines: &[&str]| {
            let mut tail = Tail::default();
            lines.iter().for_each(|line| tail.push(line));
            tail.text()
        };
        assert_eq!(said(&[]), "");
        assert_eq!(said(&["one\n", "two\n"]), "one\ntwo");
        let numbers: Vec<String> = (0..100_000).map(|number| format!("{number}\n")).collect();
        let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
        let end = said(&numbers);
        assert!(end.starts_with("…\n99") && end.ends_with("99998\n99999") && end.len() <= LONGEST + 4, "{end}");
        let letters = said(&["€".repeat(10_000).as_str()]);
        assert!(letters.len() > LONGEST - 4 && letters.len() <= LONGEST + 4);
    }
}
