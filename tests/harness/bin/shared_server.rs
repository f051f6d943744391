//! A server for tests of many hosts at once: `shared-server [DIRECTORY] [ANYTHING…]`.
//!
//! Every tool is called with a `tag`, which says whose the call is, and nothing is ever answered or
//! sent about a call without it:
//!
//! | tool | what it does |
//! | --- | --- |
//! | `echo` | answers the tag |
//! | `increment` | answers how often this was called, by whomever |
//! | `steps {n}` | sends `n` messages of progress with the tag in them, then answers it |
//! | `slow {gate}` | sends one message of progress, waits until the file `gate` is there, or the call is cancelled, and answers the tag |
//! | `ask` | asks the host by `elicitation/create`, with the tag as message; answers what it was answered, or `refused` |
//! | `late {gate}` | answers at once, and asks the host once the file `gate` is there; the file `gate`.answer then has what came of it |
//! | `touch {uri}` | says that the resource was updated, then answers the tag |
//! | `log {level}` | sends a message of the log, with the tag as data |
//! | `changed` | says that the list of tools has changed |
//! | `env`, `arguments` | answer the environment, and what it was started with, as JSON |
//! | `pid` | answers its pid |
//! | `die` | exits at once |
//!
//! It remembers subscriptions, and answers `resources/read` of `subscribed:` with them. It asks
//! nobody for roots. `SHARED_HANDSHAKES` names a file to which it appends each `initialize`,
//! `COUNTER_PIDS` one for its pid. While there is a file `hold` in DIRECTORY, `initialize` waits,
//! and there is a file `held`; a file `refuse` is taken away, and `initialize` refused once.

mod stdio;

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

const TOOLS: [&str; 13] = [
    "echo",
    "increment",
    "steps",
    "slow",
    "ask",
    "late",
    "touch",
    "log",
    "changed",
    "env",
    "arguments",
    "pid",
    "die",
];
/// The newest version that it speaks.
const VERSION: &str = "2025-06-18";

#[derive(Default)]
struct State {
    count: u64,
    /// Calls that a host has cancelled, as JSON.
    cancelled: HashSet<String>,
    subscribed: BTreeSet<String>,
}

#[derive(Clone, Default)]
struct SharedServer(Arc<(Mutex<State>, stdio::Asked)>);

fn main() {
    stdio::note("COUNTER_PIDS", std::process::id());
    let server = SharedServer::default();
    for message in stdio::messages() {
        server.take(message);
    }
    std::process::exit(0);
}

fn notify(method: &str, params: &Value) {
    stdio::say(json!({"method": format!("notifications/{method}"), "params": params}));
}

/// Whether `initialize` is not to be refused, once it is to be answered.
fn may_begin() -> bool {
    let Some(directory) = std::env::args().nth(1).map(PathBuf::from) else {
        return true;
    };
    let hold = directory.join("hold");
    if hold.exists() {
        fs::write(directory.join("held"), "").expect("a file");
        stdio::wait_for("/nowhere", || !hold.exists());
    }
    fs::remove_file(directory.join("refuse")).is_err()
}

impl SharedServer {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, message: Value) {
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        if method.is_empty() {
            self.0.1.answered(message);
        } else if message.get("id").is_none() {
            if method == "notifications/cancelled" {
                let call = message["params"]["requestId"].to_string();
                self.lock().cancelled.insert(call);
            }
        } else if method == "tools/call" {
            let server = self.clone();
            std::thread::spawn(move || server.serve(&method, &message));
        } else {
            self.serve(&method, &message);
        }
    }

    fn serve(&self, method: &str, message: &Value) {
        let id = &message["id"];
        let answer = self.answer(id, method, &message["params"]);
        // A call that was cancelled is not answered (MCP, Cancellation).
        if !self.is_cancelled(id) {
            stdio::answer(id, answer);
        }
    }

    fn is_cancelled(&self, id: &Value) -> bool {
        self.lock().cancelled.contains(&id.to_string())
    }

    fn answer(&self, id: &Value, method: &str, params: &Value) -> stdio::Answer {
        let uri = params["uri"].as_str().unwrap_or_default();
        Ok(match method {
            "initialize" => {
                stdio::note("SHARED_HANDSHAKES", params);
                if !may_begin() {
                    return stdio::not_found();
                }
                let capabilities = json!({
                    "tools": {"listChanged": true}, "resources": {"subscribe": true}, "logging": {}, "tasks": {},
                });
                let mut answer = stdio::initialized(params, "crowd", &capabilities);
                let version = answer["protocolVersion"].as_str().unwrap_or(VERSION);
                answer["protocolVersion"] = version.min(VERSION).into();
                answer
            }
            "tools/list" => stdio::tools(&TOOLS),
            "tools/call" => stdio::text(&self.call(id, params)),
            "resources/subscribe" => {
                self.lock().subscribed.insert(uri.to_owned());
                json!({})
            }
            "resources/unsubscribe" => {
                self.lock().subscribed.remove(uri);
                json!({})
            }
            "resources/read" => {
                let subscribed = json!(self.lock().subscribed).to_string();
                json!({"contents": [{"uri": uri, "text": subscribed}]})
            }
            "ping" | "logging/setLevel" => json!({}),
            _ => return stdio::not_found(),
        })
    }

    fn call(&self, id: &Value, params: &Value) -> String {
        let given = &params["arguments"];
        let word = |name: &str| given[name].as_str().unwrap_or_default().to_owned();
        let tag = word("tag");
        let progress = |n: u64| {
            let token = &params["_meta"]["progressToken"];
            let params = json!({"progressToken": token, "progress": n, "message": tag});
            notify("progress", &params);
        };
        match params["name"].as_str().unwrap_or_default() {
            "increment" => {
                let mut state = self.lock();
                state.count += 1;
                return state.count.to_string();
            }
            "steps" => (1..=given["n"].as_u64().unwrap_or_default()).for_each(progress),
            "slow" => {
                progress(1);
                stdio::wait_for(word("gate"), || self.is_cancelled(id));
            }
            "ask" => return self.ask(&tag),
            "late" => {
                let (server, tag, gate) = (self.clone(), tag.clone(), word("gate"));
                std::thread::spawn(move || server.ask_late(&tag, &gate));
            }
            "touch" => notify("resources/updated", &json!({"uri": given["uri"]})),
            "log" => notify("message", &json!({"level": given["level"], "data": tag})),
            "changed" => notify("tools/list_changed", &json!({})),
            "env" => return stdio::environment(),
            "arguments" => return json!(std::env::args().skip(1).collect::<Vec<_>>()).to_string(),
            "pid" => return std::process::id().to_string(),
            "die" => std::process::exit(1),
            _ => {}
        }
        tag
    }

    fn ask(&self, tag: &str) -> String {
        let schema = json!({"type": "object", "properties": {"tag": {"type": "string"}}});
        let params = json!({"message": tag, "requestedSchema": schema});
        let answer = self.0.1.ask("elicitation/create", &params);
        let tag = answer["result"]["content"]["tag"].as_str();
        tag.unwrap_or("refused").to_owned()
    }

    fn ask_late(&self, tag: &str, gate: &str) {
        stdio::wait_for(gate, || false);
        let (new, answer) = (format!("{gate}.new"), self.ask(tag));
        fs::write(&new, answer).expect("a file");
        fs::rename(new, format!("{gate}.answer")).expect("moved");
    }
}
