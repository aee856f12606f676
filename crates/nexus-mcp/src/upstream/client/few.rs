//! A list of which no more is kept than anybody could want, however long it is.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};

/// Entries of a list that are kept: one more than any limit, so that too many can still be seen.
const KEPT: usize = 5001;

/// The first `MOST` of a list. The rest is read over: a server could make ten megabytes of `1,1,1,…` into a hundred.
#[derive(Debug)]
pub(super) struct Few<T, const MOST: usize = KEPT>(pub Vec<T>);

impl<T, const MOST: usize> Default for Few<T, MOST> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for Few<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Keeping(PhantomData))
    }
}

struct Keeping<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Keeping<T, MOST> {
    type Value = Few<T, MOST>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Few<T, MOST>, A::Error> {
        let mut kept = Vec::new();
        while kept.len() < MOST {
            match list.next_element()? {
                Some(entry) => kept.push(entry),
                None => return Ok(Few(kept)),
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Few(kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_beginning_of_a_long_list_is_kept() {
        let long = format!("[{}1]", "1,".repeat(100_000));
        assert_eq!(serde_json::from_str::<Few<u8>>(&long).unwrap().0.len(), KEPT);
        assert_eq!(serde_json::from_str::<Few<u8>>("[1,2]").unwrap().0, [1, 2]);
        assert!(serde_json::from_str::<Few<u8>>("{}").is_err());
    }
}
