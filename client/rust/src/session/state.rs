//! The state of a session: JSON values by key, each with a version.

use std::sync::atomic::{AtomicU32, Ordering};

use mcp_sessiond_proto::debug::PAGE_MAX;
use mcp_sessiond_proto::state::{
    ListStateRequest, ReadStateRequest, StateEntry, StateKeyInfo, StateVersion, StateWrite,
    WriteStateRequest,
};
use mcp_sessiond_proto::{Error, Json, RequestId, StateKey};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Session;
use crate::error::SessionError;

impl Session {
    /// The value of a key, if it has one.
    ///
    /// # Errors
    /// `unknown_session`, `session_terminated`, `binding_mismatch`.
    pub async fn get(&self, key: &StateKey) -> Result<Option<Json>, SessionError> {
        Ok(self.entry(key).await?.value)
    }

    /// The same, as a type of one's own.
    ///
    /// # Errors
    /// [`SessionError::Type`]; those of [`Session::get`].
    pub async fn get_as<T: DeserializeOwned>(
        &self,
        key: &StateKey,
    ) -> Result<Option<T>, SessionError> {
        let value = self.get(key).await?;
        Ok(value
            .map(|json| serde_json::from_str(json.as_str()))
            .transpose()?)
    }

    /// A key with its value and its version, which is 0 where there is no value.
    ///
    /// # Errors
    /// Those of [`Session::get`].
    pub async fn entry(&self, key: &StateKey) -> Result<StateEntry, SessionError> {
        only(self.read(vec![key.clone()]).await?)
    }

    /// Up to 50 keys at once, in their order.
    ///
    /// # Errors
    /// `invalid_argument`, also where the values have more than 3 MiB; those of [`Session::get`].
    pub async fn read(&self, keys: Vec<StateKey>) -> Result<Vec<StateEntry>, SessionError> {
        self.call(|connection, context, of| {
            let request = ReadStateRequest {
                of,
                keys: keys.clone(),
            };
            async move { connection.read_state(context, request).await }
        })
        .await
    }

    /// All keys that have a value, in their order.
    ///
    /// # Errors
    /// Those of [`Session::get`].
    pub async fn keys(&self) -> Result<Vec<StateKeyInfo>, SessionError> {
        let mut all: Vec<StateKeyInfo> = Vec::new();
        loop {
            let after = all.last().map(|last| last.key.clone());
            let page = self.call(|connection, context, of| {
                let request = ListStateRequest {
                    of,
                    after: after.clone(),
                };
                async move { connection.list_state(context, request).await }
            });
            let page = page.await?;
            let is_last = page.len() < PAGE_MAX;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Writes a value, whatever was there. Returns its version.
    ///
    /// # Errors
    /// Those of every change ([`Session::update`]).
    ///
    /// ```no_run
    /// # async fn example(session: mcp_sessiond_client::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// use mcp_sessiond_client::Json;
    ///
    /// session.set(&"cart".parse()?, &Json::new(r#"["apples"]"#)?).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set(&self, key: &StateKey, value: &Json) -> Result<StateVersion, SessionError> {
        self.write_one(key, None, Some(value)).await
    }

    /// The same, with a value of a type of one's own.
    ///
    /// # Errors
    /// [`SessionError::Type`]; those of every change ([`Session::update`]).
    pub async fn set_as<T: Serialize + Sync>(
        &self,
        key: &StateKey,
        value: &T,
    ) -> Result<StateVersion, SessionError> {
        self.set(key, &Json::trusted(serde_json::to_string(value)?))
            .await
    }

    /// Removes a value, if there is one.
    ///
    /// # Errors
    /// Those of every change ([`Session::update`]).
    pub async fn remove(&self, key: &StateKey) -> Result<(), SessionError> {
        self.write_one(key, None, None).await.map(drop)
    }

    /// Writes a value only if the key is at this version; 0: only if it has no value. None: removes
    /// it. Returns the new version.
    ///
    /// # Errors
    /// `version_conflict`: somebody else has written since. [`SessionError::Uncertain`]: this may
    /// have been written. Those of every change ([`Session::update`]).
    ///
    /// ```no_run
    /// # async fn example(session: mcp_sessiond_client::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// use mcp_sessiond_client::{Json, StateKey};
    ///
    /// let key: StateKey = "visits".parse()?;
    /// let entry = session.entry(&key).await?;
    /// let visits: u64 = entry.value.map_or("0".into(), |value| value.as_str().to_owned()).parse()?;
    /// session.compare_and_set(&key, entry.version, Some(&Json::new((visits + 1).to_string())?)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn compare_and_set(
        &self,
        key: &StateKey,
        expected: StateVersion,
        value: Option<&Json>,
    ) -> Result<StateVersion, SessionError> {
        self.write_one(key, Some(expected), value).await
    }

    /// Writes and removes up to 50 values, all or none. Returns their versions, in the order of the
    /// writes. What has to be repeated is written once; by a daemon of before it knew repetitions,
    /// over whatever was written in between.
    ///
    /// # Errors
    /// As [`Session::compare_and_set`], and `invalid_argument`.
    pub async fn write(&self, writes: Vec<StateWrite>) -> Result<Vec<StateEntry>, SessionError> {
        let tries = AtomicU32::new(0);
        // By this a repetition is known.
        let request = RequestId::mint();
        let written = self.call(|connection, context, of| {
            tries.fetch_add(1, Ordering::Relaxed);
            let request = WriteStateRequest {
                of,
                writes: writes.clone(),
                request: Some(request.clone()),
            };
            async move { connection.write_state(context, request).await }
        });
        match written.await {
            // What stands in the way may be what the first attempt has written.
            Err(SessionError::Refused(error @ Error::VersionConflict { .. }))
                if tries.load(Ordering::Relaxed) > 1 =>
            {
                Err(SessionError::Uncertain(error))
            }
            written => written,
        }
    }

    async fn write_one(
        &self,
        key: &StateKey,
        expected: Option<StateVersion>,
        value: Option<&Json>,
    ) -> Result<StateVersion, SessionError> {
        let write = StateWrite {
            key: key.clone(),
            value: value.cloned(),
            expected,
            expires_ms: None,
        };
        Ok(only(self.write(vec![write]).await?)?.version)
    }
}

/// The one thing that was asked for. A daemon that answers otherwise is not of this protocol.
pub(super) fn only<T>(mut answer: Vec<T>) -> Result<T, SessionError> {
    answer
        .pop()
        .filter(|_| answer.is_empty())
        .ok_or(SessionError::Refused(Error::Unknown))
}
