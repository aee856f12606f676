//! One task from its beginning to its end: run once, and told to the hub until the hub has it.

use std::ffi::OsString;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use tracing::{info, warn};

use super::Worker;
use super::backoff::Backoff;
use super::beat::{Stop, Why, lost};
use super::command::{Ended, How};
use super::link::{PATIENCE, Refused};
use super::outbox::{Item, Outbox, Rest};
use super::questions::Questions;
use super::socket::{Order, Socket};

/// How long the hub may wait with its answer while a question is open.
const ASKING: Duration = Duration::from_secs(50);

/// The hub may refuse a report for a reason that passes (too many calls at once); not for ever.
const MOST_REFUSALS: u32 = 5;

/// A task that this worker has claimed.
#[derive(Debug)]
pub struct Errand {
    pub task: String,
    pub claim: String,
    content: String,
}

impl Errand {
    /// From the answer to `claim_task`. None: there was no task.
    pub fn read(reply: &Value, claim: &str) -> Option<Self> {
        let task = &reply["task"];
        Some(Self {
            task: task["id"].as_str()?.to_owned(),
            claim: claim.to_owned(),
            content: task["content"].as_str()?.to_owned(),
        })
    }

    /// What is said under the same name twice is taken once.
    fn source(&self, outbox: &Outbox) -> String {
        format!("w:{}:{}", self.claim, outbox.number())
    }

    fn report(&self, outbox: &Outbox) -> Value {
        json!({ "task": self.task, "claim": self.claim, "source": self.source(outbox) })
    }
}

impl Worker {
    /// Comes back when the hub has heard of its end, or does not want to.
    pub(super) async fn carry_out(&self, errand: &Errand, stop: &Stop) {
        info!("{} begun", errand.task);
        let outbox = Outbox::default();
        let working = async {
            let ended = self.work(errand, &outbox, stop).await;
            outbox.close(if ended.why.is_some() { Rest::Few } else { Rest::All });
            ended
        };
        let (ended, ()) = tokio::join!(working, self.deliver(errand, &outbox, stop));
        match &ended.why {
            None => info!("{} ended: {}", errand.task, ended.how),
            Some(Why::Hub(why)) => info!("{} stopped, {why}: {}", errand.task, ended.how),
            Some(Why::Worker) => info!("{} stopped with this worker: {}", errand.task, ended.how),
        }
        self.tell_the_end(errand, &outbox, ended).await;
    }

    async fn work(&self, errand: &Errand, outbox: &Outbox, stop: &Stop) -> Ended {
        let socket = match Socket::open(&self.sockets, &errand.task) {
            Ok(socket) => socket,
            Err(error) => {
                let how = How::NotStarted(format!("no socket for it can be opened: {error}"));
                return Ended { how, why: None };
            }
        };
        let env = [
            ("NEXUS_TASK", OsString::from(&errand.task)),
            ("NEXUS_TARGET", OsString::from(&self.settings.target)),
            ("NEXUS_AGENT_SOCKET", socket.path.clone().into_os_string()),
        ];
        let env = env.map(|(name, value)| (OsString::from(name), value)).to_vec();
        let questions = Questions::default();
        let serving =
            socket.serve(|order| self.speak(errand, outbox, stop, order, &questions), |asked| questions.told(asked));
        self.settings.command.run(&errand.content, env, outbox, stop, serving).await
    }

    /// What the command wants to say or to know.
    async fn speak(
        &self,
        errand: &Errand,
        outbox: &Outbox,
        stop: &Stop,
        order: Order,
        questions: &Questions,
    ) -> Result<String, String> {
        let question = match order {
            Order::Say(words) => return outbox.say(words).map(|()| String::new()),
            Order::Ask(question) => question,
        };
        tokio::select! {
            answer = questions.ask(&question, outbox, |number| self.wait_for_answer(errand, number)) => answer,
            () = stop.stopped() => Err(match stop.why() {
                Some(Why::Hub(why)) => format!("{} was stopped: {why}", errand.task),
                Some(Why::Worker) | None => "the worker was stopped".to_owned(),
            }),
        }
    }

    async fn wait_for_answer(&self, errand: &Errand, number: i64) -> Result<String, String> {
        let arguments = json!({
            "task": errand.task, "claim": errand.claim, "question_id": number, "wait_seconds": ASKING.as_secs(),
        });
        let mut refusals = Refusals::default();
        loop {
            match self.link.call("ask_operator", &arguments, ASKING + PATIENCE).await {
                Ok(reply) => {
                    if let Some(answer) = reply["answer"].as_str() {
                        return Ok(answer.to_owned());
                    }
                    if reply["stop"] == true {
                        let status = reply["status"].as_str().unwrap_or("stopped");
                        return Err(format!("{} is {status}; there will be no answer", errand.task));
                    }
                    // A hub that ends answers early.
                    sleep(Duration::from_millis(200)).await;
                }
                Err(refused) => refusals.again(refused).await?,
            }
        }
    }

    /// Carries the reports to the hub, one after the other, until there will be no more.
    async fn deliver(&self, errand: &Errand, outbox: &Outbox, stop: &Stop) {
        while let Some(item) = outbox.next().await {
            let delivered = match item {
                Item::Output(words) | Item::Said(words) => {
                    let words = words.trim_end();
                    if words.trim_start().is_empty() {
                        continue;
                    }
                    let mut report = errand.report(outbox);
                    report["content"] = words.into();
                    self.report(errand, "post_update", &report).await
                }
                Item::Question(words, asked) => {
                    let mut report = errand.report(outbox);
                    report["question"] = words.into();
                    let delivered = self.report(errand, "ask_operator", &report).await;
                    let number = delivered.as_ref().map_err(ToString::to_string).and_then(|reply| {
                        reply["question_id"].as_i64().ok_or_else(|| "the hub did not take the question".to_owned())
                    });
                    asked.send_replace(Some(number));
                    delivered
                }
            };
            match delivered {
                Ok(reply) if reply["stop"] == true => {
                    let status = reply["status"].as_str().unwrap_or("no longer ours");
                    stop.now(Why::Hub(format!("it is {status}")));
                }
                Ok(_) => {}
                Err(refused) => warn!("the hub did not take a report of {}: {refused}", errand.task),
            }
            if stop.why().is_some() {
                outbox.hurry();
            }
        }
    }

    /// One report. Refused for good only after a few tries, or at once when the task is not ours any more.
    async fn report(&self, errand: &Errand, tool: &str, report: &Value) -> Result<Value, Refused> {
        let mut refusals = Refusals::default();
        loop {
            let refused = match self.link.call(tool, report, PATIENCE).await {
                Ok(reply) => return Ok(reply),
                Err(refused) => refused,
            };
            let claims = json!({ "target": self.settings.target, "claims": [errand.claim] });
            if let Ok(heard) = self.link.call("peek_tasks", &claims, PATIENCE).await
                && lost(&errand.claim, &heard).is_some()
            {
                return Err(refused);
            }
            refusals.again(refused).await.map_err(Refused)?;
        }
    }

    async fn tell_the_end(&self, errand: &Errand, outbox: &Outbox, ended: Ended) {
        let mut report = errand.report(outbox);
        let tail = outbox.tail();
        let code = match &ended.how {
            How::Exited(status) => status.code(),
            How::NotStarted(_) => None,
        };
        let tool = match (ended.why, code) {
            // The hub has settled its end already; what became of the command is worth knowing all the same.
            (Some(Why::Hub(why)), _) => {
                report["content"] = format!("the command was stopped, {why}: {}", ended.how).into();
                report["kind"] = "note".into();
                "post_update"
            }
            (Some(Why::Worker), _) => {
                report["reason"] = with_tail("the worker was stopped", &tail).into();
                "fail_task"
            }
            (None, Some(0)) => {
                report["result"] = if tail.trim().is_empty() { "(no output)".into() } else { tail.into() };
                report["exit_code"] = 0.into();
                "complete_task"
            }
            (None, code) => {
                report["reason"] = with_tail(&ended.how.to_string(), &tail).into();
                if let Some(code) = code {
                    report["exit_code"] = code.into();
                }
                "fail_task"
            }
        };
        if let Err(refused) = self.report(errand, tool, &report).await {
            warn!("the hub did not take the end of {}: {refused}", errand.task);
        }
    }
}

/// How often a report was refused.
#[derive(Debug, Default)]
struct Refusals {
    times: u32,
    backoff: Backoff,
}

impl Refusals {
    async fn again(&mut self, refused: Refused) -> Result<(), String> {
        self.times += 1;
        if self.times >= MOST_REFUSALS {
            return Err(refused.0);
        }
        sleep(self.backoff.next()).await;
        Ok(())
    }
}

fn with_tail(reason: &str, tail: &str) -> String {
    if tail.trim().is_empty() { reason.to_owned() } else { format!("{reason}\n{tail}") }
}
