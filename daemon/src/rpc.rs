//! The RPCs: which there are, what each changes, what is measured of it, and who carries it out.

mod calls;
mod classes;
mod connection;
mod daemon;
mod listener;

use std::sync::Arc;

use mcp_sessiond_proto::backends::{
    Backend, CountedRequest, EndingRequest, FrontLease, FrontRequest, KeepRequest, Kept,
    LeftRequest, StartedRequest, StopRequest,
};
use mcp_sessiond_proto::debug::{
    About, ContentInfo, ContentPage, Ended, HostInfo, InspectRequest, Inspected, Page, SessionInfo,
    SessionParts, Setting, Stats, SweepRequest, TokenInfo, WhoAmI,
};
use mcp_sessiond_proto::facts::{Facts, FactsRequest, LearnRequest};
use mcp_sessiond_proto::service::Sessiond;
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
use mcp_sessiond_proto::types::{LeaseRef, LossToldRequest, StoreRequest, Stored};
use mcp_sessiond_proto::{ClaimRequest, Claimed, Error, LossRecord};
use tarpc::context::Context;

use crate::awaited::Awaited;
use connection::Connection;

pub use daemon::Daemon;
pub use listener::serve;

/// The service as one peer sees it.
#[derive(Clone)]
struct Handlers(Arc<Connection>);

/// One call of the service: what its class makes of the function that carries it out.
macro_rules! rpc {
    ($method:ident ($request:ty) -> $answer:ty, change $histogram:ident, $by:ident) => {
        async fn $method(self, _: Context, request: $request) -> Result<$answer, Error> {
            let peer = self.0.clone();
            let work = async move { handle!(peer, $by, $method, request) };
            self.detached(|meters| &meters.histograms.$histogram, work)
                .await
        }
    };
    ($method:ident ($request:ty) -> $answer:ty, claim $histogram:ident, $by:ident) => {
        async fn $method(self, _: Context, request: $request) -> Result<$answer, Error> {
            let peer = self.0.clone();
            let (_waiting, awaited) = Awaited::new();
            let work = async move { peer.$method(request, &awaited).await };
            self.detached(|meters| &meters.histograms.$histogram, work)
                .await
        }
    };
    ($method:ident ($request:ty) -> $answer:ty, read $histogram:ident, $by:ident) => {
        async fn $method(self, _: Context, request: $request) -> Result<$answer, Error> {
            let peer = &self.0;
            let work = async { handle!(peer, $by, $method, request) };
            self.measured(|meters| &meters.histograms.$histogram, work)
                .await
        }
    };
    ($method:ident ($request:ty) -> $answer:ty, wait -, $by:ident) => {
        async fn $method(self, _: Context, request: $request) -> Result<$answer, Error> {
            let peer = &self.0;
            let work = async { handle!(peer, $by, $method, request) };
            self.counted(work).await
        }
    };
    ($method:ident ($request:ty) -> $answer:ty, query -, $by:ident) => {
        async fn $method(self, _: Context, request: $request) -> Result<$answer, Error> {
            let peer = &self.0;
            Box::pin(async { handle!(peer, $by, $method, request) }).await
        }
    };
    ($method:ident () -> $answer:ty, sync -, $by:ident) => {
        async fn $method(self, _: Context) -> $answer {
            let peer = &self.0;
            handle!(peer, $by, $method)
        }
    };
    ($method:ident () -> $answer:ty, show -, $by:ident) => {
        async fn $method(self, _: Context) -> $answer {
            let peer = &self.0;
            Box::pin(async { handle!(peer, $by, $method) }).await
        }
    };
    ($method:ident ($request:ty) -> $answer:ty, show -, $by:ident) => {
        async fn $method(self, _: Context, request: $request) -> $answer {
            let peer = &self.0;
            Box::pin(async { handle!(peer, $by, $method, request) }).await
        }
    };
}

/// The function that carries out a call.
macro_rules! handle {
    ($peer:ident, contents, $method:ident, $request:ident) => {{
        let access = $peer.access(&$request.of).await?;
        $peer.daemon.contents.$method(&access, &$request).await
    }};
    ($peer:ident, engine, $method:ident, $request:ident) => {
        $peer.daemon.engine.$method(&$peer.peer, $request).await
    };
    ($peer:ident, daemon, $method:ident $(, $request:ident)?) => {
        $peer.daemon.$method($($request)?).await
    };
    ($peer:ident, peer, $method:ident $(, $request:ident)?) => {
        $peer.$method($($request)?).await
    };
}

macro_rules! rpcs {
    ($($method:ident ($($request:ty)?) -> $answer:ty | $class:ident $histogram:tt | $by:ident;)*) => {
        impl Sessiond for Handlers {
            $(rpc! { $method ($($request)?) -> $answer, $class $histogram, $by })*
        }
    };
}

// A call is dropped when its caller cancels it, or its deadline passes. The class says what becomes
// of what has begun, and what is measured:
//
// - change: it goes on to its end. How long it took goes to the histogram, a refusal is counted.
// - claim: the same from the moment at which the registry hears of it. Before that it ends with its
//   caller, who may claim again and give up what that brings: no lease may come after it.
// - read: it ends with its caller. Measured and counted in the same way.
// - wait: it ends with its caller. A refusal is counted; how long it took is the caller's choice.
// - query: it ends with its caller, and is not counted, since people ask and not programs.
// - show: the same, and it can't be refused.
// - sync: the same, and it awaits nothing, so its future needs no allocation.
//
// And who carries it out, by a function of the method's name: the connection (peer), the contents
// of the session that the request names, the engine, or the daemon as a whole.
rpcs! {
    // method         request                 answer              class  histogram           by
    ping              ()                   -> ()                | sync   -                 | peer;
    claim             (ClaimRequest)       -> Claimed           | claim  claim_us          | peer;
    store_token       (StoreRequest)       -> Stored            | change store_token_us    | peer;
    reject_token      (LeaseRef)           -> ()                | change store_token_us    | peer;
    loss_told         (LossToldRequest)    -> ()                | change claim_us          | peer;
    release           (LeaseRef)           -> ()                | change claim_us          | peer;

    create_session    (CreateRequest)      -> Session           | claim  change_session_us | peer;
    open_session      (SessionRef)         -> Session           | claim  change_session_us | peer;
    get_session       (SessionRef)         -> Session           | read   read_session_us   | peer;
    list_own_sessions (OwnSessions)        -> Vec<Session>      | read   read_session_us   | peer;
    update_session    (UpdateRequest)      -> Session           | change change_session_us | peer;
    touch_session     (SessionRef)         -> ()                | change change_session_us | peer;
    attach_session    (SessionRef)         -> ()                | change change_session_us | peer;
    detach_session    (SessionRef)         -> ()                | change change_session_us | peer;
    reset_session     (ResetRequest)       -> Session           | change change_session_us | peer;
    terminate_session (SessionRef)         -> ()                | change change_session_us | peer;
    rotate_credential (RotateRequest)      -> ()                | change change_session_us | contents;
    mint_handle       (MintRequest)        -> Minted            | change change_session_us | contents;
    open_handle       (OpenHandleRequest)  -> Session           | read   read_session_us   | peer;

    read_state        (ReadStateRequest)   -> Vec<StateEntry>   | read   read_state_us     | contents;
    write_state       (WriteStateRequest)  -> Vec<StateEntry>   | change write_state_us    | peer;
    list_state        (ListStateRequest)   -> Vec<StateKeyInfo> | read   read_state_us     | contents;

    open_stream       (OpenStreamRequest)  -> Stream            | change change_session_us | peer;
    list_streams      (ListStreamsRequest) -> Vec<Stream>       | read   read_session_us   | contents;
    close_stream      (StreamRef)          -> Stream            | change change_session_us | peer;
    orphan_stream     (StreamRef)          -> Stream            | change change_session_us | contents;
    unorphan_stream   (StreamRef)          -> Stream            | change change_session_us | contents;
    find_event        (FindEventRequest)   -> FoundEvent        | read   read_session_us   | contents;
    prune_events      (PruneRequest)       -> Pruned            | change change_session_us | contents;
    append            (AppendRequest)      -> Vec<Appended>     | change append_us         | peer;
    replay            (ReplayRequest)      -> Replayed          | read   replay_us         | contents;
    wait              (WaitRequest)        -> Replayed          | wait   -                 | contents;

    create_task       (CreateTaskRequest)  -> Task              | change change_session_us | peer;
    get_task          (TaskRef)            -> Task              | read   read_session_us   | contents;
    update_task       (UpdateTaskRequest)  -> Task              | change change_session_us | peer;
    wait_task         (WaitTaskRequest)    -> Task              | wait   -                 | contents;
    list_tasks        (ListTasksRequest)   -> Vec<Task>         | read   read_session_us   | contents;

    lease_service     (ServeRequest)       -> Served            | change claim_us          | engine;
    release_service   (ServiceLease)       -> ()                | change claim_us          | engine;
    service_secret    (SecretRequest)      -> ServiceSecret     | change change_session_us | peer;
    note_loss         (NoteLossRequest)    -> LossRecord        | change change_session_us | engine;
    find_backend      (FindRequest)        -> Option<Backend>   | read   read_session_us   | peer;
    keep_backend      (KeepRequest)        -> Kept              | change change_session_us | peer;
    backend_started   (StartedRequest)     -> ()                | change change_session_us | engine;
    check_front       (FrontRequest)       -> FrontLease        | read   read_session_us   | peer;
    front_left        (LeftRequest)        -> ()                | change change_session_us | peer;
    backend_ending    (EndingRequest)      -> ()                | change change_session_us | peer;
    backend_counted   (CountedRequest)     -> ()                | change change_session_us | peer;
    list_backends     (Page)               -> Vec<Backend>      | show   -                 | daemon;
    stop_backend      (StopRequest)        -> ()                | change change_session_us | peer;
    find_facts        (FactsRequest)       -> Facts             | show   -                 | daemon;
    learn_fact        (LearnRequest)       -> ()                | show   -                 | daemon;

    about             ()                   -> About             | show   -                 | daemon;
    list_hosts        ()                   -> Vec<HostInfo>     | show   -                 | daemon;
    list_service_losses (ServiceLossesRequest) -> Vec<ServiceLoss> | show -                 | daemon;
    list_sessions     (Page)               -> Vec<SessionInfo>  | show   -                 | daemon;
    list_tokens       (Page)               -> Vec<TokenInfo>    | show   -                 | daemon;
    list_contents     (ContentPage)        -> Vec<ContentInfo>  | query  -                 | daemon;
    list_parts        (ContentPage)        -> Vec<SessionParts> | show   -                 | daemon;
    inspect_session   (InspectRequest)     -> Vec<Inspected>    | query  -                 | peer;
    sweep             (SweepRequest)       -> Vec<Ended>        | change change_session_us | daemon;
    stats             ()                   -> Stats             | show   -                 | daemon;
    metrics           ()                   -> String            | show   -                 | daemon;
    settings          ()                   -> Vec<Setting>      | show   -                 | daemon;
    who_am_i          (ClaimRequest)       -> WhoAmI            | query  -                 | engine;
}
