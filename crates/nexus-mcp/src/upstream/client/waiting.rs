//! Who waits for what on one connection.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Listener;
use super::outcome::Answer;
use crate::upstream::error::TransportError;

/// Messages that have nothing to do with a request, while it waits. One more and it has failed: whoever sends so many
/// will not answer.
pub(super) const MOST_UNRELATED: usize = 100;

/// Requests that were given up and whose answers may still come.
const MOST_LATE: usize = 1024;

/// For so long a server that has not answered may still work on a request that was given up, and ask about it.
const LONGEST_LATE: Duration = Duration::from_secs(600);

/// Kept under a lock. What is taken out is dropped after the lock is given back: a listener may own what uses it.
#[derive(Default)]
pub(super) struct Table {
    last_id: u64,
    /// In order of their ids, so that the one that has waited longest is first.
    waiting: BTreeMap<u64, Waiting>,
    /// Requests that last as long as the connection, and are not failed by what is unrelated to them.
    lasting: HashMap<u64, Waiting>,
    /// Those that were given up; one answer to each is no surprise.
    late: VecDeque<Late>,
    /// Messages so far that had nothing to do with anything.
    unrelated: usize,
    closed: Option<TransportError>,
}

/// Somebody who waits for an answer.
pub(super) struct Waiting {
    answer: oneshot::Sender<Answer>,
    listener: Option<Arc<dyn Listener>>,
    progressed: Option<Instant>,
    /// Of [`Table::unrelated`], when it was sent.
    unrelated_before: usize,
    /// Unrelated messages on its own stream.
    strays: usize,
    /// Cancelled when a lasting request is accepted.
    accepted: Option<CancellationToken>,
    /// Questions that belong to it end with it; made with the first of them.
    questions: Option<CancellationToken>,
}

/// A request that was given up. Its server may not know yet, and still ask.
struct Late {
    id: u64,
    since: Instant,
    asker: Asker,
}

/// Whom questions about a request would have gone to.
enum Asker {
    /// They were not for anybody.
    Nobody,
    /// The listener's session, where it is known.
    Session(Option<Uuid>),
}

/// How long a request means to wait.
#[derive(Debug)]
pub(super) enum Kind {
    Once,
    /// Until it is ended; the token is cancelled when the server has accepted it.
    Lasting(CancellationToken),
}

/// To whom something belongs that the server says, and when that is over.
pub(super) type Concerned = (Arc<dyn Listener>, CancellationToken);

impl Table {
    pub(super) fn add(
        &mut self,
        listener: Option<Arc<dyn Listener>>,
        kind: Kind,
    ) -> Result<(u64, oneshot::Receiver<Answer>), TransportError> {
        if let Some(why) = &self.closed {
            return Err(why.clone());
        }
        let (answer, awaited) = oneshot::channel();
        self.last_id += 1;
        let mut waiting = Waiting {
            answer,
            listener,
            progressed: None,
            unrelated_before: self.unrelated,
            strays: 0,
            accepted: None,
            questions: None,
        };
        match kind {
            Kind::Once => self.waiting.insert(self.last_id, waiting),
            Kind::Lasting(accepted) => {
                waiting.accepted = Some(accepted);
                self.lasting.insert(self.last_id, waiting)
            }
        };
        Ok((self.last_id, awaited))
    }

    pub(super) fn take(&mut self, id: u64) -> Option<Waiting> {
        self.waiting.remove(&id).or_else(|| self.lasting.remove(&id))
    }

    pub(super) fn take_lasting(&mut self, id: u64) -> Option<Waiting> {
        self.lasting.remove(&id)
    }

    /// Those of one answer each; not those that last.
    pub(super) fn take_waiting(&mut self) -> Vec<Waiting> {
        let waiting = std::mem::take(&mut self.waiting);
        waiting.iter().for_each(|(id, waiting)| self.note_late(*id, waiting.asker()));
        waiting.into_values().collect()
    }

    /// Notes that an answer may come for which nobody waits any more.
    pub(super) fn give_up(&mut self, id: u64) -> Option<Waiting> {
        let waiting = self.take(id);
        self.note_late(id, waiting.as_ref().map_or(Asker::Nobody, Waiting::asker));
        waiting
    }

    /// What is noted first stays: it was said by who still knew the request.
    fn note_late(&mut self, id: u64, asker: Asker) {
        if self.late.iter().any(|late| late.id == id) {
            return;
        }
        if self.late.len() == MOST_LATE {
            self.late.pop_front();
        }
        self.late.push_back(Late { id, since: Instant::now(), asker });
    }

    /// Whether such an answer was to be expected. Once for each request.
    pub(super) fn is_late(&mut self, id: Option<u64>) -> bool {
        let place = self.late.iter().position(|late| Some(late.id) == id);
        place.and_then(|place| self.late.remove(place)).is_some()
    }

    /// Everybody; nobody is added from now on. None: that had been done.
    pub(super) fn close(&mut self, why: TransportError) -> Option<Vec<Waiting>> {
        if self.closed.is_some() {
            return None;
        }
        self.closed = Some(why);
        let lasting = std::mem::take(&mut self.lasting);
        Some(std::mem::take(&mut self.waiting).into_values().chain(lasting.into_values()).collect())
    }

    pub(super) fn why_closed(&self) -> Option<&TransportError> {
        self.closed.as_ref()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Notes progress. Gives who wants to hear of it.
    pub(super) fn progress(&mut self, id: u64, now: Instant) -> Option<Arc<dyn Listener>> {
        let waiting = self.waiting.get_mut(&id)?;
        waiting.progressed = Some(now);
        waiting.listener.clone()
    }

    /// When the server last told of progress, or had a question open.
    pub(super) fn progressed(&self, id: u64) -> Option<Instant> {
        let waiting = self.waiting.get(&id)?;
        let asking = waiting.listener.as_ref().and_then(|listener| listener.last_asking());
        waiting.progressed.max(asking)
    }

    /// The token of a lasting request that the server has accepted.
    pub(super) fn accepted(&self, id: u64) -> Option<CancellationToken> {
        self.lasting.get(&id)?.accepted.clone()
    }

    /// Counts a message that nobody can use. Gives those who have now waited through too many.
    pub(super) fn count_unrelated(&mut self, within: Option<u64>) -> Vec<Waiting> {
        if let Some(id) = within {
            let waiting = match self.waiting.get_mut(&id) {
                Some(waiting) => Some(waiting),
                None => self.lasting.get_mut(&id),
            };
            let Some(waiting) = waiting else { return Vec::new() };
            waiting.strays += 1;
            let flooded = waiting.strays > MOST_UNRELATED;
            return flooded.then(|| self.give_up(id)).flatten().into_iter().collect();
        }
        self.unrelated += 1;
        let mut flooded = Vec::new();
        while let Some((id, first)) = self.waiting.first_key_value() {
            if self.unrelated - first.unrelated_before <= MOST_UNRELATED {
                break;
            }
            let id = *id;
            flooded.extend(self.give_up(id));
        }
        flooded
    }

    /// The request on whose stream something came; on a shared stream the only one that listens, or the first of those
    /// that are all for one session. Nobody, while it may be about a request that somebody else has given up.
    pub(super) fn concerned(&mut self, within: Option<u64>) -> Option<Concerned> {
        let id = match within {
            Some(id) => id,
            None => {
                let mut listening = self.waiting.iter().filter(|(_, waiting)| waiting.listener.is_some());
                let (id, first) = listening.next()?;
                let session = first.session();
                if listening.any(|(_, other)| session.is_none() || other.session() != session) {
                    return None;
                }
                if self.late.iter().any(|late| late.may_be_of_another(session)) {
                    return None;
                }
                *id
            }
        };
        let waiting = self.waiting.get_mut(&id)?;
        let listener = waiting.listener.clone()?;
        Some((listener, waiting.questions.get_or_insert_default().clone()))
    }
}

impl Waiting {
    pub(super) fn settle(self, answer: Answer) {
        // Whoever waited may have gone this very moment.
        let _ = self.answer.send(answer);
        if let Some(questions) = self.questions {
            questions.cancel();
        }
    }

    /// Nobody is there to be told.
    pub(super) fn dismiss(self) {
        if let Some(questions) = self.questions {
            questions.cancel();
        }
    }

    fn session(&self) -> Option<Uuid> {
        self.listener.as_ref().and_then(|listener| listener.session())
    }

    fn asker(&self) -> Asker {
        self.listener.as_ref().map_or(Asker::Nobody, |listener| Asker::Session(listener.session()))
    }
}

impl Late {
    fn may_be_of_another(&self, session: Option<Uuid>) -> bool {
        match self.asker {
            Asker::Nobody => false,
            Asker::Session(own) => (own.is_none() || own != session) && self.since.elapsed() < LONGEST_LATE,
        }
    }
}
