//! A daemon in this process. What it answers is queued by the test, call by call.

use std::collections::VecDeque;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use mcp_sessiond_proto::backends::{
    Backend, CountedRequest, EndingRequest, FrontLease, FrontRequest, KeepRequest, Kept,
    LeftRequest, StartedRequest, StopRequest,
};
use mcp_sessiond_proto::debug::{
    About, ContentInfo, ContentPage, Ended, HostInfo, InspectRequest, Inspected, Page, SessionInfo,
    SessionParts, Setting, Stats, SweepRequest, TokenInfo, WhoAmI,
};
use mcp_sessiond_proto::facts::{Facts, FactsRequest, LearnRequest};
use mcp_sessiond_proto::frame::Budget;
use mcp_sessiond_proto::hello::{Answer, FRAME_MAX, Hello};
use mcp_sessiond_proto::service::Sessiond as Service;
use mcp_sessiond_proto::services::{
    FindRequest, NoteLossRequest, SecretRequest, ServeRequest, Served, ServiceLease, ServiceLoss,
    ServiceLossesRequest, ServiceSecret,
};
use mcp_sessiond_proto::sessions::{
    CreateRequest, MintRequest, Minted, OpenHandleRequest, OwnSessions, ResetRequest,
    RotateRequest, Session, SessionRef, UpdateRequest,
};
use mcp_sessiond_proto::state::{
    ListStateRequest, ReadStateRequest, StateEntry, StateKeyInfo, WriteStateRequest,
};
use mcp_sessiond_proto::streams::{
    AppendRequest, Appended, FindEventRequest, FoundEvent, ListStreamsRequest, OpenStreamRequest,
    PruneRequest, Pruned, ReplayRequest, Replayed, Stream, StreamRef, WaitRequest,
};
use mcp_sessiond_proto::tasks::{
    CreateTaskRequest, ListTasksRequest, Task, TaskRef, UpdateTaskRequest, WaitTaskRequest,
};
use mcp_sessiond_proto::types::{
    LeaseRef, LossToldRequest, Outcome, StoreRequest, Stored, TokenStatus,
};
use mcp_sessiond_proto::{ClaimRequest, Claimed, Epoch, Error, LossRecord, Token, codec, paths};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tarpc::context::Context;
use tarpc::server::{BaseChannel, Channel as _};
use tempfile::TempDir;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;

use crate::options::Options;
use crate::sessiond::Sessiond;
use crate::start::Start;

/// What the daemon does with the next call.
pub(crate) enum Turn {
    /// The claim is granted.
    Grant(Claimed),
    /// The token is stored; whether it was the first after a load.
    Store { resumed: bool },
    /// The call is done; there is nothing to tell.
    Done,
    /// The call about a session is answered with this.
    Tell(Value),
    /// The call is refused.
    Refuse(Error),
    /// The connection ends without an answer.
    HangUp,
    /// There is no answer. [`Shared::stalled`] tells when it comes to that.
    Stall,
}

pub(crate) struct Fake {
    pub(crate) path: PathBuf,
    pub(crate) shared: Arc<Shared>,
    _parent: TempDir,
}

#[derive(Default)]
pub(crate) struct Shared {
    turns: Mutex<VecDeque<Turn>>,
    /// The answers to the next hellos. Without one: welcome.
    pub(crate) hellos: Mutex<VecDeque<Answer>>,
    heard: Mutex<Vec<String>>,
    pub(crate) stalled: Notify,
}

/// A claim's answer, in short.
pub(crate) fn grant(session: &str, epoch: u64, outcome: Outcome, token: Option<&str>) -> Turn {
    Turn::Grant(Claimed {
        session: session.parse().expect("session id"),
        epoch: Epoch(epoch),
        outcome,
        because: None,
        lost: Vec::new(),
        own: None,
        token_status: if token.is_some() {
            TokenStatus::Present
        } else {
            TokenStatus::Absent
        },
        token: token.map(|token| Token::new(token).expect("token")),
    })
}

impl Fake {
    pub(crate) fn new(turns: impl IntoIterator<Item = Turn>) -> Self {
        let parent = tempfile::tempdir().expect("tempdir");
        let path = parent.path().join("d");
        make(&path, 0o700);
        let listener = UnixListener::bind(paths::socket(&path)).expect("bound");
        let shared = Arc::<Shared>::default();
        shared.turns.lock().expect("turns").extend(turns);
        tokio::spawn(listen(listener, shared.clone()));
        Self {
            path,
            shared,
            _parent: parent,
        }
    }

    pub(crate) fn options(&self) -> Options {
        Options::default().directory(&self.path).start(Start::Never)
    }

    pub(crate) fn client(&self) -> Sessiond {
        Sessiond::init(self.options())
    }

    /// The calls so far. They are not told again.
    pub(crate) fn heard(&self) -> Vec<String> {
        std::mem::take(&mut *self.shared.heard.lock().expect("heard"))
    }

    /// Whether every turn was taken.
    pub(crate) fn is_done(&self) -> bool {
        self.turns_left() == 0
    }

    /// How many turns were not taken yet.
    pub(crate) fn turns_left(&self) -> usize {
        self.shared.turns.lock().expect("turns").len()
    }
}

/// A directory with that mode, whatever the umask.
pub(crate) fn make(path: &Path, mode: u32) {
    std::fs::create_dir(path).expect("made");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("mode");
}

async fn listen(listener: UnixListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let hang_up = Arc::<Notify>::default();
        let daemon = Daemon {
            shared: shared.clone(),
            hang_up: hang_up.clone(),
        };
        tokio::spawn(async move {
            tokio::select! {
                () = serve(stream, daemon) => {}
                () = hang_up.notified() => {}
            }
        });
    }
}

async fn serve(mut stream: UnixStream, daemon: Daemon) {
    let hello = Hello::read(&mut stream).await.expect("hello");
    let codec = hello.accept().expect("a version of ours");
    let answer = daemon
        .shared
        .hellos
        .lock()
        .expect("hellos")
        .pop_front()
        .unwrap_or(Answer::Welcome);
    let reply = hello.reply(answer);
    reply.write(&mut stream).await.expect("answered");
    if answer == Answer::Welcome {
        let transport = codec::server(stream, codec, FRAME_MAX, Budget::new(usize::MAX));
        let channel = BaseChannel::with_defaults(transport);
        channel
            .execute(daemon.serve())
            .for_each_concurrent(None, |call| call)
            .await;
    }
}

#[derive(Clone)]
struct Daemon {
    shared: Arc<Shared>,
    hang_up: Arc<Notify>,
}

impl Daemon {
    async fn turn(&self, heard: String) -> Turn {
        self.shared.heard.lock().expect("heard").push(heard);
        let turn = self
            .shared
            .turns
            .lock()
            .expect("turns")
            .pop_front()
            .expect("a turn for every call");
        match turn {
            Turn::HangUp => self.hang_up.notify_one(),
            Turn::Stall => self.shared.stalled.notify_one(),
            turn => return turn,
        }
        std::future::pending().await
    }

    /// A call about a session. It is heard with its request.
    async fn told<T: DeserializeOwned>(
        &self,
        method: &str,
        request: &impl Serialize,
    ) -> Result<T, Error> {
        match self.turn(format!("{method} {}", json!(request))).await {
            Turn::Tell(value) => {
                Ok(serde_json::from_value(value).expect("an answer to this method"))
            }
            Turn::Done => {
                Ok(serde_json::from_value(Value::Null).expect("a method without an answer"))
            }
            Turn::Refuse(error) => Err(error),
            _ => panic!("no turn for {method}"),
        }
    }
}

impl Service for Daemon {
    async fn ping(self, _: Context) {}

    async fn claim(self, _: Context, request: ClaimRequest) -> Result<Claimed, Error> {
        let label = request
            .label
            .map(|label| format!(" {}", label.as_str()))
            .unwrap_or_default();
        let fresh = if request.fresh { " fresh" } else { "" };
        match self.turn(format!("claim{label}{fresh}")).await {
            Turn::Grant(claimed) => Ok(claimed),
            Turn::Refuse(error) => Err(error),
            _ => panic!("no turn for a claim"),
        }
    }

    async fn store_token(self, _: Context, request: StoreRequest) -> Result<Stored, Error> {
        let token = String::from_utf8_lossy(request.token.expose()).into_owned();
        match self
            .turn(format!(
                "store {} {} {token}",
                request.session, request.epoch
            ))
            .await
        {
            Turn::Store { resumed } => Ok(Stored { resumed }),
            Turn::Refuse(error) => Err(error),
            _ => panic!("no turn for a store"),
        }
    }

    async fn reject_token(self, _: Context, request: LeaseRef) -> Result<(), Error> {
        match self
            .turn(format!("reject {} {}", request.session, request.epoch))
            .await
        {
            Turn::Done => Ok(()),
            Turn::Refuse(error) => Err(error),
            _ => panic!("no turn for a reject"),
        }
    }

    async fn release(self, _: Context, request: LeaseRef) -> Result<(), Error> {
        match self
            .turn(format!("release {} {}", request.session, request.epoch))
            .await
        {
            Turn::Done => Ok(()),
            _ => panic!("no turn for a release"),
        }
    }

    async fn create_session(self, _: Context, request: CreateRequest) -> Result<Session, Error> {
        self.told("create_session", &request).await
    }
    async fn open_session(self, _: Context, request: SessionRef) -> Result<Session, Error> {
        self.told("open_session", &request).await
    }
    async fn get_session(self, _: Context, request: SessionRef) -> Result<Session, Error> {
        self.told("get_session", &request).await
    }
    async fn list_own_sessions(
        self,
        _: Context,
        request: OwnSessions,
    ) -> Result<Vec<Session>, Error> {
        self.told("list_own_sessions", &request).await
    }
    async fn update_session(self, _: Context, request: UpdateRequest) -> Result<Session, Error> {
        self.told("update_session", &request).await
    }
    async fn touch_session(self, _: Context, request: SessionRef) -> Result<(), Error> {
        self.told("touch_session", &request).await
    }
    async fn attach_session(self, _: Context, request: SessionRef) -> Result<(), Error> {
        self.told("attach_session", &request).await
    }
    async fn detach_session(self, _: Context, request: SessionRef) -> Result<(), Error> {
        self.told("detach_session", &request).await
    }
    async fn reset_session(self, _: Context, request: ResetRequest) -> Result<Session, Error> {
        self.told("reset_session", &request).await
    }
    async fn terminate_session(self, _: Context, request: SessionRef) -> Result<(), Error> {
        self.told("terminate_session", &request).await
    }
    async fn rotate_credential(self, _: Context, request: RotateRequest) -> Result<(), Error> {
        self.told("rotate_credential", &request).await
    }
    async fn mint_handle(self, _: Context, request: MintRequest) -> Result<Minted, Error> {
        self.told("mint_handle", &request).await
    }
    async fn open_handle(self, _: Context, request: OpenHandleRequest) -> Result<Session, Error> {
        self.told("open_handle", &request).await
    }
    async fn read_state(
        self,
        _: Context,
        request: ReadStateRequest,
    ) -> Result<Vec<StateEntry>, Error> {
        self.told("read_state", &request).await
    }
    async fn write_state(
        self,
        _: Context,
        request: WriteStateRequest,
    ) -> Result<Vec<StateEntry>, Error> {
        self.told("write_state", &request).await
    }
    async fn list_state(
        self,
        _: Context,
        request: ListStateRequest,
    ) -> Result<Vec<StateKeyInfo>, Error> {
        self.told("list_state", &request).await
    }
    async fn open_stream(self, _: Context, request: OpenStreamRequest) -> Result<Stream, Error> {
        self.told("open_stream", &request).await
    }
    async fn list_streams(
        self,
        _: Context,
        request: ListStreamsRequest,
    ) -> Result<Vec<Stream>, Error> {
        self.told("list_streams", &request).await
    }
    async fn close_stream(self, _: Context, request: StreamRef) -> Result<Stream, Error> {
        self.told("close_stream", &request).await
    }
    async fn orphan_stream(self, _: Context, request: StreamRef) -> Result<Stream, Error> {
        self.told("orphan_stream", &request).await
    }
    async fn unorphan_stream(self, _: Context, request: StreamRef) -> Result<Stream, Error> {
        self.told("unorphan_stream", &request).await
    }
    async fn find_event(self, _: Context, request: FindEventRequest) -> Result<FoundEvent, Error> {
        self.told("find_event", &request).await
    }
    async fn prune_events(self, _: Context, request: PruneRequest) -> Result<Pruned, Error> {
        self.told("prune_events", &request).await
    }
    async fn append(self, _: Context, request: AppendRequest) -> Result<Vec<Appended>, Error> {
        self.told("append", &request).await
    }
    async fn replay(self, _: Context, request: ReplayRequest) -> Result<Replayed, Error> {
        self.told("replay", &request).await
    }
    async fn wait(self, _: Context, request: WaitRequest) -> Result<Replayed, Error> {
        self.told("wait", &request).await
    }
    async fn create_task(self, _: Context, request: CreateTaskRequest) -> Result<Task, Error> {
        self.told("create_task", &request).await
    }
    async fn get_task(self, _: Context, request: TaskRef) -> Result<Task, Error> {
        self.told("get_task", &request).await
    }
    async fn update_task(self, _: Context, request: UpdateTaskRequest) -> Result<Task, Error> {
        self.told("update_task", &request).await
    }
    async fn wait_task(self, _: Context, request: WaitTaskRequest) -> Result<Task, Error> {
        self.told("wait_task", &request).await
    }
    async fn list_tasks(self, _: Context, request: ListTasksRequest) -> Result<Vec<Task>, Error> {
        self.told("list_tasks", &request).await
    }
    async fn lease_service(self, _: Context, request: ServeRequest) -> Result<Served, Error> {
        self.told("lease_service", &request).await
    }

    async fn release_service(self, _: Context, request: ServiceLease) -> Result<(), Error> {
        self.told("release_service", &request).await
    }

    async fn service_secret(
        self,
        _: Context,
        request: SecretRequest,
    ) -> Result<ServiceSecret, Error> {
        self.told("service_secret", &request).await
    }

    async fn find_backend(
        self,
        _: Context,
        request: FindRequest,
    ) -> Result<Option<Backend>, Error> {
        self.told("find_backend", &request).await
    }
    async fn keep_backend(self, _: Context, request: KeepRequest) -> Result<Kept, Error> {
        self.told("keep_backend", &request).await
    }
    async fn backend_started(self, _: Context, request: StartedRequest) -> Result<(), Error> {
        self.told("backend_started", &request).await
    }
    async fn front_left(self, _: Context, request: LeftRequest) -> Result<(), Error> {
        self.told("front_left", &request).await
    }
    async fn backend_ending(self, _: Context, request: EndingRequest) -> Result<(), Error> {
        self.told("backend_ending", &request).await
    }
    async fn backend_counted(self, _: Context, request: CountedRequest) -> Result<(), Error> {
        self.told("backend_counted", &request).await
    }
    async fn check_front(self, _: Context, request: FrontRequest) -> Result<FrontLease, Error> {
        self.told("check_front", &request).await
    }
    async fn list_backends(self, _: Context, _: Page) -> Vec<Backend> {
        unreachable!("not asked")
    }
    async fn stop_backend(self, _: Context, _: StopRequest) -> Result<(), Error> {
        unreachable!("not asked")
    }
    async fn loss_told(self, _: Context, _: LossToldRequest) -> Result<(), Error> {
        unreachable!("not asked")
    }
    async fn note_loss(self, _: Context, _: NoteLossRequest) -> Result<LossRecord, Error> {
        unreachable!("not asked")
    }
    async fn find_facts(self, _: Context, _: FactsRequest) -> Facts {
        unreachable!("not asked")
    }
    async fn learn_fact(self, _: Context, _: LearnRequest) {
        unreachable!("not asked")
    }
    async fn about(self, _: Context) -> About {
        unreachable!("not asked")
    }
    async fn list_service_losses(self, _: Context, _: ServiceLossesRequest) -> Vec<ServiceLoss> {
        unreachable!("not asked")
    }
    async fn list_hosts(self, _: Context) -> Vec<HostInfo> {
        unreachable!("not asked")
    }
    async fn list_sessions(self, _: Context, _: Page) -> Vec<SessionInfo> {
        unreachable!("not asked")
    }
    async fn list_tokens(self, _: Context, _: Page) -> Vec<TokenInfo> {
        unreachable!("not asked")
    }
    async fn list_parts(self, _: Context, _: ContentPage) -> Vec<SessionParts> {
        Vec::new()
    }
    async fn list_contents(self, _: Context, _: ContentPage) -> Result<Vec<ContentInfo>, Error> {
        unreachable!("not asked")
    }
    async fn inspect_session(self, _: Context, _: InspectRequest) -> Result<Vec<Inspected>, Error> {
        unreachable!("not asked")
    }
    async fn sweep(self, _: Context, _: SweepRequest) -> Result<Vec<Ended>, Error> {
        unreachable!("not asked")
    }
    async fn stats(self, _: Context) -> Stats {
        unreachable!("not asked")
    }
    async fn metrics(self, _: Context) -> String {
        unreachable!("not asked")
    }
    async fn settings(self, _: Context) -> Vec<Setting> {
        unreachable!("not asked")
    }
    async fn who_am_i(self, _: Context, _: ClaimRequest) -> Result<WhoAmI, Error> {
        unreachable!("not asked")
    }
}
