//! A bundle as one MCP server: messages of a host in, messages to the host out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use futures::future::BoxFuture;
use mcp_sessiond_jsonrpc::code;
use mcp_sessiond_jsonrpc::error::RpcError;
use mcp_sessiond_jsonrpc::object::{Object, raw};
use mcp_sessiond_jsonrpc::owned::{Id, Message, Outcome, Unreadable};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::backend::VERSIONS;
use crate::bundle::{Bundle, Error, Handshake};
use crate::call::{Call, List};
use crate::connection::Answer;
use crate::lock::lock;
use crate::pipe::{Host, Receipt, TrackedLine};

/// Messages of backends that wait until the host was answered its `initialize`. Later ones keep
/// their backend waiting.
const EARLY_MAX: usize = 256;

/// Makes the bundle for a host.
type Make = Box<dyn FnOnce(Handshake, Arc<dyn Host>) -> Arc<dyn Bundle> + Send>;

/// A bundle as one MCP server.
pub struct BundleServer {
    make: Mutex<Option<Make>>,
    bundle: OnceLock<Arc<dyn Bundle>>,
    out: Arc<ToHost>,
    tasks: Mutex<JoinSet<()>>,
}

/// Messages to the host.
struct ToHost {
    to: mpsc::Sender<TrackedLine>,
    /// Whether the host was answered its `initialize`.
    is_open: watch::Sender<bool>,
    early: Mutex<Vec<(Message, Receipt)>>,
    /// The host's calls under way. Their answers are the bundle's to give.
    calls: Mutex<HashMap<Id, AbortHandle>>,
}

impl std::fmt::Debug for BundleServer {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "BundleServer({:?})", self.bundle.get())
    }
}

impl ToHost {
    async fn send(&self, message: &Message, receipt: Receipt) {
        // If it can't be sent, the host is gone.
        let _ = self
            .to
            .send(TrackedLine {
                line: message.write(),
                receipt,
            })
            .await;
    }

    /// Waits until the host was answered its `initialize`. What it sends before waits for that, too.
    async fn opened(&self) {
        // It can't fail: the sender is in this object.
        let _ = self.is_open.subscribe().wait_for(|is_open| *is_open).await;
    }

    /// Sends this answer, and from then on everything.
    async fn open(&self, answer: &Message) {
        self.send(answer, Receipt::none()).await;
        loop {
            let early = std::mem::take(&mut *lock(&self.early));
            for (message, receipt) in early {
                self.send(&message, receipt).await;
            }
            let early = lock(&self.early);
            if early.is_empty() {
                self.is_open.send_replace(true);
                return;
            }
        }
    }
}

impl Host for ToHost {
    fn receive(&self, message: Message, receipt: Receipt) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Message::Answer { id, .. } = &message
                && lock(&self.calls).contains_key(id)
            {
                return receipt.confirm();
            }
            let is_change = matches!(&message, Message::Notification { method, .. } if List::ALL.iter().any(|list| list.changed() == method));
            {
                let mut early = lock(&self.early);
                if !*self.is_open.borrow() {
                    // The host has not got any list yet.
                    if is_change {
                        return receipt.confirm();
                    }
                    if early.len() < EARLY_MAX {
                        return early.push((message, receipt));
                    }
                }
            }
            self.opened().await;
            self.send(&message, receipt).await;
        })
    }
}

impl BundleServer {
    /// Makes the bundle when the host sends `initialize`. Messages to the host go to `out`,
    /// in order.
    pub fn new(
        out: mpsc::Sender<TrackedLine>,
        make: impl FnOnce(Handshake, Arc<dyn Host>) -> Arc<dyn Bundle> + Send + 'static,
    ) -> Self {
        let out = ToHost {
            to: out,
            is_open: watch::Sender::default(),
            early: Mutex::default(),
            calls: Mutex::default(),
        };
        Self {
            make: Mutex::new(Some(Box::new(make))),
            bundle: OnceLock::new(),
            out: Arc::new(out),
            tasks: Mutex::default(),
        }
    }

    /// The bundle, once the host has sent `initialize`.
    pub fn bundle(&self) -> Option<&Arc<dyn Bundle>> {
        self.bundle.get()
    }

    /// Takes a line of the host. Calls are answered later, each when it is done.
    pub async fn receive(&self, line: &[u8]) {
        for message in Message::read_all(line) {
            match message {
                Ok(Message::Request { id, method, params }) => {
                    self.request(id, method, params).await;
                }
                Ok(message) => self.tell(message).await,
                Err(unread) => self.refuse(unread).await,
            }
        }
    }

    /// What can't be read goes no further, and its sender gets an error.
    async fn refuse(&self, mut unread: Unreadable) {
        let Some(line) = unread.refusal() else {
            if let Some(id) = unread.id {
                let outcome = Err(RpcError::unreadable_of_host());
                self.tell(Message::Answer { id, outcome }).await;
            }
            return;
        };
        // A call under way that has this id has not failed.
        let is_open = |id: &mut Id| lock(&self.out.calls).contains_key(id);
        let line = match unread.id.take_if(is_open) {
            Some(_) => unread.refusal().unwrap_or(line),
            None => line,
        };
        let receipt = Receipt::none();
        // If it can't be sent, the host is gone.
        let _ = self.out.to.send(TrackedLine { line, receipt }).await;
    }

    /// The host has closed its input: waits until every call is answered, and closes the
    /// bundle.
    pub async fn close(&self) {
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        while tasks.join_next().await.is_some() {}
        if let Some(bundle) = self.bundle.get() {
            bundle.close().await;
        }
    }

    async fn tell(&self, message: Message) {
        let Some(bundle) = self.bundle.get() else {
            return;
        };
        let cancelled = match &message {
            Message::Notification { method, .. } if method == "notifications/cancelled" => message
                .params()
                .and_then(|params| Id::read(params.get("requestId")?)),
            _ => None,
        };
        bundle.tell(message).await;
        // The host does not wait for it any more; an answer that comes nevertheless is
        // passed on.
        if let Some(task) = cancelled.and_then(|id| lock(&self.out.calls).remove(&id)) {
            task.abort();
        }
    }

    async fn request(&self, id: Id, method: String, params: Option<Box<RawValue>>) {
        match (&*method, self.bundle.get()) {
            ("ping", _) => self.answer(id, Ok(raw(&Object::default()))).await,
            ("initialize", None) => self.initialize(id, params).await,
            ("initialize", Some(_)) => {
                let error =
                    RpcError::new(code::INVALID_REQUEST, "this session is initialized already");
                self.answer(id, Err(error)).await;
            }
            // A client that speaks MCP 2026-07-28 alone stops at this; one that
            // speaks others as well goes on with `initialize`.
            ("server/discover", _) => {
                let error = RpcError::new(code::NO_METHOD, "Method not found: server/discover");
                self.answer(id, Err(error)).await;
            }
            (_, None) => {
                let error = RpcError::new(
                    code::INVALID_REQUEST,
                    "the first request of a session is `initialize`",
                );
                self.answer(id, Err(error)).await;
            }
            (_, Some(bundle)) => self.spawn_request(bundle.clone(), id, method, params),
        }
    }

    async fn answer(&self, id: Id, outcome: Outcome) {
        self.out
            .send(&Message::Answer { id, outcome }, Receipt::none())
            .await;
    }

    async fn initialize(&self, id: Id, params: Option<Box<RawValue>>) {
        let mut params = params.as_deref().and_then(Object::read).unwrap_or_default();
        let wanted = params.text("protocolVersion").unwrap_or_default();
        let version = VERSIONS
            .into_iter()
            .find(|version| *version == wanted)
            .unwrap_or(VERSIONS[0]);
        params.set_text("protocolVersion", version);
        let Some(make) = lock(&self.make).take() else {
            return;
        };
        let bundle = make(Handshake(params.write()), self.out.clone());
        let bundle = self.bundle.get_or_init(|| bundle).clone();
        let out = self.out.clone();
        lock(&self.tasks).spawn(async move {
            bundle.ready().await;
            let result = initialize_result(version, &*bundle);
            out.open(&Message::Answer {
                id,
                outcome: Ok(result),
            })
            .await;
        });
    }

    /// Begins a list or a call.
    fn spawn_request(
        &self,
        bundle: Arc<dyn Bundle>,
        id: Id,
        method: String,
        params: Option<Box<RawValue>>,
    ) {
        let (out, own) = (self.out.clone(), id.clone());
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        // Held until it is noted, so that a call which ends at once is not noted
        // afterwards.
        let mut noted = lock(&self.out.calls);
        let task = tasks.spawn(async move {
            out.opened().await;
            let (outcome, receipt) = match List::of(&method) {
                Some(list) => (list_result(&*bundle, list).await, Receipt::none()),
                None => match make_call(&*bundle, own.clone(), &method, params.as_deref()).await {
                    Ok(Answer { outcome, receipt }) => (outcome, receipt),
                    // A host that has cancelled a request expects no answer.
                    Err(Error::Cancelled) => return drop(lock(&out.calls).remove(&own)),
                    Err(error) => (Err(error.into()), Receipt::none()),
                },
            };
            lock(&out.calls).remove(&own);
            out.send(&Message::Answer { id: own, outcome }, receipt)
                .await;
        });
        noted.insert(id, task);
    }
}

async fn make_call(
    bundle: &dyn Bundle,
    id: Id,
    method: &str,
    params: Option<&RawValue>,
) -> Result<Answer, Error> {
    bundle
        .call(Call::read(id, method, params).map_err(Error::Refused)?)
        .await
}

/// A whole list: there is no second page.
async fn list_result(bundle: &dyn Bundle, list: List) -> Outcome {
    let items = bundle.list(list).await?;
    let items: Vec<Object> = items.into_iter().map(|item| item.members).collect();
    let mut result = Object::default();
    result.set(list.key(), raw(&items));
    Ok(result.write())
}

/// The result of `initialize`. What backends will have that come later is not known yet, so
/// everything is declared.
fn initialize_result(version: &str, bundle: &dyn Bundle) -> Box<RawValue> {
    let capabilities = serde_json::json!({
        "tools": {"listChanged": true},
        "resources": {"listChanged": true, "subscribe": true},
        "prompts": {"listChanged": true},
        "logging": {},
        "completions": {},
    });
    let info = serde_json::json!({"name": "mcp-sessiond", "version": env!("CARGO_PKG_VERSION")});
    let mut result = Object::default();
    result.set_text("protocolVersion", version);
    result.set("capabilities", raw(&capabilities));
    result.set("serverInfo", raw(&info));
    let instructions = bundle.instructions();
    if !instructions.is_empty() {
        result.set_text("instructions", &instructions);
    }
    result.write()
}
