//! Points in time as people type them: a span from now, a date, or a timestamp.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use nexus_core::clock;

const UNITS: [(char, i64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// What is still to come: `30d` from now, `12h`, or a date.
pub fn future(text: &str) -> Result<Timestamp, String> {
    let wrong = || "30d, 12h, 2027-01-31 or 2027-01-31T12:00:00Z".to_owned();
    match span(text) {
        Some(span) => clock::now().checked_add(span).map_err(|_| wrong()),
        None => match point(text) {
            Some(point) if point > clock::now() => Ok(point),
            Some(_) => Err("that is in the past".to_owned()),
            None => Err(wrong()),
        },
    }
}

/// What has been: `30m` ago, `7d`, or a date.
pub fn past(text: &str) -> Result<Timestamp, String> {
    let wrong = || "30m, 2h, 7d, 2026-01-31 or 2026-01-31T12:00:00Z".to_owned();
    match span(text) {
        Some(span) => clock::now().checked_sub(span).map_err(|_| wrong()),
        None => point(text).ok_or_else(wrong),
    }
}

/// `90s`, `30m`, `12h`, `7d`; never nothing.
fn span(text: &str) -> Option<SignedDuration> {
    let (unit, seconds) = UNITS.into_iter().find(|(unit, _)| text.ends_with(*unit))?;
    let count: u32 = text.strip_suffix(unit)?.parse().ok()?;
    (count > 0).then(|| SignedDuration::from_secs(i64::from(count) * seconds))
}

/// A timestamp, or a day and time as the clocks here show them.
fn point(text: &str) -> Option<Timestamp> {
    text.parse().ok().or_else(|| {
        let there: DateTime = text.parse().ok()?;
        there.to_zoned(TimeZone::system()).ok().map(|zoned| zoned.timestamp())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_count_from_now_in_the_direction_that_is_meant() {
        for (text, seconds) in [("2s", 2), ("30m", 1_800), ("12h", 43_200), ("7d", 604_800)] {
            let span = SignedDuration::from_secs(seconds);
            assert!((future(text).unwrap().duration_since(clock::now()) - span).abs() < SignedDuration::from_secs(5));
            assert!((clock::now().duration_since(past(text).unwrap()) - span).abs() < SignedDuration::from_secs(5));
        }
    }

    #[test]
    fn dates_and_timestamps_are_taken_and_nonsense_is_not() {
        let noon: Timestamp = "2026-01-31T12:00:00Z".parse().unwrap();
        assert_eq!(past("2026-01-31T12:00:00Z"), Ok(noon));
        assert_eq!(past("2026-01-31T14:00:00+02:00"), Ok(noon));
        assert!(past("2026-01-31").is_ok() && past("2026-01-31 12:00").is_ok());
        assert_eq!(future("2020-01-31"), Err("that is in the past".to_owned()));
        assert!(future("2999-01-31").is_ok());
        for text in ["", "d", "0d", "-5m", "5", "5w", "yesterday", "2026-13-01", "99999999999d", "١d"] {
            assert!(past(text).is_err() && future(text).is_err(), "{text}");
        }
    }
}
