//! Offers made from lists.

use serde_json::json;

use nexus_core::principal::Patterns;

use super::*;
use crate::upstream::supervisor::tests::fake::{stdio, tool};

fn raw(items: impl IntoIterator<Item = Value>) -> Vec<Box<RawValue>> {
    items.into_iter().map(|item| RawValue::from_string(item.to_string()).unwrap()).collect()
}

async fn made(config: &ServerConfig, lists: Lists, allowed: Option<&[Pin]>) -> Assembled {
    let naming = Naming::new(&config.name, config.prefix.as_deref());
    assemble(config, &naming, &NameClaims::default(), lists, allowed).await
}

#[tokio::test]
async fn broken_tools_are_set_aside_and_named_and_the_rest_works() {
    let broken =
        json!({ "name": "bad", "inputSchema": { "type": "object", "properties": { "a": { "type": "strin" } } } });
    let tools = raw([tool("a", "A."), broken, tool("a", "Again."), json!({ "x": 1 }), tool("b", "B.")]);
    let Assembled { offer, first } = made(&stdio("x"), Lists { tools, ..Lists::default() }, None).await;
    let names: Vec<&str> = offer.tools.iter().map(|tool| tool.original.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let aside: Vec<&str> = offer.set_aside.iter().map(|aside| aside.tool.as_str()).collect();
    assert_eq!(aside, ["bad", "a", "(without a name)"]);
    assert_eq!(first.unwrap().len(), 2, "only what works is remembered");
    assert_eq!(offer.tool(&ToolName::parse("mcp_x_b").unwrap()).unwrap().original, "b");
}

#[tokio::test]
async fn patterns_choose_by_the_servers_own_names_and_all_tools_are_remembered() {
    let mut config = stdio("x");
    config.allow = Patterns::parse(["read_*".to_owned()]).unwrap();
    config.deny = Patterns::parse(["*_secret".to_owned()]).unwrap();
    let tools = raw([tool("read_file", ""), tool("read_secret", ""), tool("write_file", "")]);
    let Assembled { offer, first } = made(&config, Lists { tools, ..Lists::default() }, None).await;
    let names: Vec<&str> = offer.tools.iter().map(|tool| tool.exposed.as_str()).collect();
    assert_eq!((names, first.unwrap().len()), (vec!["mcp_x_read_file"], 3));
}

#[tokio::test]
async fn what_was_allowed_is_offered_without_its_server() {
    let pins = [Pin::of("b", &tool("b", "B.")), Pin::of("a", &tool("a", "A."))];
    let config = stdio("x");
    let offer = recalled(&config, &Naming::new(&config.name, None), &NameClaims::default(), &pins).await;
    let names: Vec<&str> = offer.allowed().map(|tool| tool.exposed.as_str()).collect();
    assert_eq!((names, offer.held().count()), (vec!["mcp_x_a", "mcp_x_b"], 0));
}

#[tokio::test]
async fn prompts_and_resources_are_offered_prefixed_and_cleaned() {
    let lists = Lists {
        prompts: raw([json!({ "name": "Sum up", "description": "x\u{202e}y" }), json!({ "name": "" })]),
        resources: raw([json!({ "uri": "test://a", "name": "A" }), json!({ "uri": "test://\u{7}" })]),
        templates: raw([json!({ "uriTemplate": "test://{id}", "name": "T" })]),
        ..Lists::default()
    };
    let offer = made(&stdio("x"), lists, None).await.offer;
    let prompt = offer.prompt(&ToolName::parse("mcp_x_sum_up").unwrap()).unwrap();
    assert_eq!((prompt.original.as_str(), &prompt.definition["description"]), ("Sum up", &json!("xy")));
    assert_eq!(offer.resources[0].exposed, "mcp-x+test://a");
    assert_eq!(offer.templates[0].exposed, "mcp-x+test://{id}");
    assert_eq!((offer.prompts.len(), offer.resources.len(), offer.set_aside.len()), (1, 1, 2));
}

#[tokio::test]
async fn a_thousand_broken_tools_are_not_all_named() {
    let tools = raw((0..1000).map(|n| json!({ "name": format!("t{n}") })));
    let offer = made(&stdio("x"), Lists { tools, ..Lists::default() }, None).await.offer;
    assert_eq!((offer.set_aside.len(), offer.set_aside[100].tool.as_str()), (101, "(900 more)"));
}
