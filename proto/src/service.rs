//! The RPCs. In JSON-RPC the method has the name that it has here, and `params` is its one
//! argument.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::backends::{
    Backend, CountedRequest, EndingRequest, FrontLease, FrontRequest, KeepRequest, Kept,
    LeftRequest, StartedRequest, StopRequest,
};
use crate::client::{CallError, Client, reply};
use crate::debug::{
    About, ContentInfo, ContentPage, Ended, HostInfo, InspectRequest, Inspected, Page, SessionInfo,
    SessionParts, Setting, Stats, SweepRequest, TokenInfo, WhoAmI,
};
use crate::error::Error;
use crate::facts::{Facts, FactsRequest, LearnRequest};
use crate::losses::LossRecord;
use crate::services::{
    FindRequest, NoteLossRequest, SecretRequest, ServeRequest, Served, ServiceLease, ServiceLoss,
    ServiceLossesRequest, ServiceSecret,
};
use crate::sessions::{
    CreateRequest, MintRequest, Minted, OpenHandleRequest, OwnSessions, ResetRequest,
    RotateRequest, Session, SessionRef, UpdateRequest,
};
use crate::state::{
    ListStateRequest, ReadStateRequest, StateEntry, StateKeyInfo, WriteStateRequest,
};
use crate::streams::{
    AppendRequest, Appended, FindEventRequest, FoundEvent, ListStreamsRequest, OpenStreamRequest,
    PruneRequest, Pruned, ReplayRequest, Replayed, Stream, StreamRef, WaitRequest,
};
use crate::tasks::{
    CreateTaskRequest, ListTasksRequest, Task, TaskRef, UpdateTaskRequest, WaitTaskRequest,
};
use crate::types::{ClaimRequest, Claimed, LeaseRef, LossToldRequest, StoreRequest, Stored};

/// The type of an answer; `()` for a call that has none.
macro_rules! answer {
    () => {
        ()
    };
    ($answer:ty) => {
        $answer
    };
}

/// The arguments of a call, as they travel.
macro_rules! arguments {
    () => {
        Nothing {}
    };
    ($request:ident) => {
        Only { request: $request }
    };
}

#[derive(Serialize)]
struct Nothing {}

#[derive(Serialize)]
pub(crate) struct Only<T> {
    pub(crate) request: T,
}

/// The trait that the daemon implements, and the calls of its client.
macro_rules! service {
    ($($(#[$doc:meta])* async fn $name:ident($($request:ident: $type:ty)?) $(-> $answer:ty)?;)*) => {
        /// What the daemon does for a process.
        #[cfg(feature = "server")]
        #[tarpc::service(derive = [Clone, serde::Serialize, serde::Deserialize])]
        pub trait Sessiond {
            $($(#[$doc])* async fn $name($($request: $type)?) $(-> $answer)?;)*
        }

        /// The names of the methods, as JSON-RPC has them.
        pub const METHODS: [&str; [$(stringify!($name)),*].len()] = [$(stringify!($name)),*];

        /// The calls. Each may take as long as it says.
        impl Client {
            $(
                $(#[$doc])*
                pub async fn $name(
                    &self,
                    within: Duration,
                    $($request: $type)?
                ) -> Result<answer!($($answer)?), CallError> {
                    // What is async is compiled in each crate that awaits it; these two here alone.
                    fn encode(
                        client: &Client,
                        within: Duration,
                        $($request: $type)?
                    ) -> Result<(u64, Bytes), CallError> {
                        client.encode(within, stringify!($name), arguments!($($request)?))
                    }
                    fn decode(frame: &[u8]) -> Result<answer!($($answer)?), CallError> {
                        reply(frame)
                    }
                    let (id, frame) = encode(self, within, $($request)?)?;
                    decode(&self.exchange(id, within, frame).await?)
                }
            )*
        }
    };
}

service! {
    /// Does nothing, and shows that the daemon answers.
    async fn ping();
    /// Takes a session for the calling process, or for the ancestor that it names. Repeated by the
    /// same process it returns the same lease, and the token as it is now.
    async fn claim(request: ClaimRequest) -> Result<Claimed, Error>;
    /// Puts a new token in place of the former one. Once answered, it survives the daemon.
    async fn store_token(request: StoreRequest) -> Result<Stored, Error>;
    /// Deletes the token: the broker refused it. The session stays.
    async fn reject_token(request: LeaseRef) -> Result<(), Error>;
    /// The user of a claim with `confirms_loss` was told of losses that it carried; or the client of a
    /// service's session of what that has lost.
    async fn loss_told(request: LossToldRequest) -> Result<(), Error>;
    /// Puts on record what the holder of a service's lease has found to be lost. It takes the place of
    /// what was lost of the same server before.
    async fn note_loss(request: NoteLossRequest) -> Result<LossRecord, Error>;
    /// Ends the lease. The session stays, for the next instance with the same key.
    async fn release(request: LeaseRef) -> Result<(), Error>;

    /// Makes a session. A host's is leased to the calling process.
    async fn create_session(request: CreateRequest) -> Result<Session, Error>;
    /// Takes a session up by its id. A host's is leased to the calling process, unless another live
    /// one holds it.
    async fn open_session(request: SessionRef) -> Result<Session, Error>;
    /// A session as it is.
    async fn get_session(request: SessionRef) -> Result<Session, Error>;
    /// The caller's own sessions in order of their ids, a page at a time.
    async fn list_own_sessions(request: OwnSessions) -> Result<Vec<Session>, Error>;
    /// Changes status, metadata or lifetimes.
    async fn update_session(request: UpdateRequest) -> Result<Session, Error>;
    /// Marks the session as in use.
    async fn touch_session(request: SessionRef) -> Result<(), Error>;
    /// A client has attached: the grace period stops. The client counts until it is detached or
    /// this connection ends.
    async fn attach_session(request: SessionRef) -> Result<(), Error>;
    /// A client has detached. If it was the last, the grace period starts.
    async fn detach_session(request: SessionRef) -> Result<(), Error>;
    /// Empties a session: state, streams and events go; id, owner, lease, token, binding and
    /// counters stay.
    async fn reset_session(request: ResetRequest) -> Result<Session, Error>;
    /// Ends a session. What is left says so, until it expires.
    async fn terminate_session(request: SessionRef) -> Result<(), Error>;
    /// Binds a session to a new credential; the former one stays good for a while.
    async fn rotate_credential(request: RotateRequest) -> Result<(), Error>;
    /// Makes a handle, by which the session can be found again.
    async fn mint_handle(request: MintRequest) -> Result<Minted, Error>;
    /// The session of a handle.
    async fn open_handle(request: OpenHandleRequest) -> Result<Session, Error>;

    /// Reads state values, in the order of the keys.
    async fn read_state(request: ReadStateRequest) -> Result<Vec<StateEntry>, Error>;
    /// Writes and removes state values, all or none.
    async fn write_state(request: WriteStateRequest) -> Result<Vec<StateEntry>, Error>;
    /// The keys that have values, in their order, a page at a time.
    async fn list_state(request: ListStateRequest) -> Result<Vec<StateKeyInfo>, Error>;

    /// Opens a stream.
    async fn open_stream(request: OpenStreamRequest) -> Result<Stream, Error>;
    /// The streams in order of their ids, a page at a time.
    async fn list_streams(request: ListStreamsRequest) -> Result<Vec<Stream>, Error>;
    /// Closes a stream: nothing is appended any more. What it has said can be replayed.
    async fn close_stream(request: StreamRef) -> Result<Stream, Error>;
    /// The stream's reader is gone: all messages but answers go to the standalone stream from now
    /// on.
    async fn orphan_stream(request: StreamRef) -> Result<Stream, Error>;
    /// The stream's reader is back: everything goes to it again.
    async fn unorphan_stream(request: StreamRef) -> Result<Stream, Error>;
    /// The stream of an event id, and whether that stream is complete.
    async fn find_event(request: FindEventRequest) -> Result<FoundEvent, Error>;
    /// Prunes events by hand, the oldest first.
    async fn prune_events(request: PruneRequest) -> Result<Pruned, Error>;
    /// Appends messages to a stream. Once answered, they are kept.
    async fn append(request: AppendRequest) -> Result<Vec<Appended>, Error>;
    /// The events after a cursor, a page at a time.
    async fn replay(request: ReplayRequest) -> Result<Replayed, Error>;
    /// Waits for the next events of several streams; none when the time is over.
    async fn wait(request: WaitRequest) -> Result<Replayed, Error>;

    /// Creates a task. Once answered, it survives the daemon.
    async fn create_task(request: CreateTaskRequest) -> Result<Task, Error>;
    /// A task as it is.
    async fn get_task(request: TaskRef) -> Result<Task, Error>;
    /// Changes or ends a task.
    async fn update_task(request: UpdateTaskRequest) -> Result<Task, Error>;
    /// Waits for the next change of a task. The task as it is when the time is over.
    async fn wait_task(request: WaitTaskRequest) -> Result<Task, Error>;
    /// The tasks in order of their ids, a page at a time.
    async fn list_tasks(request: ListTasksRequest) -> Result<Vec<Task>, Error>;

    /// Leases a service's name to the calling process, until it exits or releases the lease.
    /// Repeated by the same process it returns the same lease. While another process holds it:
    /// `service_taken`.
    async fn lease_service(request: ServeRequest) -> Result<Served, Error>;
    /// Releases the lease on a service. Its sessions and their backends stay.
    async fn release_service(request: ServiceLease) -> Result<(), Error>;
    /// The secret of a service, which is made by the first call. It may be rotated.
    async fn service_secret(request: SecretRequest) -> Result<ServiceSecret, Error>;
    /// The keeper that holds the session's backend. None: there is none. While one is being ended:
    /// `unavailable`.
    async fn find_backend(request: FindRequest) -> Result<Option<Backend>, Error>;
    /// Registers a keeper for a session; a former keeper has to end. Sent by the keeper, a
    /// descendant of the holder of the lease on the session or its service.
    async fn keep_backend(request: KeepRequest) -> Result<Kept, Error>;
    /// A registered keeper has started its backend.
    async fn backend_started(request: StartedRequest) -> Result<(), Error>;
    /// The process that holds the session under this epoch, which is the newest: the one that a
    /// keeper lets attach.
    async fn check_front(request: FrontRequest) -> Result<FrontLease, Error>;
    /// A registered keeper tells how its front has left.
    async fn front_left(request: LeftRequest) -> Result<(), Error>;
    /// A registered keeper tells why it is about to end.
    async fn backend_ending(request: EndingRequest) -> Result<(), Error>;
    /// A registered keeper tells its totals.
    async fn backend_counted(request: CountedRequest) -> Result<(), Error>;
    /// The backends of all hosts, in order of their sessions' ids, a page at a time.
    async fn list_backends(request: Page) -> Vec<Backend>;
    /// Ends a session's backend. The session stays.
    async fn stop_backend(request: StopRequest) -> Result<(), Error>;
    /// What is known of a server. Sent by a front, before it claims.
    async fn find_facts(request: FactsRequest) -> Facts;
    /// Something was seen of a server. Sent by a front or a keeper.
    async fn learn_fact(request: LearnRequest);

    /// The daemon about itself.
    async fn about() -> About;
    /// The hosts that own sessions.
    async fn list_hosts() -> Vec<HostInfo>;
    /// What sessions of services have lost, and their clients were not told of; the newest last.
    async fn list_service_losses(request: ServiceLossesRequest) -> Vec<ServiceLoss>;
    /// The sessions, in order of their ids, a page at a time.
    async fn list_sessions(request: Page) -> Vec<SessionInfo>;
    /// The token files, in order of their sessions' ids, a page at a time.
    async fn list_tokens(request: Page) -> Vec<TokenInfo>;
    /// What the storage holds of every owner's sessions, in order of owner and id, a page at a
    /// time.
    async fn list_contents(request: ContentPage) -> Result<Vec<ContentInfo>, Error>;
    /// The sessions that have parts that can't be used, in order of owner and id, a page at a time.
    async fn list_parts(request: ContentPage) -> Vec<SessionParts>;
    /// The sessions of an id, of all owners.
    async fn inspect_session(request: InspectRequest) -> Result<Vec<Inspected>, Error>;
    /// Ends the sessions that the next sweep would end, or those that a service has not used for
    /// some time. Returns them.
    async fn sweep(request: SweepRequest) -> Result<Vec<Ended>, Error>;
    /// Counters and latencies.
    async fn stats() -> Stats;
    /// The same in the text format of Prometheus, version 0.0.4.
    async fn metrics() -> String;
    /// The settings in force.
    async fn settings() -> Vec<Setting>;
    /// What a claim would see, without claiming.
    async fn who_am_i(request: ClaimRequest) -> Result<WhoAmI, Error>;
}
