//! A command as a list of words. Nothing is ever pasted into a shell line.

use std::ffi::{OsStr, OsString};
use std::fmt::{self, Write};

/// A program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argv {
    program: OsString,
    args: Vec<OsString>,
}

impl Argv {
    pub fn new(program: impl Into<OsString>) -> Self {
        Self { program: program.into(), args: Vec::new() }
    }

    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    pub(super) fn program(&self) -> &OsStr {
        &self.program
    }

    pub(super) fn rest(&self) -> &[OsString] {
        &self.args
    }
}

impl fmt::Display for Argv {
    /// As one would type it. For people: nothing runs what this prints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        word(f, &self.program)?;
        for arg in &self.args {
            f.write_char(' ')?;
            word(f, arg)?;
        }
        Ok(())
    }
}

fn word(f: &mut fmt::Formatter<'_>, word: &OsStr) -> fmt::Result {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return f.write_str(&word);
    }
    write!(f, "'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_see_it_quoted() {
        let argv = Argv::new("docker").args(["compose", "--file=a.yaml"]).arg("it's").arg("").arg("a b");
        assert_eq!(argv.to_string(), r"docker compose --file=a.yaml 'it'\''s' '' 'a b'");
    }
}
