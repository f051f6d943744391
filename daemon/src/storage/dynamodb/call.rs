//! Asking the service, again where it makes sense.

use std::fmt;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::batch_write_item::BatchWriteItemError;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use aws_sdk_dynamodb::types::WriteRequest;

use super::DynamoDb;
use crate::storage::StorageError;
use crate::storage::retry::Patience;

/// As many requests as are under way at once for one change.
pub(super) const AT_ONCE: usize = 16;

/// As many writes as a batch may have.
const BATCH: usize = 25;

/// What a request with a condition came to.
pub(super) enum Answer<T> {
    /// It applied.
    Done(T),
    /// Its condition failed. That may be its own doing where an earlier attempt got no answer.
    Refused { doubtful: bool },
}

/// Refusals that pass.
const PASSING: [&str; 8] = [
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "Throttling",
    "RequestLimitExceeded",
    "InternalServerError",
    "InternalServerErrorException",
    "ServiceUnavailable",
    "TransactionConflictException",
];

impl DynamoDb {
    /// Asks until there is an answer, or no patience left.
    pub(super) async fn ask<T, E, F>(&self, request: impl Fn() -> F) -> Result<T, StorageError>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + fmt::Debug,
    {
        match self.ask_if(request).await? {
            Answer::Done(output) => Ok(output),
            Answer::Refused { .. } => Err(self.failed("it names a condition that there was not".into())),
        }
    }

    /// Asks for what has a condition.
    pub(super) async fn ask_if<T, E, F>(&self, request: impl Fn() -> F) -> Result<Answer<T>, StorageError>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + fmt::Debug,
    {
        let mut patience = Patience::new();
        let mut doubtful = false;
        loop {
            let error = match request().await {
                Ok(output) => {
                    self.works();
                    return Ok(Answer::Done(output));
                }
                Err(error) => error,
            };
            if error.code() == Some("ConditionalCheckFailedException") {
                self.works();
                return Ok(Answer::Refused { doubtful });
            }
            doubtful = true;
            let is_passing = is_passing(&error);
            if !is_passing || !patience.again().await {
                return Err(self.failed(self.sentence(&error)));
            }
        }
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
            let request = self.client.batch_write_item().request_items(&self.table, writes);
            let answer = self.ask::<_, BatchWriteItemError, _>(|| request.clone().send()).await?;
            let left = answer.unprocessed_items.and_then(|mut left| left.remove(&self.table));
            writes = left.unwrap_or_default();
            if writes.is_empty() {
                return Ok(());
            }
            if !patience.again().await {
                return Err(self.failed("DynamoDB is busy: it leaves a part of a batch undone".into()));
            }
        }
    }

    fn sentence<E: ProvideErrorMetadata>(&self, error: &SdkError<E, HttpResponse>) -> String {
        let table = &self.table;
        match error {
            SdkError::TimeoutError(_) => "DynamoDB does not answer in time".into(),
            SdkError::DispatchFailure(failure) if failure.is_timeout() => {
                "DynamoDB does not answer in time".into()
            }
            SdkError::DispatchFailure(failure) if failure.is_io() => "DynamoDB can't be connected to".into(),
            SdkError::DispatchFailure(_) | SdkError::ConstructionFailure(_) => {
                "DynamoDB can't be asked: are there credentials for it, as AWS_ACCESS_KEY_ID or in a profile?"
                    .into()
            }
            // Not its message: that may quote what was sent.
            _ => match error.code() {
                Some("ResourceNotFoundException") => format!("there is no table {table} in DynamoDB"),
                Some(code) => format!("DynamoDB refuses: {code}"),
                None => "DynamoDB gives an answer that is none".into(),
            },
        }
    }
}

fn is_passing<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    match error {
        SdkError::TimeoutError(_) | SdkError::ResponseError(_) => true,
        SdkError::DispatchFailure(failure) => failure.is_timeout() || failure.is_io(),
        SdkError::ServiceError(service) => {
            service.raw().status().as_u16() >= 500 || error.code().is_some_and(|code| PASSING.contains(&code))
        }
        _ => false,
    }
}
