//! What computers say, with every list and text bounded. Their JSON is written by Lua: an empty list may come as `{}`,
//! a whole number as `12.0`.

mod place;

use std::fmt;
use std::marker::PhantomData;

use nexus_core::prelude::*;
use nexus_core::{redact, text};
use serde::de::{self, DeserializeOwned, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::computer::{LARGEST_ID, whole};
pub use place::{Facing, Fuel, Place};

/// A whole number that is not negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Whole(pub u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Digits)
    }
}

struct Digits;

impl Visitor<'_> for Digits {
    type Value = Whole;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Whole, E> {
        if number <= LARGEST_ID { Ok(Whole(number)) } else { Err(E::custom("too large a number")) }
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Whole, E> {
        u64::try_from(number).map_err(|_| E::custom("a negative number")).and_then(|number| self.visit_u64(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Whole, E> {
        whole(number).map(Whole).ok_or_else(|| E::custom("not a whole number"))
    }
}

/// At most `MOST` things; more are counted off, not kept.
#[derive(Clone, Debug, PartialEq)]
pub struct List<T, const MOST: usize> {
    pub items: Vec<T>,
    /// There were more.
    pub cut: bool,
}

impl<T, const MOST: usize> Default for List<T, MOST> {
    fn default() -> Self {
        Self { items: Vec::new(), cut: false }
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for List<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Items(PhantomData))
    }
}

struct Items<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Items<T, MOST> {
    type Value = List<T, MOST>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut list = List::default();
        while list.items.len() < MOST {
            match seq.next_element()? {
                Some(item) => list.items.push(item),
                None => return Ok(list),
            }
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {
            list.cut = true;
        }
        Ok(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        match map.next_key::<IgnoredAny>()? {
            None => Ok(List::default()),
            Some(_) => Err(de::Error::custom("an object in place of a list")),
        }
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(List::default())
    }
}

/// Text of at most `MOST` characters. Of a longer one, the beginning is kept, cleaned, and an ellipsis stands for the
/// rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words<const MOST: usize>(pub String);

impl<'de, const MOST: usize> Deserialize<'de> for Words<MOST> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(|words| Self(cut(words, MOST)))
    }
}

/// Something that may be left out, and that is left out where it makes no sense: the rest of the answer still does.
#[derive(Clone, Debug, PartialEq)]
pub struct Maybe<T>(pub Option<T>);

impl<T> Default for Maybe<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Maybe<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Value::deserialize(from).map(|value| Self(serde_json::from_value(value).ok()))
    }
}

/// The beginning of a text. What may be half of a secret at its end is hidden: whole ones are, but later.
pub fn cut(words: String, most: usize) -> String {
    match words.char_indices().nth(most) {
        None => words,
        Some((at, _)) => format!("{}…", redact::beginning(&text::clean(&words[..at]))),
    }
}

/// Bytes that a value takes as JSON, roughly: enough to keep a reply small.
pub fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 4,
        Value::Number(_) => 8,
        Value::String(words) => words.len() + 2,
        Value::Array(items) => items.iter().map(|item| size(item) + 1).sum::<usize>() + 2,
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + size(value) + 4).sum::<usize>() + 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_str, from_value, json};

    #[test]
    fn a_whole_number_may_look_like_a_float() {
        check("12", Some(12));
        check("12.0", Some(12));
        check("1e3", Some(1000));
        check("9007199254740992", Some(LARGEST_ID));
        check("12.5", None);
        check("-1", None);
        check("-1.0", None);
        check("1e300", None);
        check("18446744073709551615", None);
        check("\"12\"", None);

        #[track_caller]
        fn check(json: &str, expected: Option<u64>) {
            assert_eq!(from_str::<Whole>(json).ok().map(|whole| whole.0), expected, "{json}");
        }
    }

    #[test]
    fn an_empty_list_may_look_like_an_object() {
        check("[]", Some((&[], false)));
        check("{}", Some((&[], false)));
        check("null", Some((&[], false)));
        check("[1.0, 2]", Some((&[1, 2], false)));
        check("[1, 2, 3, \"x\"]", Some((&[1, 2, 3], true)));
        check("{\"1\": 1}", None);
        check("[\"x\"]", None);

        #[track_caller]
        fn check(json: &str, expected: Option<(&[u64], bool)>) {
            let list = from_str::<List<Whole, 3>>(json).ok();
            let list = list.map(|list| (list.items.iter().map(|whole| whole.0).collect::<Vec<_>>(), list.cut));
            assert_eq!(list.as_ref().map(|(items, cut)| (items.as_slice(), *cut)), expected, "{json}");
        }
    }

    #[test]
    fn long_words_are_cut_and_show_no_half_of_a_secret() {
        let words = |words: &str| from_value::<Words<20>>(json!(words)).unwrap().0;
        assert_eq!(words("minecraft:coal"), "minecraft:coal");
        assert_eq!(words(&"ä".repeat(21)), format!("{}…", "ä".repeat(20)));
        assert!(!words("see https://me:hunter2hunter2@host/ now").contains("hunt"));
    }

    #[test]
    fn what_makes_no_sense_is_left_out() {
        assert_eq!(from_value::<Maybe<Whole>>(json!(3)).unwrap(), Maybe(Some(Whole(3))));
        assert_eq!(from_value::<Maybe<Whole>>(json!({ "deep": [1] })).unwrap(), Maybe(None));
    }
}
