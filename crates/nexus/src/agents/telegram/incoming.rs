//! What Telegram sends, as far as it is looked at. Everything in it was written by somebody else.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// Something new, with its number. What cannot be read has only the number.
#[derive(Debug)]
pub struct Incoming {
    pub number: i64,
    pub what: Option<What>,
}

#[derive(Debug)]
pub enum What {
    Said(Message),
    /// A message that was there before now says this.
    Edited(Message),
    Pressed(Press),
}

#[derive(Debug, Deserialize)]
struct Update {
    message: Option<Message>,
    edited_message: Option<Message>,
    callback_query: Option<Press>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Message {
    pub message_id: i64,
    message_thread_id: Option<i64>,
    is_topic_message: bool,
    pub from: Option<User>,
    pub chat: Chat,
    pub text: Option<String>,
    caption: Option<String>,
    reply_to_message: Option<Box<Replied>>,
    forward_origin: Option<IgnoredAny>,
    forward_date: Option<IgnoredAny>,
    via_bot: Option<IgnoredAny>,
    photo: Option<IgnoredAny>,
    document: Option<IgnoredAny>,
    video: Option<IgnoredAny>,
    video_note: Option<IgnoredAny>,
    voice: Option<IgnoredAny>,
    audio: Option<IgnoredAny>,
    sticker: Option<IgnoredAny>,
    location: Option<IgnoredAny>,
    /// The group has become another chat.
    migrate_to_chat_id: Option<i64>,
}

/// The message that was replied to.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Replied {
    pub message_id: i64,
    pub from: Option<User>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct User {
    pub id: i64,
    pub is_bot: bool,
    pub first_name: String,
    pub username: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Chat {
    pub id: i64,
    #[serde(rename = "type")]
    pub kind: String,
}

/// Somebody has pressed a button.
#[derive(Debug, Deserialize)]
pub struct Press {
    #[serde(deserialize_with = "text_or_number")]
    pub id: String,
    pub from: User,
    pub message: Option<Message>,
    pub data: Option<String>,
}

/// Telegram gives it as text; others who speak the same do not always.
fn text_or_number<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) => text,
        other => other.to_string(),
    })
}

impl Incoming {
    /// None: it has not even a number.
    pub fn of(update: Value) -> Option<Self> {
        let number = update.get("update_id")?.as_i64()?;
        let update: Option<Update> = serde_json::from_value(update).ok();
        let what = update.and_then(|update| match update {
            Update { message: Some(message), .. } => Some(What::Said(message)),
            Update { edited_message: Some(message), .. } => Some(What::Edited(message)),
            Update { callback_query, .. } => callback_query.map(What::Pressed),
        });
        Some(Self { number, what })
    }
}

impl Message {
    /// The topic of a forum. In other groups the same field names a thread of replies, which is none.
    pub fn topic(&self) -> Option<i64> {
        self.message_thread_id.filter(|_| self.is_topic_message)
    }

    pub fn words(&self) -> Option<&str> {
        self.text.as_deref().or(self.caption.as_deref())
    }

    /// The message that this one replies to. Each one of a topic names the message that opened it, and replies to
    /// nothing by that.
    pub fn replied(&self) -> Option<&Replied> {
        self.reply_to_message.as_deref().filter(|replied| self.topic() != Some(replied.message_id))
    }

    /// Words that somebody else has chosen, and how they came. What another bot offers to be sent is no word of who
    /// sends it.
    pub fn not_their_own(&self) -> Option<&'static str> {
        match (self.forward_origin.is_some() || self.forward_date.is_some(), self.via_bot.is_some()) {
            (true, _) => Some("forwarded"),
            (_, true) => Some("through another bot"),
            _ => None,
        }
    }

    /// The number that this group has from now on. Only Telegram itself says that, in the group, with no other word.
    pub fn moves_to(&self) -> Option<i64> {
        self.migrate_to_chat_id.filter(|to| *to < 0 && self.chat.id < 0 && self.words().is_none())
    }

    /// Something that is not text, and is not carried.
    pub fn attachment(&self) -> Option<&'static str> {
        let kinds = [
            (&self.photo, "a photo"),
            (&self.document, "a file"),
            (&self.video, "a video"),
            (&self.video_note, "a video"),
            (&self.voice, "a voice message"),
            (&self.audio, "a recording"),
            (&self.sticker, "a sticker"),
            (&self.location, "a place"),
        ];
        kinds.into_iter().find(|(there, _)| there.is_some()).map(|(_, kind)| kind)
    }
}

impl User {
    /// For people; their word is shown, never believed.
    pub fn shown(&self) -> String {
        let name = self.username.as_ref().map_or_else(|| self.first_name.clone(), |name| format!("@{name}"));
        let name = nexus_core::text::clean(&name);
        match name.trim() {
            "" => format!("user {}", self.id),
            name => format!("{} ({})", nexus_core::text::cut(name, 40), self.id),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_update_that_makes_no_sense_still_has_its_number() {
        let strange = Incoming::of(json!({ "update_id": 7, "message": { "chat": "none" } })).unwrap();
        assert!(strange.number == 7 && strange.what.is_none());
        let unknown = Incoming::of(json!({ "update_id": 8, "poll": {} })).unwrap();
        assert!(unknown.number == 8 && unknown.what.is_none());
        assert!(Incoming::of(json!({ "message": {} })).is_none());
    }

    fn message(fields: Value) -> Message {
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn a_message_of_a_topic_replies_to_nothing_by_being_there() {
        let said = |to: i64, topic: bool| json!({ "message_thread_id": 9, "is_topic_message": topic, "reply_to_message": { "message_id": to } });
        assert!(message(said(9, true)).replied().is_none());
        assert!(message(said(10, true)).replied().is_some());
        assert!(message(said(9, false)).replied().is_some(), "a thread of replies begins with a real one");
    }

    #[test]
    fn only_a_message_without_words_in_a_group_tells_where_it_went() {
        let moved = |chat: i64, to: i64| json!({ "chat": { "id": chat }, "migrate_to_chat_id": to });
        assert_eq!(message(moved(-5, -1005)).moves_to(), Some(-1005));
        assert_eq!(message(moved(5, -1005)).moves_to(), None);
        assert_eq!(message(moved(-5, 1005)).moves_to(), None);
        let words = json!({ "chat": { "id": -5 }, "migrate_to_chat_id": -1005, "text": "we have moved" });
        assert_eq!(message(words).moves_to(), None);
    }

    #[test]
    fn a_thread_of_replies_is_no_topic() {
        let message =
            |topic: bool| Message { message_thread_id: Some(9), is_topic_message: topic, ..Message::default() };
        assert_eq!((message(true).topic(), message(false).topic()), (Some(9), None));
    }
}
