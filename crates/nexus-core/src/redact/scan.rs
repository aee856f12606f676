//! The one pass over a text: what stands before a byte is remembered, what may follow is asked of the finders.
//!
//! Linear, because a finder either looks a bounded way ahead, or hides what it looked at, or asks [`Ahead`].
//! Every place where something is cut is beside an ASCII byte, so it is a character boundary.

use std::borrow::Cow;
use std::ops::Range;

use super::ahead::Ahead;
use super::value::is_mark;
use super::{HIDDEN, Reach, secret_word};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Whole,
    /// What runs into the end may have gone on, and is hidden if its beginning looks like a secret's.
    Cut,
}

#[derive(Debug)]
pub(super) struct Scan<'a> {
    pub(super) text: &'a str,
    pub(super) bytes: &'a [u8],
    pub(super) end: End,
    pub(super) at: usize,
    /// The end of the last secret: nothing looks back beyond it.
    pub(super) floor: usize,
    pub(super) ahead: Ahead,
    pub(super) name: Option<Name>,
    pub(super) command: Option<Command>,
    /// A quote since the command: a `;` may be part of an argument.
    quoted: bool,
    word: Word,
    starts_line: bool,
    out: String,
    copied: usize,
}

/// A run of letters, digits, `_` and `-`: of a field, a variable, an option, a command, or a token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) secret: Option<Reach>,
    pub(super) starts_line: bool,
    /// One look is enough: where the first `eyJ` of a run is no token, no later one is.
    pub(super) jwt_looked_for: bool,
}

/// Commands whose short options hold secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Curl,
    MySql,
    SshPass,
}

/// What is known of the word so far, to tell `/etc/passwd: denied` from `passwd: hunter2`.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    first: Option<u8>,
    path: bool,
}

impl<'a> Scan<'a> {
    pub(super) fn new(text: &'a str, end: End) -> Self {
        Self {
            text,
            bytes: text.as_bytes(),
            end,
            at: 0,
            floor: 0,
            ahead: Ahead::default(),
            name: None,
            command: None,
            quoted: false,
            word: Word::default(),
            starts_line: true,
            out: String::new(),
            copied: 0,
        }
    }

    pub(super) fn run(mut self) -> Cow<'a, str> {
        // One step beyond the last byte: that is where the last name ends.
        while self.at <= self.bytes.len() {
            match self.look() {
                Some(secret) => self.hide(secret),
                None => self.at += 1,
            }
        }
        if self.copied == 0 {
            return Cow::Borrowed(self.text);
        }
        self.out.push_str(&self.text[self.copied..]);
        Cow::Owned(self.out)
    }

    /// The word before the name begins like a path and has a slash in it.
    pub(super) fn in_path(&self) -> bool {
        self.word.path
    }

    /// Whether the byte after a run is the end of a text that was cut.
    pub(super) fn is_cut_at(&self, at: usize) -> bool {
        self.end == End::Cut && at == self.bytes.len()
    }

    fn hide(&mut self, mut secret: Range<usize>) {
        // A run of letters and dashes may have taken the beginning of a key block along.
        if self.bytes[secret.clone()].ends_with(b"-----BEGIN") {
            secret.end = self.key_block(secret.end - 10).map_or(secret.end, |block| block.end);
        }
        if self.text[secret.clone()] != *HIDDEN {
            self.out.push_str(&self.text[self.copied..secret.start]);
            self.out.push_str(HIDDEN);
            self.copied = secret.end;
        }
        self.at = secret.end;
        self.floor = secret.end;
        self.name = None;
        self.starts_line = false;
        self.word = Word { first: Some(b'['), path: false };
    }

    fn look(&mut self) -> Option<Range<usize>> {
        let byte = self.bytes.get(self.at).copied();
        if let Some(byte) = byte.filter(|byte| is_name(*byte)) {
            return self.in_name(byte);
        }
        let announced = self.name.take().and_then(|name| self.after(name));
        announced.or_else(|| byte.and_then(|byte| self.between(byte)))
    }

    fn in_name(&mut self, byte: u8) -> Option<Range<usize>> {
        let (mut name, is_new) = match self.name {
            Some(name) => (name, false),
            None => (self.begin_name(byte), true),
        };
        if let Some(reach) = secret_word(&self.bytes[self.at..]) {
            name.secret = Some(if name.secret == Some(Reach::Line) { Reach::Line } else { reach });
        }
        let attached = if is_new { self.attached() } else { None };
        let found = attached.or_else(|| self.shaped(byte, &mut name));
        self.name = Some(name);
        found
    }

    fn begin_name(&mut self, byte: u8) -> Name {
        self.word.first.get_or_insert(byte);
        let starts_line = std::mem::take(&mut self.starts_line);
        Name { start: self.at, end: self.run_end(self.at), secret: None, starts_line, jwt_looked_for: false }
    }

    /// The name has ended, here; what does it announce?
    fn after(&mut self, name: Name) -> Option<Range<usize>> {
        match &self.text[name.start..name.end] {
            "-" => self.starts_line = name.starts_line,
            "-u" | "-U" | "--user" | "--proxy-user" => return self.gap(name.end).and_then(|at| self.login(at)),
            "-p" if self.command == Some(Command::SshPass) => {
                let secret = self.gap(name.end).and_then(|at| self.some_value(at));
                // A second `-p` is the port of the ssh it starts.
                self.command = None;
                return secret;
            }
            "curl" => self.begin_command(Command::Curl),
            "mysql" | "mysqldump" | "mysqladmin" | "mysqlimport" | "mariadb" | "mariadb-dump" => {
                self.begin_command(Command::MySql);
            }
            "sshpass" => self.begin_command(Command::SshPass),
            _ => {}
        }
        name.secret.and_then(|reach| self.assigned(name, reach))
    }

    fn begin_command(&mut self, command: Command) {
        self.command = Some(command);
        self.quoted = false;
    }

    /// A byte that is not part of a name.
    fn between(&mut self, byte: u8) -> Option<Range<usize>> {
        self.starts_line = byte == b'\n' || (self.starts_line && byte.is_ascii_whitespace());
        match byte {
            b'\n' if self.at > self.floor && self.bytes[self.at - 1] == b'\\' => {}
            b'\n' => self.command = None,
            b';' | b'|' | b'&' if !self.quoted => self.command = None,
            mark if is_mark(mark) => self.quoted = true,
            _ => {}
        }
        match byte {
            b':' if self.bytes[self.at..].starts_with(b"://") => {
                self.word.path = true;
                return self.url_password(self.at + 3);
            }
            b'?' | b'&' | b';' | b',' | b'(' | b'{' | b'[' | b'=' | b'<' | b'>' | b'|' => self.word = Word::default(),
            _ if byte.is_ascii_whitespace() || is_mark(byte) => self.word = Word::default(),
            _ => {
                let first = *self.word.first.get_or_insert(byte);
                self.word.path |= byte == b'/' && matches!(first, b'/' | b'.' | b'~' | b'$');
            }
        }
        None
    }

    /// Where the run of name bytes ends that begins at `from`.
    pub(super) fn run_end(&self, from: usize) -> usize {
        self.bytes[from..].iter().position(|b| !is_name(*b)).map_or(self.bytes.len(), |length| from + length)
    }
}

pub(super) fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}
