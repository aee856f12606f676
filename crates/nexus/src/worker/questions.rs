//! The questions of one task: one at a time, and none lost because whoever asked it was ended.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use super::outbox::Outbox;

/// Questions without anybody who waits for the answer; of more the first is forgotten.
const MOST_UNHEARD: usize = 16;

/// Where the number of a question at the hub appears, or why it could not be asked.
pub type Asked = watch::Sender<Option<Result<i64, String>>>;

/// An agent's shell ends a command that takes too long, or leaves it behind, and the agent tries it again: the same words
/// mean the same question then, until somebody was given its answer. Other words wait until the hub has room for another.
#[derive(Debug)]
pub struct Questions {
    turn: Semaphore,
    /// Asked, and its answer not yet given to anybody; the last one may still be open.
    unheard: Mutex<VecDeque<Question>>,
}

impl Default for Questions {
    fn default() -> Self {
        Self { turn: Semaphore::new(1), unheard: Mutex::default() }
    }
}

#[derive(Clone, Debug)]
struct Question {
    words: String,
    number: watch::Receiver<Option<Result<i64, String>>>,
}

const ENDED: &str = "the task has ended";

impl Questions {
    /// May be dropped at any moment: what was asked stays asked. `answer` waits for the answer to a number.
    pub async fn ask<F>(&self, words: &str, outbox: &Outbox, answer: impl Fn(i64) -> F) -> Result<String, String>
    where
        F: Future<Output = Result<String, String>>,
    {
        if let Some(question) = self.known(words) {
            return self.hear(question, answer).await;
        }
        let _turn = self.turn.acquire().await.map_err(|_| ENDED)?;
        let question = match self.known(words) {
            Some(question) => question,
            None => {
                let last = self.unheard.lock().back().cloned();
                if let Some(last) = last {
                    let _ = self.hear(last, &answer).await;
                }
                self.put(words, outbox)?
            }
        };
        self.hear(question, answer).await
    }

    /// Whoever asked this has its answer: the same words are another question from now on.
    pub fn told(&self, words: &str) {
        self.unheard.lock().retain(|question| question.words != words);
    }

    fn known(&self, words: &str) -> Option<Question> {
        self.unheard.lock().iter().find(|question| question.words == words).cloned()
    }

    fn put(&self, words: &str, outbox: &Outbox) -> Result<Question, String> {
        let (asked, number) = watch::channel(None);
        let question = Question { words: words.to_owned(), number };
        outbox.ask(words.to_owned(), asked)?;
        let mut unheard = self.unheard.lock();
        if unheard.len() == MOST_UNHEARD {
            unheard.pop_front();
        }
        unheard.push_back(question.clone());
        Ok(question)
    }

    async fn hear<F>(&self, question: Question, answer: impl Fn(i64) -> F) -> Result<String, String>
    where
        F: Future<Output = Result<String, String>>,
    {
        let mut number = question.number.clone();
        let asked = number.wait_for(Option::is_some).await.ok().and_then(|asked| asked.clone());
        match asked.unwrap_or_else(|| Err(ENDED.to_owned())) {
            Ok(number) => answer(number).await,
            Err(why) => {
                // It never was a question.
                self.unheard.lock().retain(|other| !other.number.same_channel(&question.number));
                Err(why)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;
    use crate::worker::outbox::{Item, Rest};

    async fn next(outbox: &Outbox, number: i64) -> String {
        let Some(Item::Question(words, asked)) = outbox.next().await else { panic!("no question") };
        asked.send_replace(Some(Ok(number)));
        words
    }

    async fn nobody_answers(_: i64) -> Result<String, String> {
        pending().await
    }

    /// Asks, and goes away as soon as the question has its number.
    async fn ask_and_go(questions: &Questions, outbox: &Outbox, words: &str, number: i64) {
        tokio::select! {
            answer = questions.ask(words, outbox, nobody_answers) => panic!("{answer:?}"),
            asked = next(outbox, number) => assert_eq!(asked, words),
        }
    }

    #[tokio::test]
    async fn the_same_words_again_wait_for_the_same_answer() {
        let (questions, outbox) = (Questions::default(), Outbox::default());
        ask_and_go(&questions, &outbox, "which?", 7).await;
        let again = questions.ask("which?", &outbox, async |number| Ok(format!("to {number}"))).await;
        assert_eq!(again.unwrap(), "to 7");

        // Whoever heard it may have been ended before it could be told.
        let once_more = questions.ask("which?", &outbox, async |number| Ok(format!("to {number}"))).await;
        assert_eq!(once_more.unwrap(), "to 7");

        questions.told("which?");
        let third = questions.ask("which?", &outbox, async |number| Ok(format!("to {number}")));
        let (answer, _) = tokio::join!(third, next(&outbox, 8));
        assert_eq!(answer.unwrap(), "to 8");
    }

    #[tokio::test]
    async fn who_asks_the_same_beside_one_that_still_waits_gets_the_same_answer() {
        let (questions, outbox) = (Questions::default(), Outbox::default());
        let (answered, open) = watch::channel(false);
        let answer = |number: i64| {
            let mut open = open.clone();
            async move {
                open.wait_for(|answered| *answered).await.unwrap();
                Ok(format!("to {number}"))
            }
        };
        let first = async {
            let heard = questions.ask("which?", &outbox, answer).await;
            questions.told("which?");
            heard.unwrap()
        };
        let operator = async {
            assert_eq!(next(&outbox, 3).await, "which?");
            tokio::task::yield_now().await;
            answered.send_replace(true);
        };
        let second = async {
            tokio::task::yield_now().await;
            questions.ask("which?", &outbox, answer).await.unwrap()
        };
        let (first, second, ()) = tokio::join!(first, second, operator);
        assert_eq!((first.as_str(), second.as_str()), ("to 3", "to 3"));
    }

    #[tokio::test]
    async fn what_the_hub_did_not_take_can_be_asked_again() {
        let (questions, outbox) = (Questions::default(), Outbox::default());
        let refuse = async {
            let Some(Item::Question(_, asked)) = outbox.next().await else { panic!("no question") };
            asked.send_replace(Some(Err("no".to_owned())));
        };
        let (answer, ()) = tokio::join!(questions.ask("which?", &outbox, nobody_answers), refuse);
        assert_eq!(answer.unwrap_err(), "no");
        let again = questions.ask("which?", &outbox, async |number| Ok(format!("to {number}")));
        let (answer, _) = tokio::join!(again, next(&outbox, 4));
        assert_eq!(answer.unwrap(), "to 4");
    }

    #[tokio::test]
    async fn who_goes_before_the_question_has_a_number_leaves_it_to_the_next() {
        let (questions, outbox) = (Questions::default(), Outbox::default());
        tokio::select! {
            biased;
            answer = questions.ask("which?", &outbox, nobody_answers) => panic!("{answer:?}"),
            () = tokio::task::yield_now() => {}
        }
        let again = questions.ask("which?", &outbox, async |number| Ok(format!("to {number}")));
        let (answer, words) = tokio::join!(again, next(&outbox, 9));
        assert_eq!((answer.unwrap().as_str(), words.as_str()), ("to 9", "which?"));
        outbox.close(Rest::All);
        assert!(outbox.next().await.is_none(), "asked once");
    }

    #[tokio::test]
    async fn another_question_waits_for_the_answer_that_nobody_waits_for_any_more() {
        let (questions, outbox) = (Questions::default(), Outbox::default());
        ask_and_go(&questions, &outbox, "which?", 1).await;
        let (answered, mut open) = watch::channel(false);
        open.mark_unchanged();
        let other = questions.ask("really?", &outbox, |number| {
            let mut open = open.clone();
            async move {
                if number == 1 {
                    open.wait_for(|answered| *answered).await.unwrap();
                }
                Ok(format!("to {number}"))
            }
        });
        let operator = async {
            tokio::task::yield_now().await;
            outbox.say("nothing is asked yet".to_owned()).unwrap();
            assert!(matches!(outbox.next().await, Some(Item::Said(_))));
            answered.send_replace(true);
            next(&outbox, 2).await
        };
        let (answer, words) = tokio::join!(other, operator);
        assert_eq!((answer.unwrap().as_str(), words.as_str()), ("to 2", "really?"));
        // The first answer is still there for whoever asks for it.
        let first = questions.ask("which?", &outbox, async |number| Ok(format!("to {number}"))).await;
        assert_eq!(first.unwrap(), "to 1");
    }
}
