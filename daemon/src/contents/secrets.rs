//! A secret of a service's own, for what it hands to clients and wants back unchanged. A fleet
//! shares it by the storage.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use mcp_sessiond_proto::services::{SecretKey, SecretRequest, ServiceSecret};
use mcp_sessiond_proto::{Error, RequestId, ServiceName};
use serde::{Deserialize, Serialize};

use super::{CONFLICTS_MAX, Contents, draw, draw_version, head};
use crate::storage::{Change, Head as StoredHead, RECORD_COST, RecordId, StorageError};

/// Whose records the secrets are. Sessions belong to a `host …` or a `service …`.
const OWNER: &str = "secret";

/// Former keys that may count at the same time.
const FORMER_MAX: usize = 8;

/// How long a former key counts after it was rotated out, in ms: as long as a handle is good by
/// default.
const FORMER_MS: u64 = 24 * 3_600_000;

/// A secret on record. It is never shown: it has no `Debug`.
#[derive(Serialize, Deserialize)]
struct Secret {
    current: SecretKey,
    /// Former keys, the latest last, and until when each counts.
    former: Vec<(SecretKey, u64)>,
    /// The request that has rotated it last.
    rotated_by: Option<RequestId>,
}

/// Whether this is the record of a secret.
pub(super) fn is_secret(place: &RecordId) -> bool {
    place.owner == OWNER
}

fn fresh() -> SecretKey {
    SecretKey(BASE64.encode(draw::<32>()))
}

impl Secret {
    fn into_answer(self, now_ms: u64) -> ServiceSecret {
        let former = self
            .former
            .into_iter()
            .rev()
            .filter(|(_, until_ms)| *until_ms > now_ms);
        ServiceSecret {
            current: self.current,
            former: former.map(|(key, _)| key).collect(),
        }
    }

    /// Puts a new key in place of the current one.
    fn rotate(&mut self, now_ms: u64) -> Result<(), Error> {
        self.former.retain(|(_, until_ms)| *until_ms > now_ms);
        if self.former.len() >= FORMER_MAX {
            let what = "the number of previous keys of this service that still count".into();
            return Err(Error::QuotaExceeded {
                what,
                limit: FORMER_MAX as u64,
            });
        }
        let former = std::mem::replace(&mut self.current, fresh());
        self.former.push((former, now_ms.saturating_add(FORMER_MS)));
        Ok(())
    }
}

impl Contents {
    /// The secret of a service, which is made when somebody first asks for it. With `rotate` its
    /// key is a new one, and the former one counts for a day more.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; [`Error::QuotaExceeded`] if it was rotated too often within a day.
    pub async fn service_secret(&self, request: &SecretRequest) -> Result<ServiceSecret, Error> {
        let place = place(&request.service);
        for _ in 0..CONFLICTS_MAX {
            let read = self
                .store
                .read(&place, &[])
                .await
                .map_err(|error| self.failed(&error))?;
            let now_ms = self.clock.now_ms();
            let version = read.as_ref().map(|record| record.version);
            let known = read
                .map(|record| head::decode::<Secret>(&record.head))
                .transpose();
            let mut secret = match known.map_err(|error| self.failed(&error))? {
                Some(secret) if is_done(&secret, request) => {
                    self.settled(&place).await?;
                    return Ok(secret.into_answer(now_ms));
                }
                Some(mut secret) => {
                    secret.rotate(now_ms)?;
                    secret
                }
                None => {
                    self.afford(&place, RECORD_COST, &self.bounds())?;
                    Secret {
                        current: fresh(),
                        former: Vec::new(),
                        rotated_by: None,
                    }
                }
            };
            secret.rotated_by = request.request.clone().filter(|_| request.rotate);
            let head = StoredHead {
                bytes: head::encode(&secret),
                due_ms: u64::MAX,
            };
            let change = Change {
                head: Some(head),
                ..Change::default()
            };
            match self
                .store
                .commit(&place, version, draw_version(), change)
                .await
            {
                Ok(durable) => {
                    durable.kept().await.map_err(|error| self.failed(&error))?;
                    return Ok(secret.into_answer(now_ms));
                }
                // Another daemon was first: its key is the one.
                Err(StorageError::Conflict) => {}
                Err(error) => return Err(self.failed(&error)),
            }
        }
        Err(self.failed(&StorageError::Conflict))
    }
}

fn place(service: &ServiceName) -> RecordId {
    RecordId {
        owner: OWNER.into(),
        name: service.to_string(),
    }
}

/// Whether there is nothing to be changed: a rotation that is repeated has been done.
fn is_done(secret: &Secret, request: &SecretRequest) -> bool {
    !request.rotate || request.request.is_some() && secret.rotated_by == request.request
}
