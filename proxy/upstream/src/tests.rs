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

use crate::{Ids, News, Pipe, Remote, SaveState, connect};

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

    fn tell(&self, news: News) {
        let _ = self.0.send(news);
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
    pipe: Pipe,
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
        let pipe = connect(remote, None, Arc::new(Telling(tell)), ids).expect("a connection");
        Self {
            pipe,
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
        self.pipe
            .to
            .send(Bytes::from(message.to_string()))
            .await
            .expect("it listens");
    }

    async fn hears(&mut self) -> Value {
        let said = soon("a message", self.pipe.from.recv())
            .await
            .expect("a message");
        serde_json::from_slice(&said.line).expect("JSON")
    }
}

fn note(data: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": data}})
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
    assert_eq!(test.news.recv().await, Some(News::Forgotten));
}

#[tokio::test]
async fn an_event_that_is_too_large_is_skipped_and_told_once() {
    let (mut test, mut events) = Test::begun(Ids::Same).await;
    events.say(1, &note("first")).await;
    assert_eq!(test.hears().await["params"]["data"], "first");
    let large = "x".repeat(mcp_sessiond_relay::sse::EVENT_MAX);
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
    let large = "x".repeat(mcp_sessiond_relay::sse::EVENT_MAX);
    let _ = stream
        .0
        .write_all(format!("id: 2\ndata: {large}").as_bytes())
        .await;
    let answer = test.hears().await;
    assert_eq!(
        (&answer["id"], &answer["error"]["data"]["outcome"]),
        (&json!(8), &json!("unknown"))
    );
    assert!(
        answer["error"]["message"]
            .as_str()
            .is_some_and(|why| why.contains("16 MiB")),
        "{answer}"
    );
}
