//! `pull_updates`: what agents have said, in the order in which the hub heard it.

use nexus_core::prelude::*;

use super::failed;
use super::shown::{self, ShownUpdate};
use super::vigil::Vigil;
use super::words::{Id, Wait};
use crate::agents::Bridge;
use crate::agents::queue::{QueueError, Topic, Wanted};
use crate::agents::task::TaskId;
use crate::when;

const DEFAULT: i64 = 100;
const MOST: i64 = 1_000;
/// Updates that are read from the store at a time: a page is full long before a thousand long ones are read.
const HANDFUL: i64 = 50;

/// Gives what agents have said and what happened to their tasks: progress, questions, results.
///
/// Without `since` and `cursor` it goes on where your key's last such pull ended, with the same `target` and `task`;
/// the first one gives everything. That place is kept safely and is moved by no other pull. If an answer got lost on
/// its way to you, give the `next_cursor` of the last one that you have as `cursor`.
///
/// An update of the kind `question` waits for `answer_task`; `complete`, `error`, `cancelled` and `dead` end a task.
/// While `more` is true there is more right now: pull again. To follow work as it happens, give `wait_seconds`: the
/// call comes back as soon as there is something new, and empty when there is nothing until then.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PullUpdates {
    /// Only updates since then: a time (RFC 3339), a date, or `30m`, `2h`, `7d` ago.
    since: Option<String>,
    /// Only updates behind this place: the `next_cursor` of an earlier reply, or the id of an update as text.
    cursor: Option<Cursor>,
    /// Only updates of this target.
    target: Option<String>,
    /// Only updates of this task, for instance `t17`.
    task: Option<Id>,
    /// How many seconds to wait for an update if there is none, 0 to 60; without it, 0.
    #[schemars(range(min = 0, max = 60))]
    wait_seconds: Option<Wait>,
    /// How many updates, 1 to 1000; 100 if not given. Fewer come when they are long.
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<Limit>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
struct Cursor(i64);

#[derive(Debug, Error)]
#[error("it is not a cursor of an earlier reply; one is a number as text, such as \"17\"")]
struct BadCursor;

impl TryFrom<String> for Cursor {
    type Error = BadCursor;

    fn try_from(text: String) -> Result<Self, BadCursor> {
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| plain).map(Self).ok_or(BadCursor)
    }
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "i64")]
#[schemars(with = "i64")]
struct Limit(i64);

#[derive(Debug, Error)]
#[error("a page has 1 to {MOST} updates")]
struct BadLimit;

impl TryFrom<i64> for Limit {
    type Error = BadLimit;

    fn try_from(limit: i64) -> Result<Self, BadLimit> {
        if (1..=MOST).contains(&limit) { Ok(Self(limit)) } else { Err(BadLimit) }
    }
}

#[derive(Debug, Error)]
#[error("`since` is not a time: {0}")]
struct BadSince(String);

#[derive(Debug, Serialize, JsonSchema)]
pub struct Pulled {
    /// Oldest first.
    updates: Vec<ShownUpdate>,
    /// Where this page ends: give it as `cursor` to go on from here.
    next_cursor: String,
    /// Where this page began.
    from_cursor: String,
    /// There is more right now.
    more: bool,
}

/// Where a pull begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// Where the key stopped, which moves.
    Bookmark,
    Here(i64),
}

impl Tool<Bridge> for PullUpdates {
    const NAME: &'static str = "pull_updates";
    const ACCESS: Access = Access::Read;
    type Reply = Pulled;

    fn summary(&self) -> String {
        let task = self.task.map(|task| format!(" of {}", task.0)).unwrap_or_default();
        let target = self.target.as_deref().map(|name| format!(" from {}", shown::in_one_line(name, 100)));
        format!("read the updates{task}{}", target.unwrap_or_default())
    }

    async fn run(self, bridge: &Bridge, cx: &CallCx) -> ToolResult<Pulled> {
        let since = self.since.as_deref().map(|since| when::past(since.trim()).map_err(BadSince));
        let since = since.transpose().map_err(ToolError::refused)?;
        let target = self.target.as_deref().map(|name| bridge.targets.find(Some(name))).transpose()?;
        let task = self.task.map(|id| id.0);
        if let Some(id) = task
            && bridge.queue.task(id).await.map_err(failed)?.is_none()
        {
            return Err(failed(QueueError::Unknown(id)));
        }
        let from = match (self.cursor, since) {
            (Some(cursor), _) => From::Here(cursor.0),
            (None, Some(_)) => From::Here(0),
            (None, None) => From::Bookmark,
        };
        let limit = self.limit.map_or(DEFAULT, |limit| limit.0);
        let wanted = Wanted { after: 0, since, target: target.map(|target| target.name.clone()), task, limit };
        let reader = Reader { bridge, key: cx.principal.id.as_str(), from, wanted };

        let wait = self.wait_seconds.unwrap_or_default();
        let mut vigil = Vigil::new(bridge, cx, &Topic::Updates, wait, "an update");
        loop {
            let page = reader.page().await.map_err(failed)?;
            if !page.updates.is_empty() || !vigil.goes_on().await {
                return Ok(page);
            }
        }
    }
}

struct Reader<'a> {
    bridge: &'a Bridge,
    key: &'a str,
    from: From,
    wanted: Wanted,
}

impl Reader<'_> {
    /// What there is now. The bookmark has moved when it comes back.
    async fn page(&self) -> Result<Pulled, QueueError> {
        let queue = &self.bridge.queue;
        let (target, task): (Option<&str>, Option<TaskId>) = (self.wanted.target.as_deref(), self.wanted.task);
        let after = match self.from {
            From::Here(after) => after,
            From::Bookmark => queue.bookmark(self.key, target, task).await?.unwrap_or(0),
        };
        // Before the look: what is said behind it may be missing on this page, and must be on the next.
        let newest = queue.last_update().await?;
        let (updates, more) = self.read(after).await?;
        let last = updates.last().map(ShownUpdate::id);
        if let (From::Bookmark, Some(last)) = (self.from, last) {
            queue.move_bookmark(self.key, target, task, last).await?;
        }
        let next = last.unwrap_or_else(|| after.max(newest));
        Ok(Pulled { updates, next_cursor: next.to_string(), from_cursor: after.to_string(), more })
    }

    /// As many as fit, and whether there are more.
    async fn read(&self, mut after: i64) -> Result<(Vec<ShownUpdate>, bool), QueueError> {
        let limit = self.wanted.limit;
        // One that comes alone comes whole.
        let most = if limit == 1 { usize::MAX } else { shown::UPDATE };
        let (mut updates, mut bytes, mut left) = (Vec::new(), 0, limit);
        loop {
            let some = Wanted { after, limit: HANDFUL.min(left + 1), ..self.wanted.clone() };
            let found = self.bridge.queue.updates(&some).await?;
            let all = i64::try_from(found.len()).is_ok_and(|found| found < some.limit);
            for update in found {
                after = update.seq;
                let update = ShownUpdate::of(update, most);
                bytes += update.size();
                if left == 0 || (!updates.is_empty() && bytes > shown::PAGE) {
                    return Ok((updates, true));
                }
                updates.push(update);
                left -= 1;
            }
            if all {
                return Ok((updates, false));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_a_plain_number_and_nothing_else() {
        for (good, at) in [("0", 0), ("17", 17), ("9223372036854775807", i64::MAX)] {
            assert_eq!(Cursor::try_from(good.to_owned()).unwrap().0, at);
        }
        for bad in ["", " 1", "-1", "+1", "1.5", "0x10", "abc", "9223372036854775808", "١"] {
            assert!(Cursor::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
