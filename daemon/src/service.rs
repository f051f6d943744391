//! The RPCs, one peer's. Handlers only translate.
//!
//! A call is dropped when its caller cancels it, or its deadline passes. What changes state goes on
//! then (`measured.rs`).

mod conversation;
mod daemon;
mod measured;
mod metrics;
mod streams;
mod sweep;
mod tasks;

use std::sync::Arc;

use mcp_sessiond_proto::backends::{
    Backend, CountedRequest, EndingRequest, FrontRequest, KeepRequest, Kept, LeftRequest,
    ProcessRef, StartedRequest, StopRequest,
};
use mcp_sessiond_proto::debug::{
    About, ContentInfo, ContentPage, Ended, HostInfo, InspectRequest, Inspected, PAGE_MAX, Page,
    SessionInfo, Setting, Stats, SweepRequest, TokenInfo, WhoAmI,
};
use mcp_sessiond_proto::service::Sessiond;
use mcp_sessiond_proto::services::{
    FindRequest, SecretRequest, ServeRequest, Served, ServiceLease, ServiceSecret,
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
use mcp_sessiond_proto::types::{LeaseRef, StoreRequest, Stored};
use mcp_sessiond_proto::{ClaimRequest, Claimed, Error, Json};
use tarpc::context::Context;

use crate::contents::{Access, Contents};
use crate::storage::Place;
pub use conversation::Conversation;
pub use daemon::Daemon;

/// The service as one peer sees it.
#[derive(Clone)]
pub struct Service(pub Arc<Conversation>);

impl Service {
    fn daemon(&self) -> &Daemon {
        &self.0.daemon
    }

    fn contents(&self) -> &Contents {
        &self.0.daemon.contents
    }

    async fn access(&self, of: &SessionRef) -> Result<Access, Error> {
        self.0.access(of).await
    }
}

impl Sessiond for Service {
    async fn ping(self, _: Context) {}

    async fn claim(self, _: Context, request: ClaimRequest) -> Result<Claimed, Error> {
        let peer = self.0.clone();
        self.detached(|meters| &meters.histograms.claim_us, async move {
            peer.claim(request).await
        })
        .await
    }

    async fn store_token(self, _: Context, request: StoreRequest) -> Result<Stored, Error> {
        let peer = self.0.clone();
        let work = async move {
            let session = peer.own(&request.session).await?;
            peer.daemon
                .edge
                .store_token(StoreRequest { session, ..request })
                .await
        };
        self.detached(|meters| &meters.histograms.store_token_us, work)
            .await
    }

    async fn reject_token(self, _: Context, request: LeaseRef) -> Result<(), Error> {
        let peer = self.0.clone();
        let work = async move {
            let session = peer.own(&request.session).await?;
            peer.daemon
                .edge
                .reject_token(LeaseRef { session, ..request })
                .await
        };
        self.detached(|meters| &meters.histograms.store_token_us, work)
            .await
    }

    async fn release(self, _: Context, request: LeaseRef) -> Result<(), Error> {
        let peer = self.0.clone();
        let work = async move {
            let session = peer.own(&request.session).await?;
            peer.daemon
                .edge
                .release(LeaseRef { session, ..request })
                .await
        };
        self.detached(|meters| &meters.histograms.claim_us, work)
            .await
    }

    async fn create_session(self, _: Context, request: CreateRequest) -> Result<Session, Error> {
        let peer = self.0.clone();
        let work = async move { peer.create(request).await };
        self.detached(|meters| &meters.histograms.change_session_us, work)
            .await
    }

    async fn open_session(self, _: Context, request: SessionRef) -> Result<Session, Error> {
        let peer = self.0.clone();
        let work = async move { peer.open(request).await };
        self.detached(|meters| &meters.histograms.change_session_us, work)
            .await
    }

    async fn get_session(self, _: Context, request: SessionRef) -> Result<Session, Error> {
        self.measured(
            |meters| &meters.histograms.read_session_us,
            self.0.get(&request),
        )
        .await
    }

    async fn list_own_sessions(
        self,
        _: Context,
        request: OwnSessions,
    ) -> Result<Vec<Session>, Error> {
        self.measured(
            |meters| &meters.histograms.read_session_us,
            self.0.list(request),
        )
        .await
    }

    async fn update_session(self, _: Context, request: UpdateRequest) -> Result<Session, Error> {
        let peer = self.0.clone();
        let work = async move {
            peer.daemon
                .contents
                .update(&peer.access(&request.of).await?, &request)
                .await
        };
        self.detached(|meters| &meters.histograms.change_session_us, work)
            .await
    }

    async fn touch_session(self, _: Context, request: SessionRef) -> Result<(), Error> {
        let peer = self.0.clone();
        let work = async move {
            peer.daemon
                .contents
                .touch(&peer.access(&request).await?)
                .await
        };
        self.detached(|meters| &meters.histograms.change_session_us, work)
            .await
    }

    async fn attach_session(self, _: Context, request: SessionRef) -> Result<(), Error> {
        let peer = self.0.clone();
        let work = async move { peer.attach(&request).await };
        self.detached(|meters| &meters.histograms.change_session_us, work)
            .await
    }

    async fn detach_session(self, _: Context, request: SessionRef) -> Result<(), Error> {
        let peer = self.0.clone();
        let work = async move { peer.detach(&request).await };
        self.detached(|meters| &meters.histograms.change_session_us, work)
            .await
    }

    async fn reset_session(self, _: Context, request: ResetRequest) -> Result<Session, Error> {
        let peer = self.0.clone();
        let work = async move {
            let repeated = request.request.clone();
            let access = peer.access(&request.of()).await?;
            peer.daemon.contents.reset(&access, repeated.as_ref()).await
        };
        self.detached(|meters| &meters.histograms.change_session_us, work)
            .await
    }

    async fn terminate_session(self, _: Context, request: SessionRef) -> Result<(), Error> {
        let peer = self.0.clone();
        let work = async move {
            peer.daemon
                .contents
                .terminate(&peer.access(&request).await?)
                .await?;
            // Its token and its lease have gone with it, and that is to be kept as well.
            peer.daemon.edge.recorded().await
        };
        self.detached(|meters| &meters.histograms.change_session_us, work)
            .await
    }

    async fn rotate_credential(self, _: Context, request: RotateRequest) -> Result<(), Error> {
        let peer = self.0.clone();
        let work = async move {
            peer.daemon
                .contents
                .rotate(&peer.access(&request.of).await?, &request)
                .await
        };
        self.detached(|meters| &meters.histograms.change_session_us, work)
            .await
    }

    async fn mint_handle(self, _: Context, request: MintRequest) -> Result<Minted, Error> {
        let peer = self.0.clone();
        let work = async move {
            peer.daemon
                .contents
                .mint(&peer.access(&request.of).await?, &request)
                .await
        };
        self.detached(|meters| &meters.histograms.change_session_us, work)
            .await
    }

    async fn open_handle(self, _: Context, request: OpenHandleRequest) -> Result<Session, Error> {
        self.measured(
            |meters| &meters.histograms.read_session_us,
            self.0.open_handle(request),
        )
        .await
    }

    async fn read_state(
        self,
        _: Context,
        request: ReadStateRequest,
    ) -> Result<Vec<StateEntry>, Error> {
        let work = async {
            self.contents()
                .read_state(&self.access(&request.of).await?, &request)
                .await
        };
        self.measured(|meters| &meters.histograms.read_state_us, work)
            .await
    }

    async fn write_state(
        self,
        _: Context,
        request: WriteStateRequest,
    ) -> Result<Vec<StateEntry>, Error> {
        let bytes: usize = request
            .writes
            .iter()
            .filter_map(|write| write.value.as_ref())
            .map(Json::len)
            .sum();
        self.daemon()
            .meters
            .histograms
            .write_state_bytes
            .record(bytes as u64);
        let peer = self.0.clone();
        let work = async move {
            peer.daemon
                .contents
                .write_state(&peer.access(&request.of).await?, &request)
                .await
        };
        self.detached(|meters| &meters.histograms.write_state_us, work)
            .await
    }

    async fn list_state(
        self,
        _: Context,
        request: ListStateRequest,
    ) -> Result<Vec<StateKeyInfo>, Error> {
        let work = async {
            self.contents()
                .list_state(&self.access(&request.of).await?, &request)
                .await
        };
        self.measured(|meters| &meters.histograms.read_state_us, work)
            .await
    }

    async fn open_stream(self, _: Context, request: OpenStreamRequest) -> Result<Stream, Error> {
        let peer = self.0.clone();
        let work = async move { peer.open_stream(request).await };
        self.detached(|meters| &meters.histograms.change_session_us, work)
            .await
    }

    async fn list_streams(
        self,
        _: Context,
        request: ListStreamsRequest,
    ) -> Result<Vec<Stream>, Error> {
        let work = async {
            self.contents()
                .list_streams(&self.access(&request.of).await?, &request)
                .await
        };
        self.measured(|meters| &meters.histograms.read_session_us, work)
            .await
    }

    async fn close_stream(self, _: Context, request: StreamRef) -> Result<Stream, Error> {
        let peer = self.0.clone();
        let work = async move { peer.close_stream(request).await };
        self.detached(|meters| &meters.histograms.change_session_us, work)
            .await
    }

    async fn orphan_stream(self, _: Context, request: StreamRef) -> Result<Stream, Error> {
        let peer = self.0.clone();
        let work = async move {
            peer.daemon
                .contents
                .orphan_stream(&peer.access(&request.of).await?, &request)
                .await
        };
        self.detached(|meters| &meters.histograms.change_session_us, work)
            .await
    }

    async fn unorphan_stream(self, _: Context, request: StreamRef) -> Result<Stream, Error> {
        let peer = self.0.clone();
        let work = async move {
            peer.daemon
                .contents
                .unorphan_stream(&peer.access(&request.of).await?, &request)
                .await
        };
        self.detached(|meters| &meters.histograms.change_session_us, work)
            .await
    }

    async fn find_event(self, _: Context, request: FindEventRequest) -> Result<FoundEvent, Error> {
        let work = async {
            self.contents()
                .find_event(&self.access(&request.of).await?, &request)
                .await
        };
        self.measured(|meters| &meters.histograms.read_session_us, work)
            .await
    }

    async fn prune_events(self, _: Context, request: PruneRequest) -> Result<Pruned, Error> {
        let peer = self.0.clone();
        let work = async move {
            peer.daemon
                .contents
                .prune_events(&peer.access(&request.of).await?, &request)
                .await
        };
        self.detached(|meters| &meters.histograms.change_session_us, work)
            .await
    }

    async fn append(self, _: Context, request: AppendRequest) -> Result<Vec<Appended>, Error> {
        let histograms = &self.daemon().meters.histograms;
        let bytes: usize = request.messages.iter().flatten().map(Json::len).sum();
        histograms.append_bytes.record(bytes as u64);
        histograms
            .append_messages
            .record(request.messages.len() as u64);
        let peer = self.0.clone();
        let work = async move { peer.append(request).await };
        self.detached(|meters| &meters.histograms.append_us, work)
            .await
    }

    async fn replay(self, _: Context, request: ReplayRequest) -> Result<Replayed, Error> {
        let work = async {
            self.contents()
                .replay(&self.access(&request.of).await?, &request)
                .await
        };
        self.measured(|meters| &meters.histograms.replay_us, work)
            .await
    }

    async fn wait(self, _: Context, request: WaitRequest) -> Result<Replayed, Error> {
        // Not detached: nobody needs what nobody waits for.
        let work = async {
            self.contents()
                .wait(&self.access(&request.of).await?, &request)
                .await
        };
        self.unmeasured(work).await
    }

    async fn create_task(self, _: Context, request: CreateTaskRequest) -> Result<Task, Error> {
        let peer = self.0.clone();
        let work = async move { peer.create_task(request).await };
        self.detached(|meters| &meters.histograms.change_session_us, work)
            .await
    }

    async fn get_task(self, _: Context, request: TaskRef) -> Result<Task, Error> {
        let work = async {
            self.contents()
                .get_task(&self.access(&request.of).await?, &request)
                .await
        };
        self.measured(|meters| &meters.histograms.read_session_us, work)
            .await
    }

    async fn update_task(self, _: Context, request: UpdateTaskRequest) -> Result<Task, Error> {
        let peer = self.0.clone();
        let work = async move { peer.update_task(request).await };
        self.detached(|meters| &meters.histograms.change_session_us, work)
            .await
    }

    async fn wait_task(self, _: Context, request: WaitTaskRequest) -> Result<Task, Error> {
        let work = async {
            self.contents()
                .wait_task(&self.access(&request.of).await?, &request)
                .await
        };
        self.unmeasured(work).await
    }

    async fn list_tasks(self, _: Context, request: ListTasksRequest) -> Result<Vec<Task>, Error> {
        let work = async {
            self.contents()
                .list_tasks(&self.access(&request.of).await?, &request)
                .await
        };
        self.measured(|meters| &meters.histograms.read_session_us, work)
            .await
    }

    async fn lease_service(self, _: Context, request: ServeRequest) -> Result<Served, Error> {
        let peer = self.0.clone();
        let work = async move { peer.daemon.edge.lease_service(&peer.peer, request).await };
        self.detached(|meters| &meters.histograms.claim_us, work)
            .await
    }

    async fn release_service(self, _: Context, request: ServiceLease) -> Result<(), Error> {
        let peer = self.0.clone();
        let work = async move { peer.daemon.edge.release_service(&peer.peer, request).await };
        self.detached(|meters| &meters.histograms.claim_us, work)
            .await
    }

    async fn service_secret(
        self,
        _: Context,
        request: SecretRequest,
    ) -> Result<ServiceSecret, Error> {
        let peer = self.0.clone();
        let work = async move { peer.daemon.contents.service_secret(&request).await };
        self.detached(|meters| &meters.histograms.change_session_us, work)
            .await
    }

    async fn find_backend(
        self,
        _: Context,
        request: FindRequest,
    ) -> Result<Option<Backend>, Error> {
        self.measured(
            |meters| &meters.histograms.read_session_us,
            self.0.find_backend(request),
        )
        .await
    }

    async fn keep_backend(self, _: Context, request: KeepRequest) -> Result<Kept, Error> {
        let peer = self.0.clone();
        let work = async move { peer.keep_backend(request).await };
        self.detached(|meters| &meters.histograms.change_session_us, work)
            .await
    }

    async fn backend_started(self, _: Context, request: StartedRequest) -> Result<(), Error> {
        let peer = self.0.clone();
        let work = async move { peer.daemon.edge.backend_started(&peer.peer, request).await };
        self.detached(|meters| &meters.histograms.change_session_us, work)
            .await
    }

    async fn front_left(self, _: Context, request: LeftRequest) -> Result<(), Error> {
        let work = async { self.daemon().edge.front_left(&self.0.peer, &request) };
        self.measured(|meters| &meters.histograms.change_session_us, work)
            .await
    }

    async fn backend_ending(self, _: Context, request: EndingRequest) -> Result<(), Error> {
        let work = async { self.daemon().edge.backend_ending(&self.0.peer, &request) };
        self.measured(|meters| &meters.histograms.change_session_us, work)
            .await
    }

    async fn backend_counted(self, _: Context, request: CountedRequest) -> Result<(), Error> {
        let work = async { self.daemon().edge.backend_counted(&self.0.peer, &request) };
        self.measured(|meters| &meters.histograms.change_session_us, work)
            .await
    }

    async fn check_front(self, _: Context, request: FrontRequest) -> Result<ProcessRef, Error> {
        let work = async { self.daemon().edge.check_front(&self.0.peer, &request) };
        self.measured(|meters| &meters.histograms.read_session_us, work)
            .await
    }

    async fn list_backends(self, _: Context, request: Page) -> Vec<Backend> {
        self.daemon().edge.backends(request.after.as_ref())
    }

    async fn stop_backend(self, _: Context, request: StopRequest) -> Result<(), Error> {
        let peer = self.0.clone();
        let work = async move { peer.daemon.edge.stop_backend(&request).await };
        self.detached(|meters| &meters.histograms.change_session_us, work)
            .await
    }

    async fn about(self, _: Context) -> About {
        let Daemon {
            edge,
            contents,
            about,
            opener,
            ..
        } = self.daemon();
        let storage_failure = contents
            .storage()
            .check()
            .err()
            .map(|error| error.to_string());
        let (storage, ailments, hints) = (opener.shown(), edge.ailments(), edge.hints());
        About {
            uptime_ms: edge.now(),
            storage,
            storage_failure,
            ailments,
            hints,
            ..about.clone()
        }
    }

    async fn list_hosts(self, _: Context) -> Vec<HostInfo> {
        self.daemon().edge.hosts()
    }

    async fn list_sessions(self, _: Context, request: Page) -> Vec<SessionInfo> {
        self.daemon()
            .edge
            .sessions(request.after.as_ref(), PAGE_MAX)
    }

    async fn list_tokens(self, _: Context, request: Page) -> Vec<TokenInfo> {
        self.daemon()
            .edge
            .token_files(request.after.as_ref(), PAGE_MAX)
    }

    async fn list_contents(
        self,
        _: Context,
        request: ContentPage,
    ) -> Result<Vec<ContentInfo>, Error> {
        let after = request.after.map(|(owner, session)| Place {
            owner,
            name: session.to_string(),
        });
        let page = Box::pin(self.contents().inventory(after.as_ref(), PAGE_MAX)).await?;
        Ok(page.into_iter().map(|(_, info)| info).collect())
    }

    async fn inspect_session(
        self,
        _: Context,
        request: InspectRequest,
    ) -> Result<Vec<Inspected>, Error> {
        Box::pin(self.0.inspect(request)).await
    }

    async fn sweep(self, _: Context, request: SweepRequest) -> Result<Vec<Ended>, Error> {
        let peer = self.0.clone();
        let work = async move { peer.daemon.sweep(request).await };
        self.detached(|meters| &meters.histograms.change_session_us, work)
            .await
    }

    async fn stats(self, _: Context) -> Stats {
        Box::pin(self.daemon().stats()).await
    }

    async fn metrics(self, _: Context) -> String {
        Box::pin(self.daemon().metrics()).await
    }

    async fn settings(self, _: Context) -> Vec<Setting> {
        self.daemon().edge.settings().loaded.settings()
    }

    async fn who_am_i(self, _: Context, request: ClaimRequest) -> Result<WhoAmI, Error> {
        Box::pin(self.daemon().edge.who_am_i(&self.0.peer, request)).await
    }
}
