//! Where a computer is and how far it can go.

use nexus_core::prelude::*;
use serde::de::Error as _;
use serde::{Deserializer, Serializer};

use super::Whole;

/// No world of Minecraft reaches so far.
const FARTHEST: f64 = 1e9;

/// A position in the world, as the computer knows it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Place {
    x: Coordinate,
    y: Coordinate,
    z: Coordinate,
}

#[derive(Clone, Copy, Debug, PartialEq, JsonSchema)]
#[schemars(with = "f64")]
struct Coordinate(f64);

impl<'de> Deserialize<'de> for Coordinate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match f64::deserialize(from)? {
            number if number.is_finite() && number.abs() <= FARTHEST => Ok(Self(number)),
            _ => Err(D::Error::custom("no such place")),
        }
    }
}

impl Serialize for Coordinate {
    /// `12`, not `12.0`: almost all are whole.
    #[allow(clippy::cast_possible_truncation, reason = "whole and within a milliard")]
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.0.fract() == 0.0 { to.serialize_i64(self.0 as i64) } else { to.serialize_f64(self.0) }
    }
}

/// A number, or `unlimited` where the server asks for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Fuel {
    Amount(Whole),
    Endless(Endless),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Endless {
    Unlimited,
}

/// Where a turtle looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Facing {
    North,
    East,
    South,
    West,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_str, to_string};

    #[test]
    fn a_place_is_three_numbers_that_can_be() {
        check(r#"{"x":1,"y":-64.0,"z":2.5}"#, Some(r#"{"x":1,"y":-64,"z":2.5}"#));
        check(r#"{"x":1,"y":2}"#, None);
        check(r#"{"x":1,"y":2,"z":1e300}"#, None);
        check(r#"{"x":1,"y":2,"z":"here"}"#, None);
        check("{}", None);

        #[track_caller]
        fn check(json: &str, expected: Option<&str>) {
            let place = from_str::<Place>(json).ok().map(|place| to_string(&place).unwrap());
            assert_eq!(place.as_deref(), expected, "{json}");
        }
    }

    #[test]
    fn fuel_is_a_number_or_without_limit() {
        check("80.0", Some("80"));
        check("\"unlimited\"", Some("\"unlimited\""));
        check("\"lots\"", None);
        check("-1", None);

        #[track_caller]
        fn check(json: &str, expected: Option<&str>) {
            let fuel = from_str::<Fuel>(json).ok().map(|fuel| to_string(&fuel).unwrap());
            assert_eq!(fuel.as_deref(), expected, "{json}");
        }
    }
}
