//! What stands in the frames: JSON objects with a `type`. Everything a computer sends is read here, leniently where
//! ComputerCraft's JSON is odd, and refused with a word on what is wrong where it cannot be understood.

use std::borrow::Cow;

use nexus_core::text;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::ascii;
use crate::computer::{self, Address, Capabilities, Computer, Kind};
use crate::frame::{self, LARGEST_OUT};

/// Characters of an error text that a computer sends.
const LONGEST_ERROR: usize = 500;
/// Capabilities that are looked at.
const MOST_CAPABILITIES: usize = 64;

/// Something a computer says.
#[derive(Debug)]
pub enum Message<'a> {
    Hello(Hello<'a>),
    Response { id: u64, said: Said<'a> },
}

#[derive(Debug)]
pub struct Hello<'a> {
    pub computer: Computer,
    /// Empty where none came.
    pub token: Cow<'a, str>,
}

/// How a computer answers.
#[derive(Debug)]
pub enum Said<'a> {
    Result(&'a RawValue),
    /// Its own words, cut and cleaned.
    Error(String),
}

/// What is wrong with a frame; told to the computer. Never holds what the frame held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault(pub &'static str);

pub const NOT_JSON: Fault = Fault("a frame must hold one JSON object with a `type`");
pub const BINARY: Fault = Fault("only text frames are understood");
pub const HELLO_FIRST: Fault = Fault("say hello first");
pub const LATE: Fault = Fault("no answer is waited for under that id");

#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    ok: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "computerId")]
    computer_id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "computerLabel")]
    label: Option<&'a RawValue>,
    #[serde(borrow, default)]
    world: Option<&'a RawValue>,
    #[serde(borrow, default)]
    version: Option<&'a RawValue>,
    #[serde(borrow, default)]
    capabilities: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "kind")]
    machine: Option<&'a RawValue>,
    #[serde(borrow, default)]
    token: Option<&'a RawValue>,
}

/// A text, without a copy where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Text<'a> {
    fn of(raw: &'a RawValue, fault: Fault) -> Result<Cow<'a, str>, Fault> {
        serde_json::from_str(raw.get()).map(|Self(text)| text).map_err(|_| fault)
    }
}

/// Reads one frame.
pub fn parse(payload: &[u8]) -> Result<Message<'_>, Fault> {
    // As text first: a raw value is not looked at for letters that are none.
    let text = std::str::from_utf8(payload).map_err(|_| NOT_JSON)?;
    // An array of the same values in the same order would do for serde.
    if !text.trim_start().starts_with('{') {
        return Err(NOT_JSON);
    }
    let raw: Raw<'_> = serde_json::from_str(text).map_err(|_| NOT_JSON)?;
    match raw.kind.map(RawValue::get) {
        Some(r#""response""#) => response(&raw),
        Some(r#""hello""#) => hello(&raw),
        Some(r#""request""# | r#""hello-ok""# | r#""cancel""#) => Err(Fault("that is for the hub to say")),
        Some(kind) if kind.starts_with('"') => Err(Fault("a `type` that is not known")),
        _ => Err(NOT_JSON),
    }
}

fn response<'a>(raw: &Raw<'a>) -> Result<Message<'a>, Fault> {
    let id = Text::of(raw.id.ok_or(LATE)?, Fault("`id` of a response must be a text"))?;
    let id = number(&id).ok_or(LATE)?;
    let said = match raw.ok.map(RawValue::get) {
        Some("true") => Said::Result(raw.result.unwrap_or(RawValue::NULL)),
        Some("false") => Said::Error(raw.error.map(words).unwrap_or_default()),
        _ => return Err(Fault("`ok` of a response must be true or false")),
    };
    Ok(Message::Response { id, said })
}

fn hello<'a>(raw: &Raw<'a>) -> Result<Message<'a>, Fault> {
    let id: f64 = raw
        .computer_id
        .and_then(|id| serde_json::from_str(id.get()).ok())
        .ok_or(Fault("`computerId` must be a number"))?;
    let id = computer::whole(id).ok_or(Fault("`computerId` must be a whole number, 0 or more"))?;
    let named = |field: Option<&RawValue>, fault| match field {
        None => Ok(None),
        Some(text) => Ok(computer::name(&Text::of(text, fault)?)),
    };
    let label = named(raw.label, Fault("`computerLabel` must be a text"))?;
    let world = named(raw.world, Fault("`world` must be a text"))?;
    let token = raw.token.map(|token| Text::of(token, Fault("`token` must be a text"))).transpose()?;
    // These three only add: what is odd in them is left out.
    let version = named(raw.version, NOT_JSON).unwrap_or_default();
    let word = |word: &RawValue| serde_json::from_str::<String>(word.get()).ok();
    let kind = raw.machine.and_then(word).and_then(|word| Kind::of(&word));
    let capabilities: Vec<Value> =
        raw.capabilities.and_then(|list| serde_json::from_str(list.get()).ok()).unwrap_or_default();
    let capabilities = Capabilities::of(capabilities.iter().take(MOST_CAPABILITIES).filter_map(Value::as_str));
    let computer = Computer { address: Address { id, world }, label, version, kind, capabilities };
    Ok(Message::Hello(Hello { computer, token: token.unwrap_or_default() }))
}

/// `req-17`, written exactly so.
fn number(id: &str) -> Option<u64> {
    let digits = id.strip_prefix("req-")?;
    (!digits.starts_with(['0', '+'])).then(|| digits.parse().ok())?
}

/// An error is a text, but who knows what a program sends.
fn words(error: &RawValue) -> String {
    let whole = Text::of(error, NOT_JSON).unwrap_or(Cow::Borrowed(error.get()));
    let few = text::cut(&whole, LONGEST_ERROR);
    text::clean(&few).replace(['\r', '\n', '\t'], " ").trim().to_owned()
}

/// A request of which only the id is open.
#[derive(Debug)]
pub struct Template {
    before: &'static str,
    after: String,
}

/// What an id can be at most, in letters.
const LONGEST_ID: usize = 20;

impl Template {
    pub fn new(method: &str, params: Option<&Value>) -> Self {
        let method = ascii::only(&json!(method).to_string());
        let after = match params {
            Some(params) => format!(r#"","method":{method},"params":{}}}"#, ascii::only(&params.to_string())),
            None => format!(r#"","method":{method}}}"#),
        };
        Self { before: r#"{"type":"request","id":"req-"#, after }
    }

    /// Bytes of the frame's content, at most.
    pub fn length(&self) -> usize {
        self.before.len() + LONGEST_ID + self.after.len()
    }

    pub fn fits(&self) -> bool {
        self.length() <= LARGEST_OUT
    }

    pub fn frame(&self, id: u64) -> Vec<u8> {
        frame::text(&format!("{}{id}{}", self.before, self.after))
    }
}

pub fn hello_ok() -> Vec<u8> {
    frame::text(r#"{"type":"hello-ok"}"#)
}

/// Nobody waits for that any more.
pub fn cancel(id: u64) -> Vec<u8> {
    frame::text(&format!(r#"{{"type":"cancel","id":"req-{id}"}}"#))
}

pub fn error(fault: Fault) -> Vec<u8> {
    frame::text(&json!({ "type": "error", "error": fault.0 }).to_string())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn greeted(json: &str) -> Result<Computer, Fault> {
        match parse(json.as_bytes())? {
            Message::Hello(hello) => Ok(hello.computer),
            Message::Response { .. } => panic!("a response: {json}"),
        }
    }

    #[test]
    fn a_hello_names_the_computer() {
        let computer = greeted(r#"{"type":"hello","computerId":12,"computerLabel":"base-turtle"}"#).unwrap();
        assert_eq!((computer.address.id, computer.label.as_deref()), (12, Some("base-turtle")));
        check(r#"{"type":"hello","computerId":12.0}"#, "12");
        check(r#"{"type":"hello","computerId":0,"computerLabel":""}"#, "0");
        check(r#"{"type":"hello","computerId":3,"computerLabel":null,"more":{"x":[1]}}"#, "3");
        check(r#"{"type":"hello","computerId":3,"computerLabel":"\u00fc","world":"survival"}"#, "3 (ü) of survival");
        check(r#"{"type":"hello","computerId":3,"capabilities":{},"kind":7,"version":{},"id":7,"ok":8}"#, "3");

        #[track_caller]
        fn check(json: &str, name: &str) {
            assert_eq!(greeted(json).unwrap().name(), name);
        }
    }

    #[test]
    fn a_bad_hello_is_told_what_is_wrong() {
        check(r#"{"type":"hello"}"#, "must be a number");
        check(r#"{"type":"hello","computerId":"12"}"#, "must be a number");
        check(r#"{"type":"hello","computerId":null}"#, "must be a number");
        check(r#"{"type":"hello","computerId":1.5}"#, "whole number");
        check(r#"{"type":"hello","computerId":-1}"#, "whole number");
        check(r#"{"type":"hello","computerId":1e300}"#, "whole number");
        check(r#"{"type":"hello","computerId":1,"computerLabel":7}"#, "computerLabel");
        check(r#"{"type":"hello","computerId":1,"world":[]}"#, "world");
        check(r#"{"type":"hello","computerId":1,"token":4711}"#, "`token` must be a text");

        #[track_caller]
        fn check(json: &str, why: &str) {
            let fault = greeted(json).unwrap_err();
            assert!(fault.0.contains(why), "{json}: {fault:?}");
        }
    }

    #[test]
    fn other_frames_are_refused() {
        for (frame, fault) in [
            ("", NOT_JSON.0),
            ("{", NOT_JSON.0),
            ("[]", NOT_JSON.0),
            (r#"["hello",null,null,null,null,9]"#, NOT_JSON.0),
            ("null", NOT_JSON.0),
            ("{}", NOT_JSON.0),
            (r#"{"type":7}"#, NOT_JSON.0),
            (r#"{"type":"hello","type":"hello","computerId":1}"#, NOT_JSON.0),
            (r#"{"type":"dance"}"#, "a `type` that is not known"),
            (r#"{"type":"request","id":"req-1","method":"ping"}"#, "that is for the hub to say"),
            (r#"{"type":"response","ok":true}"#, LATE.0),
            (r#"{"type":"response","id":null,"ok":true}"#, LATE.0),
            (r#"{"type":"response","id":"p1","ok":true}"#, LATE.0),
            (r#"{"type":"response","id":1,"ok":true}"#, "`id` of a response must be a text"),
            (r#"{"type":"response","id":["req-1"],"ok":true}"#, "`id` of a response must be a text"),
            (r#"{"type":"response","id":"req-01","ok":true}"#, LATE.0),
            (r#"{"type":"response","id":"req-1"}"#, "`ok` of a response must be true or false"),
            (r#"{"type":"response","id":"req-1","ok":"true"}"#, "`ok` of a response must be true or false"),
        ] {
            assert_eq!(parse(frame.as_bytes()).unwrap_err().0, fault, "{frame}");
        }
        assert_eq!(parse(b"{\"type\":\"hello\",\"computerId\":1,\"computerLabel\":\"\xff\"}").unwrap_err(), NOT_JSON);
    }

    #[test]
    fn an_answer_may_lack_its_result_and_an_error_may_be_anything() {
        let said = |json: &str| match parse(json.as_bytes()) {
            Ok(Message::Response { id: 7, said: Said::Result(result) }) => result.get().to_owned(),
            Ok(Message::Response { id: 7, said: Said::Error(error) }) => format!("error {error}"),
            other => panic!("{other:?}"),
        };
        assert_eq!(said(r#"{"type":"response","id":"req-7","ok":true}"#), "null");
        assert_eq!(said(r#"{"id":"req-7","ok":true,"result":[1,{"a":2}],"type":"response"}"#), r#"[1,{"a":2}]"#);
        assert_eq!(said(r#"{"type":"response","id":"req\u002d7","ok":true,"token":7}"#), "null");
        assert_eq!(said(r#"{"type":"response","id":"req-7","ok":false}"#), "error ");
        assert_eq!(said(r#"{"type":"response","id":"req-7","ok":false,"error":"a\nb"}"#), "error a b");
        assert_eq!(said(r#"{"type":"response","id":"req-7","ok":false,"error":{"x":1}}"#), r#"error {"x":1}"#);
    }

    #[test]
    fn requests_are_written_as_they_are_documented() {
        let written = |template: Template| String::from_utf8(template.frame(123)[2..].to_vec()).unwrap();
        assert_eq!(written(Template::new("ping", None)), r#"{"type":"request","id":"req-123","method":"ping"}"#);
        let params = json!({ "code": "print('ü')" });
        assert_eq!(
            written(Template::new("lua.run", Some(&params))),
            r#"{"type":"request","id":"req-123","method":"lua.run","params":{"code":"print('\u00fc')"}}"#
        );
        assert!(Template::new("x", Some(&json!("x".repeat(119_000)))).fits());
        assert!(!Template::new("x", Some(&json!("x".repeat(120_000)))).fits());
        assert!(!Template::new("x", Some(&json!("ü".repeat(20_000)))).fits());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,200}") {
            let _ = parse(text.as_bytes());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn any_label_becomes_one_line(id in 0u64..1 << 53, label in ".*", world in ".*") {
            let json = json!({ "type": "hello", "computerId": id, "computerLabel": label, "world": world }).to_string();
            let computer = greeted(&json).unwrap();
            prop_assert_eq!(computer.address.id, id);
            prop_assert_eq!(computer.name().lines().count(), 1);
        }
    }
}
