//! The one pass over a text: what stands before a byte is remembered, what may follow is asked of the finders.
//!
//! Words without a clue are not looked at (`skip`). Linear, because a finder either looks a bounded way ahead, or hides
//! what it looked at, or asks [`Ahead`].
//! Every place where something is cut is beside an ASCII byte, so it is a character boundary.

use std::borrow::Cow;
use std::ops::Range;

use super::ahead::Ahead;
use super::names::{Reach, is_about, last_word, secret_word};
use super::own::Own;
use super::value::is_mark;
use super::{HIDDEN, clue};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Whole,
    /// What runs into the end may have gone on, and is hidden if its beginning looks like a secret's.
    Cut,
}

#[derive(Debug)]
pub(super) struct Scan<'a, 'o> {
    pub(super) text: &'a str,
    pub(super) bytes: &'a [u8],
    pub(super) end: End,
    pub(super) at: usize,
    /// The end of the last secret: nothing looks back beyond it.
    pub(super) floor: usize,
    /// Until here nothing is announced: see `literal`.
    pub(super) spared: usize,
    pub(super) looked_twice: usize,
    pub(super) ahead: Ahead,
    pub(super) name: Option<Name>,
    pub(super) command: Option<Command>,
    /// A quote since the command: a `;` may be part of an argument.
    quoted: bool,
    word: Word,
    starts_line: bool,
    own: Option<&'o Own>,
    /// The next of the hub's own secrets; beyond everything if there is none.
    own_next: Range<usize>,
    /// The next clue at or after `at`, once it was looked for, and where the next skip may start.
    clue: usize,
    pub(super) awake: usize,
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
    Redis,
    /// `docker login`.
    Login,
}

/// What is known of the word so far, to tell `/etc/passwd: denied` from `passwd: hunter2`.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    first: Option<u8>,
    path: bool,
}

impl<'a, 'o> Scan<'a, 'o> {
    pub(super) fn new(text: &'a str, end: End, own: Option<&'o Own>) -> Self {
        Self {
            text,
            bytes: text.as_bytes(),
            end,
            at: 0,
            floor: 0,
            spared: 0,
            looked_twice: 0,
            ahead: Ahead::default(),
            name: None,
            command: None,
            quoted: false,
            word: Word::default(),
            starts_line: true,
            own,
            own_next: 0..0,
            clue: 0,
            awake: 0,
            out: String::new(),
            copied: 0,
        }
    }

    pub(super) fn run(mut self) -> Cow<'a, str> {
        self.find_own(0);
        self.clue = clue::next(self.bytes, 0);
        // One step beyond the last byte: that is where the last name ends.
        while self.at <= self.bytes.len() {
            if self.at >= self.awake && self.is_idle() {
                self.skip();
            }
            let found = if self.at == self.own_next.start { Some(self.own_next.clone()) } else { self.look() };
            match found {
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

    /// Nothing that was seen so far has a bearing on what comes, but for the beginning of the line.
    fn is_idle(&self) -> bool {
        self.name.is_none() && self.command.is_none() && self.word.first.is_none()
    }

    /// Goes on to the word that the next clue is in, or to the hub's next own secret.
    fn skip(&mut self) {
        if self.clue < self.at {
            self.clue = clue::next(self.bytes, self.at).max(self.at);
        }
        self.awake = self.clue + 1;
        if self.own_next.start <= self.clue {
            // With nothing left, this is beyond the end.
            self.at = self.own_next.start.min(self.bytes.len() + 1);
            return;
        }
        if self.clue >= self.bytes.len() {
            self.at = self.bytes.len() + 1;
            return;
        }
        let skipped = &self.bytes[self.at..self.clue];
        let Some(last) = skipped.iter().rposition(|b| ends_word(*b)) else { return };
        let indent = |b: u8| b == b'-' || (b.is_ascii_whitespace() && b != b'\n');
        match skipped[..=last].iter().rposition(|b| !indent(*b)) {
            Some(before) if skipped[before] == b'\n' => {
                self.at += before + 1;
                self.starts_line = true;
            }
            Some(_) => {
                self.at += last + 1;
                self.starts_line = false;
            }
            None => {}
        }
    }

    fn find_own(&mut self, from: usize) {
        let found = self.own.and_then(|own| {
            let whole = own.find(self.bytes, from);
            if whole.is_some() || self.end == End::Whole {
                return whole;
            }
            own.cut_off(self.bytes).filter(|at| *at >= from).map(|at| at..self.bytes.len())
        });
        self.own_next = found.unwrap_or(usize::MAX..usize::MAX);
    }

    fn hide(&mut self, mut secret: Range<usize>) {
        // A run of letters and dashes may have taken the beginning of a key block along.
        if self.bytes[secret.clone()].ends_with(b"-----BEGIN") {
            secret.end = self.key_block(secret.end - 10).map_or(secret.end, |block| block.end);
        }
        while self.own_next.start < secret.end {
            secret.end = secret.end.max(self.own_next.end);
            self.find_own(self.own_next.end);
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
        let announced = self.name.take().and_then(|name| self.after(name)).and_then(|value| self.literal(value));
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
        let attached = if is_new { self.attached().and_then(|value| self.literal(value)) } else { None };
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
        let told = &self.text[name.start..name.end];
        match told {
            "-" => self.starts_line = name.starts_line,
            "-u" | "-U" | "--user" | "--proxy-user" if !self.is_spared(name.start) => {
                return self.gap(name.end).and_then(|at| self.login(at));
            }
            "-p" if self.command == Some(Command::Login) => return self.short_option(name),
            "-a" if self.command == Some(Command::Redis) => return self.short_option(name),
            "-p" if self.command == Some(Command::SshPass) => {
                let secret = self.short_option(name);
                // A second `-p` is the port of the ssh it starts.
                self.command = None;
                return secret;
            }
            "curl" => self.begin_command(Command::Curl),
            "mysql" | "mysqldump" | "mysqladmin" | "mysqlimport" | "mariadb" | "mariadb-dump" => {
                self.begin_command(Command::MySql);
            }
            "sshpass" => self.begin_command(Command::SshPass),
            "redis-cli" | "valkey-cli" => self.begin_command(Command::Redis),
            "login" if self.follows(name, &["docker", "podman"]) => self.begin_command(Command::Login),
            _ => {}
        }
        if self.is_spared(name.start) {
            return None;
        }
        if let Some(part) = self.second_part(name) {
            return Some(part);
        }
        if told.eq_ignore_ascii_case("auth") {
            return self.stored_login(name);
        }
        let reach = name.secret.or_else(|| last_word(told)).filter(|_| !is_about(told))?;
        self.assigned(name, reach)
    }

    /// Whether this is in an expression that hides nothing.
    pub(super) fn is_spared(&self, at: usize) -> bool {
        at < self.spared
    }

    fn short_option(&self, name: Name) -> Option<Range<usize>> {
        self.gap(name.end).filter(|_| !self.is_spared(name.start)).and_then(|at| self.some_value(at))
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
        if byte == b'$'
            && let Some(hash) = self.hash()
        {
            return Some(hash);
        }
        match byte {
            b':' if self.bytes[self.at..].starts_with(b"://") => {
                self.word.path = true;
                if self.is_spared(self.at) {
                    return None;
                }
                return self.url_password(self.at + 3).and_then(|value| self.literal(value));
            }
            _ if ends_word(byte) => self.word = Word::default(),
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

/// What stands before such a byte has no bearing on what comes after it.
fn ends_word(byte: u8) -> bool {
    byte.is_ascii_whitespace() || is_mark(byte) || b"?&;,({[=<>|".contains(&byte)
}

pub(super) const fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}
