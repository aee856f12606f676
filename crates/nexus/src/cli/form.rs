//! A form that a server wants filled in (`elicitation/create`): one question a field, choices by number.

use serde_json::{Map, Value};

use nexus_core::text;

/// Fields, choices and characters of a form that a person is shown. Forms come from servers we do not know.
const MOST_FIELDS: usize = 30;
const MOST_CHOICES: usize = 50;
const LONGEST_MESSAGE: usize = 6_000;
const LONGEST_LABEL: usize = 200;

/// What a person is asked.
#[derive(Debug, PartialEq)]
pub struct Form {
    /// What it is about, line by line.
    pub message: Vec<String>,
    pub fields: Vec<Field>,
}

#[derive(Debug, PartialEq)]
pub struct Field {
    pub name: String,
    pub label: String,
    pub kind: Kind,
    pub required: bool,
}

#[derive(Debug, PartialEq)]
pub enum Kind {
    /// One of them: what is sent, and how it is shown.
    Choice(Vec<(Value, String)>),
    /// Any number of them.
    Several(Vec<(Value, String)>),
    YesNo,
    Integer,
    Number,
    Text,
}

impl Form {
    /// From the parameters of the request. None: not a form that can be put to a person here.
    pub fn of(params: &Value) -> Option<Self> {
        if params["mode"].as_str().is_some_and(|mode| mode != "form") {
            return None;
        }
        let schema = &params["requestedSchema"];
        let no_fields = Map::new();
        let fields = schema["properties"].as_object().unwrap_or(&no_fields);
        if fields.len() > MOST_FIELDS {
            return None;
        }
        let is_required =
            |name: &str| schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name));
        let field = |(name, field): (&String, &Value)| Field {
            name: name.clone(),
            label: label(name, field),
            kind: kind(field),
            required: is_required(name),
        };
        let message = text::clean(params["message"].as_str().unwrap_or_default()).into_owned();
        let message = text::cut(&message, LONGEST_MESSAGE).into_owned();
        Some(Self { message: message.lines().map(one_line).collect(), fields: fields.iter().map(field).collect() })
    }

    /// Whether this is the hub's own question about the use of a server, and has this answer.
    pub fn offers_for_server(&self, decision: &str) -> bool {
        let [Field { name, kind: Kind::Choice(choices), .. }] = self.fields.as_slice() else { return false };
        let is_about_server = |(value, words): &(Value, String)| value == "session" && words.contains("this server");
        name == "decision" && choices.iter().any(is_about_server) && choices.iter().any(|(value, _)| value == decision)
    }
}

fn label(name: &str, field: &Value) -> String {
    let title = field["title"].as_str().unwrap_or(name);
    let about = field["description"].as_str().map_or_else(String::new, |about| format!(" ({about})"));
    shown(&format!("{title}{about}"))
}

fn kind(field: &Value) -> Kind {
    if let Some(choices) = choices(field) {
        return Kind::Choice(choices);
    }
    match field["type"].as_str().unwrap_or_default() {
        "array" => choices(&field["items"]).map_or(Kind::Text, Kind::Several),
        "boolean" => Kind::YesNo,
        "integer" => Kind::Integer,
        "number" => Kind::Number,
        _ => Kind::Text,
    }
}

/// The three ways in which a schema names choices.
fn choices(field: &Value) -> Option<Vec<(Value, String)>> {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if let Some(values) = field["enum"].as_array() {
        let name =
            |at: usize, value: &Value| field["enumNames"][at].as_str().map_or_else(|| plain(value), str::to_owned);
        let named = values.iter().enumerate().map(|(at, value)| (value.clone(), shown(&name(at, value))));
        return Some(named.take(MOST_CHOICES).collect());
    }
    let named = field["oneOf"].as_array().or_else(|| field["anyOf"].as_array())?;
    let choice = |one: &Value| {
        let value = one.get("const")?;
        Some((value.clone(), shown(one["title"].as_str().unwrap_or(&plain(value)))))
    };
    let named: Vec<_> = named.iter().take(MOST_CHOICES).filter_map(choice).collect();
    (!named.is_empty()).then_some(named)
}

impl Field {
    /// The lines a person sees before they type.
    pub fn shown(&self) -> Vec<String> {
        match &self.kind {
            Kind::Choice(choices) | Kind::Several(choices) => {
                choices.iter().enumerate().map(|(at, (_, name))| format!("  {}) {name}", at + 1)).collect()
            }
            Kind::YesNo | Kind::Integer | Kind::Number | Kind::Text => vec![format!("  {}", self.label)],
        }
    }

    /// What stands before the cursor.
    pub fn prompt(&self) -> String {
        let what = match &self.kind {
            Kind::Choice(choices) => format!("1-{}", choices.len()),
            Kind::Several(choices) => format!("1-{}, several with commas", choices.len()),
            Kind::YesNo => "yes or no".to_owned(),
            Kind::Integer => "a whole number".to_owned(),
            Kind::Number => "a number".to_owned(),
            Kind::Text => "text".to_owned(),
        };
        let mark = if self.required { "" } else { ", or nothing" };
        format!("{what}{mark}> ")
    }

    /// What was typed, as the form wants it. `Ok(None)`: nothing, where that is allowed; `Err`: ask again.
    pub fn answer(&self, typed: &str) -> Result<Option<Value>, ()> {
        let typed = typed.trim();
        if typed.is_empty() {
            return if self.required { Err(()) } else { Ok(None) };
        }
        let value = match &self.kind {
            Kind::Choice(choices) => chosen(choices, typed).ok_or(())?,
            Kind::Several(choices) => {
                let several = typed.split([',', ' ']).filter(|one| !one.is_empty());
                Value::Array(several.map(|one| chosen(choices, one).ok_or(())).collect::<Result<_, _>>()?)
            }
            Kind::YesNo => match typed.to_lowercase().as_str() {
                "y" | "yes" | "true" | "1" => true.into(),
                "n" | "no" | "false" | "2" => false.into(),
                _ => return Err(()),
            },
            Kind::Integer => typed.parse::<i64>().map_err(drop)?.into(),
            Kind::Number => typed.parse::<f64>().ok().filter(|number| number.is_finite()).ok_or(())?.into(),
            Kind::Text => typed.into(),
        };
        Ok(Some(value))
    }
}

/// By its number, or by the word that is sent.
fn chosen(choices: &[(Value, String)], typed: &str) -> Option<Value> {
    let by_number = typed.parse::<usize>().ok().and_then(|number| choices.get(number.checked_sub(1)?));
    let by_word =
        || choices.iter().find(|(value, _)| value.as_str().is_some_and(|word| word.eq_ignore_ascii_case(typed)));
    by_number.or_else(by_word).map(|(value, _)| value.clone())
}

fn shown(words: &str) -> String {
    text::cut(&super::one_line(words), LONGEST_LABEL).into_owned()
}

fn one_line(words: &str) -> String {
    super::one_line(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn decision() -> Value {
        json!({
            "message": "Allow the use of the server github?\n\u{1b}[2J1) Yes",
            "requestedSchema": { "type": "object", "required": ["decision"], "properties": { "decision": {
                "type": "string", "enum": ["session", "each", "no"],
                "enumNames": ["Yes, all tools of this server,\nthis session", "Confirm each tool", "Deny"],
            } } },
        })
    }

    #[test]
    fn a_decision_is_numbered_choices_under_cleaned_words() {
        let form = Form::of(&decision()).unwrap();
        assert_eq!(form.message, ["Allow the use of the server github?", "1) Yes"]);
        assert!(form.offers_for_server("each") && !form.offers_for_server("once"));
        let field = &form.fields[0];
        assert_eq!(
            field.shown(),
            ["  1) Yes, all tools of this server, this session", "  2) Confirm each tool", "  3) Deny"]
        );
        assert_eq!(field.prompt(), "1-3> ");
        check("1", &Ok(Some(json!("session"))));
        check(" 3 ", &Ok(Some(json!("no"))));
        check("EACH", &Ok(Some(json!("each"))));
        check("0", &Err(()));
        check("4", &Err(()));
        check("yes", &Err(()));
        check("", &Err(()));

        #[track_caller]
        fn check(typed: &str, expected: &Result<Option<Value>, ()>) {
            assert_eq!(Form::of(&decision()).unwrap().fields[0].answer(typed), *expected, "{typed}");
        }
    }

    #[test]
    fn fields_of_every_kind_take_what_fits() {
        check(&json!({ "type": "string" }), "a b", &Ok(Some(json!("a b"))));
        check(&json!({ "type": "integer" }), "7", &Ok(Some(json!(7))));
        check(&json!({ "type": "integer" }), "7.5", &Err(()));
        check(&json!({ "type": "number" }), "7.5", &Ok(Some(json!(7.5))));
        check(&json!({ "type": "number" }), "inf", &Err(()));
        check(&json!({ "type": "boolean" }), "Yes", &Ok(Some(json!(true))));
        check(&json!({ "type": "boolean" }), "perhaps", &Err(()));
        check(&json!({ "oneOf": [{ "const": "r", "title": "Red" }] }), "1", &Ok(Some(json!("r"))));
        check(&json!({ "type": "array", "items": { "enum": ["a", "b"] } }), "1, b", &Ok(Some(json!(["a", "b"]))));
        check(&json!({ "type": "array", "items": { "anyOf": [{ "const": "a" }] } }), "2", &Err(()));
        check(&json!({ "type": "string" }), "", &Ok(None));

        #[track_caller]
        fn check(field: &Value, typed: &str, expected: &Result<Option<Value>, ()>) {
            let params = json!({ "message": "m", "requestedSchema": { "properties": { "f": field } } });
            let form = Form::of(&params).unwrap();
            assert_eq!(form.fields[0].answer(typed), *expected, "{params} {typed}");
        }
    }

    #[test]
    fn what_is_no_form_or_too_long_is_not_put() {
        assert_eq!(Form::of(&json!({ "mode": "url", "url": "https://x", "message": "m" })), None);
        let many: Map<String, Value> = (0..100).map(|at| (format!("f{at}"), json!({ "type": "string" }))).collect();
        assert_eq!(Form::of(&json!({ "requestedSchema": { "properties": many } })), None);
        let long = json!({ "message": "x".repeat(100_000), "requestedSchema": {} });
        assert!(Form::of(&long).unwrap().message[0].len() < 10_000);
        assert!(!Form::of(&long).unwrap().offers_for_server("session"));
    }
}
