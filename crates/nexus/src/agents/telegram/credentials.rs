//! The bot's token and the operator's chat: from the environment, or from a file with `token=` and `chat_id=` lines.

use std::fmt;
use std::path::Path;

use thiserror::Error;

use nexus_core::redact;

use crate::config::Config;
use crate::private;

/// The token of a bot: a number, a colon and a secret, as BotFather gives it out. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// What the bot signs in with, and where the operator is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    pub token: Token,
    pub chat: Option<i64>,
}

/// What is wrong, without a word of what stands there.
#[derive(Debug, Error)]
pub enum BadCredentials {
    #[error("it is not there")]
    Missing,
    #[error("it cannot be read: {0}")]
    Unreadable(std::io::Error),
    #[error("line {0} is neither token=… nor chat_id=…")]
    Line(usize),
    #[error("line {0} says again what another line says")]
    Twice(usize),
    #[error("line {0}: a chat_id is a whole number, like 123456789 or -1001234567890")]
    Chat(usize),
    #[error("a token has the form that BotFather gives it: a number, a colon, and letters and digits")]
    Token,
    #[error("it has no line token=…, and TELEGRAM_BOT_TOKEN is not set")]
    NoToken,
}

impl Token {
    pub fn parse(text: &str) -> Option<Self> {
        let (number, secret) = text.split_once(':')?;
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let number = number.parse::<i64>().is_ok_and(|number| number > 0) && number.bytes().all(|b| b.is_ascii_digit());
        let secret = (8..=128).contains(&secret.len()) && secret.chars().all(fits);
        (number && secret).then(|| Self(text.to_owned()))
    }

    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The bot's own number, which is no secret.
    pub fn bot(&self) -> i64 {
        self.0.split_once(':').and_then(|(number, _)| number.parse().ok()).unwrap_or_default()
    }
}

/// What the file says; the token may be missing where the environment has it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lines {
    token: Option<Token>,
    chat: Option<i64>,
}

/// None: nobody wants a bot.
pub fn find(config: &Config) -> Result<Option<Credentials>, BadCredentials> {
    let file = config.agents.telegram.credentials_file.as_ref().map(AsRef::<Path>::as_ref);
    let lines = file.map(read).transpose()?;
    let named = config.environment.telegram_bot_token.as_ref().map(|secret| secret.expose().trim());
    let named = named.map(|text| Token::parse(text).ok_or(BadCredentials::Token)).transpose()?;
    let Some(lines) = lines else { return Ok(named.map(|token| Credentials { token, chat: None })) };
    let token = named.or(lines.token).ok_or(BadCredentials::NoToken)?;
    redact::learn([token.expose()]);
    Ok(Some(Credentials { token, chat: lines.chat }))
}

fn read(path: &Path) -> Result<Lines, BadCredentials> {
    let text = private::read(path).map_err(BadCredentials::Unreadable)?.ok_or(BadCredentials::Missing)?;
    parse(&text)
}

fn parse(text: &str) -> Result<Lines, BadCredentials> {
    let mut lines = Lines::default();
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim().trim_start_matches('\u{feff}');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line.split_once('=').ok_or(BadCredentials::Line(number))?;
        let value = value.trim().trim_matches('"');
        let twice = match name.trim() {
            "token" => {
                let token = Token::parse(value).ok_or(BadCredentials::Token)?;
                lines.token.replace(token).is_some()
            }
            "chat_id" => {
                let chat = value.parse().ok().filter(|chat| *chat != 0).ok_or(BadCredentials::Chat(number))?;
                lines.chat.replace(chat).is_some()
            }
            _ => return Err(BadCredentials::Line(number)),
        };
        if twice {
            return Err(BadCredentials::Twice(number));
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "123456789:AAExample_token-0123456789abcdefghi";

    #[test]
    fn the_file_has_a_token_and_a_chat() {
        let lines = parse(&format!("# of the homelab bot\n\ntoken={TOKEN}\nchat_id = -1001234567890\r\n")).unwrap();
        assert_eq!(lines, Lines { token: Token::parse(TOKEN), chat: Some(-1_001_234_567_890) });
        assert_eq!(Token::parse(TOKEN).unwrap().bot(), 123_456_789);
    }

    #[test]
    fn mistakes_are_named_by_their_line_and_never_shown() {
        check("bot 123456:secretsecret", "line 1 is neither token=… nor chat_id=…");
        check("chat_id=1\nsecret=hunter2hunter2", "line 2 is neither token=… nor chat_id=…");
        check("chat_id=me", "line 1: a chat_id is a whole number, like 123456789 or -1001234567890");
        check("chat_id=0", "line 1: a chat_id is a whole number, like 123456789 or -1001234567890");
        check("chat_id=1\nchat_id=2", "line 2 says again what another line says");
        for token in ["", "123456", "abc:defghijkl", "1:short", "-5:defghijklm", "1:with blank", "1:slash/slash"] {
            let told = "a token has the form that BotFather gives it: a number, a colon, and letters and digits";
            check(&format!("token={token}"), told);
        }

        #[track_caller]
        fn check(text: &str, expected: &str) {
            assert_eq!(parse(text).unwrap_err().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn a_token_is_not_shown() {
        assert_eq!(format!("{:?}", Token::parse(TOKEN)), "Some(Token(…))");
    }
}
