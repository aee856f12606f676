//! What Telegram means by 400: it says so in words only.

/// The topic was deleted or closed, or never was.
pub fn is_about_topic(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    ["message thread not found", "topic_closed", "topic_deleted", "topic_id_invalid"].iter().any(|r| reason.contains(r))
}

/// This message will not be taken whenever it is sent. Whatever else is refused is so because of the chat.
pub fn is_about_message(reason: &str) -> bool {
    const WORDS: [&str; 11] = [
        "too long",
        "too_long",
        "too large",
        "text is empty",
        "text must be",
        "parse",
        "entit",
        "utf-8",
        "button",
        "markup",
        "keyboard",
    ];
    let reason = reason.to_ascii_lowercase();
    WORDS.iter().any(|words| reason.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_about_the_message_or_the_chat() {
        for reason in ["message is too long", "message text is empty", "can't parse entities: x", "BUTTON_DATA_INVALID"]
        {
            assert!(is_about_message(&format!("Bad Request: {reason}")), "{reason}");
        }
        for reason in [
            "chat not found",
            "not enough rights to send text messages to the chat",
            "have no rights to send a message",
            "need administrator rights in the channel chat",
            "CHAT_WRITE_FORBIDDEN",
            "CHAT_RESTRICTED",
            "TOPIC_CLOSED",
            "PEER_ID_INVALID",
            "group chat was deactivated",
        ] {
            assert!(!is_about_message(&format!("Bad Request: {reason}")), "{reason}");
        }
    }
}
