//! `${NAME}` and `${NAME:-default}` in texts of an entry.

/// Why a text could not be filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The variable is not set and has no default.
    Unset(String),
    /// `${…}` with something else in it, as written.
    Unclear(String),
}

/// Fills in variables. A default stands in for a variable that is not set or empty; `$${` stands for `${` itself.
pub fn fill(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<String, Missing> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, after) = (&rest[..start], &rest[start + 2..]);
        if let Some(before) = before.strip_suffix('$') {
            filled.push_str(before);
            filled.push_str("${");
            rest = after;
            continue;
        }
        filled.push_str(before);
        let unclear = || Missing::Unclear(format!("${{{}", after.chars().take(40).collect::<String>()));
        let (inside, next) = after.split_once('}').ok_or_else(unclear)?;
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        if !is_name(name) {
            return Err(Missing::Unclear(format!("${{{inside}}}")));
        }
        match (variable(name), default) {
            (Some(value), Some(default)) if value.is_empty() => filled.push_str(default),
            (Some(value), _) => filled.push_str(&value),
            (None, Some(default)) => filled.push_str(default),
            (None, None) => return Err(Missing::Unset(name.to_owned())),
        }
        rest = next;
    }
    filled.push_str(rest);
    Ok(filled)
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in() {
        check("plain $HOME $", Ok("plain $HOME $"));
        check("${HOST}:${PORT:-80}/x", Ok("lan:80/x"));
        check("${EMPTY}|${EMPTY:-no}|${GONE:-}", Ok("|no|"));
        check("$${HOST} ${HOST}", Ok("${HOST} lan"));
        check("${SELF}", Ok("${HOST}"));
        check("${GONE}", Err(Missing::Unset("GONE".to_owned())));
        check("${env:HOST}", Err(Missing::Unclear("${env:HOST}".to_owned())));
        check("${}", Err(Missing::Unclear("${}".to_owned())));
        check("a ${HOST", Err(Missing::Unclear("${HOST".to_owned())));

        #[track_caller]
        fn check(text: &str, expected: Result<&str, Missing>) {
            let variable = |name: &str| match name {
                "HOST" => Some("lan".to_owned()),
                "EMPTY" => Some(String::new()),
                "SELF" => Some("${HOST}".to_owned()),
                _ => None,
            };
            assert_eq!(fill(text, variable), expected.map(str::to_owned));
        }
    }
}
