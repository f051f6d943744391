//! Servers that are tasks, and a host that writes down what it hears.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use crate::lock::lock;
use crate::*;

/// What a server does when it is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    Works,
    /// It never answers.
    Hangs,
    /// There is no such program.
    IsMissing,
    /// It answers after a while.
    Takes(Duration),
}

/// A server that is a task. Its tools answer with its name, the tool's, and how often it was
/// started.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: String,
    start: Mutex<Start>,
    tools: Mutex<Vec<String>>,
    /// Other results: of a method. Null: the server does not answer.
    results: Mutex<Vec<(String, Value)>>,
    pub(super) started: AtomicUsize,
    /// What it heard, other than handshake and lists.
    heard: Mutex<VecDeque<Message>>,
    hears: Notify,
    says: tokio::sync::watch::Sender<Option<mpsc::Sender<TrackedLine>>>,
    reads: tokio::sync::watch::Sender<bool>,
    /// As a process that comes later has it.
    pub(super) identity: Mutex<Option<String>>,
}

/// What the host calls.
pub(super) fn call(id: u64, method: &str, params: &Value) -> Call {
    Call::read(Id::number(id), method, Some(&raw_value(params))).expect("a call")
}

fn raw_value(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("JSON")
}

impl Server {
    fn answer(&self, method: &str, params: &Value) -> Option<Result<Value, RpcError>> {
        if let Some((_, result)) = lock(&self.results).iter().find(|(of, _)| of == method) {
            return match result {
                Value::Null => None,
                result if result["refused"] == true => Some(Err(RpcError::new(-32000, "refused"))),
                result => Some(Ok(result.clone())),
            };
        }
        let run = self.started.load(Ordering::SeqCst);
        Some(Ok(match method {
            "initialize" => json!({
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {"listChanged": true}, "resources": {}, "prompts": {}, "logging": {}},
                "serverInfo": {"name": self.name, "version": "1"},
                "instructions": format!("About {}.", self.name),
            }),
            "tools/list" => {
                let tools: Vec<_> = lock(&self.tools)
                    .iter()
                    .map(|name| json!({"name": name}))
                    .collect();
                json!({ "tools": tools })
            }
            "resources/list" => {
                json!({"resources": [{"uri": format!("{}://x", self.name), "name": "x"}]})
            }
            "resources/templates/list" => {
                json!({"resourceTemplates": [{"uriTemplate": format!("{}://all/{{id}}", self.name), "name": "t"}]})
            }
            "prompts/list" => json!({"prompts": [{"name": "greet"}]}),
            "tools/call" => {
                json!({"content": [{"type": "text", "text": format!("{} {} {run}", self.name, params["name"].as_str().unwrap_or_default())}]})
            }
            "resources/read"
                if params["uri"]
                    .as_str()
                    .is_some_and(|uri| !uri.starts_with(&self.name)) =>
            {
                return Some(Err(RpcError::new(-32002, "Resource not found")));
            }
            "resources/read" => json!({"contents": [{"uri": params["uri"], "text": self.name}]}),
            _ => json!({}),
        }))
    }

    async fn serve(
        &self,
        mut lines: mpsc::Receiver<bytes::Bytes>,
        says: mpsc::Sender<TrackedLine>,
        start: Start,
    ) {
        if let Start::Takes(time) = start {
            tokio::time::sleep(time).await;
        }
        while let Some(line) = lines.recv().await {
            let _ = self.reads.subscribe().wait_for(|reads| *reads).await;
            for message in Message::read(&line) {
                let Message::Request { id, method, params } = &message else {
                    lock(&self.heard).push_back(message);
                    self.hears.notify_one();
                    continue;
                };
                let params = params.as_ref().map_or(Value::Null, |params| {
                    serde_json::from_str(params.get()).expect("JSON")
                });
                if start == Start::Hangs {
                    continue;
                }
                if let Some(outcome) = self.answer(method, &params) {
                    let outcome = outcome.map(|value| raw_value(&value));
                    let answer = Message::Answer {
                        id: id.clone(),
                        outcome,
                    };
                    let _ = says.send(TrackedLine::once(answer.write())).await;
                }
                if !method.ends_with("/list") && method != "initialize" {
                    lock(&self.heard).push_back(message);
                    self.hears.notify_one();
                }
            }
        }
    }

    /// From the next start on.
    pub(super) fn will(&self, start: Start) {
        *lock(&self.start) = start;
    }

    /// It lists these tools when it is asked next.
    pub(super) fn sets_tools(&self, tools: &[&str]) {
        *lock(&self.tools) = tools.iter().map(ToString::to_string).collect();
    }

    /// It refuses a method from now on.
    pub(super) fn refuses(&self, method: &str) {
        self.answers(method, json!({"refused": true}));
    }

    /// It lists these tools from now on, and says so.
    pub(super) async fn lists(&self, tools: &[&str]) {
        self.sets_tools(tools);
        self.says(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#)
            .await;
    }

    /// It answers a method like this from now on; with null, not at all.
    pub(super) fn answers(&self, method: &str, result: Value) {
        lock(&self.results).retain(|(of, _)| of != method);
        lock(&self.results).push((method.to_owned(), result));
    }

    /// It says this.
    pub(super) async fn says(&self, line: &str) {
        let says = self.says.borrow().clone().expect("a server that runs");
        says.send(TrackedLine::once(line.to_owned().into()))
            .await
            .expect("somebody who reads");
    }

    /// It takes no more than what it has taken.
    pub(super) fn stops_reading(&self) {
        self.reads.send_replace(false);
    }

    /// It is gone.
    pub(super) fn dies(&self) {
        self.says.send_replace(None);
    }

    /// The next message that it hears, other than handshake and lists, as JSON.
    pub(super) async fn hears(&self) -> Value {
        loop {
            if let Some(message) = lock(&self.heard).pop_front() {
                return serde_json::from_slice(&message.write()).expect("JSON");
            }
            self.hears.notified().await;
        }
    }
}

/// A server as a source.
#[derive(Debug)]
struct Of(Arc<Server>);

impl Source for Of {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn identity(&self) -> Option<String> {
        lock(&self.0.identity).clone()
    }

    fn open(&self) -> BoxFuture<'_, Result<Pipe, Failure>> {
        Box::pin(async {
            let server = self.0.clone();
            let start = *lock(&server.start);
            if start == Start::IsMissing {
                return Err(Failure::new(
                    FailureCode::NotFound,
                    "there is no such program",
                ));
            }
            server.started.fetch_add(1, Ordering::SeqCst);
            let (to, lines) = mpsc::channel(WAITING);
            let (says, mut said) = mpsc::channel::<TrackedLine>(WAITING);
            let (out, from) = mpsc::channel(WAITING);
            let (end, mut ended) = mpsc::channel::<()>(1);
            server.says.send_replace(Some(says.clone()));
            let own = server.clone();
            tokio::spawn(async move {
                let serving = own.serve(lines, says.clone(), start);
                drop(says);
                tokio::pin!(serving);
                loop {
                    tokio::select! {
                        biased;
                        line = said.recv() => {
                            let Some(line) = line else { break };
                            if out.send(line).await.is_err() {
                                break;
                            }
                        }
                        () = &mut serving => break,
                        _ = ended.recv() => break,
                        () = died(&own) => break,
                    }
                }
            });
            Ok(Pipe {
                to,
                from,
                end: End::new(|| Box::pin(async move { drop(end) })),
            })
        })
    }
}

/// Comes back once the server has died.
async fn died(server: &Server) {
    // The server outlives this.
    let _ = server.says.subscribe().wait_for(Option::is_none).await;
}

/// A host that writes down what it hears.
#[derive(Debug)]
pub(super) struct Hearing(mpsc::UnboundedSender<Message>);

impl Host for Hearing {
    fn receive(&self, message: Message, receipt: Receipt) -> BoxFuture<'_, ()> {
        receipt.confirm();
        let _ = self.0.send(message);
        Box::pin(std::future::ready(()))
    }
}

/// Some servers, and what they are made into.
#[derive(Debug)]
pub(super) struct World {
    pub(super) servers: Vec<Arc<Server>>,
    pub(super) settings: Settings,
}

/// A bundle under test.
pub(super) struct Made {
    pub(super) bundle: Arc<Backends>,
    heard: mpsc::UnboundedReceiver<Message>,
}

impl World {
    /// Servers of these names, with these tools.
    pub(super) fn new(servers: &[(&str, &[&str])]) -> Self {
        let server = |(name, tools): &(&str, &[&str])| {
            Arc::new(Server {
                name: (*name).to_owned(),
                start: Mutex::new(Start::Works),
                tools: Mutex::new(tools.iter().map(ToString::to_string).collect()),
                results: Mutex::default(),
                started: AtomicUsize::new(0),
                heard: Mutex::default(),
                hears: Notify::new(),
                says: tokio::sync::watch::Sender::default(),
                reads: tokio::sync::watch::Sender::new(true),
                identity: Mutex::default(),
            })
        };
        Self {
            servers: servers.iter().map(server).collect(),
            settings: Settings::default(),
        }
    }

    pub(super) fn server(&self, name: &str) -> &Server {
        self.servers
            .iter()
            .find(|server| server.name == name)
            .expect("a server")
    }

    pub(super) fn sources(&self, of: &[&str]) -> Vec<Arc<dyn Source>> {
        let servers = of.iter().map(|name| {
            self.servers
                .iter()
                .find(|server| server.name == *name)
                .expect("a server")
        });
        servers
            .map(|server| Arc::new(Of(server.clone())) as Arc<dyn Source>)
            .collect()
    }

    /// A bundle of all servers, which remembers names in `memory`.
    pub(super) fn with(&self, memory: Arc<dyn BundleStore>) -> Made {
        let names: Vec<_> = self.servers.iter().map(|server| &*server.name).collect();
        let (to, heard) = mpsc::unbounded_channel();
        let handshake = Handshake(raw_value(&json!({"protocolVersion": "2025-11-25"})));
        let host = Arc::new(Hearing(to));
        let settings = self.settings.clone();
        let bundle = Backends::start(self.sources(&names), handshake, host, memory, settings);
        Made {
            bundle: Arc::new(bundle),
            heard,
        }
    }

    /// A bundle of all servers that is ready.
    pub(super) async fn made(&self) -> Made {
        let made = self.with(Arc::new(()));
        made.bundle.ready().await;
        made
    }
}

impl Made {
    /// The names in a list.
    pub(super) async fn names(&self, list: List) -> Vec<String> {
        let items = self.bundle.list(list).await.expect("a list");
        items.into_iter().map(|item| item.name).collect()
    }

    /// The next message that the host hears, as JSON.
    pub(super) async fn hears(&mut self) -> Value {
        let message = self.heard.recv().await.expect("a message");
        serde_json::from_slice(&message.write()).expect("JSON")
    }

    /// What the host has heard so far: methods.
    pub(super) fn heard(&mut self) -> Vec<String> {
        let mut methods = Vec::new();
        while let Ok(message) = self.heard.try_recv() {
            let value: Value = serde_json::from_slice(&message.write()).expect("JSON");
            methods.push(value["method"].as_str().unwrap_or("answer").to_owned());
        }
        methods
    }

    /// Calls a tool: what it says, or the error.
    pub(super) async fn calls(&self, id: u64, tool: &str) -> Result<String, RpcError> {
        let answer = self
            .bundle
            .call(call(id, "tools/call", &json!({"name": tool})))
            .await?;
        let value: Value = serde_json::from_str(answer.outcome?.get()).expect("JSON");
        Ok(value["content"][0]["text"]
            .as_str()
            .expect("a text")
            .to_owned())
    }

    /// Tells the bundle what the host says.
    pub(super) async fn tells(&self, line: &str) {
        for message in Message::read(line.as_bytes()) {
            self.bundle.tell(message).await;
        }
    }

    /// Waits until a backend is as wanted.
    pub(super) async fn until(&self, name: &str, wanted: impl Fn(&BackendState) -> bool) {
        let mut states = self.bundle.states();
        loop {
            states.borrow_and_update();
            let status = self.bundle.status();
            if status
                .backends
                .iter()
                .any(|(of, state)| of == name && wanted(state))
            {
                return;
            }
            states.changed().await.expect("a bundle");
        }
    }
}
