//! An HTTP service whose sessions outlive it, and the daemon: `event_service [ADDRESS]`.
//!
//! It speaks as much of MCP's Streamable HTTP as shows what mcp-sessiond does for it: a POST is
//! answered by a stream of events, a GET with `Last-Event-ID` says again what was missed and goes
//! on from there, a DELETE ends the session.
//!
//! ```text
//! curl -iN -d '{"jsonrpc":"2.0","id":1,"method":"count"}' localhost:8000
//! curl -iN -H 'Mcp-Session-Id: …' -H 'Last-Event-ID: …' localhost:8000
//! ```
//!
//! Kill it, or the daemon, or both in the middle of an answer, and start them again: nothing is
//! lost, nor said twice.

use std::error::Error;
use std::io::Write as _;
use std::time::Duration;

use mcp_sessiond_client::{
    CreateOptions, Cursor, EventId, Json, Options, Session, SessionError, SessionStatus, Sessions,
    StateKey, StreamId,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// A client that says nothing for so long is sent a comment, by which it is noticed when it has
/// gone.
const SILENCE: Duration = Duration::from_secs(15);

/// The longest request that is read.
const BODY_MAX: usize = 64 * 1024;

/// What a handler may fail with: the daemon's refusal, or a client that has gone.
type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "localhost:8000".into());
    let sessions = Sessions::of_service("event_service".parse()?, Options::default());
    let listener = TcpListener::bind(address).await?;
    writeln!(std::io::stdout(), "listening at {}", listener.local_addr()?)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let sessions = sessions.clone();
        tokio::spawn(async move {
            let mut stream = BufReader::new(stream);
            if let Err(failure) = serve(&mut stream, &sessions).await {
                // MCP has it that 404 makes the client begin anew.
                let status = failure
                    .downcast_ref()
                    .map_or(400, SessionError::http_status);
                let body = format!("HTTP/1.1 {status} Refused\r\n\r\n{failure}\n");
                drop(stream.write_all(body.as_bytes()).await);
            }
        });
    }
}

/// As much of a request as matters here.
#[derive(Default)]
struct Request {
    method: String,
    session: Option<String>,
    last_event: Option<String>,
    body: Vec<u8>,
}

async fn serve(stream: &mut BufReader<TcpStream>, sessions: &Sessions) -> Result<(), Failure> {
    let request = read(stream).await?;
    let session = match &request.session {
        Some(id) => sessions.open(&id.parse()?).await?,
        None => {
            sessions
                .create(CreateOptions::default().status(SessionStatus::ready()))
                .await?
        }
    };
    match request.method.as_str() {
        "POST" => answer(stream, &session, serde_json::from_slice(&request.body)?).await,
        "GET" => {
            let after = match request.last_event {
                Some(id) => Cursor::Event(EventId(id)),
                None => Cursor::Stream(StreamId::standalone()),
            };
            tell(stream, &session, after).await
        }
        "DELETE" => {
            session.terminate().await?;
            Ok(stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await?)
        }
        _ => Err("GET, POST or DELETE".into()),
    }
}

/// Counts the calls of a session, and answers with the number: by a stream of its own, which the
/// client may lose at any moment and come back to.
async fn answer(
    stream: &mut BufReader<TcpStream>,
    session: &Session,
    request: Value,
) -> Result<(), Failure> {
    let calls: StateKey = "calls".parse()?;
    let count = session.get_as::<u64>(&calls).await?.unwrap_or_default() + 1;
    session.set_as(&calls, &count).await?;
    let events = session
        .open_stream(&format!("call-{count}").parse()?, None)
        .await?;
    // The id of this one is what a client that loses the connection at once comes back with.
    let primed = events.prime().await?;
    begin(stream, session).await?;
    stream
        .write_all(format!("id: {}\ndata:\n\n", primed.id.0).as_bytes())
        .await?;
    let result = json!({"jsonrpc": "2.0", "id": request["id"], "result": {"calls": count}});
    for message in [
        json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "counted"}}),
        result,
    ] {
        let appended = events.append(Json::from(&message)).await?;
        // Only what is kept is said. Whether anybody hears it matters no more.
        let text = format!("id: {}\ndata: {message}\n\n", appended.id.0);
        drop(stream.write_all(text.as_bytes()).await);
    }
    events.close().await?;
    Ok(())
}

/// Says what was missed, and then what is said next, until the client goes or there can't be any
/// more.
async fn tell(
    stream: &mut BufReader<TcpStream>,
    session: &Session,
    after: Cursor,
) -> Result<(), Failure> {
    let mut said = session.replay_all(&after).await?;
    begin(stream, session).await?;
    let _attached = session.attach().await?;
    loop {
        for event in &said.events {
            let text = format!("id: {}\ndata: {}\n\n", event.id.0, event.message.as_str());
            stream.write_all(text.as_bytes()).await?;
        }
        if said.events.is_empty() {
            stream.write_all(b": still here\n\n").await?;
        }
        let is_answered =
            |event: &mcp_sessiond_client::Event| event.message.as_str().contains("\"result\"");
        if said.events.iter().any(is_answered) {
            return Ok(());
        }
        // Where that is refused, the client comes back and is told.
        let Ok(next) = session.wait(&said.next, SILENCE).await else {
            return Ok(());
        };
        said = next;
    }
}

async fn begin(stream: &mut BufReader<TcpStream>, session: &Session) -> Result<(), Failure> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\nMcp-Session-Id: {}\r\n\r\n",
        session.id()
    );
    Ok(stream.write_all(head.as_bytes()).await?)
}

async fn read(stream: &mut BufReader<TcpStream>) -> Result<Request, Failure> {
    let mut request = Request::default();
    let mut length = 0;
    let mut lines = stream.lines();
    while let Some(line) = lines.next_line().await?.filter(|line| !line.is_empty()) {
        match line.split_once(": ") {
            None => request.method = line.split(' ').next().unwrap_or_default().into(),
            Some((name, value)) => match name.to_ascii_lowercase().as_str() {
                "mcp-session-id" => request.session = Some(value.into()),
                "last-event-id" => request.last_event = Some(value.into()),
                "content-length" => length = value.parse()?,
                _ => {}
            },
        }
    }
    if length > BODY_MAX {
        return Err("the request is too long".into());
    }
    request.body.resize(length, 0);
    stream.read_exact(&mut request.body).await?;
    Ok(request)
}
