//! What messages said when they were last looked at. Telegram tells of an edit also when nobody has changed a word: a
//! link has got its preview, say.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;

use super::incoming::Message;

/// Messages that are remembered. One that is not, and is edited, counts as changed.
const MOST: usize = 1_000;

#[derive(Debug, Default)]
pub struct Texts(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    hasher: RandomState,
    texts: HashMap<Place, u64>,
    oldest_first: VecDeque<Place>,
}

/// A chat, and a message of it.
type Place = (i64, i64);

impl Texts {
    pub fn remember(&self, message: &Message) {
        let mut known = self.0.lock();
        let (place, hash) = (place(message), known.hasher.hash_one(message.words()));
        if known.texts.insert(place, hash).is_some() {
            return;
        }
        known.oldest_first.push_back(place);
        if known.oldest_first.len() > MOST
            && let Some(oldest) = known.oldest_first.pop_front()
        {
            known.texts.remove(&oldest);
        }
    }

    pub fn is_same(&self, message: &Message) -> bool {
        let known = self.0.lock();
        known.texts.get(&place(message)) == Some(&known.hasher.hash_one(message.words()))
    }
}

fn place(message: &Message) -> Place {
    (message.chat.id, message.message_id)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_other_words_are_an_edit_and_the_oldest_are_forgotten() {
        let message = |id: i64, text: &str| -> Message {
            serde_json::from_value(json!({ "message_id": id, "text": text })).unwrap()
        };
        let texts = Texts::default();
        assert!(!texts.is_same(&message(1, "yes")));
        texts.remember(&message(1, "yes"));
        assert!(texts.is_same(&message(1, "yes")) && !texts.is_same(&message(2, "yes")));
        texts.remember(&message(1, "no"));
        assert!(texts.is_same(&message(1, "no")) && !texts.is_same(&message(1, "yes")));
        (2..=1 + i64::try_from(MOST).unwrap()).for_each(|nth| texts.remember(&message(nth, "more")));
        assert!(!texts.is_same(&message(1, "no")) && texts.is_same(&message(2, "more")));
        assert_eq!(texts.0.lock().texts.len(), MOST);
    }
}
