//! A backend that several hosts share: its clients, each the front of one host. To the relay they
//! are one front, which is always attached. Which message is whose
//! [`mcp_sessiond_relay::multiplexer`] decides.
//!
//! - `client`: the connection of one client. `losses`: what hosts have to be told of backends that
//!   ended.
//!
//! **Architecture Invariant:** a client's place ends with its connection, and nothing of it is
//! handed to another one.

mod client;
mod losses;

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;

use bytes::Bytes;
use mcp_sessiond_proto::LossId;
use mcp_sessiond_proto::backends::frame::Kind;
use mcp_sessiond_proto::backends::{Attached, Join, KeeperReply, SharedUse};
use mcp_sessiond_relay::multiplexer::{Effect, Multiplexer};
use tokio::sync::mpsc;
use tokio::time::Instant;

pub(super) use self::client::Event;
use self::client::{ClientWriter, read};
use self::losses::{Host, Losses};
use crate::frames::Frames;
use crate::lines::Line;
use crate::socket::SocketWriter;

/// Events of clients that wait to be dealt with. More keep their clients waiting.
const EVENTS: usize = 64;

/// Bytes that may wait for the backend. More keep all clients waiting.
const BACKLOG: usize = 4 * 1024 * 1024;

/// What hosts read of a restart by hand that are there.
const RESTARTS: &str =
    "mcp-sessiond: the server is restarted by `mcp-sessiond restart`; a fresh server is started\n";
/// What the others are told of it when they come.
const RESTARTED: &str = "the previous one was restarted by `mcp-sessiond restart`";

/// A front that asks for a place.
#[derive(Debug)]
pub struct NewClient {
    /// What it has asked.
    pub join: Join,
    /// Its host's first message.
    pub first: Bytes,
    /// What it says comes from here.
    pub reader: Frames,
    /// What it is told goes here.
    pub writer: SocketWriter,
}

/// Why there is no former backend any more.
pub(super) enum Former {
    /// It was lost: why, and by which number the daemon has that on record.
    Lost(String, Option<LossId>),
    /// Somebody has ended it on purpose.
    Ended(String),
}

struct Client {
    writer: ClientWriter,
    host: Host,
    /// How many ends of backends its host need not be told of, and was told of before.
    told: usize,
    /// How many ends it was sent; none before it is admitted.
    sent: Option<usize>,
}

/// The clients of a backend.
pub(super) struct Sharing {
    multiplexer: Multiplexer,
    losses: Losses,
    clients: BTreeMap<u64, Client>,
    /// The number of the latest client.
    latest: u64,
    /// Written by the task of each client, read by the keeper's loop.
    sender: mpsc::Sender<Event>,
    events: mpsc::Receiver<Event>,
    /// Lines for the backend.
    waiting: VecDeque<Bytes>,
    /// Bytes of them.
    backlog: usize,
}

impl Sharing {
    /// Nobody has come yet.
    pub(super) fn new(former: Option<Former>) -> Self {
        let (sender, events) = mpsc::channel(EVENTS);
        let (mut losses, now) = (Losses::default(), Instant::now());
        match former {
            Some(Former::Lost(why, record)) => losses.note(why, record, now),
            Some(Former::Ended(why)) => losses.note_renewal(why, now, []),
            None => {}
        }
        Self {
            multiplexer: Multiplexer::default(),
            losses,
            clients: BTreeMap::new(),
            latest: 0,
            sender,
            events,
            waiting: VecDeque::new(),
            backlog: 0,
        }
    }

    /// Whether no client is there.
    pub(super) fn is_alone(&self) -> bool {
        self.clients.is_empty()
    }

    /// How the backend is used.
    pub(super) fn usage(&self) -> SharedUse {
        SharedUse {
            hosts: self.multiplexer.clients(),
            withheld: self.multiplexer.withheld(),
        }
    }

    /// A front comes. It hears whether it has a place once the backend is initialised.
    pub(super) fn arrive(&mut self, new: NewClient) {
        let NewClient {
            join: Join { host, again, .. },
            first,
            reader,
            writer,
        } = new;
        self.latest += 1;
        let number = self.latest;
        tokio::spawn(read(reader, number, self.sender.clone()));
        if self.clients.values().any(|client| client.host == host) {
            self.losses.note_several(host);
        }
        let client = Client {
            writer: ClientWriter::new(writer),
            host,
            told: 0,
            sent: None,
        };
        self.clients.insert(number, client);
        self.multiplexer.arrive(number, first, again);
    }

    /// What a client does next, as long as there is room for it. May be dropped without loss.
    pub(super) async fn next(&mut self) -> Event {
        if self.backlog < BACKLOG
            && let Some(event) = self.events.recv().await
        {
            return event;
        }
        std::future::pending().await
    }

    /// Takes in what a client does. Returns the losses of which the daemon is to hear that a host
    /// was told. `now` is in ms.
    pub(super) fn handle(&mut self, event: Event, now: u64) -> Vec<LossId> {
        match event {
            Event::Line(client, Line::Whole(line)) => {
                self.multiplexer.from_client(client, &line, now);
            }
            Event::Line(client, Line::Oversized { head, tail }) => {
                self.multiplexer
                    .oversized_from_client(client, &head, &tail, now);
            }
            Event::Told(client, count) => {
                if let Some(client) = self.clients.get_mut(&client) {
                    client.told = client
                        .told
                        .saturating_add(count)
                        .min(client.sent.unwrap_or(0));
                    return self.losses.tell(client.host, client.told);
                }
            }
            Event::Left(client) => self.leave(client, now),
        }
        Vec::new()
    }

    /// Hands a line of the relay's to whom it is for.
    pub(super) fn hand_out(&mut self, line: &Bytes, now: u64) {
        self.multiplexer.from_server(line, now);
    }

    /// Carries out what the multiplexer wants.
    pub(super) fn apply(&mut self, now: u64) {
        loop {
            let effects = self.multiplexer.effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    Effect::ToServer(line) => {
                        self.backlog += line.len();
                        self.waiting.push_back(line);
                    }
                    Effect::ToClient(client, line) => {
                        let writer = self.clients.get(&client).map(|client| &client.writer);
                        // Nobody else waits for one that does not read.
                        if let Some(writer) = writer
                            && !writer.put(Kind::Line, line)
                        {
                            writer.cut();
                            self.leave(client, now);
                        }
                    }
                    Effect::Admit(client) => self.admit(client),
                    Effect::Own(client, why) => self.refuse(client, &KeeperReply::Own { why }, now),
                    Effect::Later(client, why) => {
                        self.refuse(client, &KeeperReply::Later { why }, now);
                    }
                    Effect::End => {
                        for client in self.clients.keys().copied().collect::<Vec<_>>() {
                            self.leave(client, now);
                        }
                    }
                }
            }
        }
    }

    /// Whether lines wait for the relay.
    pub(super) fn has_lines(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next line for the relay.
    pub(super) fn next_line(&mut self) -> Option<Bytes> {
        let line = self.waiting.pop_front()?;
        self.backlog -= line.len();
        Some(line)
    }

    /// A backend has ended by itself: each host is told why.
    pub(super) fn tell_loss(&mut self, why: &str) {
        self.losses.note(why.to_owned(), None, Instant::now());
        let count = self.losses.count();
        for client in self.clients.values_mut() {
            if let Some(sent) = &mut client.sent {
                for why in self.losses.from(*sent) {
                    // A host that does not read is cut off by its messages.
                    let _ = client.writer.put(Kind::Loss, why.to_owned().into());
                }
                *sent = count;
            }
        }
    }

    /// Somebody wants a fresh backend: hosts that are there see that in the server's log, and each other
    /// one is told when it comes.
    pub(super) fn note_restart(&mut self) {
        let there = self.clients.values().filter(|client| client.sent.is_some());
        for client in there.clone() {
            let _ = client.writer.put(Kind::Stderr, RESTARTS.into());
        }
        let hosts: Vec<Host> = there.map(|client| client.host).collect();
        self.losses
            .note_renewal(RESTARTED.to_owned(), Instant::now(), hosts);
    }

    /// Hangs up once every client has read what it was sent. `on_purpose`: they hear that the
    /// backend was stopped, so that none starts it again before it needs it.
    pub(super) fn end(self, on_purpose: bool) -> impl Future<Output = ()> {
        let ending = self.clients.into_values().map(move |client| {
            // Who waits for a place takes nothing else for one, and has its connection's end.
            if on_purpose && client.sent.is_some() {
                client.writer.put(Kind::Ending, Bytes::new());
            }
            client.writer.finish()
        });
        let ending = futures::future::join_all(ending);
        async move { drop(ending.await) }
    }

    /// A client has its place, and hears what its host has to be told.
    fn admit(&mut self, client: u64) {
        let Some(client) = self.clients.get_mut(&client) else {
            return;
        };
        let ended = self.losses.untold(client.host, Instant::now());
        let fresh = self.losses.renewal(client.host, Instant::now());
        let count = self.losses.count();
        (client.told, client.sent) = (count - ended.len(), Some(count));
        client.writer.reply(&KeeperReply::Attached(Attached {
            ended,
            fresh,
            ..Attached::default()
        }));
    }

    fn refuse(&mut self, client: u64, why: &KeeperReply, now: u64) {
        if let Some(client) = self.clients.get(&client) {
            client.writer.reply(why);
        }
        self.leave(client, now);
    }

    fn leave(&mut self, client: u64, now: u64) {
        if self.clients.remove(&client).is_some() {
            self.multiplexer.leave(client, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use mcp_sessiond_proto::backends::frame::FrameBuffer;
    use serde_json::{Value, json};
    use tokio::net::UnixStream;

    use super::*;

    fn line(message: &Value) -> Bytes {
        message.to_string().into()
    }

    /// A backend with so many clients, the other ends of whose connections are returned.
    fn shared(count: u32) -> (Sharing, Vec<UnixStream>) {
        let mut sharing = Sharing::new(None);
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
        let initialize =
            json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        let mut others = Vec::new();
        for host in 1..=count {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            let ours = ours.into_std().expect("a socket");
            let (reader, writer) = crate::socket::halves(ours).expect("descriptors");
            sharing.arrive(NewClient {
                join: Join {
                    key: "key".to_owned(),
                    host,
                    again: false,
                },
                first: line(&initialize),
                reader: Frames::new(reader, FrameBuffer::default()),
                writer,
            });
            others.push(theirs);
        }
        sharing.apply(0);
        let sent = sharing.next_line().expect("an initialize");
        let sent: Value = serde_json::from_slice(&sent).expect("JSON");
        let result = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
        answer(&mut sharing, &sent["id"], &result);
        while sharing.next_line().is_some() {}
        (sharing, others)
    }

    fn answer(sharing: &mut Sharing, id: &Value, result: &Value) {
        let answer = line(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
        sharing.hand_out(&answer, 0);
        sharing.apply(0);
    }

    /// A client makes a call, which the backend gets under the id that is returned.
    fn call(sharing: &mut Sharing, client: u64) -> Value {
        let call = json!({"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": {}});
        sharing.handle(Event::Line(client, Line::Whole(line(&call))), 0);
        sharing.apply(0);
        let sent = sharing.next_line().expect("a call");
        serde_json::from_slice::<Value>(&sent).expect("JSON")["id"].clone()
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_cut_off_and_no_other_one_waits() {
        let (mut sharing, _others) = shared(2);
        let large = "x".repeat(15 * 1024 * 1024);
        for round in 0..6 {
            assert_eq!(sharing.usage().hosts, 2, "after {round} answers");
            let id = call(&mut sharing, 1);
            answer(&mut sharing, &id, &json!(large));
        }
        assert_eq!(sharing.usage().hosts, 1);
        let id = call(&mut sharing, 2);
        answer(&mut sharing, &id, &json!({}));
        assert_eq!(sharing.usage().hosts, 1);
    }

    #[tokio::test]
    async fn clients_wait_while_too_much_waits_for_the_backend() {
        let (mut sharing, others) = shared(2);
        let text = "x".repeat(BACKLOG);
        let large = json!({"jsonrpc": "2.0", "method": "notifications/x", "params": {"x": text}});
        sharing.handle(Event::Line(1, Line::Whole(line(&large))), 0);
        sharing.apply(0);
        drop(others);
        // Both are gone, and that is not heard before there is room.
        tokio::task::yield_now().await;
        assert!(sharing.next().now_or_never().is_none());
        assert!(sharing.next_line().is_some());
        for _ in 0..2 {
            assert!(matches!(sharing.next().await, Event::Left(_)));
        }
    }
}
