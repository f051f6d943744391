//! The life of a session, from its creation to its tombstone.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};

use mcp_sessiond_proto::debug::PAGE_MAX;
use mcp_sessiond_proto::sessions::{
    CreateRequest, Lifetimes, METADATA_MAX, RotateRequest, STATUS_MAX, Session, Status,
    UpdateRequest,
};
use mcp_sessiond_proto::{Error, Json, Lock as _, RequestId, ServiceName, SessionId};

use super::binding::{Bound, ROTATED_GRACE_MS};
use super::bounds::Bounds;
use super::head::{self, Head};
use super::transaction::{Draft, Finished, Halt, Read};
use super::{Access, Admit, CONFLICTS_MAX, Contents, draw_version, handles, keys};
use crate::counters::count;
use crate::storage::{
    Change, Head as StoredHead, ITEM_COST, Item, Listed, RECORD_COST, RecordId, SLOT_COST,
    SLOTS_MIN, StorageError,
};

impl Contents {
    /// Makes a session.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`], unless the same request has made it; [`Error::SessionTerminated`]
    /// where there was one; [`Error::QuotaExceeded`].
    pub async fn create(&self, access: &Access, request: &CreateRequest) -> Result<Session, Error> {
        self.create_claimed(access, request, false).await
    }

    /// Makes a session that a claim has made; `is_new`: this very call's claim.
    ///
    /// # Errors
    /// As [`Contents::create`].
    pub async fn create_claimed(
        &self,
        access: &Access,
        request: &CreateRequest,
        is_new: bool,
    ) -> Result<Session, Error> {
        check_status(&request.status)?;
        check_metadata(request.metadata.as_ref())?;
        let bound = request.binding.as_ref().map(Bound::new).transpose()?;
        self.accepts()?;
        let place = &access.place;
        let _lock = self.locks.of(place).lock_owned().await;
        access.may_write()?;
        let bounds = self.bounds();
        if is_new {
            // A former session of this id that others have deleted has nothing to do with it.
            self.known.forget(place);
        }
        for _ in 0..CONFLICTS_MAX {
            let mut read = Read::default();
            let reading = self.read(place, &mut read, &[keys::metadata_key()]).await;
            reading.map_err(|error| self.failed(&error))?;
            let now_ms = self.clock.now_ms();
            if read.head.is_some() {
                let draft = Draft::new(&read, Head::default(), now_ms, &bounds);
                let draft = draft.map_err(|error| self.failed(&error))?;
                // Of a host's sessions the registry says which there are: what is left of one that
                // was of that id before goes, but for a tombstone.
                let is_left = is_new && access.claimed && !draft.head.is_terminated();
                let in_use = self.in_use(access, &draft.head, now_ms);
                if !is_left && draft.head.ended(now_ms, &bounds, in_use).is_none() {
                    self.settled(place).await?;
                    let same =
                        draft.head.request.is_some() && draft.head.request == request.request;
                    return match same {
                        _ if draft.head.is_terminated() => Err(Error::SessionTerminated),
                        true => {
                            self.admits(access, Admit::Living, &draft)?;
                            self.view(access, &draft).map_err(|_| Error::UnknownSession)
                        }
                        false => Err(Error::AlreadyExists),
                    };
                }
            } else {
                self.room_for_one_more(place, &bounds).await?;
            }
            let mut head = Head::claimed(now_ms);
            head.hosted = access.claimed;
            (head.status, head.bound, head.request) = (
                request.status.clone(),
                bound.clone(),
                request.request.clone(),
            );
            set_lifetimes(&mut head, &defaults(access, &bounds));
            set_lifetimes(&mut head, &request.lifetimes);
            let metadata = request.metadata.as_ref().map(|metadata| Item {
                key: keys::metadata_key(),
                tag: String::new(),
                value: metadata.as_str().to_owned().into(),
            });
            let change = Change {
                head: Some(StoredHead {
                    bytes: head::encode(&head),
                    due_ms: head.due_ms(&bounds),
                }),
                clear: true,
                puts: metadata.into_iter().collect(),
                ..Change::default()
            };
            let item = |item: &Item| item.value.len() + ITEM_COST + SLOTS_MIN * SLOT_COST;
            let added = change.puts.iter().map(item).sum::<usize>() + RECORD_COST;
            self.afford(place, added, &bounds)?;
            match self
                .store
                .commit(place, read.version, draw_version(), change)
                .await
            {
                Ok(durable) => {
                    durable.kept().await.map_err(|error| self.failed(&error))?;
                    count(&self.meters.counters.sessions_created_total);
                    return Ok(self.session(place, &head, request.metadata.clone(), &bounds));
                }
                Err(StorageError::Conflict) => {}
                Err(error) => return Err(self.failed(&error)),
            }
        }
        Err(self.failed(&StorageError::Conflict))
    }

    pub(super) async fn room_for_one_more(
        &self,
        place: &RecordId,
        bounds: &Bounds,
    ) -> Result<(), Error> {
        let most = bounds.limits.sessions_per_service;
        let count = self
            .store
            .count(&place.owner, most)
            .await
            .map_err(|error| self.failed(&error))?;
        if count < most {
            return Ok(());
        }
        Err(Error::QuotaExceeded {
            what: "the number of sessions of this owner".into(),
            limit: most as u64,
        })
    }

    /// A session as it is; one that was terminated, too.
    ///
    /// # Errors
    /// [`Error::UnknownSession`], [`Error::BindingMismatch`], [`Error::Unavailable`].
    pub async fn get(&self, access: &Access) -> Result<Session, Error> {
        self.look(access, Admit::Any, |draft| self.view(access, draft))
            .await
    }

    /// Takes a session up by its id: one that lives.
    ///
    /// # Errors
    /// As [`Contents::get`], and [`Error::SessionTerminated`].
    pub async fn open(&self, access: &Access) -> Result<Session, Error> {
        self.look(access, Admit::Living, |draft| self.view(access, draft))
            .await
    }

    /// A session as a list has it: whoever is asking, and without a note that it was used. None:
    /// there is none, or it has ended.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn listed(&self, access: &Access) -> Result<Option<Session>, Error> {
        let seen = self.look_quietly(access, Admit::Unchecked, &[], |draft| {
            let in_use = self.in_use(access, &draft.head, draft.now_ms);
            let ended = draft
                .head
                .ended(draft.now_ms, draft.bounds, in_use)
                .is_some();
            Ok((!ended).then(|| self.session(&access.place, &draft.head, None, draft.bounds)))
        });
        match seen.await {
            Err(Error::UnknownSession) => Ok(None),
            seen => seen.map(|(session, _)| session),
        }
    }

    /// Whether the session exists and has not ended. Checks no caller.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn lives(&self, access: &Access) -> Result<bool, Error> {
        let listed = self.listed(access).await?;
        Ok(listed.is_some_and(|session| session.status != Status::Terminated))
    }

    /// An owner's sessions that the storage knows of and that are `shown`, in order of their ids, a
    /// page at a time. Without metadata.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn list(
        &self,
        owner: &str,
        after: Option<&SessionId>,
        shown: impl Fn(&SessionId) -> bool,
    ) -> Result<Vec<Session>, Error> {
        let mut after = after
            .map_or(handles::AFTER_ALL, SessionId::as_str)
            .to_owned();
        let bounds = self.bounds();
        let mut sessions = Vec::new();
        // Of what is listed some have ended: a page that is not full is the last.
        while sessions.len() < PAGE_MAX {
            let listed = self.store.list(owner, &after, PAGE_MAX).await;
            let listed = listed.map_err(|error| self.failed(&error))?;
            let Some(last) = listed.last() else { break };
            after = last.place.name.clone();
            let now_ms = self.clock.now_ms();
            for Listed { place, head, .. } in listed {
                self.settled(&place).await?;
                let head: Head = head::decode(&head).map_err(|error| self.failed(&error))?;
                let in_use =
                    self.presence.is_in_use(&place) || self.is_attached_elsewhere(&head, now_ms);
                let session = self.session(&place, &head, None, &bounds);
                if head.ended(now_ms, &bounds, in_use).is_none() && shown(&session.session) {
                    sessions.push(session);
                }
            }
        }
        sessions.truncate(PAGE_MAX);
        Ok(sessions)
    }

    /// Changes status, metadata or lifetimes.
    ///
    /// # Errors
    /// Those of a session that is not there, not the caller's, or terminated.
    pub async fn update_session(
        &self,
        access: &Access,
        request: &UpdateRequest,
    ) -> Result<Session, Error> {
        request.status.as_ref().map_or(Ok(()), check_status)?;
        check_metadata(request.metadata.as_ref())?;
        // A status says how a server is. Nobody would miss that: it is no use of the session.
        let keeps = request.metadata.is_some() || request.lifetimes != Lifetimes::default();
        let access = &Access {
            keeps,
            ..access.clone()
        };
        self.change(access, Admit::Living, |draft| {
            if let Some(status) = &request.status {
                draft.head.status = status.clone();
            }
            set_lifetimes(&mut draft.head, &request.lifetimes);
            if let Some(metadata) = &request.metadata {
                draft.put(
                    keys::metadata_key(),
                    "",
                    metadata.as_str().to_owned().into(),
                );
            }
            draft.touch();
            // As it will be on record.
            draft.head.active_ms = draft.head.active_ms.max(draft.now_ms);
            let mut view = self.view(access, draft)?;
            if let Some(metadata) = &request.metadata {
                view.metadata = Some(metadata.clone());
            }
            Ok(view)
        })
        .await
    }

    /// Says that the session is in use.
    ///
    /// # Errors
    /// Those of a session that is not there, not the caller's, or terminated.
    pub async fn touch(&self, access: &Access) -> Result<(), Error> {
        self.look(access, Admit::Living, |_| Ok(())).await
    }

    /// Puts on record that the session is in use.
    pub(super) async fn note_active(&self, access: &Access) {
        let reader = Access {
            writer: super::Writer::Anyone,
            ..access.clone()
        };
        let noted = self.change(&reader, Admit::Any, |draft| {
            if !draft.head.is_terminated() {
                draft.touch();
            }
            Ok(())
        });
        // What was asked for has been done; that it will be put on record later is good enough.
        if let Err(error) = noted.await {
            tracing::debug!(%error, "could not note that a session is in use");
        }
    }

    /// Empties a session, unless this request has done so before.
    ///
    /// # Errors
    /// Those of a session that is not there, not the caller's, or terminated.
    pub async fn reset(
        &self,
        access: &Access,
        request: Option<&RequestId>,
    ) -> Result<Session, Error> {
        let session = self
            .change_of(access, Admit::Living, &[keys::done_key()], |draft| {
                if draft.done(request)?.is_some() {
                    return self.view(access, draft);
                }
                draft.head.empty();
                draft.head.status = Status::Initializing;
                draft.head.active_ms = draft.head.active_ms.max(draft.now_ms);
                draft.clear();
                draft.keep_done(request, draft.head.state_version)?;
                let bounds = draft.bounds;
                Ok(self.session(&access.place, &draft.head, None, bounds))
            })
            .await?;
        self.tell_news(&access.place);
        Ok(session)
    }

    /// Ends a session, once and for all.
    ///
    /// # Errors
    /// Those of a session that is not there or not the caller's.
    pub async fn terminate(&self, access: &Access) -> Result<(), Error> {
        self.change(access, Admit::Any, |draft| {
            terminate(draft);
            Ok(())
        })
        .await?;
        count(&self.meters.counters.sessions_terminated_total);
        self.tell_end(&access.place);
        Ok(())
    }

    /// Somebody else than whom the session is bound to has asked for it, and the binding says that
    /// this ends it.
    pub(super) async fn terminate_for_mismatch(
        &self,
        place: &RecordId,
        read: &Read,
    ) -> Result<(), StorageError> {
        let bounds = self.bounds();
        let mut draft = Draft::new(read, Head::default(), self.clock.now_ms(), &bounds)?;
        terminate(&mut draft);
        if let Some(Finished { change, .. }) = draft.finish() {
            self.store
                .commit(place, read.version, draw_version(), change)
                .await?
                .kept()
                .await?;
            tracing::warn!(session = %place.name, "terminated a session that somebody else asked for");
            count(&self.meters.counters.sessions_terminated_total);
            self.tell_end(place);
        }
        Ok(())
    }

    /// Puts a new credential in place of the one that the session is bound to.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where it is bound to none.
    pub async fn rotate_credential(
        &self,
        access: &Access,
        request: &RotateRequest,
    ) -> Result<(), Error> {
        self.change(access, Admit::Living, |draft| {
            let now_ms = draft.now_ms;
            let bound = draft
                .head
                .bound
                .as_mut()
                .ok_or_else(|| Error::InvalidArgument {
                    sentence:
                        "the session is bound to nobody; `binding` of `create_session` does that"
                            .into(),
                })?;
            let grace_ms = request.grace_ms.unwrap_or(ROTATED_GRACE_MS);
            bound.rotate(access.caller.as_ref(), request.hash, grace_ms, now_ms)?;
            draft.touch();
            Ok(())
        })
        .await
    }

    /// A session as its owner sees it.
    pub(super) fn view(&self, access: &Access, draft: &Draft<'_>) -> Result<Session, Halt> {
        let metadata = draft.item(&keys::metadata_key())?;
        let metadata = metadata.map(|item| String::from_utf8_lossy(&item.value).into_owned());
        Ok(self.session(
            &access.place,
            &draft.head,
            metadata.map(Json::trusted),
            draft.bounds,
        ))
    }

    pub(super) fn session(
        &self,
        place: &RecordId,
        head: &Head,
        metadata: Option<Json>,
        bounds: &Bounds,
    ) -> Session {
        let expires_ms = match head.end(bounds).0 {
            u64::MAX => None,
            at => Some(at),
        };
        Session {
            session: place.name.parse().unwrap_or_else(|_| SessionId::mint()),
            service: place
                .owner
                .strip_prefix("service ")
                .and_then(|name| name.parse::<ServiceName>().ok()),
            program: None,
            label: None,
            epoch: None,
            status: head.status.clone(),
            metadata,
            bound: head.bound.is_some(),
            created_ms: head.created_ms,
            active_ms: head.active_ms,
            expires_ms,
            attached: self.presence.attached(place),
            last_number: head.last_number,
            state_keys: head.state_keys,
            state_bytes: head.state_bytes,
            streams: head.streams,
            events: head.events,
            event_bytes: head.event_bytes,
        }
    }
}

pub(super) fn terminate(draft: &mut Draft<'_>) {
    if draft.head.is_terminated() {
        return;
    }
    draft.head.empty();
    draft.head.status = Status::Terminated;
    draft.head.terminated_ms = draft.now_ms;
    draft.clear();
}

/// A host's session lives as long as its host; a service's as configured.
fn defaults(access: &Access, bounds: &Bounds) -> Lifetimes {
    if access.claimed {
        return Lifetimes::default();
    }
    Lifetimes {
        idle_ms: Some(bounds.sessions.idle_ms),
        absolute_ms: Some(bounds.sessions.absolute_ms),
        grace_ms: Some(bounds.sessions.grace_ms),
    }
}

fn set_lifetimes(head: &mut Head, lifetimes: &Lifetimes) {
    let Lifetimes {
        idle_ms,
        absolute_ms,
        grace_ms,
    } = *lifetimes;
    head.idle_ms = idle_ms.unwrap_or(head.idle_ms);
    head.absolute_ms = absolute_ms.unwrap_or(head.absolute_ms);
    head.grace_ms = grace_ms.unwrap_or(head.grace_ms);
}

fn check_status(status: &Status) -> Result<(), Error> {
    let sentence = if *status == Status::Terminated {
        "`terminated` can't be set; `terminate_session` ends a session".into()
    } else if serde_json::to_vec(status).map_or(usize::MAX, |text| text.len()) > STATUS_MAX {
        format!("a status has at most {STATUS_MAX} bytes")
    } else {
        return Ok(());
    };
    Err(Error::InvalidArgument { sentence })
}

fn check_metadata(metadata: Option<&Json>) -> Result<(), Error> {
    match metadata {
        Some(metadata) if metadata.len() > METADATA_MAX => Err(Error::InvalidArgument {
            sentence: format!(
                "`metadata` has at most {METADATA_MAX} bytes, and this has {}",
                metadata.len()
            ),
        }),
        _ => Ok(()),
    }
}

/// The sessions that existed at the last look.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<HashSet<RecordId>>);

impl Known {
    fn lock(&self) -> MutexGuard<'_, HashSet<RecordId>> {
        self.0.locked()
    }

    /// Notes that the session exists.
    pub(super) fn note(&self, place: &RecordId) {
        let mut known = self.lock();
        if !known.contains(place) {
            known.insert(place.clone());
        }
    }

    /// Whether this daemon has seen the session.
    pub(super) fn has(&self, place: &RecordId) -> bool {
        self.lock().contains(place)
    }

    /// Forgets a session that has ended.
    pub(super) fn forget(&self, place: &RecordId) {
        self.lock().remove(place);
    }

    /// Forgets all sessions of an owner that has ended.
    pub(super) fn forget_owner(&self, owner: &str) {
        self.lock().retain(|place| place.owner != owner);
    }
}
