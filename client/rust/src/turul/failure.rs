//! What turul is told where a call came to nothing.

use mcp_sessiond_proto::Error;
use turul_mcp_session_storage::SessionStorageError as StorageError;

use crate::error::SessionError;

/// The trait's error of a call about this session.
pub(super) fn failed(error: SessionError, id: &str) -> StorageError {
    match error {
        error if error.is_over() => StorageError::SessionNotFound(id.to_owned()),
        error if error.passes() => StorageError::ConnectionError(error.to_string()),
        SessionError::Type { .. } => StorageError::SerializationError(error.to_string()),
        SessionError::Uncertain(_) | SessionError::Refused(Error::VersionConflict { .. }) => {
            StorageError::ConcurrentModification(error.to_string())
        }
        SessionError::Refused(Error::InvalidArgument { sentence }) => {
            StorageError::InvalidData(sentence)
        }
        error => StorageError::Generic(error.to_string()),
    }
}

/// The error of a value that can't be read. The value is not shown.
pub(super) fn wrong(error: &serde_json::Error) -> StorageError {
    StorageError::SerializationError(format!("line {}, column {}", error.line(), error.column()))
}
