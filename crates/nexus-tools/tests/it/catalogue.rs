//! What a model is told of the tools, and that none was forgotten.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use nexus_core::provider::{Origin, Own, Provider};
use nexus_core::tool::{Access, Family};
use nexus_tools::{Settings, Toolbox, families};
use serde_json::Value;

fn family() -> Family<Toolbox> {
    Family::new(Origin::Own(Own::BuiltIn), Arc::new(Toolbox::new(Settings::default())), families()).unwrap()
}

#[test]
fn this_is_what_a_model_reads() {
    for tool in family().tools().iter() {
        let listed: Value = serde_json::from_str(&tool.rendered).unwrap();
        insta::assert_json_snapshot!(tool.name.as_str(), listed);
    }
}

#[test]
fn only_two_tools_write() {
    let tools = family().tools();
    let mut writers: Vec<_> =
        tools.iter().filter(|tool| tool.most == Access::Write).map(|tool| tool.name.to_string()).collect();
    writers.sort();
    assert_eq!(writers, ["run_command", "write_file"]);
}

/// A file in a family's folder is a tool of that name in its table.
#[test]
fn every_tool_file_stands_in_a_table() {
    let listed: Vec<&str> = families().iter().copied().flatten().map(|entry| entry.name).collect();
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for folder in ["shell", "session"] {
        for file in
            fs::read_dir(src.join(folder)).unwrap().map(|file| file.unwrap().path()).filter(|path| path.is_file())
        {
            let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
            assert!(listed.contains(&name.as_str()), "{name} is missing in {folder}.rs");
        }
    }
}
