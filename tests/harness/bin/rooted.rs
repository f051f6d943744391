//! A server that works in the folders (roots) that its host gives it: `rooted`.
//!
//! It asks for them once it is initialised, and again when it hears that they have changed. Calls
//! wait for the answer; lists do not. Its tools: `increment` counts, `where` answers the folders,
//! `levels` what it was told of levels and subscriptions.

mod stdio;

use serde_json::{Value, json};

#[derive(Default)]
struct Rooted {
    roots: Vec<String>,
    asked: u64,
    /// The request that has no answer yet.
    open: Option<String>,
    count: u64,
    held: Vec<Value>,
    changes: Vec<String>,
}

fn main() {
    let mut rooted = Rooted::default();
    for message in stdio::messages() {
        rooted.take(message);
    }
}

impl Rooted {
    fn take(&mut self, message: Value) {
        let Some(method) = message["method"].as_str() else {
            if message["id"].as_str() == self.open.as_deref() {
                self.answered(&message["result"]["roots"]);
            }
            return;
        };
        let (id, params) = (&message["id"], &message["params"]);
        match method {
            "initialize" => {
                let capabilities =
                    json!({"tools": {}, "logging": {}, "resources": {"subscribe": true}});
                let answer = stdio::initialized(params, "rooted", &capabilities);
                stdio::answer(id, Ok(answer));
            }
            "notifications/initialized" | "notifications/roots/list_changed" => self.ask(),
            "tools/list" => {
                let tools = stdio::tools(&["increment", "where", "levels"]);
                stdio::answer(id, Ok(tools));
            }
            "tools/call" if self.open.is_some() => self.held.push(message),
            "tools/call" => self.call(&message),
            "resources/list" => stdio::answer(id, Ok(json!({"resources": []}))),
            "resources/templates/list" => stdio::answer(id, Ok(json!({"resourceTemplates": []}))),
            "prompts/list" => stdio::answer(id, Ok(json!({"prompts": []}))),
            _ if !id.is_null() => {
                if let Some((_, what @ ("setLevel" | "subscribe" | "unsubscribe"))) =
                    method.split_once('/')
                {
                    let of = params["level"].as_str().or(params["uri"].as_str());
                    self.changes
                        .push(format!("{what}={}", of.unwrap_or_default()));
                }
                stdio::answer(id, Ok(json!({})));
            }
            _ => {}
        }
    }

    fn ask(&mut self) {
        self.asked += 1;
        let id = format!("roots-{}", self.asked);
        stdio::say(json!({"id": id, "method": "roots/list"}));
        self.open = Some(id);
    }

    fn answered(&mut self, roots: &Value) {
        self.open = None;
        let roots = roots.as_array().into_iter().flatten();
        let roots = roots.filter_map(|root| root["uri"].as_str());
        self.roots = roots.map(str::to_owned).collect();
        for waiting in std::mem::take(&mut self.held) {
            self.call(&waiting);
        }
    }

    fn call(&mut self, message: &Value) {
        let text = match message["params"]["name"].as_str() {
            Some("increment") => {
                self.count += 1;
                self.count.to_string()
            }
            Some("levels") => self.changes.join(" "),
            _ if self.roots.is_empty() => "nowhere".to_owned(),
            _ => self.roots.join(" "),
        };
        stdio::answer(&message["id"], Ok(stdio::text(&text)));
    }
}
