//! A way to the server on which requests and answers come to grief.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinHandle;

/// What becomes of a request.
pub(super) enum Fate {
    Pass,
    /// It is done, and its answer is lost.
    Lose,
    /// The same; but that is found out when the latter tells, and the former tells when it is done.
    Hold(Arc<Notify>, Arc<Notify>),
    /// It goes on when the latter tells; the former tells when it has come.
    Delay(Arc<Notify>, Arc<Notify>),
    /// It is refused: there are too many.
    Throttle,
    /// It fails, and was not done.
    Fail,
    /// Of a batch, nothing is done.
    LeaveUndone,
}

/// A request as it is seen on the way.
pub(super) struct Request {
    pub(super) operation: String,
    pub(super) body: Value,
}

impl Request {
    /// Whether it would change a head.
    pub(super) fn is_commit(&self) -> bool {
        // The sort key of heads is one zero byte.
        self.puts("AA==")
    }

    /// Whether it would write the row with this sort key, in base64.
    pub(super) fn puts(&self, sort_key: &str) -> bool {
        self.operation == "PutItem" && self.body["Item"]["sk"]["B"] == sort_key
    }
}

/// It goes when it is dropped.
pub(super) struct Proxy {
    pub(super) url: String,
    task: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    /// Before a server, with what decides on each request.
    pub(super) async fn new(
        server: String,
        fate: impl Fn(&Request) -> Fate + Send + Sync + 'static,
    ) -> Self {
        let server = server.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let fate = Arc::new(fate);
        let task = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let (server, fate) = (server.clone(), fate.clone());
                tokio::spawn(async move {
                    while serve(&mut stream, &server, &*fate).await.is_some() {}
                });
            }
        });
        Self { url, task }
    }
}

/// Serves one request. None: the connection is at its end.
async fn serve(
    stream: &mut TcpStream,
    server: &str,
    fate: &(dyn Fn(&Request) -> Fate + Send + Sync),
) -> Option<()> {
    let message = message(stream).await?;
    let head = String::from_utf8_lossy(&message.bytes[..message.body]).to_lowercase();
    let operation = header(&head, "x-amz-target")?
        .rsplit_once('.')?
        .1
        .to_owned();
    let body = serde_json::from_slice(&message.bytes[message.body..]).ok()?;
    // The names of operations were made small with everything else in the head.
    let names = ["PutItem", "BatchWriteItem", "BatchGetItem"];
    let operation = names
        .into_iter()
        .find(|name| name.to_lowercase() == operation)
        .map_or(operation, String::from);
    let request = Request { operation, body };
    match fate(&request) {
        Fate::Pass => {
            let answer = answer(server, &message.bytes).await?;
            stream.write_all(&answer).await.ok()
        }
        Fate::Lose => {
            answer(server, &message.bytes).await?;
            None
        }
        Fate::Hold(done, found_out) => {
            answer(server, &message.bytes).await?;
            done.notify_one();
            found_out.notified().await;
            None
        }
        Fate::Delay(come, go_on) => {
            come.notify_one();
            go_on.notified().await;
            let answer = answer(server, &message.bytes).await?;
            stream.write_all(&answer).await.ok()
        }
        Fate::Throttle => {
            let code = "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException";
            reply(
                stream,
                "400 Bad Request",
                &json!({"__type": code, "message": "too many"}),
            )
            .await
        }
        Fate::Fail => {
            let code = "com.amazonaws.dynamodb.v20120810#InternalServerError";
            reply(
                stream,
                "500 Internal Server Error",
                &json!({"__type": code, "message": "secret"}),
            )
            .await
        }
        Fate::LeaveUndone if request.operation == "BatchWriteItem" => {
            reply(
                stream,
                "200 OK",
                &json!({"UnprocessedItems": request.body["RequestItems"]}),
            )
            .await
        }
        Fate::LeaveUndone => {
            let answer = json!({"Responses": {}, "UnprocessedKeys": request.body["RequestItems"]});
            reply(stream, "200 OK", &answer).await
        }
    }
}

async fn reply(stream: &mut TcpStream, status: &str, body: &Value) -> Option<()> {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: {}",
        body.len()
    );
    stream
        .write_all(format!("{head}\r\n\r\n{body}").as_bytes())
        .await
        .ok()
}

/// DynamoDB changes an item at one point. Moto looks at it and writes it in two steps, and between them
/// another of its threads may do so, too.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

async fn answer(server: &str, request: &[u8]) -> Option<Vec<u8>> {
    let _one = ONE_AT_A_TIME.lock().await;
    let mut stream = TcpStream::connect(server).await.ok()?;
    stream.write_all(request).await.ok()?;
    Some(message(&mut stream).await?.bytes)
}

/// A request or an answer, and where its body begins.
struct Message {
    bytes: Vec<u8>,
    body: usize,
}

async fn message(stream: &mut TcpStream) -> Option<Message> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length: usize = header(&head, "content-length")?.parse().ok()?;
            let body = end + 4;
            while bytes.len() < body + length {
                more(stream, &mut bytes).await?;
            }
            return Some(Message { bytes, body });
        }
        more(stream, &mut bytes).await?;
    }
}

async fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<()> {
    stream
        .read_buf(bytes)
        .await
        .ok()
        .filter(|read| *read > 0)
        .map(|_| ())
}

/// A header of a head in small letters.
fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}
