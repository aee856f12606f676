//! Lengths of time and amounts of storage, written with a unit: `30m`, `10GB`.

use std::fmt::{self, Display};
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::config::faults::Problem;
use crate::config::section::Value;

/// Largest first, so that printing picks the largest that fits.
const TIMES: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

const SIZES: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("B", 1),
];

/// A hundred years: beyond that, someone counted in the wrong unit.
const LONGEST: u64 = 36_500 * 86_400_000;

/// A length of time, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(pub Duration);

impl Value for Period {
    fn kind() -> String {
        "a time with a unit (`ms`, `s`, `m`, `h`, `d`)".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Problem> {
        let wrong = || Problem::not(text, Self::kind()).hint("90s, 30m, 24h or 365d");
        let millis = measure(text, &TIMES).ok_or_else(wrong)?;
        if !(1..=LONGEST).contains(&millis) {
            return Err(Problem::not(text, "between 1ms and 36500d"));
        }
        Ok(Self(Duration::from_millis(millis)))
    }
}

impl Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(f, u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX), &TIMES)
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An amount of bytes, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Value for Size {
    fn kind() -> String {
        "a size with a unit (`KB`, `MB`, `GB`, `TB`, or `KiB` …)".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Problem> {
        let bytes = measure(text, &SIZES).filter(|bytes| *bytes > 0);
        bytes.map(Self).ok_or_else(|| Problem::not(text, Self::kind()).hint("500MB or 10GB"))
    }
}

impl Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(f, self.0, &SIZES)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn measure(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

fn print(f: &mut fmt::Formatter<'_>, amount: u64, units: &[(&str, u64)]) -> fmt::Result {
    let fits = units.iter().find(|(_, factor)| amount.is_multiple_of(*factor));
    fits.map_or(Ok(()), |(unit, factor)| write!(f, "{}{unit}", amount / factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_need_a_unit_and_print_as_they_were_written() {
        check("24h", Some((86_400_000, "1d")));
        check("90m", Some((5_400_000, "90m")));
        check("365d", Some((31_536_000_000, "365d")));
        check("1500 ms", Some((1500, "1500ms")));
        check("36500d", Some((LONGEST, "36500d")));
        for wrong in ["", "24", "h", "-1h", "1.5h", "0s", "24H", "36501d", "99999999999999999999d", "1h30m", "1h "] {
            check(wrong, None);
        }

        #[track_caller]
        fn check(text: &str, expected: Option<(u64, &str)>) {
            let parsed = Period::parse(text).ok();
            let expected = expected.map(|(millis, shown)| (Duration::from_millis(millis), shown.to_owned()));
            assert_eq!(parsed.map(|period| (period.0, period.to_string())), expected, "{text}");
        }
    }

    #[test]
    fn sizes_know_both_thousands() {
        check("10GB", Some((10_000_000_000, "10GB")));
        check("1GiB", Some((1 << 30, "1GiB")));
        check("2048B", Some((2048, "2KiB")));
        check("1 MB", Some((1_000_000, "1MB")));
        for wrong in ["10", "GB", "0GB", "10gb", "1e3MB", "99999999TB", "-1KB"] {
            check(wrong, None);
        }

        #[track_caller]
        fn check(text: &str, expected: Option<(u64, &str)>) {
            let parsed = Size::parse(text).ok().map(|size| (size.0, size.to_string()));
            assert_eq!(parsed, expected.map(|(bytes, shown)| (bytes, shown.to_owned())), "{text}");
        }
    }
}
