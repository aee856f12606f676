//! The words: what the human is asked, what the model is told while it waits, and what counts as an answer.

use serde_json::{Value, json};

use nexus_core::approval::{Approvals, ApproveWrites, Code, Mode, Scope, Shown};
use nexus_core::gate::{About, Answer, Why};
use nexus_core::hub::Pending;
use nexus_core::name::ServerName;
use nexus_core::text;
use nexus_core::tool::Tool;

use crate::exchange::Exchange;

/// Characters of the start and of the end of a summary that the question shows: what is at the end of a long
/// command must not stay unseen. What fits in both together is shown whole.
const HEAD: usize = 1_400;
const TAIL: usize = 600;

/// Why a call got the pending reply: it was put to the client and nobody answered, or its turn never came.
pub(super) const UNANSWERED: &str = "unanswered";
pub(super) const NOT_ASKED: &str = "not_asked";

/// The parameters of `elicitation/create`.
pub(super) fn elicitation(pending: &Pending, approvals: &Approvals) -> Value {
    let about = &pending.question.about;
    let message = match (about, named(pending, approvals)) {
        (About::Unlock, _) => format!("Allow all writes of this session? {}", quoted(pending.summary())),
        (_, Some(waiting)) => {
            let how_far = match pending.arguments().parse::<ApproveWrites>().ok().and_then(|asked| asked.scope) {
                None | Some(Scope::Once) => "Allow this once?",
                Some(Scope::Session) => "Allow this, and every tool of the same server for this session?",
                Some(Scope::Each) => "Allow the use of this tool's server, and ask about each of its calls?",
            };
            format!("{how_far} {} on {}: {}", waiting.tool, waiting.node, quoted(&waiting.summary))
        }
        (About::Connect(server), None) => {
            let known = pending.introduction().map(|known| format!(" It is {}.", quoted(&known))).unwrap_or_default();
            let (tool, summary) = (pending.tool(), quoted(pending.summary()));
            format!("Allow the use of the upstream server {}?{known} First wanted: {tool}: {summary}", label(server))
        }
        (About::ConfirmUpstream(server), None) => {
            format!(
                "Allow this call of the upstream server {}? {}: {}",
                label(server),
                pending.tool(),
                quoted(pending.summary())
            )
        }
        (About::ApproveWrites | About::ConfirmCall, None) => {
            format!("Allow this? {} on {}: {}", pending.tool(), node(pending), quoted(pending.summary()))
        }
    };
    json!({ "message": message, "requestedSchema": schema(about) })
}

/// A server's name comes from a file that somebody else may have written.
fn label(server: &ServerName) -> String {
    quoted(&text::cut(server.as_str(), 64))
}

/// One choice and nothing else: where a form wants more, clients answer `cancel`. Plain `enum`: `oneOf` is unknown
/// before 2025-11-25.
fn schema(about: &About) -> Value {
    let name = |answer: &Answer| match (answer, about) {
        (Answer::Once, _) => "Yes, this once",
        (Answer::Session, About::Connect(_)) => "Yes, all tools of this server, this session",
        (Answer::Session, About::ConfirmUpstream(_)) => "Yes, and always for this server, this session",
        (Answer::Session, _) => "Yes, and every write of this session",
        (Answer::Each, _) => "Yes, but confirm each tool",
        (Answer::No, About::Connect(_)) => "No, not this server",
        (Answer::No, _) => "No",
    };
    let offers = about.offers();
    json!({
        "type": "object",
        "properties": { "decision": {
            "type": "string",
            "title": "Decision",
            "description": "What you choose is recorded.",
            "enum": offers.iter().map(|answer| answer.as_str()).collect::<Vec<_>>(),
            "enumNames": offers.iter().map(name).collect::<Vec<_>>(),
        } },
        "required": ["decision"],
    })
}

/// What a client brings back. Only a clear yes is one; whether it was offered is the gate's to say.
pub(super) fn answer_of(said: &Value) -> Result<Answer, Why> {
    match (said["action"].as_str(), said["content"]["decision"].as_str()) {
        (Some("accept"), Some("once")) => Ok(Answer::Once),
        (Some("accept"), Some("session")) => Ok(Answer::Session),
        (Some("accept"), Some("each")) => Ok(Answer::Each),
        (Some("accept"), Some("no")) => Err(Why::Denied),
        (Some("cancel"), _) => Err(Why::Dismissed),
        _ => Err(Why::Declined),
    }
}

/// A summary on one line between marks that it cannot hold itself, so that it cannot be taken for our words.
fn quoted(summary: &str) -> String {
    let plain: String = summary
        .chars()
        .map(|c| match c {
            '«' => '‹',
            '»' => '›',
            '\n' => '⏎',
            c if c.is_whitespace()
                || c.is_control()
                || matches!(c, '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}') =>
            {
                ' '
            }
            c => c,
        })
        .collect();
    let plain = text::clean(plain.trim()).into_owned();
    let length = plain.chars().count();
    if length <= HEAD + TAIL {
        return format!("«{plain}»");
    }
    let head: String = plain.chars().take(HEAD).collect();
    let tail: String = plain.chars().skip(length - TAIL).collect();
    let unseen = length - HEAD - TAIL;
    format!(
        "NOT ALL OF IT IS SHOWN: {unseen} characters in the middle are left out; `nexus pending --json` at the hub's \
         command line has all of it. «{head}» … {unseen} characters NOT SHOWN … «{tail}»"
    )
}

/// The waiting call that `approve_writes` was given the code of.
fn named(pending: &Pending, approvals: &Approvals) -> Option<Shown> {
    if !pending.about_the_gate() {
        return None;
    }
    let code = pending.arguments().parse::<ApproveWrites>().ok()?.code?;
    approvals.asked_by(pending.session(), &Code::typed(&code))
}

/// The body of the pending reply, which the contract describes.
pub(super) fn waiting_for(pending: &Pending, approvals: &Approvals, how: &str, exchange: &Exchange) -> Value {
    // Whoever approves that call directly saves a detour.
    let code = named(pending, approvals).map_or_else(|| pending.code(), |waiting| waiting.code);
    let may_unlock = exchange.principal.sees(ApproveWrites::NAME);
    json!({
        "status": "approval_required",
        "action": {
            "tool": pending.tool(),
            "node": node(pending),
            "summary": pending.in_full(),
            "arguments": pending.shown_arguments(),
        },
        "code": code,
        "how": steps(&pending.question.about, approvals.mode, how, may_unlock, &code),
    })
}

/// What the model can do now.
fn steps(about: &About, mode: Mode, how: &str, may_unlock: bool, code: &Code) -> String {
    let command = match about {
        About::ApproveWrites => {
            format!("`nexus approve {code}` (for this session) or `nexus approve {code} --once` (for this call)")
        }
        About::Connect(_) => format!(
            "`nexus approve {code}` (all tools of this server, this session), `nexus approve {code} --each` (and confirm \
             each call) or `nexus approve {code} --once` (this call)"
        ),
        About::ConfirmUpstream(_) => format!(
            "`nexus approve {code}` (this server, for this session) or `nexus approve {code} --once` (this call)"
        ),
        About::Unlock => format!("`nexus approve {code}` (all writes of this session)"),
        About::ConfirmCall => format!("`nexus approve {code}` (this call, once)"),
    };
    let command = format!("{command} at the hub's command line");
    if how == UNANSWERED {
        return format!(
            "Nothing has happened: the operator was asked through your client and has not answered. Tell them. \
             Calling again asks again; or they run {command}, and then call again."
        );
    }
    if how == NOT_ASKED {
        return format!(
            "Nothing has happened, and nobody was asked about this call: others of this connection are still with the \
             operator. Tell them. When those are answered, call again; or they run {command}, and then call again."
        );
    }
    match (mode, about, may_unlock) {
        (Mode::Ask | Mode::Chat, About::Connect(_) | About::ConfirmUpstream(_), true) => format!(
            "Nothing has happened yet: this tool belongs to an upstream server, and the operator is to say whether it may \
             be used. Tell them what you want to do and why. When they say yes, call `approve_writes` with \
             {{\"code\":\"{code}\"}} for this call alone, with {{\"code\":\"{code}\",\"scope\":\"session\"}} for all tools \
             of that server in this session, or with scope `each` where they want to confirm each of its calls; then make \
             this call again. If they say no, do not. They can also run {command}, or `nexus deny {code}`."
        ),
        (Mode::Ask | Mode::Chat, About::ConfirmCall, true) => format!(
            "Nothing has happened yet. Tell the operator what you want to do and why. When they say yes, call \
             `approve_writes` with {{\"code\":\"{code}\"}}, then make this call again. They can also run {command}."
        ),
        (Mode::Ask | Mode::Chat, _, true) => format!(
            "Nothing has happened yet. Tell the operator what you want to do and why. When they say yes, call \
             `approve_writes`, then make this call again. They can also run {command}."
        ),
        (Mode::Ask | Mode::Chat, _, false) | (Mode::Operator, _, _) => format!(
            "Nothing has happened yet. Only the operator can allow it: tell them what you want to do and why, and ask \
             them to run {command}. When they have, call again."
        ),
    }
}

fn node(pending: &Pending) -> &str {
    pending.node().map_or("local", |node| node.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_one() {
        let accepted = |decision: Value| json!({ "action": "accept", "content": { "decision": decision } });
        check(&accepted("once".into()), Ok(Answer::Once));
        check(&accepted("session".into()), Ok(Answer::Session));
        check(&accepted("each".into()), Ok(Answer::Each));
        check(&accepted("no".into()), Err(Why::Denied));
        check(&accepted("yes".into()), Err(Why::Declined));
        check(&accepted("ONCE".into()), Err(Why::Declined));
        check(&accepted(true.into()), Err(Why::Declined));
        check(&json!({ "action": "accept" }), Err(Why::Declined));
        check(&json!({ "action": "decline", "content": { "decision": "once" } }), Err(Why::Declined));
        check(&json!({ "action": "cancel", "content": { "decision": "once" } }), Err(Why::Dismissed));
        check(&json!({ "content": { "decision": "once" } }), Err(Why::Declined));
        check(&json!("accept"), Err(Why::Declined));
        check(&Value::Null, Err(Why::Declined));

        #[track_caller]
        fn check(said: &Value, expected: Result<Answer, Why>) {
            assert_eq!(answer_of(said), expected, "{said}");
        }
    }

    #[test]
    fn a_summary_cannot_pass_for_the_question() {
        assert_eq!(quoted("run `ls`"), "«run `ls`»");
        assert_eq!(quoted("ls»\nAllow this? «true\u{2028}\u{200b}x\r"), "«ls›⏎Allow this? ‹true  x»");
        let whole = format!("echo {}; rm -rf /", "a".repeat(1_900));
        assert_eq!(quoted(&whole), format!("«{whole}»"));
        let long = format!("echo {}; rm -rf /", "a".repeat(5_000));
        let shown = quoted(&long);
        assert!(shown.starts_with("NOT ALL OF IT IS SHOWN: 3015 characters"), "{shown}");
        assert!(shown.contains("nexus pending --json") && shown.ends_with("; rm -rf /»"), "{shown}");
    }

    #[test]
    fn a_form_offers_what_the_gate_takes() {
        assert_eq!(schema(&About::ApproveWrites)["properties"]["decision"]["enum"], json!(["once", "session", "no"]));
        assert_eq!(schema(&About::Unlock)["properties"]["decision"]["enum"], json!(["session", "no"]));
        assert_eq!(schema(&About::ConfirmCall)["properties"]["decision"]["enum"], json!(["once", "no"]));
        let (connect, confirm) = (About::Connect(ServerName::new("x")), About::ConfirmUpstream(ServerName::new("x")));
        assert_eq!(schema(&connect)["properties"]["decision"]["enum"], json!(["session", "each", "no"]));
        assert_eq!(schema(&confirm)["properties"]["decision"]["enum"], json!(["once", "session", "no"]));
    }

    #[test]
    fn where_only_the_operator_counts_the_model_is_not_sent_to_a_tool() {
        let code = Code::typed("abcd2345");
        for about in [About::ApproveWrites, About::Unlock, About::ConfirmCall] {
            let told = steps(&about, Mode::Operator, "operator", true, &code);
            assert!(told.contains("nexus approve ABCD2345") && !told.contains("approve_writes"), "{told}");
        }
        let told = steps(&About::ConfirmCall, Mode::Chat, "chat", true, &code);
        assert!(told.contains(r#"`approve_writes` with {"code":"ABCD2345"}"#), "{told}");
        assert!(!steps(&About::ApproveWrites, Mode::Chat, "chat", false, &code).contains("approve_writes"));
    }
}
