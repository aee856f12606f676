//! As much of TOML as a configuration of Codex needs: tables, dotted and quoted keys, texts, numbers, booleans, lists
//! and inline tables. What is not understood is told with its line.

use serde_json::{Map, Value};

/// Lists and tables within each other.
const DEEPEST: usize = 32;

type Read<T> = Result<T, (usize, String)>;

pub fn parse(text: &str) -> Read<Value> {
    let mut reader = Reader { text, at: 0 };
    let (mut root, mut table) = (Map::new(), Vec::new());
    loop {
        reader.skip_lines();
        match reader.peek() {
            None => return Ok(Value::Object(root)),
            Some('[') => {
                table = reader.header()?;
                // A table may be empty.
                reader.enter(&mut root, &table)?;
            }
            Some(_) => {
                let (path, value) = reader.pair(0)?;
                let (last, tables) = path.split_last().ok_or_else(|| reader.wrong("a key belongs here"))?;
                let target = [table.as_slice(), tables].concat();
                reader.enter(&mut root, &target)?.insert(last.clone(), value);
            }
        }
        reader.end_of_line()?;
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    /// `[a.b]`, or `[[a.b]]`: of a list of tables only the last matters to nobody here, so they are one.
    fn header(&mut self) -> Read<Vec<String>> {
        let double = self.rest().starts_with("[[");
        self.at += if double { 2 } else { 1 };
        let path = self.path()?;
        let close = if double { "]]" } else { "]" };
        self.expect(close)?;
        Ok(path)
    }

    fn enter<'m>(&self, root: &'m mut Map<String, Value>, path: &[String]) -> Read<&'m mut Map<String, Value>> {
        let mut table = root;
        for name in path {
            let next = table.entry(name.as_str()).or_insert_with(|| Value::Object(Map::new()));
            table = next.as_object_mut().ok_or_else(|| self.wrong(&format!("`{name}` is no table")))?;
        }
        Ok(table)
    }

    fn pair(&mut self, depth: usize) -> Read<(Vec<String>, Value)> {
        let path = self.path()?;
        self.expect("=")?;
        self.skip_blanks();
        Ok((path, self.value(depth)?))
    }

    fn path(&mut self) -> Read<Vec<String>> {
        let mut path = Vec::new();
        loop {
            self.skip_blanks();
            path.push(match self.peek() {
                Some('"' | '\'') => self.string()?,
                _ => {
                    let key = self.while_in(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
                    if key.is_empty() {
                        return Err(self.wrong("a key belongs here"));
                    }
                    key
                }
            });
            self.skip_blanks();
            if self.peek() != Some('.') {
                return Ok(path);
            }
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Read<Value> {
        if depth > DEEPEST {
            return Err(self.wrong("nested too deeply"));
        }
        match self.peek() {
            Some('"' | '\'') => self.string().map(Value::String),
            Some('[') => self.list(depth),
            Some('{') => self.inline(depth),
            _ => {
                let word = self.while_in(|c| !c.is_whitespace() && !matches!(c, ',' | ']' | '}' | '#'));
                match word.as_str() {
                    "true" => Ok(Value::Bool(true)),
                    "false" => Ok(Value::Bool(false)),
                    "" => Err(self.wrong("a value belongs here")),
                    // Dates and other bases stay text: nothing here reads them.
                    word => Ok(serde_json::from_str(&word.replace('_', ""))
                        .ok()
                        .filter(Value::is_number)
                        .unwrap_or_else(|| Value::String(word.to_owned()))),
                }
            }
        }
    }

    fn list(&mut self, depth: usize) -> Read<Value> {
        self.at += 1;
        let mut items = Vec::new();
        loop {
            self.skip_lines();
            if self.peek() == Some(']') {
                self.at += 1;
                return Ok(Value::Array(items));
            }
            items.push(self.value(depth + 1)?);
            self.skip_lines();
            if self.peek() != Some(']') {
                self.expect(",")?;
            }
        }
    }

    fn inline(&mut self, depth: usize) -> Read<Value> {
        self.at += 1;
        let mut table = Map::new();
        loop {
            self.skip_lines();
            if self.peek() == Some('}') {
                self.at += 1;
                return Ok(Value::Object(table));
            }
            let (path, value) = self.pair(depth + 1)?;
            let (last, tables) = path.split_last().ok_or_else(|| self.wrong("a key belongs here"))?;
            self.enter(&mut table, tables)?.insert(last.clone(), value);
            self.skip_lines();
            if self.peek() != Some('}') {
                self.expect(",")?;
            }
        }
    }

    fn string(&mut self) -> Read<String> {
        let quote = self.rest().chars().next().unwrap_or('"');
        let triple: String = std::iter::repeat_n(quote, 3).collect();
        let long = self.rest().starts_with(&triple);
        self.at += if long { 3 } else { 1 };
        if long {
            let start = self.rest();
            let start = start.strip_prefix("\r\n").or_else(|| start.strip_prefix('\n')).unwrap_or(start);
            self.at = self.text.len() - start.len();
        }
        let mut out = String::new();
        loop {
            let rest = self.rest();
            if long && rest.starts_with(&triple) {
                // Up to two more quotes belong to the text.
                let more = rest.chars().skip(3).take(2).take_while(|c| *c == quote).count();
                out.extend(std::iter::repeat_n(quote, more));
                self.at += 3 + more;
                return Ok(out);
            }
            match rest.chars().next() {
                Some(c) if c == quote && !long => {
                    self.at += 1;
                    return Ok(out);
                }
                Some('\\') if quote == '"' => self.escape(&mut out)?,
                Some('\n') if !long => return Err(self.wrong("this text has no end on its line")),
                Some(c) => {
                    out.push(c);
                    self.at += c.len_utf8();
                }
                None => return Err(self.wrong("the file breaks off here")),
            }
        }
    }

    fn escape(&mut self, out: &mut String) -> Read<()> {
        self.at += 1;
        let c = self.peek().ok_or_else(|| self.wrong("the file breaks off here"))?;
        self.at += c.len_utf8();
        let plain = match c {
            'b' => Some('\u{8}'),
            't' => Some('\t'),
            'n' => Some('\n'),
            'f' => Some('\u{c}'),
            'r' => Some('\r'),
            'e' => Some('\u{1b}'),
            '"' | '\\' => Some(c),
            _ => None,
        };
        if let Some(plain) = plain {
            out.push(plain);
            return Ok(());
        }
        let digits = match c {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            // A line that goes on in the next.
            c if c.is_whitespace() => {
                self.at = self.text.len() - self.rest().trim_start().len();
                return Ok(());
            }
            _ => return Err(self.wrong("this is no escape")),
        };
        let code = self.rest().get(..digits).and_then(|code| u32::from_str_radix(code, 16).ok());
        let c = code.and_then(char::from_u32).ok_or_else(|| self.wrong("this is no character"))?;
        out.push(c);
        self.at += digits;
        Ok(())
    }

    fn end_of_line(&mut self) -> Read<()> {
        self.skip_blanks();
        self.skip_comment();
        match self.peek() {
            None | Some('\n' | '\r') => Ok(()),
            Some(_) => Err(self.wrong("the line should end here")),
        }
    }

    fn expect(&mut self, what: &str) -> Read<()> {
        self.skip_blanks();
        if !self.rest().starts_with(what) {
            return Err(self.wrong(&format!("a `{what}` belongs here")));
        }
        self.at += what.len();
        Ok(())
    }

    fn skip_lines(&mut self) {
        loop {
            let before = self.at;
            self.while_in(char::is_whitespace);
            self.skip_comment();
            if self.at == before {
                return;
            }
        }
    }

    fn skip_comment(&mut self) {
        if self.peek() == Some('#') {
            self.while_in(|c| c != '\n');
        }
    }

    fn skip_blanks(&mut self) {
        self.while_in(|c| matches!(c, ' ' | '\t'));
    }

    fn while_in(&mut self, fits: impl Fn(char) -> bool) -> String {
        let rest = self.rest();
        let end = rest.find(|c| !fits(c)).unwrap_or(rest.len());
        let found = rest[..end].to_owned();
        self.at += end;
        found
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn wrong(&self, what: &str) -> (usize, String) {
        (self.text[..self.at].matches('\n').count() + 1, format!("not TOML: {what}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_codex_writes_is_read() {
        let text = r#"
            model = "gpt" # a comment
            size = 1_000
            [projects."/home/u/x"]
            trust_level = 'trusted'
            [mcp_servers.docs]
            command = "npx"
            args = ["-y", "a\tb",
                # over lines
                "c",
            ]
            env = { KEY = "v", "quoted key" = 'C:\n' }
            env.MORE = "x"
            [mcp_servers."two words"]
            url = """
https://x"""
            enabled = false
            tool_timeout_sec = 2.5
            [[profiles]]
            a.b = true
        "#;
        assert_eq!(
            parse(text).unwrap(),
            json!({
                "model": "gpt", "size": 1000,
                "projects": { "/home/u/x": { "trust_level": "trusted" } },
                "mcp_servers": {
                    "docs": { "command": "npx", "args": ["-y", "a\tb", "c"],
                              "env": { "KEY": "v", "quoted key": "C:\\n", "MORE": "x" } },
                    "two words": { "url": "https://x", "enabled": false, "tool_timeout_sec": 2.5 },
                },
                "profiles": { "a": { "b": true } },
            })
        );
    }

    #[test]
    fn what_is_no_toml_is_told_with_its_line() {
        check("a = 1\nb", 2, "a `=` belongs here");
        check("a = \"x\n\"", 1, "no end on its line");
        check("a = 1\n[a.b]", 2, "`a` is no table");
        check("a = [1 2]", 1, "a `,` belongs here");
        check("a = 1 b = 2", 1, "the line should end here");
        check("a = \"\\q\"", 1, "no escape");
        check(&format!("a = {}", "[".repeat(100)), 1, "nested too deeply");

        #[track_caller]
        fn check(text: &str, line: usize, words: &str) {
            let (at, what) = parse(text).unwrap_err();
            assert!(at == line && what.contains(words), "{at}: {what}");
        }
    }
}
