//! A real MCP server whose session with a broker survives its restarts:
//! `broker_server BROKER_SOCKET [ANYTHING…]`.
//!
//! What follows the socket is not read. It stands for what tells instances of a real server apart
//! (`--db prod`), and does so here too, since arguments are part of what the daemon knows an
//! instance by.
//!
//! The part about mcp-sessiond is [`Server::start`], two lines of [`Server::rotate`], and
//! [`Server::visit`], which keeps state in the session of this instance.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use mcp_sessiond_client::rmcp::session;
use mcp_sessiond_client::{Options, Sessiond, StateKey, Status};
use rmcp::service::RequestContext;
use rmcp::transport::stdio;
use rmcp::{ErrorData, RoleServer, ServiceExt, tool, tool_router};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Mutex;

/// An MCP server in a session of a broker's.
#[derive(Clone)]
struct Server {
    broker: Broker,
    sessiond: Sessiond,
    session: Arc<Mutex<Session>>,
    /// `fresh`, `resumed`, or `fresh after rejection`.
    began: &'static str,
}

impl Server {
    /// Resumes the session of the instance before this one, where there was one and the broker
    /// agrees.
    async fn start(broker: Broker) -> io::Result<Self> {
        let sessiond = Sessiond::init(Options::default());
        let (session, began) = match sessiond.load().await {
            None => (broker.issue().await?, "fresh"),
            Some(token) => match broker
                .resume(&String::from_utf8_lossy(token.expose()))
                .await
            {
                Ok(session) => (session, "resumed"),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    sessiond.reject().await;
                    (broker.issue().await?, "fresh after rejection")
                }
                Err(error) => return Err(error),
            },
        };
        sessiond.store(session.token.as_bytes()).await;
        Ok(Self {
            broker,
            sessiond,
            session: Arc::new(Mutex::new(session)),
            began,
        })
    }
}

#[tool_router(server_handler)]
impl Server {
    /// Tells which broker session this server is in, and how it came there.
    #[tool]
    async fn session(&self) -> String {
        let broker_session = self.session.lock().await.id.clone();
        let resume = match self.sessiond.status() {
            Status::Active {
                session, outcome, ..
            } => json!({"session": session, "outcome": outcome}),
            Status::Disabled { reason } => json!({"disabled": reason.to_string()}),
            _ => Value::Null,
        };
        let pid = std::process::id();
        json!({"broker_session": broker_session, "began": self.began, "resume": resume, "pid": pid})
            .to_string()
    }

    /// Counts its calls, also across restarts of the server.
    #[tool]
    async fn visit(&self, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        let (session, key): (_, StateKey) = (session(&context)?, "visits".parse().expect("a key"));
        let visits = session.get_as::<u64>(&key).await?.unwrap_or_default() + 1;
        session.set_as(&key, &visits).await?;
        Ok(visits.to_string())
    }

    /// Has the broker change the token of this session.
    #[tool]
    async fn rotate(&self) -> Result<String, ErrorData> {
        let mut session = self.session.lock().await;
        let rotated = self.broker.resume(&session.token).await;
        *session = rotated.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let stored = self.sessiond.store(session.token.as_bytes()).await;
        Ok(json!({"broker_session": session.id, "stored": stored}).to_string())
    }
}

/// A session with the broker, and the token that resumes it once.
struct Session {
    id: String,
    token: String,
}

/// Speaks to the broker: one line of JSON each way, on a connection of its own.
#[derive(Clone)]
struct Broker {
    socket: PathBuf,
}

impl Broker {
    async fn issue(&self) -> io::Result<Session> {
        self.ask(&json!({"op": "issue"})).await
    }

    /// The token is used up by this; the session that is returned has another one.
    /// `PermissionDenied`: refused.
    async fn resume(&self, token: &str) -> io::Result<Session> {
        self.ask(&json!({"op": "resume", "token": token})).await
    }

    async fn ask(&self, question: &Value) -> io::Result<Session> {
        let mut stream = UnixStream::connect(&self.socket).await?;
        stream.write_all(format!("{question}\n").as_bytes()).await?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).await?;
        let answer: Value = serde_json::from_str(&line)?;
        match (answer["session"].as_str(), answer["token"].as_str()) {
            (Some(id), Some(token)) => Ok(Session {
                id: id.into(),
                token: token.into(),
            }),
            _ => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                answer["refused"].to_string(),
            )),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Standard output belongs to MCP.
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(false)
        .init();
    let socket = std::env::args_os()
        .nth(1)
        .ok_or("usage: broker_server BROKER_SOCKET [ANYTHING…]")?;
    let server = Server::start(Broker {
        socket: socket.into(),
    })
    .await?;
    server.serve(stdio()).await?.waiting().await?;
    Ok(())
}
