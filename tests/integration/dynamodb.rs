//! What is DynamoDB's own: a commit is made at one point and applied afterwards, by whoever comes
//! first or late.

/// Each case with each server.
macro_rules! cases {
    ($($case:ident)*) => {
        mod dynalite {
            crate::dynamodb::cases!(crate::dynamodb::Dynalite: $($case)*);
        }
        mod moto {
            crate::dynamodb::cases!(crate::dynamodb::Moto: $($case)*);
        }
    };
    ($server:ty: $($case:ident)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            super::$case(crate::dynamodb::Table::<$server>::new()).await;
        }
    )*};
}
use cases;

mod failures;
mod opening;
mod protocol;
mod proxy;

use std::env;
use std::marker::PhantomData;
use std::sync::Arc;

use mcp_sessiond_daemon::storage::DynamoDb;
use mcp_sessiond_daemon::storage::dynamodb::Options;

/// A server that does what DynamoDB does.
pub(crate) trait Server {
    /// Names the variable that says where it is, as `tests/servers` sets it.
    const VARIABLE: &str;

    /// How many writers of one record it can stand.
    const WRITERS: usize = 200;
}

/// From npm.
pub(crate) struct Dynalite;

impl Server for Dynalite {
    const VARIABLE: &str = "MCP_SESSIOND_TEST_DYNALITE";
}

/// From PyPI.
pub(crate) struct Moto;

impl Server for Moto {
    const VARIABLE: &str = "MCP_SESSIOND_TEST_MOTO";
    /// It answers some two hundred requests in a second.
    const WRITERS: usize = 50;
}

/// A table that nobody else uses. It goes with the server.
pub(crate) struct Table<S> {
    name: String,
    server: PhantomData<S>,
}

impl<S: Server> Table<S> {
    pub(crate) fn new() -> Self {
        Self {
            name: format!("test-{:016x}", fastrand::u64(..)),
            server: PhantomData,
        }
    }

    /// Where its server is.
    fn server() -> String {
        let variable = S::VARIABLE;
        env::var(variable).unwrap_or_else(|_| {
            panic!(
                "{variable} names no server; use tests/run, or tests/servers with what it is to run"
            )
        })
    }

    /// The URL with which a daemon opens it, and makes it.
    pub(crate) fn url(&self) -> String {
        format!(
            "dynamodb:{}?endpoint={}&region=us-east-1&create=true",
            self.name,
            Self::server()
        )
    }

    /// With what a daemon opens it.
    fn options(&self) -> Options {
        let (endpoint, region) = (Some(Self::server()), Some("us-east-1".into()));
        Options {
            table: self.name.clone(),
            endpoint,
            region,
            create: true,
        }
    }

    /// A daemon's handle.
    pub(crate) async fn connected(&self) -> Arc<DynamoDb> {
        Arc::new(DynamoDb::open(self.options()).await.expect("opened"))
    }

    /// A daemon's handle, with something in the way.
    async fn through(&self, proxy: &proxy::Proxy) -> Arc<DynamoDb> {
        let options = Options {
            endpoint: Some(proxy.url.clone()),
            ..self.options()
        };
        Arc::new(DynamoDb::open(options).await.expect("opened"))
    }
}
