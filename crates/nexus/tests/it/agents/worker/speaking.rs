//! A command that speaks with the operator.

use serde_json::json;

use super::Worker;
use crate::support::{Hub, LOOK_AGAIN, within};

#[tokio::test]
async fn a_question_waits_for_its_answer_and_the_command_goes_on_with_it() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let script = r#"echo before; "$NEXUS" agent say "half of it is done"; a=$("$NEXUS" agent ask "Which disk?") && echo "so $a it is""#;
    let _worker = Worker::start(&hub, script);
    let task = model.sends("clean up").await;
    model.comes_to(&task, "input_required").await;
    let said = model.all_about(&task).await;
    let said: Vec<(&str, &str)> = said.iter().map(|(kind, words)| (kind.as_str(), words.as_str())).collect();
    assert_eq!(said[1..], [("progress", "before"), ("progress", "half of it is done"), ("question", "Which disk?")]);

    model.answers(&task, "the big one").await;
    let done = model.comes_to(&task, "complete").await;
    assert_eq!(done["result"], "before\nso the big one it is");
}

#[tokio::test]
async fn a_question_of_a_cancelled_task_ends_with_the_reason() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let file = hub.path("said");
    // The one that asks is not interrupted by what interrupts its shell.
    let script = format!(r#"trap '' INT; "$NEXUS" agent ask "May I?" 2> {}; echo "code $?""#, file.display());
    let _worker = Worker::start(&hub, &script);
    let task = model.sends("ask me").await;
    model.comes_to(&task, "input_required").await;
    model.does("cancel_task", json!({ "id": task, "reason": "no longer wanted" })).await;
    model.hears(&task, "code 1").await;
    let why = std::fs::read_to_string(&file).unwrap();
    assert!(why.contains("no longer wanted") || why.contains("cancelled"), "{why}");
}

#[tokio::test]
async fn a_question_whose_asker_was_ended_is_asked_once_and_the_next_try_gets_the_answer() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let (asked, answered) = (hub.path("asked"), hub.path("answered"));
    // As an agent's shell does with a command that takes too long, and the agent after that.
    let script = format!(
        r#"there() {{ while ! [ -e "$1" ]; do sleep 0.05; done; }}
        "$NEXUS" agent ask "Which disk?" & there {}; kill -9 $!; wait $! 2>&-; echo ended; there {}
        a=$("$NEXUS" agent ask "Which disk?"); b=$("$NEXUS" agent ask "Really?"); echo "$a, $b""#,
        asked.display(),
        answered.display()
    );
    let _worker = Worker::start(&hub, &script);
    let task = model.sends("ask in vain").await;
    model.comes_to(&task, "input_required").await;
    std::fs::File::create(&asked).unwrap();
    model.hears(&task, "ended").await;
    model.answers(&task, "the big one").await;
    std::fs::File::create(&answered).unwrap();
    model.hears(&task, "Really?").await;
    model.comes_to(&task, "input_required").await;
    model.answers(&task, "yes").await;
    let done = model.comes_to(&task, "complete").await;
    assert!(done["result"].as_str().unwrap().ends_with("the big one, yes"), "{done}");
    let asked = model.all_about(&task).await.iter().filter(|(kind, _)| kind == "question").count();
    assert_eq!(asked, 2);
}

#[tokio::test]
async fn one_question_after_the_other_gets_its_answer() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let script = r#"a=$("$NEXUS" agent ask one); b=$("$NEXUS" agent ask two); echo "$a $b""#;
    let _worker = Worker::start(&hub, script);
    let task = model.sends("ask twice").await;
    for (question, answer) in [("one", "first"), ("two", "second")] {
        model.hears(&task, question).await;
        model.comes_to(&task, "input_required").await;
        model.answers(&task, answer).await;
    }
    assert_eq!(model.comes_to(&task, "complete").await["result"], "first second");
}

#[tokio::test]
async fn questions_at_once_are_asked_one_by_one_and_get_their_own_answers() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let (one, two) = (hub.path("one"), hub.path("two"));
    let script = format!(
        r#""$NEXUS" agent ask one > {one} & "$NEXUS" agent ask two > {two} & wait; cat {one} {two}"#,
        one = one.display(),
        two = two.display()
    );
    let _worker = Worker::start(&hub, &script);
    let task = model.sends("ask twice").await;
    for asked in 1..=2 {
        let question = within("a question", async {
            loop {
                let said = model.all_about(&task).await;
                let questions: Vec<&String> =
                    said.iter().filter(|(kind, _)| kind == "question").map(|(_, words)| words).collect();
                if questions.len() >= asked {
                    assert_eq!(questions.len(), asked, "the next waits for the answer to this one");
                    return questions[asked - 1].clone();
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        });
        let question = question.await;
        model.answers(&task, &format!("to {question}")).await;
    }
    assert_eq!(model.comes_to(&task, "complete").await["result"], "to one\nto two");
}
