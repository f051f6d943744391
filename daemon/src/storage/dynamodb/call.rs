//! Asking the service, again where it makes sense.

use std::error::Error;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::batch_write_item::BatchWriteItemError;
use aws_sdk_dynamodb::types::WriteRequest;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio::sync::SemaphorePermit;

use super::DynamoDb;
use crate::storage::StorageError;
use crate::storage::retry::{Failure, PATIENCE, Patience, patiently};

/// As many requests as are under way at once for one change.
pub(super) const AT_ONCE: usize = 16;

/// As many requests as are under way at once for all changes: an attempt's time is not to pass in a
/// queue.
pub(super) const UNDER_WAY: usize = 32;

/// As many writes as a batch may have.
const BATCH: usize = 25;

/// What a request with a condition came to.
pub(super) enum Answer<T> {
    /// It applied.
    Done(T),
    /// Its condition failed. That may be its own doing where an earlier attempt got no answer.
    Refused { doubtful: bool },
}

/// Refusals that pass, with nothing done.
const PASSING: [&str; 5] = [
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "Throttling",
    "RequestLimitExceeded",
    "TransactionConflictException",
];

impl DynamoDb {
    /// Waits until fewer requests than [`UNDER_WAY`] are.
    async fn turn(&self) -> Result<SemaphorePermit<'_>, StorageError> {
        match tokio::time::timeout(PATIENCE, self.turns.acquire()).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => self.health.note(Err(StorageError::Unavailable(
                "too many requests wait for DynamoDB".into(),
            ))),
        }
    }

    /// Asks for what may be done twice.
    pub(super) async fn ask<T, E, F>(&self, request: impl Fn() -> F) -> Result<T, StorageError>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + Error + 'static,
    {
        let _turn = self.turn().await?;
        let attempt = || async { request().await.map_err(|error| self.failure(&error)) };
        self.health.note(patiently(attempt).await)
    }

    /// Asks for what has a condition.
    pub(super) async fn ask_if<T, E, F>(
        &self,
        request: impl Fn() -> F,
    ) -> Result<Answer<T>, StorageError>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + Error + 'static,
    {
        let _turn = self.turn().await?;
        let mut patience = Patience::new();
        let outcome = loop {
            match request().await {
                Ok(output) => break Ok(Answer::Done(output)),
                Err(error) if error.code() == Some("ConditionalCheckFailedException") => {
                    break Ok(Answer::Refused {
                        doubtful: patience.is_unknown(),
                    });
                }
                Err(error) => {
                    if let Err(error) = patience.pause(self.failure(&error)).await {
                        break Err(error);
                    }
                }
            }
        };
        self.health.note(outcome)
    }

    /// Writes and deletes without conditions, in any order.
    pub(super) async fn write_all(&self, writes: Vec<WriteRequest>) -> Result<(), StorageError> {
        let batches: Vec<Vec<WriteRequest>> = writes.chunks(BATCH).map(<[_]>::to_vec).collect();
        stream::iter(batches)
            .map(|batch| self.write_batch(batch))
            .buffer_unordered(AT_ONCE / 4)
            .try_for_each(|()| std::future::ready(Ok(())))
            .await
    }

    async fn write_batch(&self, mut writes: Vec<WriteRequest>) -> Result<(), StorageError> {
        let mut patience = Patience::new();
        loop {
            let request = self
                .client
                .batch_write_item()
                .request_items(&self.table, writes);
            let answer = self
                .ask::<_, BatchWriteItemError, _>(|| request.clone().send())
                .await?;
            let left = answer
                .unprocessed_items
                .and_then(|mut left| left.remove(&self.table));
            writes = left.unwrap_or_default();
            if writes.is_empty() {
                return Ok(());
            }
            let busy =
                Failure::Passing("DynamoDB is busy: it leaves a part of a batch undone".into());
            self.health.note(patience.pause(busy).await)?;
        }
    }

    /// What an error means. Of what the service says, only the code is told: the rest may quote
    /// what was sent.
    fn failure<E>(&self, error: &SdkError<E, HttpResponse>) -> Failure
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        let final_ = |sentence: String| Failure::Final(StorageError::Unavailable(sentence));
        match error {
            SdkError::TimeoutError(_) => Failure::Unknown("DynamoDB does not answer in time".into()),
            SdkError::ResponseError(_) => Failure::Unknown("DynamoDB gives an answer that can't be understood".into()),
            SdkError::DispatchFailure(failure) if failure.is_timeout() => {
                Failure::Unknown("DynamoDB does not answer in time".into())
            }
            SdkError::DispatchFailure(failure) if failure.is_io() => {
                Failure::Unknown("DynamoDB can't be connected to".into())
            }
            SdkError::DispatchFailure(_) if !is_about_credentials(error) => {
                Failure::Unknown("DynamoDB does not answer".into())
            }
            SdkError::ServiceError(service) => match error.code() {
                Some("ResourceNotFoundException") => {
                    final_(format!("there is no table {} in DynamoDB", self.table))
                }
                Some(code) if PASSING.contains(&code) => Failure::Passing(format!("DynamoDB: {code}")),
                code if service.raw().status().as_u16() >= 500 => {
                    Failure::Unknown(format!("DynamoDB: {}", code.unwrap_or("failed")))
                }
                code => final_(format!("DynamoDB refuses: {}", code.unwrap_or("without a reason"))),
            },
            _ => final_(
                "DynamoDB can't be asked: are there credentials for it, in AWS_ACCESS_KEY_ID or in a profile?"
                    .into(),
            ),
        }
    }
}

/// Whether the request was not even signed.
fn is_about_credentials(error: &(dyn Error + 'static)) -> bool {
    error.is::<CredentialsError>() || error.source().is_some_and(is_about_credentials)
}
