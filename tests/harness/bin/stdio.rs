//! What servers on stdio share: requests are read line by line, and each answer is a line.
#![allow(dead_code, reason = "each server uses a part of it")]

use std::collections::{BTreeMap, HashMap};
use std::fs::OpenOptions;
use std::io::{self, BufRead as _, Write as _};
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

/// The newest version that begins with `initialize`; a client that wants another one gets this.
const VERSION: &str = "2025-11-25";
/// How often a file is looked for. Servers wait in threads of their own, and nothing tells them.
const STEP: Duration = Duration::from_millis(5);

/// What a request becomes: its result, or the code and the message of an error.
pub(crate) type Answer = Result<Value, (i64, String)>;

/// Every message that comes, in its order; what is no JSON ends the server.
pub(crate) fn messages() -> impl Iterator<Item = Value> {
    let lines = io::stdin().lock().lines();
    lines.map(|line| serde_json::from_str(&line.expect("UTF-8")).expect("JSON"))
}

/// Writes a message.
pub(crate) fn say(mut message: Value) {
    message["jsonrpc"] = "2.0".into();
    // The host may be gone, and the end of the input comes as well.
    let _ = writeln!(io::stdout(), "{message}");
}

/// Answers a request.
pub(crate) fn answer(id: &Value, answer: Answer) {
    say(match answer {
        Ok(result) => json!({"id": id, "result": result}),
        Err((code, message)) => json!({"id": id, "error": {"code": code, "message": message}}),
    });
}

/// What a server asks its host, and what comes of it: the number of the last request, and answers.
#[derive(Default)]
pub(crate) struct Asked(Mutex<(u64, HashMap<u64, Value>)>, Condvar);

impl Asked {
    /// Asks, and waits for the answer.
    pub(crate) fn ask(&self, method: &str, params: &Value) -> Value {
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        asked.0 += 1;
        let id = asked.0;
        say(json!({"id": id, "method": method, "params": params}));
        let missing = |asked: &mut (u64, HashMap<u64, Value>)| !asked.1.contains_key(&id);
        let waited = self.1.wait_while(asked, missing);
        let mut asked = waited.unwrap_or_else(PoisonError::into_inner);
        asked.1.remove(&id).unwrap_or_default()
    }

    /// An answer has come.
    pub(crate) fn answered(&self, message: Value) {
        if let Some(id) = message["id"].as_u64() {
            let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            asked.1.insert(id, message);
            self.1.notify_all();
        }
    }
}

/// For a method that a server does not have.
pub(crate) fn not_found() -> Answer {
    Err((-32601, "Method not found".to_owned()))
}

/// The answer to `initialize`.
pub(crate) fn initialized(params: &Value, name: &str, capabilities: &Value) -> Value {
    let wanted = params["protocolVersion"].as_str().unwrap_or(VERSION);
    json!({
        "protocolVersion": wanted.min(VERSION),
        "capabilities": capabilities,
        "serverInfo": {"name": name, "version": "1.0.0"},
    })
}

/// The answer to `tools/list`.
pub(crate) fn tools(names: &[&str]) -> Value {
    let tools = names.iter();
    let tools: Vec<Value> = tools
        .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}))
        .collect();
    json!({"tools": tools})
}

/// What a tool has said.
pub(crate) fn text(text: &impl ToString) -> Value {
    json!({"content": [{"type": "text", "text": text.to_string()}]})
}

/// The environment, as JSON.
pub(crate) fn environment() -> String {
    let variables = std::env::vars_os();
    let variables: BTreeMap<String, String> = variables
        .map(|(name, value)| (lossy(&name), lossy(&value)))
        .collect();
    json!(variables).to_string()
}

fn lossy(text: &std::ffi::OsStr) -> String {
    text.to_string_lossy().into_owned()
}

/// Adds a line to the file that this variable names, if there is one.
pub(crate) fn note(variable: &str, line: impl std::fmt::Display) {
    let Some(path) = std::env::var_os(variable) else {
        return;
    };
    let file = OpenOptions::new().create(true).append(true).open(path);
    let line = format!("{line}\n");
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .expect("a file");
}

/// Waits until a file is there, or there is no reason to wait any more. Whether it is there.
pub(crate) fn wait_for(file: impl AsRef<Path>, mut is_over: impl FnMut() -> bool) -> bool {
    loop {
        if is_over() {
            return false;
        }
        if file.as_ref().exists() {
            return true;
        }
        std::thread::sleep(STEP);
    }
}
