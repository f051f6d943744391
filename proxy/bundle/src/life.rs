//! The life of one backend in a bundle: it is started when there is a free slot, used, and tried
//! again when it was lost.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::value::RawValue;

use crate::backend::{Backend, Live, gone, lock};
use crate::call::List;
use crate::connection::{Connection, Ear};
use crate::core::Core;
use crate::message::{Id, Message};
use crate::object::Object;
use crate::pipe::{Pipe, Receipt};
use crate::refresh::{refresh, retry};
use crate::status::{Failure, FailureCode, State};

/// How long a backend that has come up must be there before it counts as mended, and is tried at
/// once when it is lost.
const SETTLED: Duration = Duration::from_secs(10);

/// Lives a backend's life, until it is removed.
pub(crate) async fn live(core: Arc<Core>, backend: Arc<Backend>) {
    core.load_names().await;
    tokio::select! {
        () = again_and_again(&core, &backend) => {}
        () = backend.removed.notified() => {}
    }
    let former = backend.live();
    let removed = Failure::new(FailureCode::NotStarted, "it was removed from the file");
    backend.set(State::Failed(removed), None);
    if let Some(former) = former {
        core.tell_changed(listing(&former)).await;
    }
    // Also one that was just being started.
    backend.end().await;
}

async fn again_and_again(core: &Arc<Core>, backend: &Arc<Backend>) {
    let (first, longest) = core.settings.retry;
    let least = if core.settings.again_at_once {
        Duration::ZERO
    } else {
        first
    };
    let mut pause = least;
    loop {
        match try_once(core, backend).await {
            Ok((live, carrying)) => {
                let began = tokio::time::Instant::now();
                // Lives as long as the connection.
                drop(carrying.await);
                if began.elapsed() >= SETTLED {
                    pause = least;
                }
                // Calls wait for one that is started again at once.
                let ended = State::Failed(Failure::new(FailureCode::Exited, "it has ended"));
                backend.set(
                    if pause.is_zero() {
                        State::Initializing
                    } else {
                        ended
                    },
                    None,
                );
                core.tell_changed(listing(&live)).await;
                backend.end().await;
            }
            Err(failure) => {
                pause = pause.max(first);
                backend.set(State::Failed(failure), None);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = backend.again.notified() => {}
        }
        pause = (pause * 2).clamp(first, longest);
    }
}

/// Aborts a task when it is dropped.
struct Aborting(tokio::task::JoinHandle<()>);

impl Drop for Aborting {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Future for Aborting {
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
) -> Result<(Arc<Live>, Aborting), Failure> {
    // Nobody closes it.
    let _slot = core.slots.acquire().await;
    if backend.is_new() {
        backend.set(State::Initializing, None);
    }
    let late = || {
        let seconds = core.settings.init_timeout.as_secs_f32();
        Failure::new(
            FailureCode::TimedOut,
            format!("it was not ready within {seconds} s"),
        )
    };
    let until = tokio::time::Instant::now() + core.settings.init_timeout;
    let opened = tokio::time::timeout_at(until, backend.source.open()).await;
    let Pipe { to, from, end } = opened.map_err(|_| late())??;
    backend.opened(end);
    let connection = Connection::new(to, core.nonce);
    let ear = Arc::new(Listener {
        core: Arc::downgrade(core),
        backend: Arc::downgrade(backend),
    });
    let carrying = Aborting(tokio::spawn(connection.carry(from, ear)));
    let introducing = Live::introduce(backend.name(), connection, &core.handshake.0);
    let introduced = tokio::time::timeout_at(until, introducing).await;
    let failure = match introduced {
        Ok(Ok(live)) => {
            let live = Arc::new(live);
            core.give_names(backend.name(), &live).await;
            let _ = tokio::time::timeout_at(until, core.repeat(backend, &live)).await;
            if !live.connection.is_over() {
                backend.set(State::Ready, Some(live.clone()));
                core.tell_changed(listing(&live)).await;
                for method in std::mem::take(&mut *lock(&backend.early)) {
                    tokio::spawn(refresh(core.clone(), backend.clone(), method));
                }
                retry(core, backend, &live);
                return Ok((live, carrying));
            }
            gone()
        }
        Ok(Err(failure)) => failure,
        Err(_) => late(),
    };
    drop(carrying);
    backend.end().await;
    Err(failure)
}

/// The lists that it has something in.
fn listing(live: &Live) -> Vec<List> {
    List::ALL
        .into_iter()
        .filter(|list| !live.list(*list).is_empty())
        .collect()
}

/// Hears what a backend says, for the host.
#[derive(Debug)]
struct Listener {
    core: Weak<Core>,
    backend: Weak<Backend>,
}

impl Ear for Listener {
    fn hear(&self, message: Message, receipt: Receipt) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let (Some(core), Some(backend)) = (self.core.upgrade(), self.backend.upgrade()) else {
                return;
            };
            if core.is_not_its(&backend, &message) {
                return receipt.confirm();
            }
            if let Message::Notification { method, .. } = &message
                && let Some(list) = List::ALL.into_iter().find(|list| list.changed() == method)
            {
                let mut early = lock(&backend.early);
                if backend.live().is_none() {
                    early.insert(list.changed());
                } else {
                    // It is asked for its list, and whoever carries its answer must not wait for
                    // that.
                    tokio::spawn(refresh(core, backend.clone(), list.changed()));
                }
                return receipt.confirm();
            }
            core.host
                .hear(shown(backend.name(), message), receipt)
                .await;
        })
    }
}

/// A backend's message as the host gets it: its ids say whose they are.
fn shown(backend: &str, message: Message) -> Message {
    match message {
        Message::Request { id, method, params } => {
            let params = params.map(|params| with_token(backend, params));
            Message::Request {
                id: id.of_backend(backend),
                method,
                params,
            }
        }
        Message::Notification { method, params } if method == "notifications/cancelled" => {
            let params = params.map(|params| {
                let mut read = Object::read(&params).unwrap_or_default();
                if let Some(id) = read.get("requestId").and_then(Id::read) {
                    read.set("requestId", id.of_backend(backend).raw());
                }
                read.write()
            });
            Message::Notification { method, params }
        }
        message => message,
    }
}

/// The parameters of a backend's request, with a progress token that says whose it is.
fn with_token(backend: &str, params: Box<RawValue>) -> Box<RawValue> {
    let changed = || {
        let mut read = Object::read(&params)?;
        let mut meta = read.object("_meta")?;
        let token = Id::read(meta.get("progressToken")?)?;
        meta.set("progressToken", token.of_backend(backend).raw());
        read.set("_meta", meta.write());
        Some(read.write())
    };
    changed().unwrap_or(params)
}
