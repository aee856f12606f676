//! Everything that is wrong with the configuration, collected first and then shown at once.

use std::error::Error;
use std::fmt::{self, Display};
use std::path::Path;

/// A file with thousands of faults is the wrong file; the first screenfuls are enough to see that.
const MOST_SHOWN: usize = 50;

/// Characters of a source line that are shown around a fault.
const WIDEST_LINE: usize = 120;

/// Characters of a refused value that are repeated in its message.
const LONGEST_VALUE: usize = 80;

/// Keys whose values never appear in a snippet: people paste secrets where they do not belong,
/// a key beside `sha256:` instead of its hash most of all.
const HIDDEN: [&str; 11] = [
    "token",
    "password",
    "passwd",
    "passphrase",
    "secret",
    "api_key",
    "apikey",
    "api-key",
    "sha256",
    "authorization",
    "cookie",
];

/// Why a value cannot be used: what it is, a word at the caret, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    what: String,
    note: Option<String>,
    hint: Option<String>,
}

impl Problem {
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), note: None, hint: None }
    }

    /// `value` is not what belongs there. The value is repeated, short and without credentials.
    pub fn not(value: &str, what: impl Display) -> Self {
        Self::new(format!("`{}` is not {what}", shown(value)))
    }

    pub fn what(&self) -> &str {
        &self.what
    }

    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn maybe_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint.or(self.hint);
        self
    }
}

/// A place in the file; both count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    pub line: usize,
    pub col: usize,
}

/// Collects faults. Shown as text it is what `nexus` prints before it gives up.
#[derive(Debug, Default)]
pub struct Faults {
    file: String,
    lines: Vec<String>,
    list: Vec<Fault>,
}

#[derive(Debug)]
struct Fault {
    place: Place,
    problem: Problem,
}

/// The order is the order of printing.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Start,
    File,
    Spot(Spot),
    Environment(String),
}

impl Faults {
    /// Names the file that faults with a spot are about.
    pub fn in_file(&mut self, file: &Path, text: &str) {
        self.file = file.display().to_string();
        self.lines = text.lines().map(str::to_owned).collect();
    }

    /// A fault at a place in the file.
    pub fn at(&mut self, spot: Spot, problem: Problem) {
        self.add(Place::Spot(spot), problem);
    }

    /// A fault of the file as a whole.
    pub fn file(&mut self, problem: Problem) {
        self.add(Place::File, problem);
    }

    /// A fault of an environment variable; the message goes on after its name.
    pub fn environment(&mut self, name: &str, problem: Problem) {
        self.add(Place::Environment(name.to_owned()), problem);
    }

    /// A fault of neither file nor environment.
    pub fn start(&mut self, problem: Problem) {
        self.add(Place::Start, problem);
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Each by itself, those before the one of that number left out.
    pub fn told(&self, from: usize) -> Vec<String> {
        let mut list: Vec<&Fault> = self.list.iter().skip(from).collect();
        list.sort_by(|a, b| a.place.cmp(&b.place));
        let one = |fault| Told { faults: self, fault }.to_string().trim_end().to_owned();
        list.into_iter().take(MOST_SHOWN).map(one).collect()
    }

    #[cfg(test)]
    pub fn rename_file(&mut self, file: &str) {
        self.file = file.to_owned();
    }

    fn add(&mut self, place: Place, problem: Problem) {
        self.list.push(Fault { place, problem });
    }

    fn print(&self, f: &mut fmt::Formatter<'_>, fault: &Fault) -> fmt::Result {
        let Problem { what, note, hint } = &fault.problem;
        match &fault.place {
            Place::Start => writeln!(f, "{what}")?,
            Place::File => writeln!(f, "{}: {what}", self.file)?,
            Place::Environment(name) => writeln!(f, "environment: {name} {what}")?,
            Place::Spot(spot) => {
                writeln!(f, "{}:{}:{}: {what}", self.file, spot.line, spot.col)?;
                self.print_snippet(f, *spot, note.as_deref())?;
            }
        }
        hint.as_ref().map_or(Ok(()), |hint| writeln!(f, "hint: {hint}"))
    }

    fn print_snippet(&self, f: &mut fmt::Formatter<'_>, spot: Spot, note: Option<&str>) -> fmt::Result {
        let Some(line) = self.lines.get(spot.line.saturating_sub(1)) else { return Ok(()) };
        let line: Vec<char> = hide_secrets(line).chars().map(printable).collect();
        let col = spot.col.saturating_sub(1).min(line.len());
        let from = if line.len() > WIDEST_LINE { col.saturating_sub(WIDEST_LINE / 2) } else { 0 };
        let window: String = line.iter().skip(from).take(WIDEST_LINE).collect();

        let number = spot.line.to_string();
        let gutter = " ".repeat(number.len());
        let caret = " ".repeat(col - from);
        let note = note.map(|note| format!(" {note}")).unwrap_or_default();
        writeln!(f, "{gutter} |")?;
        writeln!(f, "{number} | {}", window.trim_end())?;
        writeln!(f, "{gutter} | {caret}^{note}")
    }
}

impl Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list: Vec<&Fault> = self.list.iter().collect();
        list.sort_by(|a, b| a.place.cmp(&b.place));
        for (index, fault) in list.iter().take(MOST_SHOWN).enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            self.print(f, fault)?;
        }
        if list.len() > MOST_SHOWN {
            writeln!(f, "\n… and {} more", list.len() - MOST_SHOWN)?;
        }
        let s = if list.len() == 1 { "" } else { "s" };
        write!(f, "{} fault{s}; nothing was started", list.len())
    }
}

impl Error for Faults {}

/// One of many.
struct Told<'a> {
    faults: &'a Faults,
    fault: &'a Fault,
}

impl Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.faults.print(f, self.fault)
    }
}

/// A refused value as it may be repeated: one short line, without credentials.
pub fn shown(value: &str) -> String {
    let value: String = hide_credentials(value).chars().map(printable).collect();
    if value.chars().count() <= LONGEST_VALUE {
        return value;
    }
    value.chars().take(LONGEST_VALUE).chain(['…']).collect()
}

/// The declared word nearest to a misspelt one, where one is near enough to be meant.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let most = (word.chars().count() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min()
        .map(|(_, candidate)| format!("did you mean `{candidate}`?"))
}

/// Edits (insert, delete, change, swap of neighbours) that turn one word into the other.
fn distance(a: &str, b: &str) -> usize {
    let fold = |text: &str| -> Vec<char> { text.chars().take(64).flat_map(char::to_lowercase).collect() };
    let (a, b) = (fold(a), fold(b));
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for (i, left) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, right) in b.iter().enumerate() {
            let change = rows[i][j] + usize::from(left != right);
            let mut best = change.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *left == b[j - 1] && a[i - 1] == *right {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// Masks keep the length of what they hide, so that carets stay where they belong.
fn hide_secrets(line: &str) -> String {
    let mut line: Vec<char> = hide_credentials(line).chars().collect();
    // What stands in double quotes may hold commas and brackets.
    let (mut hide_from, mut quoted, mut escaped) = (None, false, false);
    for at in 0..line.len() {
        match (hide_from, line[at]) {
            (None, ':') if is_hidden(&line[..at]) => (hide_from, quoted, escaped) = (Some(at + 1), false, false),
            (Some(_), ',' | '}') if !quoted => hide_from = None,
            (Some(_), c) if !c.is_whitespace() => {
                quoted ^= c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                line[at] = '*';
            }
            _ => {}
        }
    }
    line.into_iter().collect()
}

fn is_hidden(before_colon: &[char]) -> bool {
    let word = |c: &&char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let key: String =
        before_colon.iter().rev().skip_while(|c| matches!(c, ' ' | '"' | '\'')).take_while(word).collect();
    let key: String = key.chars().rev().flat_map(char::to_lowercase).collect();
    key != "secret_paths" && HIDDEN.iter().any(|hidden| key.contains(hidden))
}

/// Hides the password in `scheme://user:password@host`, and a user of `http` that stands alone: it
/// is a token then. Rather hides too much: a password may hold `/`, `?` or `@` where it should not.
fn hide_credentials(text: &str) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    let mut at = 0;
    while let Some(start) = chars[at..].windows(3).position(|w| w == [':', '/', '/']).map(|found| at + found + 3) {
        let ends = |c: &char| c.is_whitespace() || matches!(c, '"' | '\'' | '`');
        let end = chars[start..].iter().position(ends).map_or(chars.len(), |length| start + length);
        if let Some(host) = chars[start..end].iter().rposition(|c| *c == '@').map(|found| start + found) {
            let colon = chars[start..host].iter().position(|c| *c == ':').map(|found| start + found + 1);
            let scheme: String = chars[..start - 3].iter().collect();
            let token = scheme.to_ascii_lowercase().ends_with("http") || scheme.to_ascii_lowercase().ends_with("https");
            if let Some(from) = colon.or(token.then_some(start)) {
                chars[from..host].fill('*');
            }
        }
        at = end;
    }
    chars.into_iter().collect()
}

/// Terminals obey control characters and reorder text on bidi marks; a fault must only be read.
fn printable(c: char) -> char {
    match c {
        '\t' => ' ',
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '�',
        c if c.is_control() => '�',
        c => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_where_they_stand() {
        check("  password: x y", "  password: * *");
        check("{ name: a, sha256: abc, level: b }", "{ name: a, sha256: ***, level: b }");
        check("'API_KEY' : abc", "'API_KEY' : ***");
        check(r#"{"token": "a,b}\"c", "x": 1}"#, r#"{"token": *********, "x": 1}"#);
        check("secret_paths: [/a]", "secret_paths: [/a]");
        check("url: https://u:p/@x@host/path", "url: https://u:****@host/path");
        check("url: https://token@host/path", "url: https://*****@host/path");
        check("ssh://git@host/path", "ssh://git@host/path");
        check("http://a:80/x http://b:c@d", "http://a:80/x http://b:*@d");

        #[track_caller]
        fn check(line: &str, expected: &str) {
            assert_eq!(hide_secrets(line), expected);
        }
    }

    #[test]
    fn a_near_word_is_offered_and_a_far_one_is_not() {
        check("log_levle", Some("log_level"));
        check("loglevel", Some("log_level"));
        check("PORT", Some("port"));
        check("prot", Some("port"));
        check("x", None);
        check("completely", None);

        #[track_caller]
        fn check(word: &str, expected: Option<&str>) {
            let expected = expected.map(|word| format!("did you mean `{word}`?"));
            assert_eq!(did_you_mean(word, ["log_level", "port", "host"]), expected);
        }
    }
}
