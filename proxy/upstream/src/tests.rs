//! A connection, and a server whose every answer is the test's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::{
    Connection, Ids, News, NotTaken, Remote, SaveState, ServerMessage, StreamHint, connect,
};

/// What does not come by then does not come.
const PATIENCE: Duration = Duration::from_secs(20);

async fn soon<T>(what: &str, comes: impl Future<Output = T>) -> T {
    timeout(PATIENCE, comes)
        .await
        .unwrap_or_else(|_| panic!("{what} has not come"))
}

/// Keeps nothing, and tells the test what the user should know.
#[derive(Debug)]
struct Telling(mpsc::UnboundedSender<News>);

impl SaveState for Telling {
    fn keep(&self, _: BTreeMap<String, Option<String>>) -> BoxFuture<'_, bool> {
        std::future::ready(true).boxed()
    }

    fn tell(&self, news: News) -> BoxFuture<'_, ()> {
        let _ = self.0.send(news);
        std::future::ready(()).boxed()
    }
}

/// A request to the server.
struct Asked {
    method: String,
    /// Its headers, in small letters.
    head: String,
    body: Value,
    stream: TcpStream,
}

impl Asked {
    async fn read(stream: TcpStream) -> Option<Self> {
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).await.ok()? == 0 {
                return None;
            }
        }
        let method = head.split(' ').next()?.to_owned();
        let head = head.to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"))
            .unwrap_or("0");
        let mut body = vec![0; length.trim().parse().ok()?];
        reader.read_exact(&mut body).await.ok()?;
        let body = serde_json::from_slice(&body).unwrap_or_default();
        Some(Self {
            method,
            head,
            body,
            stream: reader.into_inner(),
        })
    }

    fn is(&self, method: &str) -> bool {
        self.method == method || self.body["method"] == method
    }

    async fn answer(mut self, status: &str, headers: &str, body: &str) {
        let length = body.len();
        let text = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n{body}"
        );
        self.stream
            .write_all(text.as_bytes())
            .await
            .expect("a client");
    }

    async fn result(self, headers: &str, result: Value) {
        let body = json!({"jsonrpc": "2.0", "id": self.body["id"], "result": result}).to_string();
        self.answer(
            "200 OK",
            &format!("Content-Type: application/json\r\n{headers}"),
            &body,
        )
        .await;
    }

    async fn introduction(self, session: &str) {
        let result = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}});
        self.result(&format!("Mcp-Session-Id: {session}\r\n"), result)
            .await;
    }

    async fn events(mut self) -> Events {
        let head =
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
        self.stream
            .write_all(head.as_bytes())
            .await
            .expect("a client");
        Events(self.stream)
    }
}

/// A stream of events, as the server has it.
struct Events(TcpStream);

impl Events {
    async fn say(&mut self, id: u64, message: &Value) {
        self.0
            .write_all(format!("id: {id}\ndata: {message}\n\n").as_bytes())
            .await
            .expect("a client");
    }

    /// Waits until the client has closed it.
    async fn closed(mut self) {
        let read = soon("the end of the stream", self.0.read(&mut [0])).await;
        assert!(matches!(read, Ok(0) | Err(_)));
    }
}

/// A host, its connection, and the server.
struct Test {
    connection: Connection,
    to: mpsc::Sender<Bytes>,
    from: mpsc::Receiver<ServerMessage>,
    asked: mpsc::UnboundedReceiver<Asked>,
    /// Requests that have come before the one that was waited for.
    before: Vec<Asked>,
    news: mpsc::UnboundedReceiver<News>,
}

impl Test {
    async fn new(ids: Ids) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
        let (to, asked) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let to = to.clone();
                tokio::spawn(async move {
                    if let Some(asked) = Asked::read(stream).await {
                        let _ = to.send(asked);
                    }
                });
            }
        });
        let own = [("Authorization".to_owned(), "Bearer x".to_owned())];
        let (tell, news) = mpsc::unbounded_channel();
        let remote = Remote::new("test", &url, own).expect("an entry");
        let (connection, from) = connect(remote, None, Arc::new(Telling(tell)), ids)
            .await
            .expect("a connection");
        Self {
            to: connection.channel(),
            connection,
            from,
            asked,
            before: Vec::new(),
            news,
        }
    }

    /// A session of this id, and its standalone stream.
    async fn begun(ids: Ids) -> (Self, Events) {
        let mut test = Self::new(ids).await;
        test.says(
            json!({"id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}),
        )
        .await;
        test.asked("initialize").await.introduction("s1").await;
        assert_eq!(test.hears().await["id"], 0);
        test.says(json!({"method": "notifications/initialized"}))
            .await;
        test.asked("notifications/initialized")
            .await
            .answer("202 Accepted", "", "")
            .await;
        let events = test.asked("GET").await.events().await;
        (test, events)
    }

    /// The next request of this method, of HTTP or MCP.
    async fn asked(&mut self, method: &str) -> Asked {
        if let Some(at) = self.before.iter().position(|asked| asked.is(method)) {
            return self.before.remove(at);
        }
        loop {
            let asked = soon(method, self.asked.recv()).await.expect("a request");
            if asked.is(method) {
                return asked;
            }
            self.before.push(asked);
        }
    }

    async fn says(&self, mut message: Value) {
        message["jsonrpc"] = json!("2.0");
        self.to
            .send(Bytes::from(message.to_string()))
            .await
            .expect("it listens");
    }

    async fn hears(&mut self) -> Value {
        let said = self.hears_all().await;
        serde_json::from_slice(&said.line).expect("JSON")
    }

    async fn hears_all(&mut self) -> ServerMessage {
        soon("a message", self.from.recv())
            .await
            .expect("a message")
    }
}

fn note(data: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": data}})
}

#[tokio::test]
async fn a_message_tells_the_stream_that_it_was_said_on_by_the_hosts_own_id() {
    for ids in [Ids::Same, Ids::Renamed] {
        let (mut test, mut events) = Test::begun(ids).await;
        assert!(!test.connection.outlasts(), "its answer had no event id");
        events.say(1, &note("to nobody")).await;
        let said = test.hears_all().await;
        assert_eq!(said.stream, Some(StreamHint::Standalone), "{ids:?}");
        test.says(json!({"id": 8, "method": "tools/call"})).await;
        let call = test.asked("tools/call").await;
        let answer = json!({"jsonrpc": "2.0", "id": call.body["id"], "result": {}});
        let mut stream = call.events().await;
        for (number, message) in [(1, &note("to the call")), (2, &answer)] {
            stream.say(number, message).await;
            let said = test.hears_all().await;
            assert_eq!(said.stream, Some(StreamHint::Call("8".into())), "{ids:?}");
        }
    }
}

#[tokio::test]
async fn what_wants_no_answer_is_sent_once_the_server_has_taken_it() {
    let (mut test, _events) = Test::begun(Ids::Same).await;
    let line = || Bytes::from(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#);
    for is_taken in [true, false] {
        let connection = test.connection.clone();
        let sent = tokio::spawn(async move { connection.send(line()).await });
        let asked = test.asked("notifications/x").await;
        assert!(!sent.is_finished());
        if is_taken {
            asked.answer("202 Accepted", "", "").await;
        } else {
            drop(asked);
        }
        let expected = if is_taken {
            Ok(())
        } else {
            Err(NotTaken {
                may_have_arrived: true,
            })
        };
        assert_eq!(soon("an end", sent).await.expect("no panic"), expected);
    }
    test.connection.close();
    assert_eq!(
        test.connection.send(line()).await,
        Err(NotTaken {
            may_have_arrived: false
        })
    );
    assert!(soon("the end", test.from.recv()).await.is_none());
}

/// However long requests wait for one that restarts.
#[tokio::test]
async fn a_server_that_was_never_there_is_said_not_to_be_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    drop(listener);
    let remote = Remote::direct(&url).expect("a URL").hold(PATIENCE * 1000);
    let keep = Arc::new(Keeping::default());
    let connected = connect(remote, None, keep, Ids::Same).await;
    let (connection, mut from) = connected.expect("a connection");
    let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
    let line = Bytes::from(initialize);
    soon("an end", connection.send(line)).await.expect("taken");
    let said = soon("an answer", from.recv()).await.expect("an answer");
    let answer: Value = serde_json::from_slice(&said.line).expect("JSON");
    assert_eq!(answer["error"]["data"]["outcome"], "not_sent", "{answer}");
}

#[tokio::test]
async fn a_server_that_is_reached_directly_gets_a_connection_for_each_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let remote = Remote::direct(&url).expect("a URL");
    let keep = Arc::new(Keeping::default());
    let connected = connect(remote, None, keep, Ids::Same).await;
    let (connection, _from) = connected.expect("a connection");
    let mut open = Vec::new();
    for _ in 0..2 {
        let connection = connection.clone();
        let line = Bytes::from(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#);
        let sent = tokio::spawn(async move { connection.send(line).await });
        let accepted = soon("a connection", listener.accept()).await;
        let mut asked = Asked::read(accepted.expect("a connection").0)
            .await
            .expect("a request");
        let taken = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
        asked.stream.write_all(taken).await.expect("a client");
        assert_eq!(soon("an end", sent).await.expect("no panic"), Ok(()));
        // The server would take another request on it.
        open.push(asked.stream);
    }
}

#[tokio::test]
async fn a_page_in_the_place_of_an_answer_is_said_to_be_one() {
    let (mut test, _events) = Test::begun(Ids::Same).await;
    test.says(json!({"id": 8, "method": "tools/call"})).await;
    let call = test.asked("tools/call").await;
    call.answer("200 OK", "Content-Type: text/html\r\n", "<html>")
        .await;
    let answer = test.hears().await;
    let why = answer["error"]["message"].as_str().expect("an error");
    assert!(why.contains("`text/html`, as a login page does"), "{why}");
}

/// Keeps all of it.
#[derive(Debug, Default)]
struct Keeping(std::sync::Mutex<BTreeMap<String, String>>);

impl SaveState for Keeping {
    fn keep(&self, values: BTreeMap<String, Option<String>>) -> BoxFuture<'_, bool> {
        let mut kept = self.0.lock().expect("sound");
        for (key, value) in values {
            match value {
                Some(value) => kept.insert(key, value),
                None => kept.remove(&key),
            };
        }
        std::future::ready(true).boxed()
    }
}

#[tokio::test]
async fn an_incarnation_goes_on_until_its_session_is_ended() {
    let keep = Arc::new(Keeping::default());
    let again = async || {
        let kept = keep.0.lock().expect("sound").clone();
        let remote = Remote::direct("http://127.0.0.1:1/mcp").expect("a URL");
        let connected = connect(remote, Some(&kept), keep.clone(), Ids::Same).await;
        connected.expect("a connection").0
    };
    let record = json!({"whose": "", "process": 1, "sessions": 1, "session": null, "version": null,
        "ready": true, "initialize": {}, "result": {}, "incarnation": "a"});
    keep.0
        .lock()
        .expect("sound")
        .insert("remote".into(), record.to_string());
    let call = json!({"calls": ["7"], "event": null, "number": 0, "line": null});
    keep.0
        .lock()
        .expect("sound")
        .insert("remote.0000000000000000".into(), call.to_string());
    let first = again().await;
    assert_eq!(
        (first.incarnation(), first.open_calls()),
        ("a", &["7".into()][..])
    );
    assert!(first.handshake().is_none(), "it is another server's");
    drop(first);
    let second = again().await;
    assert_eq!(second.incarnation(), "a");
    second.end_session().await;
    assert!(keep.0.lock().expect("sound").is_empty());
    let fresh = again().await;
    assert!(fresh.incarnation() != "a" && fresh.open_calls().is_empty());
}

#[tokio::test]
async fn only_calls_that_are_open_are_answered() {
    for ids in [Ids::Same, Ids::Renamed] {
        let (mut test, mut events) = Test::begun(ids).await;
        test.says(json!({"id": 8, "method": "tools/call"})).await;
        let call = test.asked("tools/call").await;
        let answer = |id: &Value| json!({"jsonrpc": "2.0", "id": id, "result": {}});
        // What the host has at another server may have this id.
        let id = call.body["id"].clone();
        let other = id
            .as_str()
            .map_or(json!(7), |id| json!(id.replace("/8", "/7")));
        events.say(1, &answer(&other)).await;
        events.say(2, &note("listened")).await;
        assert_eq!(test.hears().await["params"]["data"], "listened", "{ids:?}");
        let mut stream = call.events().await;
        for (number, id) in [(1, &other), (2, &id), (3, &id)] {
            stream.say(number, &answer(id)).await;
        }
        assert_eq!(test.hears().await["id"], 8, "{ids:?}");
        events.say(3, &answer(&id)).await;
        events.say(4, &note("again")).await;
        assert_eq!(test.hears().await["params"]["data"], "again", "{ids:?}");
    }
}

#[tokio::test]
async fn the_stream_of_a_session_ends_with_it_and_the_next_one_has_its_own() {
    let (mut test, mut former) = Test::begun(Ids::Same).await;
    former.say(1, &note("former")).await;
    assert_eq!(test.hears().await["params"]["data"], "former");
    test.says(json!({"id": 8, "method": "tools/call"})).await;
    test.asked("tools/call")
        .await
        .answer("404 Not Found", "", "")
        .await;
    // One `ping` decides that the session is gone.
    test.asked("ping")
        .await
        .answer("404 Not Found", "", "")
        .await;
    // Also where there is no other session yet.
    former.closed().await;
    test.asked("initialize").await.introduction("s2").await;
    test.asked("notifications/initialized")
        .await
        .answer("202 Accepted", "", "")
        .await;
    let own = test.asked("GET").await;
    assert!(own.head.contains("mcp-session-id: s2"), "{}", own.head);
    assert!(!own.head.contains("last-event-id"), "{}", own.head);
    own.events().await.say(1, &note("own")).await;
    assert_eq!(test.hears().await["params"]["data"], "own");
    test.asked("tools/call").await.result("", json!({})).await;
    assert_eq!(test.hears().await["id"], 8);
    assert_eq!(
        test.news.recv().await,
        Some(News::Lost(mcp_sessiond_proto::Loss::Forgotten))
    );
}

#[tokio::test]
async fn an_event_that_is_too_large_is_skipped_and_told_once() {
    let (mut test, mut events) = Test::begun(Ids::Same).await;
    events.say(1, &note("first")).await;
    assert_eq!(test.hears().await["params"]["data"], "first");
    let large = "x".repeat(mcp_sessiond_proto::backends::RELAYED_MAX);
    // Its id has come before its data, or has not.
    for (id, after) in [("id: 2\n", Some("last-event-id: 2\r\n")), ("", None)] {
        // The client reads no further than it has to.
        let _ = events
            .0
            .write_all(format!("{id}data: {large}").as_bytes())
            .await;
        let again = test.asked("GET").await;
        let said = again
            .head
            .split_inclusive('\n')
            .find(|line| line.starts_with("last-event-id"));
        assert_eq!(said, after);
        events = again.events().await;
    }
    events.say(3, &note("third")).await;
    assert_eq!(test.hears().await["params"]["data"], "third");
    assert_eq!(test.news.recv().await, Some(News::TooLarge));
    assert!(test.news.try_recv().is_err());
}

#[tokio::test]
async fn a_call_whose_answer_is_too_large_is_not_asked_for_again() {
    let (mut test, _events) = Test::begun(Ids::Same).await;
    test.says(json!({"id": 8, "method": "tools/call"})).await;
    let mut stream = test.asked("tools/call").await.events().await;
    stream.say(1, &note("first")).await;
    assert_eq!(test.hears().await["params"]["data"], "first");
    let large = "x".repeat(mcp_sessiond_proto::backends::RELAYED_MAX);
    let _ = stream
        .0
        .write_all(format!("id: 2\ndata: {large}").as_bytes())
        .await;
    is_too_large(&test.hears().await, 8);
    test.says(json!({"id": 9, "method": "tools/call"})).await;
    let call = test.asked("tools/call").await;
    tokio::spawn(async move { call.result("", json!({"pad": large})).await });
    is_too_large(&test.hears().await, 9);
}

#[track_caller]
fn is_too_large(answer: &Value, id: u64) {
    assert_eq!(
        (&answer["id"], &answer["error"]["data"]["outcome"]),
        (&json!(id), &json!("unknown"))
    );
    assert!(
        answer["error"]["message"]
            .as_str()
            .is_some_and(|why| why.contains("`wrap.message_max_mib`")),
        "{answer}"
    );
}
