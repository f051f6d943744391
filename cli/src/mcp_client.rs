//! An MCP client of one server, for people at a shell: `call`.
//!
//! It runs `mcp-sessiond wrap` as a child and speaks on its pipes, so every rule about who gets which
//! server is that of `wrap`. It declares no capabilities: what a server asks of it is refused.

pub(crate) mod target;

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use futures::StreamExt as _;
use mcp_sessiond_jsonrpc::code;
use mcp_sessiond_process::signals::not_ignored;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use signal_hook_tokio::Signals;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use self::target::Target;
use crate::exit_code::{DATA_ERROR, OS_ERROR, SOFTWARE, TEMPORARY, UNAVAILABLE};
use crate::ui::output::warn;
use crate::ui::table::printable;

/// The version of MCP that is spoken: the newest one that has `initialize`.
const PROTOCOL: &str = "2025-11-25";
/// The one that is spoken with a server that refuses that: each of its requests says so.
pub(crate) const MODERN: &str = "2026-07-28";

/// How long a server that has refused `initialize` may take to answer `server/discover`.
const DISCOVER_WAIT: Duration = Duration::from_secs(5);

/// How long the front may take to leave, before it is killed.
const LEAVE: Duration = Duration::from_secs(2);

/// Pages of tools that are asked for.
const PAGES_MAX: usize = 1000;

/// The exit code of a shell's command that was ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// How lines of a front begin that are of no use at a shell: each call finds the server running, in
/// the environment of its first start, and the answer itself says who else has it.
const FOR_HOSTS: [&str; 3] = [
    "mcp-sessiond: resumed the server",
    "mcp-sessiond: the server has the environment of its first start",
    "mcp-sessiond: the server named `",
];

/// What a front answers where another one has the server with this name.
const TAKEN: &str = " is in use by ";

/// Who this client is.
fn client_info() -> Value {
    json!({"name": "mcp-sessiond", "version": env!("CARGO_PKG_VERSION")})
}

/// Passes on the lines that a front and its server write to standard error.
async fn pass_on(errors: ChildStderr) {
    let mut lines = BufReader::new(errors).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if !FOR_HOSTS.iter().any(|begin| line.starts_with(begin)) {
            let _ = writeln!(std::io::stderr(), "{}", printable(&line));
        }
    }
}

/// Why there is no answer: the exit code, and a sentence. None: the user has ended it, and knows.
#[derive(Debug)]
pub(crate) struct CallFailure {
    pub(crate) code: u8,
    pub(crate) sentence: Option<String>,
    /// Somebody else has the server.
    pub(crate) is_of_another: bool,
}

impl CallFailure {
    pub(crate) fn new(code: u8, sentence: impl Into<String>) -> Self {
        Self {
            code,
            sentence: Some(sentence.into()),
            is_of_another: false,
        }
    }

    /// Somebody else has the server.
    fn of_another(code: u8, sentence: impl Into<String>) -> Self {
        Self {
            is_of_another: true,
            ..Self::new(code, sentence)
        }
    }

    /// Prints the sentence, and returns the exit code.
    pub(crate) fn report(&self) -> u8 {
        if let Some(sentence) = &self.sentence {
            warn(sentence);
        }
        self.code
    }
}

/// The connection with a server.
pub(crate) struct McpClient {
    name: String,
    front: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    /// Passes on what the front and the server write to standard error.
    errors: JoinHandle<()>,
    signals: Signals,
    until: Instant,
    next: u64,
    /// Whether the server speaks the version that has no `initialize`.
    is_modern: bool,
}

impl McpClient {
    /// Connects with a server and initialises it, by then.
    ///
    /// # Errors
    /// Exit code 75 where another process has the server, or it took too long; 69 where it can't be
    /// started.
    pub(crate) async fn connect(target: &Target, until: Instant) -> Result<Self, CallFailure> {
        let system = |error: std::io::Error| CallFailure::new(OS_ERROR, error.to_string());
        let here = Path::new(".");
        let mut front = Command::new(&target.executable)
            .current_dir(target.directory.as_deref().unwrap_or(here))
            .arg("wrap")
            .args(&target.words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(system)?;
        let broken = || CallFailure::new(SOFTWARE, "the wrapper has no pipes");
        let input = front.stdin.take().ok_or_else(broken)?;
        let output = front.stdout.take().ok_or_else(broken)?;
        let errors = front.stderr.take().ok_or_else(broken)?;
        let errors = tokio::spawn(pass_on(errors));
        let mut client = Self {
            name: target.name.clone(),
            front,
            input: Some(input),
            errors,
            output: BufReader::new(output).lines(),
            signals: Signals::new(not_ignored(&[
                Signal::SIGINT,
                Signal::SIGTERM,
                Signal::SIGHUP,
            ]))
            .map_err(system)?,
            until,
            next: 0,
            is_modern: false,
        };
        // A shared server may have been told of capabilities that other clients have.
        let parameters = json!({
            "protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client_info(),
            "_meta": {"mcp-sessiond/refuses": true},
        });
        match client.request("initialize", parameters).await? {
            Ok(_) => {
                client
                    .send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
                    .await?;
                Ok(client)
            }
            Err(error) => {
                let message = error["message"].as_str().unwrap_or_default();
                let taken = message
                    .split_once(TAKEN)
                    .filter(|_| error["code"] == code::CONNECTION);
                let failure = match taken {
                    Some((_, rest)) => {
                        let holder = rest.split(';').next().unwrap_or_default();
                        let sentence = format!(
                            "{} is in use by {holder}, and this call was not sent; it is free when that host closes it",
                            client.name
                        );
                        CallFailure::of_another(TEMPORARY, sentence)
                    }
                    // One that was reached may speak the other version alone.
                    None if error["data"].get("outcome").is_none()
                        && client.discovers().await? =>
                    {
                        return Ok(client);
                    }
                    None => CallFailure::new(UNAVAILABLE, client.sentence(&error)),
                };
                client.leave().await;
                Err(failure)
            }
        }
    }

    /// Whether the server speaks the version that has no `initialize`, which is spoken from then on.
    async fn discovers(&mut self) -> Result<bool, CallFailure> {
        self.is_modern = true;
        let until = self.until;
        self.until = until.min(Instant::now() + DISCOVER_WAIT);
        let discovered = match self.request("server/discover", json!({})).await {
            Ok(discovered) => discovered.unwrap_or_default(),
            // The user has ended it.
            Err(failure) if failure.sentence.is_none() => return Err(failure),
            // What it has said before is why it can't be used.
            Err(_) => Value::Null,
        };
        self.until = until;
        let versions = discovered
            .get("supportedVersions")
            .cloned()
            .unwrap_or_default();
        let versions = versions.as_array().map_or(&[][..], Vec::as_slice);
        self.is_modern = versions.iter().any(|version| version == MODERN);
        Ok(self.is_modern)
    }

    /// All tools of the server.
    ///
    /// # Errors
    /// Those of a request; exit code 65 where the server refuses.
    pub(crate) async fn tools(&mut self) -> Result<Vec<Value>, CallFailure> {
        let (mut tools, mut cursors) = (Vec::new(), Vec::new());
        loop {
            let parameters = match cursors.last() {
                Some(cursor) => json!({"cursor": cursor}),
                None => json!({}),
            };
            let mut page = match self.request("tools/list", parameters).await? {
                Ok(page) => page,
                Err(error) => return Err(CallFailure::new(DATA_ERROR, self.sentence(&error))),
            };
            if let Some(more) = page["tools"].as_array_mut() {
                tools.append(more);
            }
            let next = page["nextCursor"].take();
            // One that leads nowhere, or to where one has led before, ends the list.
            if next.is_null() || next == "" || cursors.contains(&next) {
                return Ok(tools);
            }
            if cursors.len() + 1 >= PAGES_MAX {
                let name = &self.name;
                warn(format_args!(
                    "{name} has more in tools/list than is listed: it was cut after page {PAGES_MAX}"
                ));
                return Ok(tools);
            }
            cursors.push(next);
        }
    }

    /// Calls a tool. The result may be one that says that the tool has failed.
    ///
    /// # Errors
    /// Those of a request; exit code 65 where the server refuses.
    pub(crate) async fn call(
        &mut self,
        tool: &str,
        arguments: Value,
    ) -> Result<Value, CallFailure> {
        let parameters = json!({
            "name": tool, "arguments": arguments, "_meta": {"progressToken": self.next + 1},
        });
        let result = self.request("tools/call", parameters).await?;
        let result = result.map_err(|error| CallFailure::new(DATA_ERROR, self.sentence(&error)))?;
        if result["resultType"] == "input_required" {
            let sentence = format!(
                "{}: the tool wants to ask its user something, which `mcp-sessiond call` can't do; call it from a host",
                self.name
            );
            return Err(CallFailure::new(DATA_ERROR, sentence));
        }
        Ok(result)
    }

    /// Leaves: the server stays as it is.
    pub(crate) async fn leave(mut self) {
        drop(self.input.take());
        if timeout(LEAVE, self.front.wait()).await.is_err() {
            let _ = self.front.kill().await;
        }
        let _ = timeout(LEAVE, self.errors).await;
    }

    /// What a server has answered that refuses.
    fn sentence(&self, error: &Value) -> String {
        let message = error["message"].as_str().unwrap_or("no reason was given");
        format!("{}: {message}", self.name)
    }

    async fn send(&mut self, message: &Value) -> Result<(), CallFailure> {
        let Some(input) = &mut self.input else {
            return Err(self.ended());
        };
        let line = format!("{message}\n");
        let sent = async {
            input.write_all(line.as_bytes()).await?;
            input.flush().await
        };
        sent.await.map_err(|_| self.ended())
    }

    fn ended(&self) -> CallFailure {
        let sentence = format!(
            "{}: the connection ended before the answer came; `mcp-sessiond doctor` looks for the cause",
            self.name
        );
        CallFailure::new(UNAVAILABLE, sentence)
    }

    /// Sends a request, and waits for its answer: a result, or the server's error.
    async fn request(
        &mut self,
        method: &str,
        mut parameters: Value,
    ) -> Result<Result<Value, Value>, CallFailure> {
        if self.is_modern {
            let said = [
                ("protocolVersion", json!(MODERN)),
                ("clientCapabilities", json!({})),
                ("clientInfo", client_info()),
            ];
            for (name, value) in said {
                parameters["_meta"][format!("io.modelcontextprotocol/{name}")] = value;
            }
        }
        self.next += 1;
        let id = self.next;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": parameters}))
            .await?;
        loop {
            let line = tokio::select! {
                biased;
                Some(_) = self.signals.next() => {
                    self.cancel(id, method, "the user has cancelled it").await;
                    return Err(CallFailure { code: INTERRUPTED, sentence: None, is_of_another: false });
                }
                line = timeout_at(self.until, self.output.next_line()) => line,
            };
            let Ok(line) = line else {
                self.cancel(id, method, "it took too long").await;
                let sentence = format!(
                    "{}: no answer in time; `--timeout SECONDS` allows more",
                    self.name
                );
                return Err(CallFailure::new(TEMPORARY, sentence));
            };
            let Ok(Some(line)) = line else {
                return Err(self.ended());
            };
            let Ok(mut message) = serde_json::from_str::<Value>(&line) else {
                continue;
            };
            let is_answer = message.get("method").is_none();
            if is_answer && message["id"] == id {
                return Ok(match message.get_mut("error") {
                    Some(error) => Err(error.take()),
                    None => Ok(message["result"].take()),
                });
            }
            if !is_answer {
                self.on_message(&message).await?;
            }
        }
    }

    /// What the server says or asks meanwhile.
    async fn on_message(&mut self, message: &Value) -> Result<(), CallFailure> {
        let method = message["method"].as_str().unwrap_or_default();
        match (message.get("id"), method) {
            (Some(id), "ping") => {
                self.send(&json!({"jsonrpc": "2.0", "id": id, "result": {}}))
                    .await
            }
            (Some(id), _) => {
                let error =
                    json!({"code": -32601, "message": "this client declares no capabilities"});
                self.send(&json!({"jsonrpc": "2.0", "id": id, "error": error}))
                    .await
            }
            (None, "notifications/progress") => {
                let parameters = &message["params"];
                let total = match &parameters["total"] {
                    Value::Null => String::new(),
                    total => format!(" of {total}"),
                };
                let text = parameters["message"].as_str().unwrap_or_default();
                warn(format_args!("{}{total} {text}", parameters["progress"]));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Tells the server that nobody waits for this answer any more. `initialize` can't be
    /// cancelled.
    async fn cancel(&mut self, id: u64, method: &str, reason: &str) {
        if method != "initialize" {
            let parameters = json!({"requestId": id, "reason": reason});
            let _ = self
                .send(&json!({
                    "jsonrpc": "2.0", "method": "notifications/cancelled", "params": parameters,
                }))
                .await;
        }
        drop(self.input.take());
        let _ = timeout(LEAVE, self.front.wait()).await;
    }
}
