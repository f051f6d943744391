//! One session as somebody uses it: each call in a line.

use std::sync::Arc;

use mcp_sessiond_daemon::contents::{Access, Contents};
use mcp_sessiond_proto::sessions::{
    Caller, CreateRequest, CredentialHash, Lifetimes, MintRequest, Minted, RotateRequest, Session,
    SessionRef, Status, UpdateRequest,
};
use mcp_sessiond_proto::state::{
    ListStateRequest, ReadStateRequest, StateEntry, StateKeyInfo, StateWrite, WriteStateRequest,
};
use mcp_sessiond_proto::streams::{
    AppendRequest, Appended, Cursor, Event, EventId, FindEventRequest, FoundEvent, Gap,
    ListStreamsRequest, OpenStreamRequest, PruneRequest, ReplayRequest, Replayed, Stream,
    StreamRef, WaitRequest,
};
use mcp_sessiond_proto::tasks::{ListTasksRequest, TaskRef, WaitTaskRequest};
use mcp_sessiond_proto::{Error, Json, RequestId, TaskId};

use super::bench::{id, json, key, set, stream};

/// One session, used through one daemon.
#[derive(Clone)]
pub(super) struct Visit {
    pub(super) contents: Arc<Contents>,
    pub(super) access: Access,
}

impl Visit {
    /// The same through another daemon.
    pub(super) fn through(&self, contents: &Arc<Contents>) -> Self {
        Self {
            contents: contents.clone(),
            access: self.access.clone(),
        }
    }

    /// The same on somebody's behalf.
    pub(super) fn on_behalf_of(&self, caller: Option<Caller>) -> Self {
        Self {
            access: Access {
                caller,
                ..self.access.clone()
            },
            ..self.clone()
        }
    }

    /// Requests name the session too; that has been looked at by whoever made the access.
    pub(super) fn of(&self) -> SessionRef {
        SessionRef {
            session: id(&self.access.place.name),
            service: None,
            epoch: None,
            caller: None,
        }
    }

    pub(super) async fn create(&self) -> Result<Session, Error> {
        self.create_with(CreateRequest::default()).await
    }

    pub(super) async fn create_with(&self, request: CreateRequest) -> Result<Session, Error> {
        self.contents.create(&self.access, &request).await
    }

    pub(super) async fn get(&self) -> Result<Session, Error> {
        self.contents.get(&self.access).await
    }

    pub(super) async fn open(&self) -> Result<Session, Error> {
        self.contents.open(&self.access).await
    }

    pub(super) async fn set_status(&self, status: Status) -> Result<Session, Error> {
        self.update(Some(status), None, Lifetimes::default()).await
    }

    pub(super) async fn live(&self, lifetimes: Lifetimes) -> Result<Session, Error> {
        self.update(None, None, lifetimes).await
    }

    pub(super) async fn update(
        &self,
        status: Option<Status>,
        metadata: Option<Json>,
        lifetimes: Lifetimes,
    ) -> Result<Session, Error> {
        let request = UpdateRequest {
            of: self.of(),
            status,
            metadata,
            lifetimes,
        };
        self.contents.update_session(&self.access, &request).await
    }

    pub(super) async fn touch(&self) -> Result<(), Error> {
        self.contents.touch(&self.access).await
    }

    pub(super) async fn attach(&self) -> Result<(), Error> {
        self.contents.attach(&self.access).await
    }

    pub(super) async fn detach(&self) -> Result<(), Error> {
        self.contents.detach(&self.access).await
    }

    pub(super) async fn reset(&self) -> Result<Session, Error> {
        self.reset_by(None).await
    }

    pub(super) async fn reset_by(&self, request: Option<RequestId>) -> Result<Session, Error> {
        self.contents.reset(&self.access, request.as_ref()).await
    }

    pub(super) async fn terminate(&self) -> Result<(), Error> {
        self.contents.terminate(&self.access).await
    }

    pub(super) async fn rotate(&self, hash: [u8; 32], grace_ms: Option<u64>) -> Result<(), Error> {
        let request = RotateRequest {
            of: self.of(),
            hash: CredentialHash(hash),
            grace_ms,
        };
        self.contents
            .rotate_credential(&self.access, &request)
            .await
    }

    pub(super) async fn mint(&self, life_ms: Option<u64>) -> Result<Minted, Error> {
        self.contents
            .mint_handle(
                &self.access,
                &MintRequest {
                    of: self.of(),
                    life_ms,
                },
            )
            .await
    }

    pub(super) async fn write(&self, writes: &[StateWrite]) -> Result<Vec<StateEntry>, Error> {
        self.write_by(None, writes).await
    }

    pub(super) async fn write_by(
        &self,
        request: Option<RequestId>,
        writes: &[StateWrite],
    ) -> Result<Vec<StateEntry>, Error> {
        let request = WriteStateRequest {
            of: self.of(),
            writes: writes.to_vec(),
            request,
        };
        self.contents.write_state(&self.access, &request).await
    }

    /// Writes one value, and has its version.
    pub(super) async fn set(&self, name: &str, text: &str) -> Result<u64, Error> {
        self.write_one(set(name, text)).await
    }

    pub(super) async fn write_one(&self, write: StateWrite) -> Result<u64, Error> {
        self.write(&[write])
            .await
            .map(|entries| entries[0].version.0)
    }

    pub(super) async fn read(&self, names: &[&str]) -> Result<Vec<StateEntry>, Error> {
        let keys = names.iter().map(|name| key(name)).collect();
        self.contents
            .read_state(
                &self.access,
                &ReadStateRequest {
                    of: self.of(),
                    keys,
                },
            )
            .await
    }

    /// A version and a value that must be readable; 0 and nothing where there is none.
    pub(super) async fn value(&self, name: &str) -> (u64, Option<String>) {
        let entry = self.read(&[name]).await.expect("readable").remove(0);
        (
            entry.version.0,
            entry.value.map(|value| value.as_str().to_owned()),
        )
    }

    pub(super) async fn list_state(&self, after: Option<&str>) -> Result<Vec<StateKeyInfo>, Error> {
        let request = ListStateRequest {
            of: self.of(),
            after: after.map(key),
        };
        self.contents.list_state(&self.access, &request).await
    }

    pub(super) async fn open_stream(&self, name: &str) -> Result<Stream, Error> {
        let request = OpenStreamRequest {
            of: self.of(),
            stream: stream(name),
            opened_by: None,
            will: None,
        };
        self.contents
            .open_stream(&self.access, &request, None)
            .await
    }

    pub(super) async fn open_stream_by(
        &self,
        name: &str,
        opened_by: Json,
    ) -> Result<Stream, Error> {
        let request = OpenStreamRequest {
            of: self.of(),
            stream: stream(name),
            opened_by: Some(opened_by),
            will: None,
        };
        self.contents
            .open_stream(&self.access, &request, None)
            .await
    }

    /// Opens a stream with a will of this author's.
    pub(super) async fn open_stream_with(
        &self,
        name: &str,
        will: &str,
        author: &str,
    ) -> Result<Stream, Error> {
        let request = OpenStreamRequest {
            of: self.of(),
            stream: stream(name),
            opened_by: None,
            will: Some(json(will)),
        };
        self.contents
            .open_stream(&self.access, &request, Some(author))
            .await
    }

    pub(super) async fn close_stream(&self, name: &str) -> Result<Stream, Error> {
        let request = StreamRef {
            of: self.of(),
            stream: stream(name),
        };
        self.contents.close_stream(&self.access, &request).await
    }

    pub(super) async fn orphan_stream(&self, name: &str) -> Result<Stream, Error> {
        let request = StreamRef {
            of: self.of(),
            stream: stream(name),
        };
        self.contents.orphan_stream(&self.access, &request).await
    }

    pub(super) async fn unorphan_stream(&self, name: &str) -> Result<Stream, Error> {
        let request = StreamRef {
            of: self.of(),
            stream: stream(name),
        };
        self.contents.unorphan_stream(&self.access, &request).await
    }

    pub(super) async fn find_event(&self, event: &EventId) -> Result<FoundEvent, Error> {
        let request = FindEventRequest {
            of: self.of(),
            event: event.clone(),
        };
        self.contents.find_event(&self.access, &request).await
    }

    pub(super) fn task_ref(&self, task: &TaskId) -> TaskRef {
        TaskRef {
            of: self.of(),
            task: task.clone(),
        }
    }

    pub(super) fn tasks_after(&self, after: Option<TaskId>) -> ListTasksRequest {
        ListTasksRequest {
            of: self.of(),
            after,
        }
    }

    pub(super) fn wait_for_task(&self, task: &TaskId, version: u64) -> WaitTaskRequest {
        WaitTaskRequest {
            of: self.of(),
            task: task.clone(),
            version,
            timeout_ms: None,
        }
    }

    /// Prunes all streams, or one.
    pub(super) async fn prune(
        &self,
        name: Option<&str>,
        keep: Option<u64>,
        older_than_ms: Option<u64>,
    ) -> Result<u64, Error> {
        let request = PruneRequest {
            of: self.of(),
            stream: name.map(stream),
            keep,
            older_than_ms,
        };
        self.contents
            .prune_events(&self.access, &request)
            .await
            .map(|pruned| pruned.events)
    }

    pub(super) async fn list_streams(&self, after: Option<&str>) -> Result<Vec<Stream>, Error> {
        let request = ListStreamsRequest {
            of: self.of(),
            after: after.map(stream),
        };
        self.contents.list_streams(&self.access, &request).await
    }

    pub(super) async fn append_all(
        &self,
        name: &str,
        request: Option<RequestId>,
        messages: Vec<Option<Json>>,
    ) -> Result<Vec<Appended>, Error> {
        let request = AppendRequest {
            of: self.of(),
            stream: stream(name),
            request,
            messages,
            close: false,
        };
        self.contents.append(&self.access, &request).await
    }

    /// Appends messages, and closes the stream with them.
    pub(super) async fn append_and_close(
        &self,
        name: &str,
        request: Option<RequestId>,
        messages: &[&str],
    ) -> Result<Vec<Appended>, Error> {
        let messages = messages.iter().map(|message| Some(json(message))).collect();
        let request = AppendRequest {
            of: self.of(),
            stream: stream(name),
            request,
            messages,
            close: true,
        };
        self.contents.append(&self.access, &request).await
    }

    /// Appends messages without a request id.
    pub(super) async fn append(
        &self,
        name: &str,
        messages: &[&str],
    ) -> Result<Vec<Appended>, Error> {
        let messages = messages.iter().map(|message| Some(json(message))).collect();
        self.append_all(name, None, messages).await
    }

    /// Appends one message, and has its event's id.
    pub(super) async fn say(&self, name: &str, message: &str) -> EventId {
        self.append(name, &[message])
            .await
            .expect("appended")
            .remove(0)
            .id
    }

    pub(super) async fn replay(&self, after: Cursor, most: Option<u32>) -> Result<Replayed, Error> {
        self.contents
            .replay(
                &self.access,
                &ReplayRequest {
                    of: self.of(),
                    after,
                    most,
                },
            )
            .await
    }

    /// What is replayed from here, page by page.
    pub(super) async fn replay_all(
        &self,
        from: Cursor,
        most: Option<u32>,
    ) -> (Vec<Event>, Vec<Gap>) {
        let (mut cursor, mut events, mut gaps) = (from, Vec::new(), Vec::new());
        loop {
            let page = self.replay(cursor.clone(), most).await.expect("replayed");
            assert!(
                page.events.len() <= most.unwrap_or(1_000) as usize,
                "a page is as long as was asked"
            );
            events.extend(page.events);
            gaps.extend(page.gaps);
            let next = page.next.into_iter().next().expect("a cursor");
            if !page.more {
                return (events, gaps);
            }
            assert_ne!(
                next, cursor,
                "it says that there is more, and does not come to it"
            );
            cursor = next;
        }
    }

    pub(super) async fn wait(&self, after: &[Cursor], timeout_ms: u32) -> Result<Replayed, Error> {
        self.wait_for(after, timeout_ms, None).await
    }

    pub(super) async fn wait_for(
        &self,
        after: &[Cursor],
        timeout_ms: u32,
        most: Option<u32>,
    ) -> Result<Replayed, Error> {
        let request = WaitRequest {
            of: self.of(),
            after: after.to_vec(),
            most,
            timeout_ms: Some(timeout_ms),
        };
        self.contents.wait(&self.access, &request).await
    }
}
