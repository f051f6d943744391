//! A host that remembers what it hears, and a bundle between it and backends in this process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

pub(super) use super::fake::{Fake, Opening, Reply, parsed, raw_of};
use crate::lock::lock;
use crate::*;

/// A host that remembers what it hears.
struct Ears(mpsc::UnboundedSender<Message>);

impl Host for Ears {
    fn receive(&self, message: Message, receipt: Receipt) -> BoxFuture<'_, ()> {
        let _ = self.0.send(message);
        receipt.confirm();
        Box::pin(std::future::ready(()))
    }
}

/// What outlives a bundle. One bundle at a time has it.
#[derive(Default)]
pub(super) struct Remembered(Mutex<Names>, Mutex<BTreeMap<String, FailedStart>>);

impl BundleStore for Remembered {
    fn load(&self) -> BoxFuture<'_, Names> {
        Box::pin(async { lock(&self.0).clone() })
    }

    fn save(&self, names: Names) -> BoxFuture<'_, Option<Names>> {
        Box::pin(async move {
            *lock(&self.0) = names;
            None
        })
    }

    fn failed(&self) -> BoxFuture<'_, BTreeMap<String, FailedStart>> {
        Box::pin(async { lock(&self.1).clone() })
    }

    fn keep_failed(&self, failed: BTreeMap<String, FailedStart>) -> BoxFuture<'_, ()> {
        Box::pin(async move { *lock(&self.1) = failed })
    }
}

/// A bundle and its host.
pub(super) struct World {
    pub(super) bundle: Arc<Backends>,
    told: tokio::sync::Mutex<mpsc::UnboundedReceiver<Message>>,
}

/// One after the other, so that it is known who has a name first. Time is the tests' own.
pub(super) fn settings() -> Settings {
    Settings {
        init_concurrency: 1,
        init_timeout: Duration::from_secs(30),
        ready_wait: Duration::from_secs(300),
        retry: (Duration::from_secs(1), Duration::from_secs(4)),
        retry_at_once: false,
        has_former: false,
        names: Style::Bare,
    }
}

pub(super) fn sources(fakes: &[&Fake]) -> Vec<Arc<dyn Source>> {
    fakes
        .iter()
        .map(|fake| Arc::new((*fake).clone()) as Arc<dyn Source>)
        .collect()
}

impl World {
    /// A bundle that was just started.
    pub(super) fn start(fakes: &[&Fake], settings: Settings, memory: Arc<dyn BundleStore>) -> Self {
        let (to, told) = mpsc::unbounded_channel();
        let handshake = Handshake(raw_of(&json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"roots": {"listChanged": true}, "elicitation": {}},
            "clientInfo": {"name": "host", "version": "1"},
        })));
        let bundle = Backends::start(
            sources(fakes),
            handshake,
            Arc::new(Ears(to)),
            memory,
            settings,
        );
        Self {
            bundle: Arc::new(bundle),
            told: tokio::sync::Mutex::new(told),
        }
    }

    /// A bundle of which each backend was tried; the changes by which they came are heard.
    pub(super) async fn of(fakes: &[&Fake]) -> Self {
        let world = Self::start(fakes, settings(), Arc::new(()));
        world.bundle.ready().await;
        world.settle().await;
        world
    }

    /// Hears all that there is to hear now.
    pub(super) async fn settle(&self) {
        let mut told = self.told.lock().await;
        while timeout(Duration::from_millis(1), told.recv()).await.is_ok() {}
    }

    /// The next message that the host gets.
    pub(super) async fn told(&self) -> Value {
        let message = self.told.lock().await.recv().await.expect("a message");
        serde_json::from_slice(&message.write()).expect("JSON")
    }

    /// Nothing comes, however long one waits.
    pub(super) async fn hears_nothing(&self) {
        let heard = timeout(Duration::from_secs(3600), self.told()).await;
        assert!(heard.is_err(), "{heard:?}");
    }

    pub(super) async fn names(&self, list: List) -> Vec<String> {
        let items = self.bundle.list(list).await.expect("a list");
        items.into_iter().map(|item| item.name).collect()
    }

    /// Makes a request, as the host does.
    pub(super) async fn ask(
        &self,
        id: &str,
        method: &str,
        params: Value,
    ) -> Result<Value, RpcError> {
        let call = Call::read(Id::text(id), method, Some(&raw_of(&params)))?;
        let answer = self.bundle.call(call).await.map_err(RpcError::from)?;
        answer.receipt.confirm();
        answer.outcome.map(|result| parsed(&result))
    }

    /// Calls a tool. The text of its result.
    pub(super) async fn tool(&self, id: &str, name: &str) -> Result<String, RpcError> {
        let result = self
            .ask(id, "tools/call", json!({"name": name, "arguments": {}}))
            .await?;
        Ok(result["content"][0]["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned())
    }

    /// Who has read a resource.
    pub(super) async fn read(&self, uri: &str) -> Result<String, RpcError> {
        let result = self
            .ask("read", "resources/read", json!({"uri": uri}))
            .await?;
        Ok(result["contents"][0]["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned())
    }

    pub(super) async fn tell(&self, line: &Value) {
        for message in Message::read(line.to_string().as_bytes()) {
            self.bundle.tell(message).await;
        }
    }

    pub(super) fn state(&self, name: &str) -> BackendState {
        let status = self.bundle.status();
        status
            .backends
            .into_iter()
            .find(|(one, _)| one == name)
            .expect("a backend")
            .1
    }

    /// The same bundle in a task of its own.
    pub(super) fn spawn_tool(
        self: &Arc<Self>,
        id: &str,
        name: &str,
    ) -> tokio::task::JoinHandle<Result<String, RpcError>> {
        let (world, id, name) = (self.clone(), id.to_owned(), name.to_owned());
        tokio::spawn(async move { world.tool(&id, &name).await })
    }
}

/// Whether a future is not over, however long one waits: the time is paused, so it passes when
/// nothing else can happen.
pub(super) async fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
    timeout(Duration::from_secs(3600), future).await.is_err()
}
