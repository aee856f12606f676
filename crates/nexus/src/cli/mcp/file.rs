//! One mcp.json that is edited: whole or not at all, and private when it holds secrets.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use crate::config::Faults;
use crate::config::faults::{Problem, Spot};
use crate::config::mcp::{self, Places, edit};
use crate::private;

#[derive(Debug)]
pub struct McpFile {
    pub path: PathBuf,
    text: String,
}

/// Which of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    Home,
    Project,
}

impl McpFile {
    pub fn open(places: &Places, whose: Whose) -> Result<Self> {
        let path = match whose {
            Whose::Home => places.home_file().context("there is no home folder: HOME is not set")?,
            Whose::Project => places.project_file(),
        };
        // Where it is a link, the file behind it is the one to write.
        let path = path.canonicalize().unwrap_or(path);
        let text = private::read(&path).with_context(|| format!("reading {}", path.display()))?.unwrap_or_default();
        let text = if text.trim().is_empty() { "{}\n".to_owned() } else { text };
        Ok(Self { path, text })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn has(&self, name: &str) -> Result<bool> {
        edit::has(&self.text, name).map_err(|fault| self.faulty(fault))
    }

    pub fn put(&mut self, name: &str, entry: &Value) -> Result<()> {
        self.text = edit::put(&self.text, name, entry).map_err(|fault| self.faulty(fault))?;
        Ok(())
    }

    /// False: it is not in there.
    pub fn take(&mut self, name: &str) -> Result<bool> {
        match edit::take(&self.text, name).map_err(|fault| self.faulty(fault))? {
            Some(text) => self.text = text,
            None => return Ok(false),
        }
        Ok(true)
    }

    pub fn save(&self) -> Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder).with_context(|| format!("the folder {}", folder.display()))?;
        let earlier = fs::metadata(&self.path).map(|about| about.permissions().mode() & 0o777).ok();
        private::replace(&self.path, &self.text).with_context(|| format!("writing {}", self.path.display()))?;
        if let Some(mode) = earlier.filter(|_| !holds_secrets(&self.text)) {
            fs::set_permissions(&self.path, Permissions::from_mode(mode))?;
        }
        Ok(())
    }

    fn faulty(&self, (spot, problem): (Spot, Problem)) -> anyhow::Error {
        let mut faults = Faults::default();
        faults.in_file(&self.path, &self.text);
        faults.at(spot, problem);
        anyhow!("nothing was written:\n{}", faults.told(0).join("\n"))
    }
}

/// Whether a header or variable has its value written out and a name that announces a secret.
fn holds_secrets(text: &str) -> bool {
    let root = mcp::json::parse(text).root;
    let servers = ["mcpServers", "servers"].into_iter().filter_map(|shape| root.get(shape));
    let fields = servers.flat_map(|servers| servers.entries()).flat_map(|server| server.value.entries());
    let pairs = fields.filter(|field| matches!(field.key.as_str(), "env" | "headers"));
    let mut pairs = pairs.flat_map(|field| field.value.entries());
    pairs.any(|pair| mcp::is_telling(&pair.key) && !pair.value.text().is_some_and(|text| text.contains("${")))
}

/// The entry as it would be written, checked: its faults keep it from being written, oddities are told.
pub fn check(file: &McpFile, name: &str, env: &crate::config::Env) -> Result<Vec<String>> {
    let (faults, warnings) = mcp::check_entry(&file.path, file.text(), name, env);
    if !faults.is_empty() {
        bail!("nothing was written:\n{}", faults.join("\n"));
    }
    Ok(warnings)
}
