//! Heartbeats: each daemon of a fleet has a record of its own, and changes it now and then.
//!
//! A heartbeat has no time in it, only a version that the daemon changes. Another daemon sees for
//! how long that version has stayed the same. So no two clocks are compared, a storage without a
//! clock (DynamoDB) will do, and a fleet that was paused as a whole is not taken for dead when it
//! goes on.

use mcp_sessiond_proto::Error;

use super::transaction::Halt;
use super::{Access, Admit, Contents, draw_version};
use crate::storage::{Change, Head as StoredHead, RecordId, StorageError, Version};

/// Whose records the heartbeats are. Sessions belong to a `host …` or a `service …`.
const OWNER: &str = "daemon";

/// The head of a heartbeat. There is nothing to say in it.
const HEAD: &[u8] = b"sign";

/// Signs that are asked for at once.
const BATCH: usize = 100;

/// The heartbeat of a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// Whose it is: the name by which a daemon is known in wills and owners.
    pub home: String,
    /// Changes each time the heartbeat is renewed.
    pub version: Version,
}

/// Which machine has a session's server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keeping {
    /// This one.
    Here,
    /// This one from now on. It is taken over from the daemon of this home.
    TakenFrom(String),
    /// That of the daemon of this home.
    Elsewhere(String),
}

/// Whether this is the record of a heartbeat.
pub(super) fn is_heartbeat(place: &RecordId) -> bool {
    place.owner == OWNER
}

fn place(home: &str) -> RecordId {
    RecordId {
        owner: OWNER.into(),
        name: home.into(),
    }
}

impl Contents {
    /// Sends a heartbeat, or renews the one of this version. Tells whether another daemon has
    /// removed that one.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn send_heartbeat(
        &self,
        home: &str,
        former: Option<Version>,
    ) -> Result<(Heartbeat, bool), Error> {
        let mut expected = former;
        let mut is_removed = false;
        loop {
            let version = draw_version();
            match self
                .commit_heartbeat(home, expected, version, Some(HEAD))
                .await
            {
                Ok(()) => {
                    return Ok((
                        Heartbeat {
                            home: home.into(),
                            version,
                        },
                        is_removed,
                    ));
                }
                // Removed, or renewed by an attempt whose answer was lost.
                Err(StorageError::Conflict) => {
                    expected = self.heartbeat_of(home).await?;
                    is_removed = former.is_some() && expected.is_none();
                }
                Err(error) => return Err(self.failed(&error.known())),
            }
        }
    }

    /// Removes a heartbeat, unless it was renewed. Tells whether it is gone.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn remove_heartbeat(&self, heartbeat: &Heartbeat) -> Result<bool, Error> {
        match self
            .commit_heartbeat(
                &heartbeat.home,
                Some(heartbeat.version),
                draw_version(),
                None,
            )
            .await
        {
            Ok(()) => Ok(true),
            Err(StorageError::Conflict) => Ok(self.heartbeat_of(&heartbeat.home).await?.is_none()),
            Err(error) => Err(self.failed(&error.known())),
        }
    }

    async fn commit_heartbeat(
        &self,
        home: &str,
        expected: Option<Version>,
        next: Version,
        head: Option<&'static [u8]>,
    ) -> Result<(), StorageError> {
        let head = head.map(|bytes| StoredHead {
            bytes: bytes.into(),
            due_ms: u64::MAX,
        });
        let change = Change {
            head,
            ..Change::default()
        };
        self.store
            .commit(&place(home), expected, next, change)
            .await?
            .kept()
            .await
    }

    /// The version of a daemon's heartbeat. None: there is no heartbeat.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn heartbeat_of(&self, home: &str) -> Result<Option<Version>, Error> {
        let record = self
            .store
            .read(&place(home), &[])
            .await
            .map_err(|error| self.failed(&error))?;
        Ok(record.map(|record| record.version))
    }

    /// The heartbeats of all daemons, in order of their homes.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn heartbeats(&self) -> Result<Vec<Heartbeat>, Error> {
        let mut heartbeats: Vec<Heartbeat> = Vec::new();
        loop {
            let after = heartbeats
                .last()
                .map_or("", |heartbeat| heartbeat.home.as_str());
            let page = self
                .store
                .list(OWNER, after, BATCH)
                .await
                .map_err(|error| self.failed(&error))?;
            if page.is_empty() {
                return Ok(heartbeats);
            }
            heartbeats.extend(page.into_iter().map(|listed| Heartbeat {
                home: listed.place.name,
                version: listed.version,
            }));
        }
    }

    /// Puts on record that this daemon's machine has the session's server, unless another's has it.
    /// One that is `gone` loses it.
    ///
    /// # Errors
    /// [`Error::UnknownSession`] if there is no such session, or if it has ended;
    /// [`Error::Unavailable`].
    pub async fn keep_at(
        &self,
        access: &Access,
        home: &str,
        gone: Option<&str>,
    ) -> Result<Keeping, Error> {
        self.change(access, Admit::Unchecked, |draft| {
            // That is no use of the session.
            draft.quietly();
            if draft.head.is_terminated() {
                return Err(Halt::from(Error::UnknownSession));
            }
            let former = draft.head.kept_at.clone();
            match former {
                Some(at) if at == home => return Ok(Keeping::Here),
                Some(at) if Some(&*at) != gone => return Ok(Keeping::Elsewhere(at)),
                _ => {}
            }
            draft.head.kept_at = Some(home.into());
            draft.touch();
            Ok(former.map_or(Keeping::Here, Keeping::TakenFrom))
        })
        .await
    }

    /// The home of the daemon whose machine has the session's server, if that is on record.
    ///
    /// # Errors
    /// [`Error::UnknownSession`], [`Error::Unavailable`].
    pub async fn kept_at(&self, access: &Access) -> Result<Option<String>, Error> {
        let seen = self
            .look_quietly(access, Admit::Unchecked, &[], |draft| {
                Ok(draft.head.kept_at.clone())
            })
            .await;
        seen.map(|(home, _)| home)
    }
}
