//! JSON as a tree in which every key and value knows its place. Comments and commas too many are read over: files of
//! other programs have them.

use std::ops::Range;

use serde_json::Value;

use crate::config::faults::{Problem, Spot, shown};

/// Far above what any such file needs, far below what a stack minds.
const DEEPEST: usize = 64;

/// After a syntax error, what stands before it in maps up to here is kept: the list of servers, and no half server.
const KEPT: usize = 2;

#[derive(Clone, Debug)]
pub struct Node {
    pub spot: Spot,
    /// Bytes of the text.
    pub span: Range<usize>,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub enum Kind {
    Null,
    Bool(bool),
    /// As written.
    Number(String),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub key: String,
    pub spot: Spot,
    /// Where the key begins, in bytes of the text.
    pub start: usize,
    pub value: Node,
}

/// What was read, as far as it could be.
#[derive(Debug)]
pub struct Parsed {
    pub root: Node,
    /// What is wrong and keeps the rest from being read.
    pub broken: Option<(Spot, Problem)>,
    pub doubled: Vec<Doubled>,
}

/// A key that is given twice; the first one counts.
#[derive(Debug)]
pub struct Doubled {
    pub key: String,
    pub spot: Spot,
    pub problem: Problem,
    /// Where the second one begins, in bytes of the text.
    start: usize,
    /// Of the map it stands in.
    depth: usize,
}

impl Doubled {
    /// Whether this is a fault of the entry: of its name in the map of servers, or of something within it.
    pub fn is_of(&self, entry: &Entry) -> bool {
        (self.depth == 1 && self.key == entry.key) || entry.value.span.contains(&self.start)
    }
}

pub fn parse(text: &str) -> Parsed {
    let mut reader =
        Reader { text, at: 0, place: Place { byte: 0, line: 1, col: 1 }, broken: None, doubled: Vec::new() };
    let mut root = reader.value(0);
    if root.is_some() && reader.broken.is_none() {
        reader.skip();
        if reader.at < text.len() {
            // Two values in a row: neither can be meant alone.
            root = reader.fail("the file should end here");
        }
    }
    let nothing = Node { spot: Spot { line: 1, col: 1 }, span: 0..0, kind: Kind::Null };
    Parsed { root: root.unwrap_or(nothing), broken: reader.broken, doubled: reader.doubled }
}

impl Node {
    /// The value of a key, where this is a map that has it and it is not null.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.value).filter(|value| !matches!(value.kind, Kind::Null))
    }

    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    pub fn entries(&self) -> &[Entry] {
        match &self.kind {
            Kind::Map(entries) => entries,
            _ => &[],
        }
    }

    pub fn items(&self) -> &[Node] {
        match &self.kind {
            Kind::List(items) => items,
            _ => &[],
        }
    }

    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Text, or what others write without quotes where text belongs.
    pub fn scalar(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) | Kind::Number(text) => Some(text),
            Kind::Bool(true) => Some("true"),
            Kind::Bool(false) => Some("false"),
            Kind::Null | Kind::List(_) | Kind::Map(_) => None,
        }
    }

    pub fn bool(&self) -> Option<bool> {
        match self.kind {
            Kind::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// Without places and comments.
    pub fn value(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(value) => Value::Bool(*value),
            Kind::Number(number) => serde_json::from_str(number).unwrap_or_default(),
            Kind::Text(text) => Value::String(text.clone()),
            Kind::List(items) => items.iter().map(Node::value).collect(),
            Kind::Map(entries) => {
                Value::Object(entries.iter().map(|entry| (entry.key.clone(), entry.value.value())).collect())
            }
        }
    }

    pub fn is_map(&self) -> bool {
        matches!(self.kind, Kind::Map(_))
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// The last place that was asked for: the next is counted from there.
    place: Place,
    broken: Option<(Spot, Problem)>,
    doubled: Vec<Doubled>,
}

#[derive(Clone, Copy)]
struct Place {
    byte: usize,
    line: usize,
    col: usize,
}

impl Reader<'_> {
    /// None: it cannot be read, and `broken` says why.
    fn value(&mut self, depth: usize) -> Option<Node> {
        self.skip();
        if depth > DEEPEST {
            return self.fail("nested too deeply");
        }
        let (spot, start) = (self.spot(), self.at);
        let kind = match self.peek() {
            Some(b'{') => Kind::Map(self.map(depth)?),
            Some(b'[') => Kind::List(self.list(depth)?),
            Some(b'"') => Kind::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => Kind::Number(self.number()?),
            Some(b't' | b'f' | b'n') => self.word()?,
            Some(b'\'') => return self.fail_with(Problem::new("not JSON").hint("text stands in double quotes")),
            Some(_) => return self.fail("a value belongs here"),
            None => return self.fail("the file breaks off here"),
        };
        Some(Node { spot, span: start..self.at, kind })
    }

    fn map(&mut self, depth: usize) -> Option<Vec<Entry>> {
        self.at += 1;
        let mut entries: Vec<Entry> = Vec::new();
        let mut seen = std::collections::HashMap::new();
        loop {
            let more = self.next_in(b'}', entries.is_empty());
            let entry = match more {
                Some(false) => return Some(entries),
                Some(true) => self.entry(depth),
                None => None,
            };
            match entry {
                Some(entry) => match seen.get(&entry.key) {
                    Some(line) => {
                        let problem = Problem::new(format!("`{}` is given twice", shown(&entry.key)));
                        let problem = problem.note(format!("first on line {line}"));
                        let Entry { key, spot, start, .. } = entry;
                        self.doubled.push(Doubled { key, spot, problem, start, depth });
                    }
                    None => {
                        seen.insert(entry.key.clone(), entry.spot.line);
                        entries.push(entry);
                    }
                },
                None if depth < KEPT => return Some(entries),
                None => return None,
            }
            if self.broken.is_some() {
                return Some(entries);
            }
        }
    }

    fn entry(&mut self, depth: usize) -> Option<Entry> {
        let (spot, start) = (self.spot(), self.at);
        if self.peek() != Some(b'"') {
            return self.fail_with(Problem::new("a key in double quotes belongs here"));
        }
        let key = self.string()?;
        self.skip();
        if self.peek() != Some(b':') {
            return self.fail("a `:` belongs between key and value");
        }
        self.at += 1;
        Some(Entry { key, spot, start, value: self.value(depth + 1)? })
    }

    fn list(&mut self, depth: usize) -> Option<Vec<Node>> {
        self.at += 1;
        let mut items = Vec::new();
        while self.next_in(b']', items.is_empty())? {
            items.push(self.value(depth + 1)?);
        }
        Some(items)
    }

    /// Whether another item stands before the closing bracket.
    fn next_in(&mut self, close: u8, first: bool) -> Option<bool> {
        self.skip();
        if !first && self.peek() == Some(b',') {
            self.at += 1;
            self.skip();
        } else if !first && self.peek() != Some(close) && self.at < self.text.len() {
            return self.fail("a comma is missing before this");
        }
        match self.peek() {
            Some(next) if next == close => {
                self.at += 1;
                Some(false)
            }
            Some(_) => Some(true),
            None => self.fail("the file breaks off here"),
        }
    }

    fn string(&mut self) -> Option<String> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.find(|c: char| c == '"' || c == '\\' || c < ' ').unwrap_or(rest.len());
            text.push_str(&rest[..plain]);
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Some(text);
                }
                Some(b'\\') => text.push(self.escape()?),
                Some(_) => return self.fail("this text has no end on its line"),
                None => return self.fail("the file breaks off here"),
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        let escaped = match self.text.as_bytes().get(self.at + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => return self.fail_with(Problem::new("this is no escape").hint(r"a backslash itself is written `\\`")),
        };
        self.at += 2;
        Some(escaped)
    }

    fn unicode(&mut self) -> Option<char> {
        let unit = |at: usize| {
            let digits = self.text.get(at..at + 6)?.strip_prefix("\\u")?;
            u16::from_str_radix(digits, 16).ok().filter(|_| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
        };
        let pair = [unit(self.at), unit(self.at + 6)];
        let units = pair.iter().map_while(|unit| *unit);
        match char::decode_utf16(units).next() {
            Some(Ok(c)) => {
                self.at += 6 * c.len_utf16();
                Some(c)
            }
            _ => self.fail("this is no character"),
        }
    }

    fn number(&mut self) -> Option<String> {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E')).unwrap_or(rest.len());
        let number = &rest[..end];
        if serde_json::from_str::<serde_json::Number>(number).is_err() {
            return self.fail("this is no number");
        }
        self.at += end;
        Some(number.to_owned())
    }

    fn word(&mut self) -> Option<Kind> {
        for (word, kind) in [("true", Kind::Bool(true)), ("false", Kind::Bool(false)), ("null", Kind::Null)] {
            let after = self.text[self.at..].strip_prefix(word);
            if after.is_some_and(|after| !after.starts_with(|c: char| c.is_alphanumeric() || c == '_')) {
                self.at += word.len();
                return Some(kind);
            }
        }
        self.fail("a value belongs here")
    }

    /// Over blanks and comments.
    fn skip(&mut self) {
        loop {
            let rest = &self.text[self.at..];
            let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
            let comment = match &rest[blank..] {
                rest if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
                rest if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
                _ => 0,
            };
            self.at += blank + comment;
            if comment == 0 {
                return;
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Where the reader is. Counted from the last place, so that one long line costs no more than many short ones.
    fn spot(&mut self) -> Spot {
        for c in self.text[self.place.byte..self.at].chars() {
            match c {
                '\n' => {
                    self.place.line += 1;
                    self.place.col = 1;
                }
                _ => self.place.col += 1,
            }
        }
        self.place.byte = self.at;
        Spot { line: self.place.line, col: self.place.col }
    }

    fn fail<T>(&mut self, what: &str) -> Option<T> {
        self.fail_with(Problem::new(format!("not JSON: {what}")))
    }

    fn fail_with<T>(&mut self, problem: Problem) -> Option<T> {
        let spot = self.spot();
        self.broken.get_or_insert((spot, problem));
        None
    }
}

#[cfg(test)]
mod tests;
