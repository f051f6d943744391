//! One server of a session's bundle, in a keeper of its own.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, join_all};
use mcp_sessiond_bundle::{End, Failure, FailureCode, Pipe, Receipt, Source, TrackedLine, WAITING};
use mcp_sessiond_client::{Loss, SessionId};
use mcp_sessiond_http_session::messages::Id;
use mcp_sessiond_http_session::substitute::outcome_unknown;
use mcp_sessiond_jsonrpc::id_prefix::{from_asked, tagged};
use mcp_sessiond_jsonrpc::message::Line;
use mcp_sessiond_proxy::front::bundle::{Launch, Server};
use mcp_sessiond_proxy::id_prefix::with_id_prefix;
use mcp_sessiond_proxy::server::connector::connect_unkept;
use mcp_sessiond_proxy::server::remote::ResumeStore;
use mcp_sessiond_proxy::server::service::{Backend, Command, Message, NoBackend, Running, Service};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::Common;
use super::confirm_order::{ConfirmOrder, Unconfirmed};
use crate::backend::{Losses, ServerLoss};

/// A server of the list, for one session.
pub(super) struct KeeperSource {
    pub(super) server: Server,
    pub(super) session: SessionId,
    /// What is kept of the connection, if the server runs elsewhere.
    pub(super) store: ResumeStore,
    pub(super) common: Arc<Common>,
    /// The connections of the session.
    pub(super) links: Arc<Links>,
    /// What was lost of it before.
    pub(super) losses: Losses,
    /// It runs already.
    pub(super) found: Mutex<Option<RunningServer<InheritedCalls>>>,
}

/// A server that runs, with the calls that a former process has sent it.
#[derive(Debug)]
pub(super) enum RunningServer<Calls> {
    /// This process has attached to it.
    Attached(Backend, Calls),
    /// Its keeper could not be reached: why.
    Unreached(String),
}

impl<Calls> RunningServer<Calls> {
    pub(super) fn map<Others>(self, with: impl FnOnce(Calls) -> Others) -> RunningServer<Others> {
        match self {
            Self::Attached(backend, calls) => RunningServer::Attached(backend, with(calls)),
            Self::Unreached(why) => RunningServer::Unreached(why),
        }
    }
}

impl RunningServer<Vec<Id>> {
    /// Its keeper may take so long to say which calls it has.
    pub(super) async fn of(running: Running, patience: Duration) -> Self {
        let backend = match running {
            Running::Attached(backend) => backend,
            Running::Unreached(why) => {
                return Self::Unreached(format!("its keeper can't be reached: {why}"));
            }
        };
        match timeout(patience, backend.open_calls()).await {
            Ok(calls) => {
                // One that is gone by now knows nothing.
                let calls = calls.unwrap_or_default().into_iter();
                let calls = calls.map(|id| Id::from(id.to_string())).collect();
                Self::Attached(backend, calls)
            }
            Err(_) => Self::Unreached("its keeper does not say which calls it has".to_owned()),
        }
    }

    pub(super) fn calls(&self) -> &[Id] {
        match self {
            Self::Attached(_, calls) => calls,
            Self::Unreached(_) => &[],
        }
    }
}

/// A call that a former process has sent, and that nobody here waits for. Dropped, it is answered:
/// its outcome is unknown then. If it was answered before, whoever reads the answers knows no such
/// call any more.
#[derive(Debug)]
struct InheritedCall {
    id: Id,
    /// The way to the client. None: it is answered.
    out: Option<mpsc::Sender<TrackedLine>>,
    is_leaving: Arc<AtomicBool>,
}

/// The calls of one server that a former process has sent.
#[derive(Debug, Default)]
pub(super) struct InheritedCalls(Vec<InheritedCall>);

impl InheritedCalls {
    pub(super) fn new(
        ids: Vec<Id>,
        out: &mpsc::Sender<TrackedLine>,
        is_leaving: &Arc<AtomicBool>,
    ) -> Self {
        let open = |id| InheritedCall {
            id,
            out: Some(out.clone()),
            is_leaving: is_leaving.clone(),
        };
        Self(ids.into_iter().map(open).collect())
    }
}

impl InheritedCall {
    fn line(&self) -> Bytes {
        Bytes::copy_from_slice(outcome_unknown(&self.id).as_str().as_bytes())
    }

    fn mark_answered(mut self) {
        self.out = None;
    }
}

impl Drop for InheritedCall {
    fn drop(&mut self) {
        // The next process goes on with it.
        if self.is_leaving.load(Ordering::SeqCst) {
            return;
        }
        let spoken = TrackedLine {
            line: self.line(),
            receipt: Receipt::none(),
        };
        if let (Some(out), Ok(runtime)) = (self.out.take(), Handle::try_current()) {
            runtime.spawn(async move { out.send(spoken).await });
        }
    }
}

/// The connections to the servers of one session.
#[derive(Debug, Default)]
pub(super) struct Links(Mutex<Vec<Weak<Link>>>);

/// A connection to a server.
#[derive(Debug)]
pub(super) struct Link {
    /// None: it is a remote server, which no keeper holds.
    backend: Option<Arc<Backend>>,
    to: mpsc::WeakSender<Bytes>,
    /// Who waits until all lines so far were taken.
    waiting: Mutex<VecDeque<oneshot::Sender<()>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Links {
    fn all(&self) -> Vec<Arc<Link>> {
        let mut links = lock(&self.0);
        links.retain(|link| link.strong_count() > 0);
        links.iter().filter_map(Weak::upgrade).collect()
    }

    /// Waits until the keepers, and the connections to remote servers, have taken all lines so far.
    pub(super) async fn flushed(&self) {
        join_all(
            self.all()
                .into_iter()
                .map(|link| async move { link.flushed().await }),
        )
        .await;
    }

    /// Waits until the processes of all servers are gone.
    pub(super) async fn gone(&self) {
        let backends = self
            .all()
            .into_iter()
            .filter_map(|link| link.backend.clone());
        join_all(backends.map(|backend| async move { backend.gone().await })).await;
    }
}

impl Link {
    /// All before this line were passed on, if it is empty. Whether it is.
    fn is_mark(&self, line: &Bytes) -> bool {
        if line.is_empty()
            && let Some(waiting) = lock(&self.waiting).pop_front()
        {
            let _ = waiting.send(());
        }
        line.is_empty()
    }

    async fn flushed(&self) {
        let (done, is_done) = oneshot::channel();
        let Some(to) = self.to.upgrade() else { return };
        let Ok(room) = to.reserve().await else { return };
        lock(&self.waiting).push_back(done);
        // An empty line is none: whoever reads it has passed on all before it.
        room.send(Bytes::new());
        tokio::select! {
            _ = is_done => {}
            // Nobody reads it any more.
            () = to.closed() => {}
        }
    }
}

impl fmt::Debug for KeeperSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "KeeperSource({:?})", self.server)
    }
}

impl KeeperSource {
    fn link(&self, backend: Option<Arc<Backend>>, to: &mpsc::Sender<Bytes>) -> Arc<Link> {
        let link = Arc::new(Link {
            backend,
            to: to.downgrade(),
            waiting: Mutex::default(),
        });
        lock(&self.links.0).push(Arc::downgrade(&link));
        link
    }

    /// A remote server.
    fn remote(&self, pipe: Pipe) -> Pipe {
        let Pipe {
            to: input,
            from,
            end,
        } = pipe;
        let (to, wanted) = mpsc::channel(1);
        let pipe = with_id_prefix(Pipe { to, from, end });
        let link = self.link(None, &pipe.to);
        tokio::spawn(pass(link, wanted, input));
        pipe
    }

    fn attached(&self, backend: Backend, inherited: InheritedCalls) -> Pipe {
        let backend = Arc::new(backend);
        let (to, wanted) = mpsc::channel(WAITING);
        let (out, from) = mpsc::channel(WAITING);
        let link = self.link(Some(backend.clone()), &to);
        tokio::spawn(write(link, backend.clone(), wanted));
        let server = MemberLosses {
            name: self.server.name.clone(),
            backend: backend.clone(),
            losses: self.losses.clone(),
        };
        tokio::spawn(read(server, out, self.common.clone(), inherited));
        let end = End::new(|| {
            Box::pin(async move {
                backend.end().await;
                backend.gone().await;
            })
        });
        Pipe { to, from, end }
    }
}

impl Source for KeeperSource {
    fn name(&self) -> &str {
        &self.server.name
    }

    fn identity(&self) -> Option<String> {
        self.server.keeper_name().map(|name| name.to_string())
    }

    fn open(&self) -> BoxFuture<'_, Result<Pipe, Failure>> {
        Box::pin(async {
            match lock(&self.found).take() {
                Some(RunningServer::Attached(backend, known)) => {
                    return Ok(self.attached(backend, known));
                }
                // The next attempt takes its time while nobody waits for the others.
                Some(RunningServer::Unreached(why)) => {
                    return Err(Failure::new(FailureCode::NotStarted, why));
                }
                None => {}
            }
            let launch = self.server.launch.clone();
            let launched = tokio::task::spawn_blocking(move || launch()).await;
            let not_started = |why: String| Failure::new(FailureCode::NotStarted, why);
            let (program, environment, home) =
                match launched.map_err(|error| not_started(error.to_string()))?? {
                    Launch::Program {
                        program,
                        environment,
                        home,
                    } => (program, environment, home),
                    // Its hosts are other users' as well, and no host of ours.
                    Launch::Shared(shared) => {
                        let (environment, home) = shared.launch_env();
                        (shared.program(), environment, home)
                    }
                    Launch::Remote(server) => {
                        if let Some(of) = self.server.keeper_name() {
                            let (service, losses) = (&self.common.service, &self.losses);
                            losses
                                .note_recorded(service, &self.session, Some(&of))
                                .await;
                        }
                        let mut remote = server.connector(self.store.clone());
                        let pipe = connect_unkept(&mut *remote).await?;
                        return Ok(self.remote(pipe));
                    }
                };
            let (service, session) = (self.common.service.clone(), self.session.clone());
            let name = self.server.keeper_name().ok_or_else(|| {
                let why = "its name has more than 119 bytes, or control characters";
                Failure::new(FailureCode::BadEntry, why)
            })?;
            let command = Command {
                program,
                environment,
                home,
            };
            // A task of its own: if nobody waits for it any more, what was started is ended.
            let (give, given) = oneshot::channel();
            let losses = self.losses.clone();
            tokio::spawn(async move {
                let started = service.backend_of(&session, Some(&name), &command).await;
                if started.is_ok() {
                    losses.note_recorded(&service, &session, Some(&name)).await;
                }
                if let Err(Ok(backend)) = give.send(started) {
                    backend.end().await;
                }
            });
            let started = given
                .await
                .map_err(|_| not_started("it was not started".into()))?;
            started
                .map(|backend| self.attached(backend, InheritedCalls::default()))
                .map_err(start_failure)
        })
    }
}

/// What takes up that the session with a remote server of the list is lost.
pub(super) fn noting_losses(
    server: &Server,
    service: &Service,
    session: &SessionId,
    losses: &Losses,
) -> impl Fn(Loss) -> BoxFuture<'static, ()> + Send + Sync + 'static {
    let (of, service) = (server.keeper_name(), service.clone());
    let (session, losses) = (session.clone(), losses.clone());
    move |because| {
        let (of, service) = (of.clone(), service.clone());
        let (session, losses) = (session.clone(), losses.clone());
        Box::pin(async move {
            losses
                .record(&service, &session, of.as_ref(), because)
                .await;
        })
    }
}

fn start_failure(why: NoBackend) -> Failure {
    match why {
        NoBackend::NoProgram { sentence, .. } => Failure::not_found(sentence),
        why => Failure::new(FailureCode::NotStarted, why.to_string()),
    }
}

/// Tells a server from what it was before it was started again.
fn incarnation(backend: &Backend) -> String {
    format!("{}-{:x}", backend.keeper(), backend.incarnation())
}

/// Carries lines to the keeper, each once it has taken the one before.
async fn write(link: Arc<Link>, backend: Arc<Backend>, mut wanted: mpsc::Receiver<Bytes>) {
    let incarnation = incarnation(&backend);
    while let Some(line) = wanted.recv().await {
        // An answer to a server that is gone is for nobody.
        if !link.is_mark(&line)
            && let Some(line) = from_asked(&line, &incarnation)
            && backend.send(line).await.is_err()
        {
            return;
        }
    }
}

/// Carries lines to a remote server.
async fn pass(link: Arc<Link>, mut wanted: mpsc::Receiver<Bytes>, input: mpsc::Sender<Bytes>) {
    loop {
        let line = tokio::select! {
            line = wanted.recv() => line,
            // Whoever sends more is to know it.
            () = input.closed() => None,
        };
        let Some(line) = line else { return };
        if link.is_mark(&line) {
            continue;
        }
        if input.send(line).await.is_err() {
            return;
        }
    }
}

/// A server, and where its losses are noted.
struct MemberLosses {
    name: String,
    backend: Arc<Backend>,
    losses: Losses,
}

impl MemberLosses {
    /// What it says next, once what was lost before that is noted.
    async fn next(&self) -> Option<Message> {
        let said = self.backend.next().await;
        for why in self.backend.ends() {
            let loss = ServerLoss::ended(Some(&self.name), &why, &self.backend);
            self.losses.note(loss);
        }
        said
    }
}

/// Carries lines of the server to the bundle. When it is gone, the calls that a former process has
/// sent it are answered, after all that it has said.
async fn read(
    server: MemberLosses,
    out: mpsc::Sender<TrackedLine>,
    common: Arc<Common>,
    inherited: InheritedCalls,
) {
    forward_lines(&server, &out, &common).await;
    for call in inherited.0 {
        // Dropped if nobody takes it here.
        let line = call.line();
        let receipt = Receipt::new(move || call.mark_answered());
        let _ = out.send(TrackedLine { line, receipt }).await;
    }
}

async fn forward_lines(server: &MemberLosses, out: &mpsc::Sender<TrackedLine>, common: &Common) {
    let backend = &server.backend;
    let incarnation = incarnation(backend);
    let mut order: Option<Arc<ConfirmOrder>> = None;
    loop {
        let message = tokio::select! {
            message = server.next() => message,
            () = out.closed() => return,
        };
        let Some(message) = message else { return };
        let number = message.number;
        let order = order
            .get_or_insert_with(|| ConfirmOrder::new(backend, number, common.is_leaving.clone()));
        let unconfirmed = Arc::new(Unconfirmed {
            order: order.clone(),
            number,
        });
        for (nth, line) in single(message.line).into_iter().enumerate() {
            let (mark, unconfirmed) =
                (format!("{incarnation}-{number}.{nth}"), unconfirmed.clone());
            let receipt = Receipt::marked(mark, move || drop(unconfirmed));
            if out
                .send(TrackedLine {
                    line: tagged(&line, &incarnation),
                    receipt,
                })
                .await
                .is_err()
            {
                return;
            }
        }
    }
}

/// The messages of a line, which may be a batch.
fn single(line: Bytes) -> Vec<Bytes> {
    if line.trim_ascii_start().first() != Some(&b'[') {
        return vec![line];
    }
    let copy = OnceCell::new();
    match Line::of(&line, &copy) {
        Line::Batch(parts) => parts
            .into_iter()
            .map(|(span, _)| line.slice(span))
            .collect(),
        Line::Blank | Line::One(_) => vec![line.clone()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_its_parts_also_where_one_of_them_can_not_be_read() {
        let single = |text: &'static str| single(text.into());
        let (one, twice) = (
            r#"{"jsonrpc":"2.0","id":1,"result":1.50}"#,
            r#"{"jsonrpc":"2.0","id":2,"result":1,"result":2}"#,
        );
        assert_eq!(single(one), [one]);
        let batch: &'static str = format!("  [ {one},{twice} ]").leak();
        assert_eq!(single(batch), [one, twice]);
        for whole in ["", "[]", "nonsense", "[nonsense"] {
            assert_eq!(single(whole), [whole], "{whole:?}");
        }
    }
}
