//! What servers of the old era ask, who is asked, and how much of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::bench::*;
use crate::upstream::client::{Ask, Client, Options};
use crate::upstream::transport::memory::Far;

fn question(far: &Far, id: &str, method: &str) {
    far.say(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": { "n": id } }).to_string());
}

/// A server of the old era that puts questions when `tools/call` comes, and gives the client's answers to the test.
async fn asking(
    options: Options,
    questions: &'static [(&'static str, &'static str)],
) -> (Client, mpsc::UnboundedReceiver<Value>) {
    let (answers, given) = mpsc::unbounded_channel();
    let client = connect(options, move |far| {
        let answers = answers.clone();
        old_era(far, move |far, heard| match heard.method.as_str() {
            "tools/call" => {
                if heard.params()["name"] == "ask" {
                    questions.iter().for_each(|(id, method)| question(far, id, method));
                }
                if heard.params()["name"] == "end" {
                    (1..=heard.id).for_each(|id| answer(far, id, json!({})));
                }
            }
            "" => drop(answers.send(heard.message)),
            _ => {}
        })
    });
    (client.await.unwrap(), given)
}

#[tokio::test]
async fn a_ping_is_answered() {
    let (client, mut given) = asking(options(), &[("p", "ping")]).await;
    let call = client.request(Ask::tool("ask", "{}"));
    tokio::select! {
        answer = call => panic!("{answer:?}"),
        given = given.recv() => assert_eq!(given.unwrap(), json!({ "jsonrpc": "2.0", "id": "p", "result": {} })),
    }
}

#[tokio::test]
async fn a_question_goes_to_the_one_request_it_can_be_about() {
    let (host, listener) = (Arc::new(Diary::default()), Arc::new(Diary::default()));
    let (client, mut given) = asking(options_with(&host), &[("q", "elicitation/create")]).await;
    let call = client.request(Ask::tool("ask", "{}").listened_by(listener.clone()));
    tokio::select! {
        answer = call => panic!("{answer:?}"),
        given = given.recv() => {
            let expected = json!({ "jsonrpc": "2.0", "id": "q", "result": { "to": "elicitation/create" } });
            assert_eq!(given.unwrap(), expected);
        }
    }
    assert_eq!(listener.read(), [r#"asked elicitation/create {"n":"q"}"#]);
    assert_eq!(host.read(), [""; 0]);
}

#[tokio::test]
async fn a_question_among_requests_of_several_sessions_goes_to_the_host() {
    let one = Some(Uuid::from_u128(1));
    check([one, Some(Uuid::from_u128(2))], "host").await;
    check([None, None], "host").await;
    check([one, None], "host").await;
    check([one, one], "listener").await;

    async fn check(sessions: [Option<Uuid>; 2], expected: &str) {
        let host = Arc::new(Diary::default());
        let [first, second] = sessions.map(|session| Arc::new(Diary { session, ..Diary::default() }));
        let (client, mut given) = asking(options_with(&host), &[("q", "roots/list")]).await;
        let calls = async {
            tokio::join!(
                client.request(Ask::tool("wait", "{}").listened_by(first.clone())),
                client.request(Ask::tool("ask", "{}").listened_by(second.clone())),
            )
        };
        tokio::select! {
            answers = calls => panic!("{answers:?}"),
            given = given.recv() => assert!(given.is_some()),
        }
        let asked = [("host", &host), ("listener", &first), ("listener", &second)];
        let asked: Vec<&str> =
            asked.iter().filter(|(_, diary)| diary.asked.load(Ordering::SeqCst) > 0).map(|(who, _)| *who).collect();
        assert_eq!(asked, [expected], "{sessions:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_may_be_about_what_another_session_gave_up_goes_to_the_host() {
    let (one, two) = (Some(Uuid::from_u128(1)), Some(Uuid::from_u128(2)));
    check([one, two], Meanwhile::Nothing, "host").await;
    check([None, two], Meanwhile::Nothing, "host").await;
    check([None, None], Meanwhile::Nothing, "host").await;
    check([two, two], Meanwhile::Nothing, "listener").await;
    check([one, two], Meanwhile::TheAnswerCame, "listener").await;
    check([one, two], Meanwhile::TenMinutes, "listener").await;

    #[derive(Clone, Copy, Debug)]
    enum Meanwhile {
        Nothing,
        TheAnswerCame,
        TenMinutes,
    }

    async fn check(sessions: [Option<Uuid>; 2], meanwhile: Meanwhile, expected: &str) {
        let host = Arc::new(Diary::default());
        let [gone, there] = sessions.map(|session| Arc::new(Diary { session, ..Diary::default() }));
        let (client, mut given) = asking(options_with(&host), &[("q", "roots/list")]).await;
        let given_up = Ask::tool("wait", "{}").listened_by(gone.clone()).within(Duration::from_secs(1));
        client.request(given_up).await.unwrap_err();
        match meanwhile {
            Meanwhile::Nothing => {}
            Meanwhile::TheAnswerCame => drop(client.request(Ask::tool("end", "{}")).await.unwrap()),
            Meanwhile::TenMinutes => tokio::time::advance(Duration::from_secs(600)).await,
        }
        // The first that the client says now is that the request is cancelled.
        let answered = async { while given.recv().await.unwrap()["id"] != "q" {} };
        tokio::select! {
            answer = client.request(Ask::tool("ask", "{}").listened_by(there.clone())) => panic!("{answer:?}"),
            () = answered => {}
        }
        let asked = |diary: &Diary| diary.asked.load(Ordering::SeqCst);
        let who = if asked(&host) == 1 { "host" } else { "listener" };
        assert_eq!((who, asked(&gone), asked(&host) + asked(&there)), (expected, 0, 1), "{sessions:?} {meanwhile:?}");
    }
}

#[tokio::test]
async fn where_nobody_answers_the_server_is_told_so() {
    let (client, mut given) = asking(options(), &[("q", "sampling/createMessage")]).await;
    tokio::select! {
        answer = client.request(Ask::tool("ask", "{}")) => panic!("{answer:?}"),
        given = given.recv() => assert_eq!(given.unwrap()["error"]["code"], -32601),
    }
}

#[tokio::test]
async fn a_storm_of_questions_is_refused_beyond_sixteen() {
    const STORM: [(&str, &str); 20] = [
        ("0", "roots/list"),
        ("1", "roots/list"),
        ("2", "roots/list"),
        ("3", "roots/list"),
        ("4", "roots/list"),
        ("5", "roots/list"),
        ("6", "roots/list"),
        ("7", "roots/list"),
        ("8", "roots/list"),
        ("9", "roots/list"),
        ("10", "roots/list"),
        ("11", "roots/list"),
        ("12", "roots/list"),
        ("13", "roots/list"),
        ("14", "roots/list"),
        ("15", "roots/list"),
        ("16", "roots/list"),
        ("17", "roots/list"),
        ("18", "roots/list"),
        ("18", "roots/list"),
    ];
    let host = Arc::new(Diary { answering: Answering::Never, ..Diary::default() });
    let (client, mut given) = asking(options_with(&host), &STORM).await;
    let call = client.request(Ask::tool("ask", "{}"));
    let refusals = async {
        let mut refused = Vec::new();
        while refused.len() < 4 {
            let refusal = given.recv().await.unwrap();
            assert_eq!(refusal["error"]["message"], "too many questions are open");
            refused.push(refusal["id"].as_str().unwrap().to_owned());
        }
        refused
    };
    tokio::select! {
        answer = call => panic!("{answer:?}"),
        refused = refusals => assert_eq!(refused, ["16", "17", "18", "18"]),
    }
    assert_eq!(host.has(16).await.len(), 16);
}

#[tokio::test]
async fn a_question_ends_with_the_request_it_is_about() {
    let listener = Arc::new(Diary { answering: Answering::Never, ..Diary::default() });
    let (client, mut given) = asking(options(), &[("q", "elicitation/create")]).await;
    let call = client.request(Ask::tool("ask", "{}").listened_by(listener.clone()));
    let ended = async {
        listener.has(1).await;
        client.request(Ask::tool("end", "{}")).await
    };
    let (call, ended) = tokio::join!(call, ended);
    assert!(call.is_ok() && ended.is_ok(), "{call:?} {ended:?}");
    assert_eq!(given.recv().await.unwrap()["error"]["message"], "the request it was about has ended");
}

#[tokio::test]
async fn a_question_that_is_withdrawn_gets_no_answer() {
    let (answers, mut given) = mpsc::unbounded_channel();
    let host = Arc::new(Diary { answering: Answering::Never, ..Diary::default() });
    let client = connect(options_with(&host), move |far| {
        let answers = answers.clone();
        old_era(far, move |far, heard| match heard.method.as_str() {
            "tools/list" => {
                question(far, "q", "roots/list");
                answer(far, heard.id, json!({ "tools": [] }));
            }
            "ping" => {
                notice(far, "notifications/cancelled", json!({ "requestId": "q" }));
                question(far, "p", "ping");
                answer(far, heard.id, json!({}));
            }
            _ => drop(answers.send(heard.message)),
        })
    });
    let client = client.await.unwrap();
    client.request(Ask::new("tools/list")).await.unwrap();
    host.has(1).await;
    client.ping().await.unwrap();
    assert_eq!(given.recv().await.unwrap()["id"], "p");
    // The place is free again: the same id can be asked under once more.
    client.request(Ask::new("tools/list")).await.unwrap();
    assert_eq!(host.has(2).await.len(), 2);
}

#[tokio::test]
async fn in_the_new_era_a_question_is_not_answered_but_counted() {
    let client = connect(options(), |far| {
        new_era(far, json!({}), |far, heard| {
            assert_eq!(heard.method, "tools/call");
            (0..101).for_each(|_| question(far, "q", "ping"));
        })
    });
    let failed = client.await.unwrap().request(Ask::tool("t", "{}")).await.unwrap_err();
    assert_eq!(failed.to_string(), "the server sent 101 unrelated messages instead of an answer");
}

#[tokio::test]
async fn what_is_said_within_a_request_goes_to_its_listener_and_else_to_the_host() {
    let (host, listener) = (Arc::new(Diary::default()), Arc::new(Diary::default()));
    let client = connect(options_with(&host), |far| {
        old_era(far, |far, heard| {
            notice(far, "notifications/message", json!({ "data": heard.method }));
            notice(far, "notifications/progress", json!({ "progressToken": heard.id, "progress": 1 }));
            notice(far, "notifications/prompts/list_changed", json!({}));
            notice(far, "notifications/resources/updated", json!({ "uri": "a://b" }));
            answer(far, heard.id, json!({}));
        })
    });
    let client = client.await.unwrap();
    client.request(Ask::tool("t", "{}").listened_by(listener.clone())).await.unwrap();
    assert_eq!(listener.read().len(), 2);
    assert_eq!(listener.read()[0], r#"logged {"data":"tools/call"}"#);
    assert_eq!(host.read(), ["changed prompts"]);

    client.subscribe("a://b").await.unwrap();
    let rest = ["changed prompts", r#"logged {"data":"resources/subscribe"}"#, "changed prompts", "updated a://b"];
    assert_eq!(host.read(), rest);
}
