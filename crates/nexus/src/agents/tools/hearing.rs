//! Whether anybody is there: when a target or a channel was last heard, and whether it is deaf.

use jiff::{SignedDuration, Timestamp};

use super::shown::RUNNING;
use crate::agents::queue::Channel;
use crate::agents::targets::{Target, Way};
use crate::agents::task::Task;
use crate::agents::telegram::CHANNEL as TELEGRAM;

/// Whoever is there is heard more often than this.
const SILENCE: SignedDuration = SignedDuration::from_secs(120);

/// What is known of one end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hearing {
    pub last_heard: Option<Timestamp>,
    /// Nobody takes what is sent there, as far as the hub knows.
    pub deaf: bool,
    pub trouble: Option<String>,
}

impl Hearing {
    pub fn of_channel(channel: &Channel, now: Timestamp) -> Self {
        let deaf = channel.trouble.is_some() || is_silent(channel.heard, now);
        Self { last_heard: channel.heard, deaf, trouble: channel.trouble.clone() }
    }

    /// How many of a target's running tasks are worth a look: only a worker is heard by its leases, and a chat may have
    /// very many.
    pub fn most_running(target: Option<&Target>) -> i64 {
        match target.map(|target| &target.way) {
            Some(Way::Worker) => RUNNING,
            Some(Way::Telegram { .. } | Way::Webhook { .. }) | None => 1,
        }
    }

    /// Of a target with these tasks running.
    pub fn of_target(target: &Target, channels: &[Channel], running: &[Task], now: Timestamp) -> Self {
        let own = channels.iter().find(|channel| *channel.name == *target.name);
        match target.way {
            Way::Worker => {
                let heard = own.and_then(|channel| channel.heard);
                // Who works on a task and is not heard has until the end of its lease.
                let works = running.iter().any(|task| task.lease_until.is_some_and(|until| until > now));
                Self { last_heard: heard, deaf: is_silent(heard, now) && !works, trouble: None }
            }
            // All chats are reached through one bot; a chat of its own may have trouble of its own.
            Way::Telegram { .. } => {
                let bot = channels.iter().find(|channel| channel.name == TELEGRAM);
                let bot = bot.map_or(Self { deaf: true, ..Self::default() }, |bot| Self::of_channel(bot, now));
                match own.and_then(|own| own.trouble.clone()) {
                    Some(trouble) => Self { deaf: true, trouble: Some(trouble), ..bot },
                    None => bot,
                }
            }
            // It is heard when there is something to post. What was never tried is not known to be deaf.
            Way::Webhook { .. } => {
                let trouble = own.and_then(|own| own.trouble.clone());
                Self { last_heard: own.and_then(|own| own.heard), deaf: trouble.is_some(), trouble }
            }
        }
    }
}

fn is_silent(heard: Option<Timestamp>, now: Timestamp) -> bool {
    heard.is_none_or(|heard| now.duration_since(heard) > SILENCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::task::{Priority, Status, TaskId};

    const NOW: i64 = 1_800_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(NOW + seconds).unwrap()
    }

    fn target(way: Way) -> Target {
        Target {
            name: "homelab".into(),
            way,
            description: None,
            max_attempts: 1,
            lease: std::time::Duration::from_secs(60),
            deadline: None,
        }
    }

    fn channel(name: &str, heard: Option<i64>, trouble: Option<&str>) -> Channel {
        Channel { name: name.to_owned(), heard: heard.map(at), trouble: trouble.map(str::to_owned) }
    }

    fn leased_until(until: i64) -> Task {
        Task {
            id: TaskId(1),
            target: "homelab".into(),
            content: "work".to_owned(),
            priority: Priority::Normal,
            status: Status::InProgress,
            sender: "model".to_owned(),
            idempotency_key: None,
            max_attempts: 1,
            attempts: 1,
            created: at(-1_000),
            deadline: None,
            acknowledged: None,
            started: None,
            completed: None,
            claim: Some("c".to_owned()),
            claimed_by: Some("agent".to_owned()),
            lease_until: Some(at(until)),
            question: None,
            result: None,
            exit_code: None,
            reason: None,
        }
    }

    #[test]
    fn a_worker_that_is_silent_is_deaf_unless_it_may_be() {
        check(None, &[], true);
        check(Some(0), &[], false);
        check(Some(-120), &[], false);
        check(Some(-121), &[], true);
        check(Some(-3_000), &[leased_until(10)], false);
        check(Some(-3_000), &[leased_until(-10)], true);

        #[track_caller]
        fn check(heard: Option<i64>, running: &[Task], deaf: bool) {
            let channels = heard.map(|heard| channel("homelab", Some(heard), None)).into_iter().collect::<Vec<_>>();
            let hearing = Hearing::of_target(&target(Way::Worker), &channels, running, at(0));
            assert_eq!((hearing.deaf, hearing.last_heard), (deaf, heard.map(at)));
        }
    }

    #[test]
    fn a_chat_hears_as_well_as_the_bot_does() {
        let way = Way::Telegram { chat: None, topic: None };
        let hearing = |channels: &[Channel]| Hearing::of_target(&target(way.clone()), channels, &[], at(0));
        assert!(hearing(&[]).deaf);
        assert!(!hearing(&[channel(TELEGRAM, Some(-5), None)]).deaf);
        assert!(hearing(&[channel(TELEGRAM, Some(-500), None)]).deaf);
        let conflict = hearing(&[channel(TELEGRAM, Some(-5), Some("another poller"))]);
        assert_eq!((conflict.deaf, conflict.trouble.as_deref()), (true, Some("another poller")));
        let kicked = [channel(TELEGRAM, Some(-5), None), channel("homelab", None, Some("not in that chat"))];
        assert_eq!(hearing(&kicked).trouble.as_deref(), Some("not in that chat"));
    }

    #[test]
    fn a_webhook_is_deaf_when_it_was_tried_in_vain() {
        let way = Way::Webhook { url: "https://agent.example/".to_owned(), secret_file: None };
        let hearing = |channels: &[Channel]| Hearing::of_target(&target(way.clone()), channels, &[], at(0));
        assert!(!hearing(&[]).deaf);
        assert!(!hearing(&[channel("homelab", Some(-5_000), None)]).deaf);
        assert!(hearing(&[channel("homelab", Some(-5), Some("refused"))]).deaf);
    }
}
