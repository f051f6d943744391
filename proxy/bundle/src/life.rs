//! The life of one backend in a bundle: it is started when there is a free slot, used, and tried
//! again when it was lost.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::object::Object;
use mcp_sessiond_jsonrpc::owned::{Id, Message};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::backend::{Backend, LiveBackend, exited_early};
use crate::call::List;
use crate::connection::Connection;
use crate::core::Core;
use crate::lock::lock;
use crate::pipe::{Pipe, Receipt};
use crate::refresh::{refresh, spawn_retry};
use crate::roots::ROOTS;
use crate::status::{BackendState, Failure, FailureCode};

/// How long a backend must run before it counts as stable, and is started again at once when it
/// is lost.
const STABLE: Duration = Duration::from_secs(10);

/// How long a host waits for a backend that could not be used the last time: one that can be used again
/// is there by then, which hosts need that do not list twice.
pub(crate) const FAILED_WAIT: Duration = Duration::from_secs(1);

/// Starts a backend again and again, until it is removed.
pub(crate) async fn run(core: Arc<Core>, backend: Arc<Backend>) {
    core.load_names().await;
    tokio::select! {
        () = run_attempts(&core, &backend) => {}
        () = backend.removed.notified() => {}
    }
    let former = backend.live();
    let removed = Failure::new(FailureCode::NotStarted, "it was removed from the file");
    backend.set(BackendState::Failed(removed), None);
    // Also one that was just being started. Before its connection is closed, which alone would look
    // like a host that leaves.
    let ending = backend.end();
    if let Some(former) = former {
        core.tell_changed(nonempty_lists(&former)).await;
    }
    ending.await;
}

async fn run_attempts(core: &Arc<Core>, backend: &Arc<Backend>) {
    let (first, longest) = core.settings.retry;
    let least = if core.settings.retry_at_once {
        Duration::ZERO
    } else {
        first
    };
    let mut pause = least;
    let mut failed = core.failed_start(backend);
    if failed.is_some() {
        // None that is waited for longer waits for its slot.
        core.all_begun().await;
    }
    loop {
        let mut trying = std::pin::pin!(try_once(core, backend));
        let tried = match failed.take() {
            None => trying.await,
            Some(mut why) => match tokio::time::timeout(FAILED_WAIT, &mut trying).await {
                Ok(tried) => tried,
                Err(_) => {
                    why.message = format!("it failed at its last start: {}", why.message);
                    backend.set(BackendState::Failed(why), None);
                    trying.await
                }
            },
        };
        match tried {
            Ok((live, forwarding)) => {
                let began = tokio::time::Instant::now();
                // The task ends with the connection.
                drop(forwarding.await);
                if began.elapsed() >= STABLE {
                    pause = least;
                }
                // Calls wait for one that is started again at once.
                let ended = BackendState::Failed(Failure::new(FailureCode::Exited, "it has ended"));
                backend.set(
                    if pause.is_zero() {
                        BackendState::Initializing
                    } else {
                        ended
                    },
                    None,
                );
                core.tell_changed(nonempty_lists(&live)).await;
                backend.end().await;
            }
            Err(failure) => {
                let failure = failure.without_name(backend.name());
                pause = pause.max(first);
                // Before the host is told of it.
                core.note_start(backend, Some(&failure)).await;
                backend.set(BackendState::Failed(failure), None);
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).clamp(first, longest);
    }
}

/// Aborts a task when it is dropped.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Future for AbortOnDrop {
    type Output = Result<(), tokio::task::JoinError>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        std::pin::Pin::new(&mut self.0).poll(context)
    }
}

/// Starts the backend, in the time that it has, and makes it known. What has begun and was not
/// ready in time is ended before the next one has its slot.
async fn try_once(
    core: &Arc<Core>,
    backend: &Arc<Backend>,
) -> Result<(Arc<LiveBackend>, AbortOnDrop), Failure> {
    // The semaphore is never closed.
    let _slot = core.slots.acquire().await;
    if backend.is_new() {
        backend.set(BackendState::Initializing, None);
    }
    let late = || {
        let seconds = core.settings.init_timeout.as_secs_f32();
        Failure::new(
            FailureCode::TimedOut,
            format!("it was not ready within {seconds} s"),
        )
    };
    let enough = core.settings.enough();
    let until = tokio::time::Instant::now() + core.settings.init_timeout;
    let opened = tokio::time::timeout_at(until, backend.source.open()).await;
    let Pipe { to, from, end } = opened.map_err(|_| late())??;
    backend.set_end(end);
    let asker = to.clone();
    let connection = Connection::new(to, core.nonce);
    // Weak, so that a connection keeps neither the bundle nor its backend.
    let (weak_core, weak_backend) = (Arc::downgrade(core), Arc::downgrade(backend));
    let forwarding = connection.forward(from, move |message, receipt| {
        let (core, backend) = (weak_core.upgrade(), weak_backend.upgrade());
        let asker = asker.clone();
        async move {
            if let (Some(core), Some(backend)) = (core, backend) {
                receive(&core, &backend, &asker, message, receipt).await;
            }
        }
    });
    let forwarding = AbortOnDrop(tokio::spawn(forwarding));
    let initializing =
        LiveBackend::initialize(backend.name(), connection, &core.handshake.0, enough);
    let initialized = tokio::time::timeout_at(until, initializing).await;
    let failure = match initialized {
        Ok(Ok(live)) => {
            let live = Arc::new(live);
            let was_settled = core.is_settled();
            core.give_names(backend.name(), &live).await;
            core.note_start(backend, None).await;
            let _ = tokio::time::timeout_at(until, core.replay(backend, &live)).await;
            if !live.connection.is_over() {
                backend.set(BackendState::Ready, Some(live.clone()));
                // The names may have been settled without those of this one.
                if !was_settled && core.is_settled() {
                    core.give_names(backend.name(), &live).await;
                }
                core.tell_changed(nonempty_lists(&live)).await;
                for method in std::mem::take(&mut *lock(&backend.early)) {
                    tokio::spawn(refresh(core.clone(), backend.clone(), method));
                }
                spawn_retry(core, backend, &live);
                return Ok((live, forwarding));
            }
            exited_early()
        }
        Ok(Err(failure)) => failure,
        Err(_) => late(),
    };
    drop(forwarding);
    backend.end().await;
    Err(failure)
}

/// The lists that it has something in.
fn nonempty_lists(live: &LiveBackend) -> Vec<List> {
    List::ALL
        .into_iter()
        .filter(|list| !live.list(*list).is_empty())
        .collect()
}

/// Passes a message of a backend on to the host, unless it is the bundle's own business.
async fn receive(
    core: &Arc<Core>,
    backend: &Arc<Backend>,
    asker: &mpsc::Sender<Bytes>,
    message: Message,
    receipt: Receipt,
) {
    if core.is_misdirected(backend, &message) {
        return receipt.confirm();
    }
    if let Message::Notification { method, .. } = &message
        && let Some(list) = List::ALL.into_iter().find(|list| list.changed() == method)
    {
        let mut early = lock(&backend.early);
        if backend.live().is_none() {
            early.insert(list.changed());
        } else {
            // The list is fetched in a task: the one that forwards its answer must
            // not wait for it.
            tokio::spawn(refresh(core.clone(), backend.clone(), list.changed()));
        }
        return receipt.confirm();
    }
    // A process that comes after this one knows by its id whose a question is, but not whose else.
    if let Message::Request { id, method, .. } = &message
        && method == ROOTS
        && !core.settings.has_former
    {
        let of_host = id.clone().with_prefix(backend.name());
        if !core.roots.ask(asker, id.clone(), of_host) {
            return receipt.confirm();
        }
    }
    core.host
        .receive(with_host_ids(backend.name(), message), receipt)
        .await;
}

/// A backend's message as the host gets it: with ids that name the backend.
fn with_host_ids(backend: &str, message: Message) -> Message {
    match message {
        Message::Request { id, method, params } => {
            let params = params.map(|params| with_token(backend, params));
            Message::Request {
                id: id.with_prefix(backend),
                method,
                params,
            }
        }
        Message::Notification { method, params } if method == "notifications/cancelled" => {
            let params = params.map(|params| {
                let mut read = Object::read(&params).unwrap_or_default();
                if let Some(id) = read.get("requestId").and_then(Id::read) {
                    read.set("requestId", id.with_prefix(backend).raw());
                }
                read.write()
            });
            Message::Notification { method, params }
        }
        message => message,
    }
}

/// The parameters of a backend's request, with a progress token that names the backend.
fn with_token(backend: &str, params: Box<RawValue>) -> Box<RawValue> {
    let changed = || {
        let mut read = Object::read(&params)?;
        let mut meta = read.object("_meta")?;
        let token = Id::read(meta.get("progressToken")?)?;
        meta.set("progressToken", token.with_prefix(backend).raw());
        read.set("_meta", meta.write());
        Some(read.write())
    };
    changed().unwrap_or(params)
}
