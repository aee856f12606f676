//! What a server of the old era asks of us.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use nexus_core::session::Era;

use super::desk::Desk;
use super::line::bare;
use crate::wire::{self, RequestId, RpcError};

/// Questions that are open at once. More are refused.
const MOST_QUESTIONS: usize = 16;

/// The code for what we cannot answer just now; the protocol leaves it to implementations.
const NOT_NOW: i32 = -32000;

/// The questions that are being answered.
#[derive(Clone, Debug, Default)]
pub(super) struct Questions(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    open: HashMap<RequestId, Place>,
    so_far: u64,
}

#[derive(Debug)]
struct Place {
    /// Tells it from an earlier one with the same id.
    number: u64,
    /// Cancelled when the server no longer wants to know.
    withdrawn: CancellationToken,
}

/// A place among them; given back when dropped.
struct Open {
    questions: Questions,
    id: RequestId,
    number: u64,
    withdrawn: CancellationToken,
}

impl Questions {
    /// The server withdraws a question. False: there is none with this id.
    pub(super) fn withdraw(&self, id: &RequestId) -> bool {
        let place = self.0.lock().open.remove(id);
        place.inspect(|place| place.withdrawn.cancel()).is_some()
    }

    fn open(&self, id: &RequestId) -> Option<Open> {
        let mut table = self.0.lock();
        if table.open.len() >= MOST_QUESTIONS || table.open.contains_key(id) {
            return None;
        }
        table.so_far += 1;
        let (number, withdrawn) = (table.so_far, CancellationToken::new());
        table.open.insert(id.clone(), Place { number, withdrawn: withdrawn.clone() });
        Some(Open { questions: self.clone(), id: id.clone(), number, withdrawn })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut table = self.questions.0.lock();
        if table.open.get(&self.id).is_some_and(|place| place.number == self.number) {
            table.open.remove(&self.id);
        }
    }
}

impl Desk {
    /// Answers a question: `ping` by ourselves, others by whom they concern. Answers leave as they are ready.
    pub(super) fn questioned(&self, id: &RawValue, method: &str, params: Option<&RawValue>, within: Option<u64>) {
        let id = match RequestId::parse(id) {
            // In the new era servers do not ask, and clients do not answer.
            Some(id) if self.era.get() != Some(&Era::Modern) => id,
            _ => return self.unrelated(within),
        };
        if method == "ping" {
            return self.answer_now(&id, Ok("{}".to_owned()), within);
        }
        match self.questions.open(&id) {
            Some(open) => self.put(open, method, params, within),
            None => {
                self.unrelated(within);
                let busy = RpcError::new(NOT_NOW, "too many questions are open", 200);
                self.answer_now(&id, Err(busy), within);
            }
        }
    }

    fn put(&self, open: Open, method: &str, params: Option<&RawValue>, within: Option<u64>) {
        let concerned = self.concerned(within);
        let (listener, ended) = match concerned {
            Some((listener, ended)) => (Some(listener), ended),
            None => (None, CancellationToken::new()),
        };
        let (host, outbox, over) = (self.host.clone(), self.outbox.clone(), self.over.clone());
        let (method, params) = (method.to_owned(), params.map(RawValue::to_owned));
        self.tasks.spawn("question of an upstream", async move {
            let asked = async {
                match &listener {
                    Some(listener) => listener.asked(&method, params.as_deref()).await,
                    None => host.asked(&method, params.as_deref()).await,
                }
            };
            let answer = tokio::select! {
                answer = asked => answer.map(|result| String::from(Box::<str>::from(result))),
                () = ended.cancelled() => Err(RpcError::new(NOT_NOW, "the request it was about has ended", 200)),
                () = open.withdrawn.cancelled() => return,
                () = over.cancelled() => return,
            };
            // An error means that the connection is gone, and the question with it.
            let _ = outbox.send(bare(wire::response(&open.id, answer), "")).await;
        });
    }

    /// Without waiting: a server that asks faster than it reads gets no answer.
    fn answer_now(&self, id: &RequestId, answer: Result<String, RpcError>, within: Option<u64>) {
        if self.outbox.try_send(bare(wire::response(id, answer), "")).is_err() {
            self.unrelated(within);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_withdrawn_question_does_not_take_the_place_of_the_next_with_its_id() {
        let (questions, id) = (Questions::default(), RequestId::number(1));
        let first = questions.open(&id).unwrap();
        assert!(questions.withdraw(&id) && first.withdrawn.is_cancelled());
        let second = questions.open(&id).unwrap();
        drop(first);
        assert!(questions.open(&id).is_none(), "the second one is still open");
        drop(second);
        assert!(questions.open(&id).is_some());
    }
}
