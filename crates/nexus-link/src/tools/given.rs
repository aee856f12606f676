//! What a model gives: a file's path on a computer, how its content is written, seconds.

use std::fmt;
use std::time::Duration;

use nexus_core::prelude::*;
use nexus_core::text::one_line;

/// Bytes. ComputerCraft takes a few hundred; a frame must hold it whatever its letters.
const LONGEST: usize = 1_000;

/// How much longer than its time a computer is waited for, at least.
const GRACE: Duration = Duration::from_secs(5);

/// A path on a computer. What it means there is the computer's to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct ComputerPath(String);

#[derive(Debug, Error)]
#[error("a path on a computer has 1 to {LONGEST} bytes, and no NUL among them")]
pub struct BadPath;

impl TryFrom<String> for ComputerPath {
    type Error = BadPath;

    fn try_from(path: String) -> Result<Self, BadPath> {
        if path.is_empty() || path.len() > LONGEST || path.contains('\0') { Err(BadPath) } else { Ok(Self(path)) }
    }
}

impl ComputerPath {
    pub fn root() -> Self {
        Self("/".to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ComputerPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(&self.0))
    }
}

/// How a file's bytes stand in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    #[default]
    Text,
    Base64,
}

/// Seconds that a computer may work on something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "u16")]
#[schemars(with = "u16")]
pub struct Seconds(u16);

#[derive(Debug, Error)]
#[error("a timeout is 1 to 300 seconds")]
pub struct BadSeconds;

impl Default for Seconds {
    fn default() -> Self {
        Self(10)
    }
}

impl TryFrom<u16> for Seconds {
    type Error = BadSeconds;

    fn try_from(seconds: u16) -> Result<Self, BadSeconds> {
        if (1..=300).contains(&seconds) { Ok(Self(seconds)) } else { Err(BadSeconds) }
    }
}

impl Seconds {
    pub const MOST: Self = Self(300);

    pub fn get(self) -> u16 {
        self.0
    }

    pub fn time(self) -> Duration {
        Duration::from_secs(self.0.into())
    }

    /// How long an answer is waited for. The computer ends the work itself, by the time of the game, which is slower
    /// than ours where the server lags.
    pub fn patience(self) -> Duration {
        self.time() + GRACE + self.time() / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    #[test]
    fn seconds_and_paths_are_held_to_their_bounds() {
        let longest = from_value::<Seconds>(json!(300)).unwrap();
        assert_eq!((longest.time().as_secs(), longest.patience().as_secs()), (300, 455));
        assert_eq!(Seconds(1).patience(), Duration::from_millis(6_500));
        for bad in [json!(0), json!(301), json!(-1), json!("10")] {
            assert!(from_value::<Seconds>(bad.clone()).is_err(), "{bad}");
        }
        assert!(from_value::<ComputerPath>(json!("startup.lua")).is_ok());
        for bad in [json!(""), json!("a\0b"), json!("x".repeat(LONGEST + 1))] {
            assert!(from_value::<ComputerPath>(bad).is_err());
        }
    }

    #[test]
    fn a_path_is_shown_on_one_line() {
        let path = ComputerPath("a\nb\u{1b}[2J\u{202e}".to_owned());
        assert_eq!(path.to_string(), "a⏎b\\u{1b}[2J\\u{202e}");
    }
}
