//! The resources: a text, an image, one to watch, and a template.

use serde_json::{Value, json};

use nexus_core::session::Era;

use super::content::PNG;
use super::first_page;
use crate::wire::{INVALID_PARAMS, Params, RpcError};

/// What the old era calls a resource that does not exist; the new one has no code of its own for it.
const RESOURCE_NOT_FOUND: i32 = -32002;

const TEXT: &str = "test://static-text";
const BINARY: &str = "test://static-binary";
const WATCHED: &str = "test://watched-resource";

pub(super) fn list(params: &Params<'_>) -> Result<Value, RpcError> {
    first_page(params)?;
    Ok(json!({
        "resources": [
            listed(TEXT, "A text that never changes.", "text/plain"),
            listed(BINARY, "An image that never changes.", "image/png"),
            listed(WATCHED, "A text to subscribe to.", "text/plain"),
        ],
    }))
}

fn listed(uri: &str, about: &str, kind: &str) -> Value {
    let name = uri.strip_prefix("test://").unwrap_or(uri);
    json!({ "uri": uri, "name": name, "description": about, "mimeType": kind })
}

pub(super) fn templates(params: &Params<'_>) -> Result<Value, RpcError> {
    first_page(params)?;
    Ok(json!({
        "resourceTemplates": [{
            "uriTemplate": "test://template/{id}/data",
            "name": "template",
            "description": "Data about whatever id it is asked for.",
            "mimeType": "application/json",
        }],
    }))
}

pub(super) fn read(params: &Params<'_>, era: Era) -> Result<Value, RpcError> {
    let Some(uri) = params.uri.as_deref() else {
        return Err(RpcError::invalid_params("`uri` is missing: which resource?"));
    };
    let text = |kind: &str, text: &str| json!({ "uri": uri, "mimeType": kind, "text": text });
    let contents = match uri {
        TEXT => text("text/plain", "This is the content of the static text resource."),
        WATCHED => text("text/plain", "This is the content of the watched resource."),
        BINARY => json!({ "uri": uri, "mimeType": "image/png", "blob": PNG }),
        _ => {
            let id = id_in(uri).ok_or_else(|| not_found(uri, era))?;
            let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
            text("application/json", &data.to_string())
        }
    };
    Ok(json!({ "contents": [contents] }))
}

/// What stands for `{id}` in a URI made from the template.
fn id_in(uri: &str) -> Option<&str> {
    let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

fn not_found(uri: &str, era: Era) -> RpcError {
    let code = match era {
        Era::Legacy => RESOURCE_NOT_FOUND,
        Era::Modern => INVALID_PARAMS,
    };
    RpcError::new(code, "Resource not found", 200).with_data(json!({ "uri": uri }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_takes_one_part_of_a_path() {
        assert_eq!(id_in("test://template/123/data"), Some("123"));
        assert_eq!(id_in("test://template//data"), None);
        assert_eq!(id_in("test://template/1/2/data"), None);
        assert_eq!(id_in("test://template/123"), None);
    }
}
