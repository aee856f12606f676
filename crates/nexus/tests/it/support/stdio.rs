//! MCP over the pipes of a child process.

use std::process::Stdio as Pipe;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::watch;

use super::program::listen;
use super::{MODERN, Program, rpc, within};

/// A running `nexus stdio`.
pub struct Stdio {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
    talk: watch::Receiver<String>,
    /// Notifications heard while waiting for answers.
    pub heard: Vec<Value>,
    /// How to answer what is asked, where the client says that it can.
    pub answer: Option<Value>,
    modern: bool,
    id: u64,
}

impl Stdio {
    /// Not a word said yet.
    pub fn start(program: &Program) -> Self {
        let mut child = program.command().stdin(Pipe::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let talk = listen(child.stderr.take().unwrap());
        let stdin = child.stdin.take();
        Self { child, stdin, stdout, talk, heard: Vec::new(), answer: None, modern: false, id: 0 }
    }

    pub async fn legacy(program: &Program) -> Self {
        Self::legacy_answering(program, None).await
    }

    /// With somebody to ask, who answers always the same.
    pub async fn legacy_answering(program: &Program, answer: Option<Value>) -> Self {
        let mut door = Self { answer, ..Self::start(program) };
        let client = json!({ "name": "it", "version": "1" });
        let params =
            json!({ "protocolVersion": "2025-11-25", "capabilities": door.capabilities(), "clientInfo": client });
        let hello = door.request("initialize", params).await;
        assert_eq!(hello["result"]["protocolVersion"], "2025-11-25", "{hello}");
        door.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        door
    }

    fn capabilities(&self) -> Value {
        if self.answer.is_some() { super::forms() } else { json!({}) }
    }

    pub fn modern(program: &Program) -> Self {
        Self { modern: true, ..Self::start(program) }
    }

    pub fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    pub async fn send(&mut self, message: &Value) {
        self.send_line(message.to_string().as_bytes()).await;
    }

    pub async fn send_line(&mut self, line: &[u8]) {
        let stdin = self.stdin.as_mut().unwrap();
        within("writing a line", async {
            stdin.write_all(line).await?;
            stdin.write_all(b"\n").await?;
            stdin.flush().await
        })
        .await
        .unwrap();
    }

    /// The next message; none at the end. Anything that is not a message fails the test.
    pub async fn next(&mut self) -> Option<Value> {
        let line = within("a line on stdout", self.stdout.next_line()).await.unwrap()?;
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} on stdout: {line}"));
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        Some(message)
    }

    pub async fn request(&mut self, method: &str, mut params: Value) -> Value {
        if self.modern {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = MODERN.into();
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = self.capabilities();
        }
        self.id += 1;
        let message = rpc(self.id, method, &params);
        self.send(&message).await;
        loop {
            let heard = self.next().await.unwrap_or_else(|| panic!("stdout ended: {}", self.said()));
            if heard["id"] == message["id"] && heard.get("method").is_none() {
                return heard;
            }
            if let (Some(answer), "elicitation/create") = (&self.answer, heard["method"].as_str().unwrap_or_default()) {
                let answer = json!({ "jsonrpc": "2.0", "id": heard["id"], "result": answer });
                self.send(&answer).await;
            }
            self.heard.push(heard);
        }
    }

    /// Calls a tool, and answers what its results ask, as the new era does it.
    pub async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments });
        let mut result = self.request("tools/call", params.clone()).await["result"].clone();
        while let (Some(answer), "input_required") = (&self.answer, result["resultType"].as_str().unwrap_or_default()) {
            let again = super::retried(&params, &result, answer);
            self.heard.push(result);
            result = self.request("tools/call", again).await["result"].clone();
        }
        result
    }

    pub fn said(&self) -> String {
        self.talk.borrow().clone()
    }

    pub async fn says(&self, words: &str) {
        let said = within(words, self.talk.clone().wait_for(|said| said.contains(words))).await.is_ok();
        assert!(said, "it ended without saying `{words}`: {}", self.said());
    }

    /// Closes stdin; what it still says, and its exit code.
    pub async fn end(&mut self) -> (Vec<Value>, Option<i32>) {
        drop(self.stdin.take());
        let mut rest = Vec::new();
        while let Some(message) = self.next().await {
            rest.push(message);
        }
        let status = within("the end of nexus stdio", self.child.wait()).await.unwrap();
        (rest, status.code())
    }
}
