//! A server's result on its way to the caller: nothing in it that deceives, our names for its resources, and in the
//! caller's era. What needs no change is not copied.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use thiserror::Error;

use nexus_core::session::Era;
use nexus_core::text;

use super::clean::cleaned;
use super::fields::Fields;
use crate::wire::quoted;

/// What a result is the result of: that says where texts and URIs stand in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tool,
    Prompt,
    Resource,
    /// Nothing of it is known but that it is an object.
    Other,
}

/// For whom a result is made ready.
pub(crate) struct Recipient<'a> {
    pub(crate) era: Era,
    /// Our name for a URI of the server. None: it keeps its own.
    pub(crate) rename: Option<&'a (dyn Fn(&str) -> String + Sync)>,
}

impl fmt::Debug for Recipient<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recipient").field("era", &self.era).finish_non_exhaustive()
    }
}

#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum BadResult {
    #[error("its result is not an object")]
    NotAnObject,
    #[error("its result says `{0}` twice")]
    Twice(&'static str),
    #[error("`{0}` of its result is not a list")]
    NotAList(&'static str),
    #[error("its result is nested too deeply")]
    TooDeep,
    #[error("its result is of a kind this hub does not know: {0}")]
    UnknownKind(String),
    #[error("it asks for something, and does not say what")]
    AsksNothing,
}

/// What a server answered: a result, or questions that have to be answered first.
#[derive(Debug)]
pub(crate) enum Came {
    Complete(Box<RawValue>),
    Asks(Asked),
}

/// Questions of a server, and what it wants to get back with the answers.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Asked {
    pub(crate) requests: serde_json::Map<String, Value>,
    pub(crate) state: Option<String>,
}

/// Tells a result from questions. Only servers of the new era ask in this way.
pub(crate) fn read(raw: Box<RawValue>, server: Era) -> Result<Came, BadResult> {
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(borrow, rename = "resultType")]
        kind: Option<Cow<'a, str>>,
        #[serde(rename = "inputRequests")]
        requests: Option<serde_json::Map<String, Value>>,
        #[serde(rename = "requestState")]
        state: Option<String>,
    }
    if server == Era::Legacy {
        return Ok(Came::Complete(raw));
    }
    let fields = Fields::parse(raw.get())?;
    match fields.text("resultType").as_deref() {
        None | Some("complete") => Ok(Came::Complete(raw)),
        Some("input_required") => {
            let head: Head<'_> = serde_json::from_str(raw.get()).map_err(|_| BadResult::AsksNothing)?;
            let asked = Asked { requests: head.requests.unwrap_or_default(), state: head.state };
            let asks = head.kind.is_some() && (!asked.requests.is_empty() || asked.state.is_some());
            if asks { Ok(Came::Asks(asked)) } else { Err(BadResult::AsksNothing) }
        }
        Some(other) => Err(BadResult::UnknownKind(text::cut(&text::clean(other), 40).into_owned())),
    }
}

/// The result as the caller gets it.
pub(crate) fn ready(raw: Box<RawValue>, kind: Kind, to: &Recipient<'_>) -> Result<Box<RawValue>, BadResult> {
    let raw = cleaned(raw)?;
    let edited = edit(raw.get(), kind, to)?;
    match edited {
        None => Ok(raw),
        Some(text) => {
            drop(raw);
            RawValue::from_string(text).map_err(|_| BadResult::NotAnObject)
        }
    }
}

/// The whole result again, where anything in it has to change.
fn edit(json: &str, kind: Kind, to: &Recipient<'_>) -> Result<Option<String>, BadResult> {
    let mut fields = Fields::parse(json)?;
    let mut changed = false;
    // Who the server is belongs to our connection to it; `resultType` is the caller's era's to have.
    for name in ["_meta", "resultType"] {
        let goes = name == "_meta" || to.era == Era::Legacy;
        changed |= goes && fields.remove(name);
    }
    if kind == Kind::Tool {
        changed |= fit_tool_result(&mut fields, to.era)?;
    }
    if kind == Kind::Resource && to.era == Era::Modern {
        changed |= fields.set("cacheScope", r#""private""#);
        if fields.get("ttlMs").is_none() {
            changed |= fields.set("ttlMs", "0");
        }
    }
    let list = match kind {
        Kind::Tool => Some("content"),
        Kind::Prompt => Some("messages"),
        Kind::Resource => Some("contents"),
        Kind::Other => None,
    };
    if let (Some(list), Some(rename)) = (list, to.rename)
        && let Some(items) = fields.get(list).and_then(|items| renamed_list(items, kind, rename))
    {
        changed |= fields.set(list, &items);
    }
    Ok(changed.then(|| fields.write()))
}

/// The list with our URIs. None: there are none in it.
fn renamed_list(items: &str, kind: Kind, rename: &(dyn Fn(&str) -> String + Sync)) -> Option<String> {
    if !items.contains("\"uri\"") {
        return None;
    }
    let items: Vec<&RawValue> = serde_json::from_str(items).ok()?;
    let mut out = String::from("[");
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        let new = match kind {
            Kind::Tool => renamed_block(item.get(), rename),
            Kind::Prompt => inside(item.get(), "content", |block| renamed_block(block, rename)),
            Kind::Resource => renamed_uri(item.get(), rename),
            Kind::Other => None,
        };
        out.push_str(new.as_deref().unwrap_or(item.get()));
    }
    out.push(']');
    Some(out)
}

/// A content block: a link has a URI, an embedded resource has one within.
fn renamed_block(block: &str, rename: &(dyn Fn(&str) -> String + Sync)) -> Option<String> {
    let fields = Fields::parse(block).ok()?;
    match fields.text("type").as_deref()? {
        "resource_link" => renamed_uri(block, rename),
        "resource" => inside(block, "resource", |resource| renamed_uri(resource, rename)),
        _ => None,
    }
}

fn renamed_uri(object: &str, rename: &(dyn Fn(&str) -> String + Sync)) -> Option<String> {
    let mut fields = Fields::parse(object).ok()?;
    let uri = fields.text("uri")?;
    let new = quoted(&rename(&uri));
    fields.set("uri", &new).then(|| fields.write())
}

fn inside(object: &str, name: &'static str, change: impl Fn(&str) -> Option<String>) -> Option<String> {
    let mut fields = Fields::parse(object).ok()?;
    let new = change(fields.get(name)?)?;
    fields.set(name, &new).then(|| fields.write())
}

/// A tool's result has content; in the old era its structured content is an object, and anything else is told as
/// text.
fn fit_tool_result(fields: &mut Fields<'_>, caller: Era) -> Result<bool, BadResult> {
    let mut changed = false;
    match fields.get("content").map(|content| content.starts_with('[')) {
        Some(true) => {}
        None | Some(false) if fields.get("content").is_none_or(|content| content == "null") => {
            changed |= fields.set("content", "[]");
        }
        None | Some(false) => return Err(BadResult::NotAList("content")),
    }
    let plain = fields.get("structuredContent").filter(|json| !json.starts_with('{')).map(str::to_owned);
    if let Some(plain) = plain.filter(|plain| caller == Era::Legacy || plain == "null") {
        changed |= fields.remove("structuredContent");
        if plain != "null" && fields.get("content") == Some("[]") {
            let content = format!(r#"[{{"type":"text","text":{}}}]"#, quoted(&plain));
            changed |= fields.set("content", &content);
        }
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    fn prefixed(uri: &str) -> String {
        format!("mcp-x+{uri}")
    }

    fn ready_for(era: Era, kind: Kind, json: &str) -> Result<String, BadResult> {
        let to = Recipient { era, rename: Some(&prefixed) };
        ready(raw(json), kind, &to).map(|raw| raw.get().to_owned())
    }

    #[test]
    fn what_needs_no_change_is_the_very_same_text() {
        let same =
            r#"{ "content" : [{"type":"text","text":"a\tb \u00e9 \\u001b C:\\bin\\foo 日本"}], "isError":false}"#;
        assert_eq!(ready_for(Era::Legacy, Kind::Tool, same).unwrap(), same);
        assert_eq!(ready_for(Era::Modern, Kind::Tool, same).unwrap(), same);
    }

    #[test]
    fn nothing_that_deceives_gets_through_in_any_spelling() {
        for dirty in
            ["\\u001b[31mx", "\\u202ex", "\u{202e}x", "\\bx", "\\fx", "\\u0000x", "\\udb40\\udc41x", "\\u007fx"]
        {
            let json = format!(r#"{{"content":[{{"type":"text","text":"{dirty}"}}]}}"#);
            let ready = ready_for(Era::Modern, Kind::Tool, &json).unwrap();
            let tree: Value = serde_json::from_str(&ready).unwrap();
            assert_eq!(tree["content"][0]["text"], "x", "{dirty}");
        }
    }

    #[test]
    fn the_result_is_told_in_the_callers_era() {
        let modern =
            r#"{"resultType":"complete","content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{}},"x":1}"#;
        assert_eq!(ready_for(Era::Legacy, Kind::Tool, modern).unwrap(), r#"{"content":[],"x":1}"#);
        assert_eq!(
            ready_for(Era::Modern, Kind::Tool, modern).unwrap(),
            r#"{"resultType":"complete","content":[],"x":1}"#
        );
    }

    #[test]
    fn structured_content_that_is_no_object_is_text_for_old_callers() {
        let list = r#"{"content":[],"structuredContent":[1,2]}"#;
        check(Era::Modern, list, list);
        check(Era::Legacy, list, r#"{"content":[{"type":"text","text":"[1,2]"}]}"#);
        let told = r#"{"content":[{"type":"text","text":"[1,2]"}],"structuredContent":[1,2]}"#;
        check(Era::Legacy, told, r#"{"content":[{"type":"text","text":"[1,2]"}]}"#);
        let object = r#"{"content":[],"structuredContent":{"a":1}}"#;
        check(Era::Legacy, object, object);
        check(Era::Legacy, "{}", r#"{"content":[]}"#);

        #[track_caller]
        fn check(era: Era, json: &str, expected: &str) {
            assert_eq!(ready_for(era, Kind::Tool, json).unwrap(), expected);
        }
    }

    #[test]
    fn uris_of_the_server_get_our_names_wherever_they_stand() {
        check(
            Kind::Tool,
            json!({ "content": [
                { "type": "resource_link", "uri": "a://1", "name": "uri" },
                { "type": "resource", "resource": { "uri": "a://2", "text": "\"uri\"" } },
                { "type": "text", "text": "uri" },
            ] }),
            &["/content/0/uri", "/content/1/resource/uri"],
        );
        let link = json!({ "type": "resource_link", "uri": "a://1", "name": "n" });
        check(Kind::Prompt, json!({ "messages": [{ "role": "user", "content": link }] }), &["/messages/0/content/uri"]);
        check(Kind::Resource, json!({ "contents": [{ "uri": "a://1", "text": "t" }] }), &["/contents/0/uri"]);

        #[track_caller]
        fn check(kind: Kind, result: Value, places: &[&str]) {
            let ready = ready_for(Era::Legacy, kind, &result.to_string()).unwrap();
            let mut expected = result;
            for place in places {
                let uri = expected.pointer_mut(place).unwrap();
                *uri = prefixed(uri.as_str().unwrap()).into();
            }
            assert_eq!(serde_json::from_str::<Value>(&ready).unwrap(), expected);
        }
    }

    #[test]
    fn a_resource_of_the_new_era_says_how_long_it_may_be_kept() {
        let ready = ready_for(Era::Modern, Kind::Resource, r#"{"contents":[],"cacheScope":"public"}"#).unwrap();
        assert_eq!(ready, r#"{"contents":[],"cacheScope":"private","ttlMs":0}"#);
    }

    #[test]
    fn what_is_no_result_is_refused() {
        check("[]", &BadResult::NotAnObject);
        check("null", &BadResult::NotAnObject);
        check(r#"{"content":"text"}"#, &BadResult::NotAList("content"));
        check(r#"{"content":[],"content":[1]}"#, &BadResult::Twice("content"));
        let deep = format!(r#"{{"content":[],"x":"\u001b","y":{}{}}}"#, "[".repeat(500), "]".repeat(500));
        check(&deep, &BadResult::TooDeep);

        #[track_caller]
        fn check(json: &str, expected: &BadResult) {
            assert_eq!(&ready_for(Era::Legacy, Kind::Tool, json).unwrap_err(), expected);
        }
    }

    #[test]
    fn questions_are_told_from_results() {
        let came = |json: &str, era| read(raw(json), era);
        let asks =
            r#"{"resultType":"input_required","inputRequests":{"q":{"method":"roots/list"}},"requestState":"s"}"#;
        let Came::Asks(asked) = came(asks, Era::Modern).unwrap() else { panic!("asks") };
        assert_eq!(asked.state.as_deref(), Some("s"));
        assert_eq!(asked.requests["q"]["method"], "roots/list");

        assert!(matches!(came(asks, Era::Legacy), Ok(Came::Complete(_))), "the old era has no such results");
        assert!(matches!(came(r#"{"content":[]}"#, Era::Modern), Ok(Came::Complete(_))));
        let empty = came(r#"{"resultType":"input_required"}"#, Era::Modern);
        assert_eq!(empty.unwrap_err(), BadResult::AsksNothing);
        let task = came(r#"{"resultType":"task","taskId":"1"}"#, Era::Modern);
        assert_eq!(task.unwrap_err(), BadResult::UnknownKind("task".into()));
        assert_eq!(came("[1]", Era::Modern).unwrap_err(), BadResult::NotAnObject);
    }
}
