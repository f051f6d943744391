//! Hosts that find out what a server speaks, servers of every temper, and kills, against a direct
//! run: a client that could initialise the server directly can also do so through the relay, and
//! finds its earlier state.

use mcp_sessiond_proto::facts::{Discover, Learned, PROBES_MAX};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::Probe;

/// What a server does with a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Temper {
    /// It answers it until it is initialised, and is initialised all the same.
    Answers,
    /// It answers it, and stays with the era that it got first.
    Sticks,
    Refuses,
    /// It refuses it when it gets the next message.
    RefusesLate,
    Exits,
    Mute,
}

/// How a client finds out what a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    /// It begins with `initialize`.
    Legacy,
    /// It probes, and goes on with either era on the same connection.
    InPlace,
    /// It probes on a process of its own, which it closes in an orderly way.
    Sibling,
    /// It speaks MCP 2026-07-28 alone.
    ModernOnly,
    /// The same as in place; its first probe is of a version that no server speaks.
    Corrective,
    /// It sends `initialize`, closes before the answer, and comes again.
    Retrying,
}

/// A server process, and how many calls it has had.
#[derive(Debug)]
struct Server {
    temper: Temper,
    initialized: bool,
    discovered: bool,
    late: Option<Value>,
    calls: u64,
}

/// What a server does.
#[derive(Default)]
struct Reaction {
    lines: Vec<Value>,
    exits: bool,
}

impl Server {
    fn new(temper: Temper) -> Self {
        Self {
            temper,
            initialized: false,
            discovered: false,
            late: None,
            calls: 0,
        }
    }

    fn refusal(id: &Value, code: i64) -> Value {
        json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}})
    }

    fn hears(&mut self, line: &Value) -> Reaction {
        let id = line["id"].clone();
        let mut reaction = Reaction::default();
        reaction.lines.extend(self.late.take());
        let result = |result: Value| json!({"jsonrpc": "2.0", "id": id, "result": result});
        match line["method"].as_str().unwrap_or_default() {
            "server/discover" if self.initialized => {
                reaction.lines.push(Self::refusal(&id, -32601));
            }
            "server/discover" => match self.temper {
                Temper::Answers | Temper::Sticks => {
                    if line["params"]["odd"] == true {
                        reaction.lines.push(Self::refusal(&id, -32022));
                    } else {
                        self.discovered = true;
                        reaction
                            .lines
                            .push(result(json!({"supportedVersions": ["2026-07-28"]})));
                    }
                }
                Temper::Refuses => reaction.lines.push(Self::refusal(&id, -32601)),
                Temper::RefusesLate => self.late = Some(Self::refusal(&id, -32602)),
                Temper::Exits => reaction.exits = true,
                Temper::Mute => {}
            },
            "initialize" if self.discovered && self.temper == Temper::Sticks => {
                reaction.lines.push(Self::refusal(&id, -32600));
            }
            "initialize" => {
                self.initialized = true;
                let told = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
                reaction.lines.push(result(told));
            }
            "tools/call" if self.initialized || self.discovered || self.is_modern() => {
                self.calls += 1;
                reaction.lines.push(result(json!({"count": self.calls})));
            }
            "ping" => reaction.lines.push(result(json!({}))),
            "tools/call" => reaction.lines.push(Self::refusal(&id, -32600)),
            _ => {}
        }
        reaction
    }

    fn is_modern(&self) -> bool {
        matches!(self.temper, Temper::Answers | Temper::Sticks)
    }
}

/// What a client learns from a connection: what its call was answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Counted(u64),
    /// It could not use the server.
    Failed,
    /// It closes, and begins anew.
    Closed,
}

/// A connection to a server, direct or not.
trait Line {
    /// Sends a request, and gives back its answer. None: silence, or the end.
    fn ask(&mut self, request: Value) -> Option<Value>;
    fn tell(&mut self, notice: Value);
    /// Whether the server has hung up.
    fn has_ended(&self) -> bool;
}

/// What a client does with a connection that was opened for it.
type Use<'a> = &'a mut dyn FnMut(&mut dyn Line) -> Outcome;

/// What a client does with one connection. `opens` gives it a further one.
fn connect(client: Client, opens: &mut dyn FnMut(Use<'_>) -> Outcome) -> Outcome {
    let probe = json!({"jsonrpc": "2.0", "id": "p", "method": "server/discover", "params": {}});
    let odd =
        json!({"jsonrpc": "2.0", "id": "o", "method": "server/discover", "params": {"odd": true}});
    match client {
        Client::Legacy => opens(&mut initialize_and_call),
        Client::Retrying => {
            opens(&mut |line| {
                line.tell(initialize_request());
                Outcome::Closed
            });
            opens(&mut initialize_and_call)
        }
        Client::ModernOnly => opens(&mut |line| match line.ask(probe.clone()) {
            Some(answer) if answer.get("result").is_some() => call_modern(line),
            _ => Outcome::Closed,
        }),
        Client::InPlace | Client::Corrective => {
            let first = if client == Client::Corrective {
                &odd
            } else {
                &probe
            };
            let outcome = opens(&mut |line| {
                let mut answer = line.ask(first.clone());
                if answer
                    .as_ref()
                    .is_some_and(|answer| answer["error"]["code"] == -32022)
                {
                    answer = line.ask(probe.clone());
                }
                match answer {
                    Some(answer) if answer.get("result").is_some() => call_modern(line),
                    _ if line.has_ended() => Outcome::Closed,
                    _ => initialize_and_call(line),
                }
            });
            if outcome == Outcome::Closed {
                return opens(&mut initialize_and_call);
            }
            outcome
        }
        Client::Sibling => {
            let mut is_modern = false;
            opens(&mut |line| {
                is_modern = line
                    .ask(probe.clone())
                    .is_some_and(|answer| answer.get("result").is_some());
                Outcome::Closed
            });
            if is_modern {
                opens(&mut |line| call_modern(line))
            } else {
                opens(&mut initialize_and_call)
            }
        }
    }
}

fn initialize_request() -> Value {
    let params =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x"}});
    json!({"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": params})
}

fn initialize_and_call(line: &mut dyn Line) -> Outcome {
    match line.ask(initialize_request()) {
        Some(answer) if answer.get("result").is_some() => {}
        _ => return Outcome::Failed,
    }
    line.tell(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    call_modern(line)
}

fn call_modern(line: &mut dyn Line) -> Outcome {
    let answer =
        line.ask(json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": {}}));
    answer
        .and_then(|answer| answer["result"]["count"].as_u64())
        .map_or(Outcome::Failed, Outcome::Counted)
}

/// Without the relay.
struct Direct {
    server: Option<Server>,
}

impl Line for Direct {
    fn ask(&mut self, request: Value) -> Option<Value> {
        let reaction = self.server.as_mut()?.hears(&request);
        if reaction.exits {
            self.server = None;
        }
        reaction
            .lines
            .into_iter()
            .find(|line| line["id"] == request["id"])
    }

    fn tell(&mut self, notice: Value) {
        self.ask(notice);
    }

    fn has_ended(&self) -> bool {
        self.server.is_none()
    }
}

fn directly(client: Client, temper: Temper) -> bool {
    let mut opens = |run: &mut dyn FnMut(&mut dyn Line) -> Outcome| {
        run(&mut Direct {
            server: Some(Server::new(temper)),
        })
    };
    matches!(connect(client, &mut opens), Outcome::Counted(_))
}

/// With the relay, and a front that knows what was learned.
struct Wrapped {
    relay: Relay,
    now: u64,
    server: Option<Server>,
    temper: Temper,
    starts: u64,
    known: Option<Discover>,
    probed: u32,
    is_attached: bool,
    only_probed: bool,
    answers: Vec<Value>,
}

impl Wrapped {
    fn new(temper: Temper) -> Self {
        let mut relay = Relay::new(LIMITS);
        relay.backend_started(1000);
        Self {
            relay,
            now: 1000,
            server: Some(Server::new(temper)),
            temper,
            starts: 1,
            known: None,
            probed: 0,
            is_attached: false,
            only_probed: false,
            answers: Vec::new(),
        }
    }

    fn settle(&mut self) {
        loop {
            for effect in self.relay.effects() {
                match effect {
                    Effect::Start | Effect::Replace { .. } | Effect::ReplaceUnused => {
                        self.server = Some(Server::new(self.temper));
                        self.starts += 1;
                        self.relay.backend_started(self.now);
                    }
                    Effect::Learned(Learned::Discover(discover)) => self.known = Some(discover),
                    Effect::Learned(Learned::Initialized {}) => self.probed = 0,
                    Effect::Learned(Learned::Forgotten {}) => self.known = None,
                    Effect::Learned(Learned::Probed {}) => self.probed += 1,
                    Effect::Learned(Learned::Version(_)) => {}
                    Effect::Say(_) | Effect::Ended(_) => {}
                }
            }
            while let Some(line) = self.relay.pull_front() {
                self.answers
                    .push(serde_json::from_slice(&line).expect("JSON"));
            }
            let Some(line) = self.relay.pull_backend() else {
                return;
            };
            let line = serde_json::from_slice(&line).expect("JSON");
            let Some(server) = &mut self.server else {
                continue;
            };
            let reaction = server.hears(&line);
            for line in reaction.lines {
                self.relay.from_backend(line.to_string().into(), self.now);
            }
            if reaction.exits {
                self.dies();
            }
        }
    }

    fn dies(&mut self) {
        if self.server.take().is_some() {
            self.relay.backend_exited("exit status: 1", None, self.now);
        }
    }

    /// A server that has lived for long is killed.
    fn kill(&mut self) {
        self.now += 20_000;
        self.dies();
    }

    /// A front of a new connection. `cut`: it is killed at its end.
    fn opens(&mut self, cut: bool, run: &mut dyn FnMut(&mut dyn Line) -> Outcome) -> Outcome {
        self.is_attached = false;
        self.only_probed = false;
        self.answers.clear();
        let outcome = run(self);
        self.probed += u32::from(self.only_probed);
        if self.is_attached {
            self.relay.detach(0, !cut, self.now);
        }
        // Closes that are further apart than three in a minute.
        self.now += 61_000;
        self.relay.tick(self.now);
        self.settle();
        outcome
    }

    /// What the front answers in the server's place, before it claims anything.
    fn front_answers(&mut self, line: &Bytes) -> Option<Bytes> {
        let probe = Probe::of(line).filter(|_| !self.is_attached)?;
        let is_last = self.probed >= PROBES_MAX;
        let known = self
            .known
            .as_ref()
            .filter(|known| known.is_answered_for())?;
        if is_last {
            (self.known, self.probed) = (None, 0);
            return None;
        }
        self.only_probed = true;
        Some(probe.refusal(Some(known)))
    }
}

impl Line for Wrapped {
    fn ask(&mut self, request: Value) -> Option<Value> {
        let id = request["id"].clone();
        self.tell(request);
        // As long as a client waits for an answer.
        for _ in 0..4 {
            if let Some(at) = self.answers.iter().position(|line| line["id"] == id) {
                return Some(self.answers.remove(at));
            }
            match self.relay.next_deadline() {
                Some(at) if at <= self.now + 5_000 => self.now = self.now.max(at),
                _ => break,
            }
            self.relay.tick(self.now);
            self.settle();
        }
        None
    }

    fn tell(&mut self, notice: Value) {
        let line = Bytes::from(notice.to_string());
        if let Some(answer) = self.front_answers(&line) {
            self.answers
                .push(serde_json::from_slice(&answer).expect("JSON"));
            return;
        }
        self.only_probed = false;
        if !self.is_attached {
            self.is_attached = true;
            self.relay.attach(None, None, self.now);
        }
        self.relay.from_front(line, self.now);
        self.settle();
    }

    fn has_ended(&self) -> bool {
        false
    }
}

fn temper() -> impl Strategy<Value = Temper> {
    use Temper::*;
    prop::sample::select(vec![Answers, Sticks, Refuses, RefusesLate, Exits, Mute])
}

fn client() -> impl Strategy<Value = Client> {
    use Client::*;
    prop::sample::select(vec![
        Legacy, InPlace, Sibling, ModernOnly, Corrective, Retrying,
    ])
}

/// Whether the server may be replaced for the sake of the client's era: it stays with the one that
/// another client has begun, or the last two have only probed.
fn may_be_replaced(former: &[Client], client: Client, temper: Temper) -> bool {
    let sticks = temper == Temper::Sticks && former.last().is_some_and(|former| *former != client);
    sticks || former.ends_with(&[Client::ModernOnly, Client::ModernOnly])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    #[test]
    fn what_works_directly_works_through_it_and_goes_on(
        temper in temper(),
        clients in prop::collection::vec((client(), any::<bool>(), prop::bool::weighted(0.2)), 1..8),
    ) {
        let mut wrapped = Wrapped::new(temper);
        let mut count = 0;
        let mut former = Vec::new();
        for (client, cut, kills) in clients {
            if kills && count > 0 {
                wrapped.kill();
                count = 0;
            }
            let outcome = connect(client, &mut |run| wrapped.opens(cut, run));
            match outcome {
                Outcome::Counted(now) if now == 1 && may_be_replaced(&former, client, temper) => count = 1,
                Outcome::Counted(now) => {
                    prop_assert_eq!(now, count + 1, "{:?} with {:?}", client, temper);
                    count = now;
                }
                // A client of one era alone, while the server has been begun in the other: it tries
                // again, and the third time it is served if it could be directly.
                _ if client == Client::ModernOnly && !former.is_empty() => {}
                _ => prop_assert!(!directly(client, temper), "{:?} with {:?}", client, temper),
            }
            former.push(client);
        }
    }

    /// One client that comes again and again has one server, but for the one that a probe ends.
    #[test]
    fn a_client_keeps_its_server(temper in temper(), client in client(), cuts in prop::collection::vec(any::<bool>(), 1..8)) {
        prop_assume!(directly(client, temper));
        let mut wrapped = Wrapped::new(temper);
        for (at, cut) in cuts.into_iter().enumerate() {
            let outcome = connect(client, &mut |run| wrapped.opens(cut, run));
            prop_assert_eq!(outcome, Outcome::Counted(at as u64 + 1));
        }
        let probes = matches!(client, Client::InPlace | Client::Sibling | Client::Corrective);
        prop_assert_eq!(wrapped.starts, 1 + u64::from(probes && temper == Temper::Exits));
    }
}

/// A client that speaks MCP 2026-07-28 alone gets to a server that speaks it, at its third try,
/// whoever was there before.
#[test]
fn a_client_of_one_era_gets_there() {
    for temper in [Temper::Answers, Temper::Sticks] {
        let mut wrapped = Wrapped::new(temper);
        connect(Client::Legacy, &mut |run| wrapped.opens(false, run));
        let tries: Vec<_> = (0..3)
            .map(|_| connect(Client::ModernOnly, &mut |run| wrapped.opens(false, run)))
            .collect();
        assert_eq!(
            tries,
            [Outcome::Closed, Outcome::Closed, Outcome::Counted(1)],
            "{temper:?}"
        );
    }
}
