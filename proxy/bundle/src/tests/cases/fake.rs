//! Backends in this process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::future::BoxFuture;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, watch};

use crate::lock::lock;
use crate::*;

/// What a backend does when it is opened.
#[derive(Clone)]
pub(super) enum Opening {
    Ready,
    Fails(Failure),
    /// For as long as this was not notified.
    Hangs(Arc<Notify>),
}

/// What a backend does with a request.
#[derive(Clone)]
pub(super) enum Reply {
    Result(Value),
    /// What stands in the member `error`.
    Error(Value),
    Never,
    /// Once for each permission.
    When(Arc<Notify>),
    Dies,
}

/// How many are starting, and how many were at most.
#[derive(Default)]
pub(super) struct Starting {
    now: AtomicUsize,
    pub(super) most: AtomicUsize,
}

/// One that starts.
struct Starts(Arc<Starting>);

impl Starts {
    fn begin(starting: &Arc<Starting>) -> Self {
        let now = starting.now.fetch_add(1, SeqCst) + 1;
        starting.most.fetch_max(now, SeqCst);
        Self(starting.clone())
    }
}

impl Drop for Starts {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, SeqCst);
    }
}

/// A backend.
#[derive(Clone)]
pub(super) struct Fake(Arc<Inner>);

struct Inner {
    name: String,
    is: Mutex<Is>,
    starting: Arc<Starting>,
    /// All that it has got, in its order.
    heard: watch::Sender<Vec<Message>>,
    starts: AtomicUsize,
    ends: watch::Sender<usize>,
    /// Connections that the bundle has.
    open: watch::Sender<usize>,
}

struct Is {
    capabilities: Value,
    version: String,
    instructions: Option<String>,
    lists: HashMap<&'static str, Vec<Vec<Value>>>,
    opening: Opening,
    replies: HashMap<String, Reply>,
    to_bundle: Option<mpsc::Sender<TrackedLine>>,
}

impl Fake {
    /// A backend that declares everything and has nothing.
    pub(super) fn new(name: &str) -> Self {
        Self::starting(name, &Arc::default())
    }

    pub(super) fn starting(name: &str, starting: &Arc<Starting>) -> Self {
        let capabilities = json!({
            "tools": {"listChanged": true}, "resources": {"subscribe": true}, "prompts": {}, "logging": {}, "completions": {},
        });
        let is = Is {
            capabilities,
            version: "2025-11-25".into(),
            instructions: None,
            lists: HashMap::new(),
            opening: Opening::Ready,
            replies: HashMap::new(),
            to_bundle: None,
        };
        Self(Arc::new(Inner {
            name: name.to_owned(),
            is: Mutex::new(is),
            starting: starting.clone(),
            heard: watch::Sender::default(),
            starts: AtomicUsize::new(0),
            ends: watch::Sender::default(),
            open: watch::Sender::default(),
        }))
    }

    /// It has these from now on, in pages.
    pub(super) fn pages(&self, list: List, pages: Vec<Vec<Value>>) -> &Self {
        lock(&self.0.is).lists.insert(list.key(), pages);
        self
    }

    pub(super) fn items(&self, list: List, items: &[Value]) -> &Self {
        self.pages(list, vec![items.to_vec()])
    }

    fn named(&self, list: List, names: &[&str]) -> &Self {
        let item = |name: &&str| match list {
            List::Tools => json!({"name": name, "inputSchema": {"type": "object"}}),
            List::Prompts => json!({"name": name}),
            List::Resources => json!({"uri": name, "name": "r"}),
            List::Templates => json!({"uriTemplate": name, "name": "t"}),
        };
        let items: Vec<Value> = names.iter().map(item).collect();
        self.items(list, &items)
    }

    pub(super) fn tools(&self, names: &[&str]) -> &Self {
        self.named(List::Tools, names)
    }

    pub(super) fn prompts(&self, names: &[&str]) -> &Self {
        self.named(List::Prompts, names)
    }

    pub(super) fn resources(&self, uris: &[&str]) -> &Self {
        self.named(List::Resources, uris)
    }

    pub(super) fn templates(&self, templates: &[&str]) -> &Self {
        self.named(List::Templates, templates)
    }

    pub(super) fn capabilities(&self, capabilities: Value) -> &Self {
        lock(&self.0.is).capabilities = capabilities;
        self
    }

    pub(super) fn version(&self, version: &str) -> &Self {
        version.clone_into(&mut lock(&self.0.is).version);
        self
    }

    pub(super) fn instructions(&self, text: &str) -> &Self {
        lock(&self.0.is).instructions = Some(text.to_owned());
        self
    }

    pub(super) fn opening(&self, opening: Opening) -> &Self {
        lock(&self.0.is).opening = opening;
        self
    }

    /// What it does with a method, or with a tool's name.
    pub(super) fn reply(&self, what: &str, reply: Reply) -> &Self {
        lock(&self.0.is).replies.insert(what.to_owned(), reply);
        self
    }

    pub(super) fn starts(&self) -> usize {
        self.0.starts.load(SeqCst)
    }

    pub(super) fn heard(&self) -> Vec<Message> {
        self.0.heard.borrow().clone()
    }

    /// How many messages of a method it has got.
    pub(super) fn count(&self, method: &str) -> usize {
        self.heard()
            .iter()
            .filter(|message| message_method(message) == method)
            .count()
    }

    /// Waits until it has got as many messages of a method. Returns the parameters of the last.
    pub(super) async fn hears(&self, method: &str, count: usize) -> Value {
        let mut heard = self.0.heard.subscribe();
        let count_in = |heard: &Vec<Message>| {
            heard
                .iter()
                .filter(|one| message_method(one) == method)
                .count()
        };
        let heard = heard
            .wait_for(|heard| count_in(heard) >= count)
            .await
            .expect("the backend")
            .clone();
        let last = heard
            .into_iter()
            .rfind(|message| message_method(message) == method)
            .expect("it was heard");
        last.params()
            .map_or(Value::Null, |params| parsed(&params.write()))
    }

    /// Waits until the host has answered a request of its own. Returns the result.
    pub(super) async fn is_answered(&self, request: u64) -> Value {
        let answer = |heard: &Vec<Message>| {
            let mut answers = heard.iter().filter_map(|message| match message {
                Message::Answer { id, outcome } if *id == Id::number(request) => Some(outcome),
                _ => None,
            });
            answers.next_back().cloned()
        };
        let mut heard = self.0.heard.subscribe();
        let heard = heard.wait_for(|heard| answer(heard).is_some()).await;
        let outcome = answer(&heard.expect("the backend")).expect("it was heard");
        parsed(&outcome.expect("a result"))
    }

    /// Waits until the bundle has ended it as many times.
    pub(super) async fn is_ended(&self, times: usize) {
        self.0
            .ends
            .subscribe()
            .wait_for(|ends| *ends >= times)
            .await
            .expect("the backend");
    }

    pub(super) fn ends(&self) -> usize {
        *self.0.ends.borrow()
    }

    /// Waits until the bundle has hung up.
    pub(super) async fn is_alone(&self) {
        self.0
            .open
            .subscribe()
            .wait_for(|open| *open == 0)
            .await
            .expect("the backend");
    }

    pub(super) async fn says(&self, line: &Value) {
        let to = lock(&self.0.is).to_bundle.clone().expect("a connection");
        to.send(TrackedLine::once(line.to_string().into()))
            .await
            .expect("a bundle that hears");
    }

    /// It dies.
    pub(super) fn dies(&self) {
        lock(&self.0.is).to_bundle = None;
    }

    /// It has another list, and says so.
    pub(super) async fn changes(&self, list: List, names: &[&str]) {
        self.named(list, names);
        self.says(&json!({"jsonrpc": "2.0", "method": list.changed()}))
            .await;
    }

    async fn serve(self, mut from_bundle: mpsc::Receiver<Bytes>) {
        self.0.open.send_modify(|open| *open += 1);
        while let Some(line) = from_bundle.recv().await {
            for message in Message::read(&line) {
                self.0
                    .heard
                    .send_modify(|heard| heard.push(message.clone()));
                if let Message::Request { id, method, .. } = &message {
                    let params = message
                        .params()
                        .map_or(Value::Null, |params| parsed(&params.write()));
                    tokio::spawn(
                        self.clone()
                            .answer(parsed(&id.raw()), method.clone(), params),
                    );
                }
            }
        }
        self.0.open.send_modify(|open| *open -= 1);
    }

    async fn answer(self, id: Value, method: String, params: Value) {
        let tool = params["name"].as_str().unwrap_or_default().to_owned();
        let reply = {
            let is = lock(&self.0.is);
            is.replies
                .get(&tool)
                .or_else(|| is.replies.get(&method))
                .cloned()
        };
        let line = match reply.unwrap_or_else(|| Reply::Result(self.usual(&method, &params))) {
            Reply::Result(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Reply::Error(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
            Reply::Never => return,
            Reply::Dies => return self.dies(),
            Reply::When(permission) => {
                permission.notified().await;
                json!({"jsonrpc": "2.0", "id": id, "result": self.usual(&method, &params)})
            }
        };
        let to = lock(&self.0.is).to_bundle.clone();
        if let Some(to) = to {
            let _ = to.send(TrackedLine::once(line.to_string().into())).await;
        }
    }

    /// What is answered where nothing else was wanted.
    fn usual(&self, method: &str, params: &Value) -> Value {
        let name = &self.0.name;
        let is = lock(&self.0.is);
        match method {
            "initialize" => {
                let mut result = json!({
                    "protocolVersion": is.version, "capabilities": is.capabilities,
                    "serverInfo": {"name": name, "version": "1"},
                });
                if let Some(instructions) = &is.instructions {
                    result["instructions"] = json!(instructions);
                }
                result
            }
            "tools/call" => {
                let text = format!(
                    "{name} has run {}",
                    params["name"].as_str().unwrap_or_default()
                );
                json!({"content": [{"type": "text", "text": text}]})
            }
            "resources/read" => json!({"contents": [{"uri": params["uri"], "text": name}]}),
            "prompts/get" => {
                let text = format!("{name}: {}", params["name"].as_str().unwrap_or_default());
                json!({"messages": [{"role": "user", "content": {"type": "text", "text": text}}]})
            }
            "completion/complete" => json!({"completion": {"values": [name]}}),
            _ => match List::of(method) {
                None => json!({}),
                Some(list) => {
                    let at: usize = params["cursor"]
                        .as_str()
                        .map_or(0, |cursor| cursor.parse().expect("a cursor"));
                    let pages = is.lists.get(list.key()).cloned().unwrap_or_default();
                    let mut result =
                        json!({list.key(): pages.get(at).cloned().unwrap_or_default()});
                    if at + 1 < pages.len() {
                        result["nextCursor"] = json!((at + 1).to_string());
                    }
                    result
                }
            },
        }
    }
}

impl Source for Fake {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn open(&self) -> BoxFuture<'_, Result<Pipe, Failure>> {
        Box::pin(async {
            self.0.starts.fetch_add(1, SeqCst);
            let opening = lock(&self.0.is).opening.clone();
            match opening {
                Opening::Ready => {}
                Opening::Fails(failure) => return Err(failure),
                Opening::Hangs(until) => {
                    let _starts = Starts::begin(&self.0.starting);
                    until.notified().await;
                }
            }
            let (to_backend, from_bundle) = mpsc::channel(WAITING);
            let (to_bundle, from) = mpsc::channel(WAITING);
            lock(&self.0.is).to_bundle = Some(to_bundle);
            tokio::spawn(self.clone().serve(from_bundle));
            let it = self.clone();
            let end = End::new(move || {
                Box::pin(async move {
                    it.dies();
                    it.0.ends.send_modify(|ends| *ends += 1);
                })
            });
            Ok(Pipe {
                to: to_backend,
                from,
                end,
            })
        })
    }
}

pub(super) fn raw_of(value: &Value) -> Box<RawValue> {
    to_raw_value(value).expect("JSON")
}

pub(super) fn parsed(text: &RawValue) -> Value {
    serde_json::from_str(text.get()).expect("JSON")
}

fn message_method(message: &Message) -> &str {
    match message {
        Message::Request { method, .. } | Message::Notification { method, .. } => method,
        Message::Answer { .. } => "",
    }
}
