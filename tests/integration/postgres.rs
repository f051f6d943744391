//! What a PostgreSQL does to us beside answering: it ends connections, loses answers, goes away,
//! and was there before.

mod failures;
mod opening;

use std::env;
use std::future::Future;
use std::thread;

use tokio::runtime;
use tokio_postgres::{Client, NoTls};

/// The URL of the server, without TLS.
fn server() -> String {
    named("MCP_SESSIOND_TEST_POSTGRES")
}

/// The URL of the server, with TLS and the certificate that it has.
fn tls_server() -> String {
    named("MCP_SESSIOND_TEST_POSTGRES_TLS")
}

/// What `tests/servers` says.
fn named(variable: &str) -> String {
    env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} names no server; use tests/run, or tests/servers with what it is to run")
    })
}

/// A URL with further options.
fn with_options(url: &str, options: &str) -> String {
    format!(
        "{url}{}{options}",
        if url.contains('?') { '&' } else { '?' }
    )
}

/// A connection past the daemon.
async fn connect() -> Client {
    let (client, connection) = tokio_postgres::connect(&server(), NoTls)
        .await
        .expect("a server that answers");
    tokio::spawn(async move { drop(connection.await) });
    client
}

/// The name of a schema that nobody else uses. The schema goes when this is dropped.
pub(crate) struct Schema(String);

impl Schema {
    pub(crate) fn new() -> Self {
        // Without a server there is nothing that has to go.
        drop(server());
        Self(format!("test_{:016x}", fastrand::u64(..)))
    }

    /// The URL with which a daemon uses it, and is told from every other one.
    pub(crate) fn url(&self) -> String {
        with_options(&server(), &self.options())
    }

    /// Deletes every record, as somebody might by hand.
    pub(crate) fn empty(&self) {
        let delete = format!("DELETE FROM {}.record", self.0);
        apart(async move {
            let client = connect().await;
            client.batch_execute(&delete).await.expect("deleted");
        });
    }

    /// What makes it so.
    fn options(&self) -> String {
        format!("schema={0}&application_name={0}", self.0)
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let drop = format!("DROP SCHEMA IF EXISTS {} CASCADE", self.0);
        apart(async move {
            let client = connect().await;
            client.batch_execute(&drop).await.expect("dropped");
        });
    }
}

/// Runs something to its end where there is a runtime already that can't wait for it.
fn apart(what: impl Future<Output = ()> + Send + 'static) {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let run = move || runtime.block_on(what);
    let ended = thread::spawn(run).join();
    assert!(ended.is_ok() || thread::panicking());
}
