//! The reference page of all keys and variables, and the effective configuration as text.

use std::fmt::Write;

use super::check::Config;
use super::env::EnvVar;
use super::section::{Key, Shape};
use super::sections::File;

/// `docs/reference/configuration.md`.
pub fn reference() -> String {
    let mut page = String::from(INTRODUCTION);
    page.push_str("\n## Keys of `nexus.yaml`\n\n");
    page.push_str("| key | holds | default | meaning |\n|---|---|---|---|\n");
    write_keys(&mut page, "", File::KEYS);
    page.push_str("\n## Environment\n\n");
    page.push_str("| variable | also as a file | meaning |\n|---|---|---|\n");
    for variable in EnvVar::ALL {
        let name = variable.name();
        let file = if variable.is_secret() { format!("`{name}_FILE`") } else { String::new() };
        write_line(&mut page, &[&format!("`{name}`"), &file, variable.doc()]);
    }
    page
}

/// The effective configuration as YAML. Secrets are shown as `[set]`.
pub fn show(config: &Config) -> String {
    serde_saphyr::to_string(config).unwrap_or_else(|error| format!("# cannot be shown: {error}\n"))
}

const INTRODUCTION: &str = "\
# Configuration

Written by `nexus docs` from the declarations in `crates/nexus/src/config`; do not edit.

The file is `--config FILE`, else `NEXUS_CONFIG`, else `./nexus.yaml`, else
`~/.config/nexus/nexus.yaml`; without any of them every default applies. All keys are optional
unless they are marked *required*, unknown keys are faults, and the environment beats the file.
Paths that are not absolute start at the folder of the file; `~/` is the home folder.
`nexus check` prints every fault, or the configuration as it takes effect.
";

fn write_keys(page: &mut String, path: &str, keys: &[Key]) {
    for key in keys {
        let path = if path.is_empty() { key.name.to_owned() } else { format!("{path}.{}", key.name) };
        write_key(page, path, key);
    }
}

fn write_key(page: &mut String, mut path: String, key: &Key) {
    let shape = (key.shape)();
    let holds = match &shape {
        Shape::Section(_) => "section".to_owned(),
        Shape::List(of) if matches!(**of, Shape::Section(_)) => "list of sections".to_owned(),
        Shape::Map(name, of) if matches!(**of, Shape::Section(_)) => format!("sections by name: {name}"),
        shape => shape.to_string(),
    };
    let default = match key.default {
        Some(default) => format!("`{default}`"),
        None if (key.required)() => "*required*".to_owned(),
        None => String::new(),
    };
    write_line(page, &[&format!("`{path}`"), &holds, &default, key.doc.trim()]);

    let mut inner = shape;
    loop {
        inner = match inner {
            Shape::Section(keys) => return write_keys(page, &path, keys),
            Shape::List(of) => {
                path.push_str("[]");
                *of
            }
            Shape::Map(_, of) => {
                path.push_str(".NAME");
                *of
            }
            Shape::Value(_) => return,
        };
    }
}

fn write_line(page: &mut String, cells: &[&str]) {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    // Writing to a String cannot fail.
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}
