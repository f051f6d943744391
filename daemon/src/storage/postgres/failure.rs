//! What an error of PostgreSQL's means for us.

use std::error::Error as _;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::storage::StorageError;
use crate::storage::retry::Failure;

/// What has become of a statement, and of the connection that it was made on.
pub(super) struct Verdict {
    pub(super) failure: Failure,
    /// The connection is of no further use.
    pub(super) is_lost: bool,
}

/// Of a statement that was sent.
pub(super) fn of_statement(error: &Error) -> Verdict {
    match error.as_db_error() {
        Some(told) => of_told(told),
        None if error.is_closed() => Verdict {
            failure: Failure::Unknown(sentence(error)),
            is_lost: true,
        },
        None => Verdict {
            failure: Failure::Final(unavailable(error).unknown()),
            is_lost: true,
        },
    }
}

/// Of an attempt to connect. Nothing was sent yet.
pub(super) fn of_connecting(error: &Error) -> Failure {
    match error.as_db_error() {
        Some(told) => of_told(told).failure.known(),
        None if is_tls(error) => {
            let why = sentence(error);
            Failure::Final(StorageError::Unavailable(format!(
                "{why}; sslrootcert=FILE names certificates to trust, and sslmode=disable does without TLS"
            )))
        }
        None => Failure::Passing(sentence(error)),
    }
}

fn of_told(told: &DbError) -> Verdict {
    let code = told.code();
    let why = told_sentence(told);
    let is_fatal = matches!(
        told.parsed_severity(),
        Some(Severity::Fatal | Severity::Panic)
    );
    let class = code.code().get(..2).unwrap_or_default();
    // What ends the connection may come after the change was made and before that was said.
    let is_shutdown = [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
    ];
    if is_shutdown.contains(code) || class == "08" {
        return Verdict {
            failure: Failure::Unknown(why),
            is_lost: true,
        };
    }
    let passes = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::QUERY_CANCELED,
    ];
    if passes.contains(code) || class == "53" {
        return Verdict {
            failure: Failure::Passing(why),
            is_lost: is_fatal,
        };
    }
    // A standby that was the primary a moment ago, and a pooler behind which there is another
    // server now.
    let passes_elsewhere = [
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::INVALID_SQL_STATEMENT_NAME,
    ];
    if passes_elsewhere.contains(code) {
        return Verdict {
            failure: Failure::Passing(why),
            is_lost: true,
        };
    }
    Verdict {
        failure: Failure::Final(StorageError::Unavailable(why)),
        is_lost: is_fatal,
    }
}

fn unavailable(error: &Error) -> StorageError {
    StorageError::Unavailable(sentence(error))
}

/// What is the matter, without values: those are in the server's messages about data and in its
/// details, both of which are left out.
pub(super) fn sentence(error: &Error) -> String {
    if let Some(told) = error.as_db_error() {
        return told_sentence(told);
    }
    let mut sentence = format!("PostgreSQL: {error}");
    let mut source = error.source();
    while let Some(error) = source {
        sentence.push_str(&format!(": {error}"));
        source = error.source();
    }
    sentence
}

fn told_sentence(told: &DbError) -> String {
    let code = told.code().code();
    if code.starts_with("22") || code.starts_with("23") {
        return format!("PostgreSQL refuses the data ({code})");
    }
    format!("PostgreSQL: {} ({code})", told.message())
}

/// Whether it was TLS that failed, rather than the network below: then it fails again.
fn is_tls(error: &Error) -> bool {
    let mut source = error.source();
    while let Some(error) = source {
        let inner = error
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref);
        if error.is::<rustls::Error>() || inner.is_some_and(|inner| inner.is::<rustls::Error>()) {
            return true;
        }
        source = error.source();
    }
    false
}
