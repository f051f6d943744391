//! A host that calls, servers that answer, ask and are killed, and attempts to connect that fail.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// What happens next. Numbers choose among what there is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    Call,
    Cancel(u8),
    Initialize,
    AnswerAsk(u8),
    Answer(u8, bool),
    Ask(u8),
    Connected,
    Fails(u8),
    Gone { on_purpose: bool },
    Pass(u8),
    Close,
}

impl Step {
    pub(super) fn of(what: u8, which: u8) -> Self {
        match what % 40 {
            0..10 => Self::Call,
            10 => Self::Cancel(which),
            11 => Self::Initialize,
            12..15 => Self::AnswerAsk(which),
            15..24 => Self::Answer(which, what.is_multiple_of(3)),
            24..28 => Self::Ask(which),
            28..33 => Self::Connected,
            33..35 => Self::Fails(which),
            35..37 => Self::Gone {
                on_purpose: which.is_multiple_of(2),
            },
            37..39 => Self::Pass(which),
            // Rarely, since nothing comes after it.
            _ if which.is_multiple_of(8) => Self::Close,
            _ => Self::Call,
        }
    }
}

/// A call of the host.
#[derive(Debug, Default)]
struct Call {
    answers: u32,
    is_cancelled: bool,
    is_initialize: bool,
    /// How many servers got it.
    sent: u32,
}

/// One server, from its connection to its end.
#[derive(Debug, Default)]
struct Server {
    number: u32,
    /// The calls that it has got and not answered.
    calls: Vec<u32>,
    /// What it has asked, by its own ids.
    asked: BTreeSet<u32>,
}

#[derive(Debug)]
pub(super) struct World {
    link: Link,
    now: Millis,
    calls: BTreeMap<u32, Call>,
    /// The ids under which the host was asked, and by which server.
    asks: Vec<(Value, u32)>,
    server: Option<Server>,
    servers: u32,
    is_connecting: bool,
    is_closed: bool,
    is_over: bool,
    /// The newest call that a server has got.
    newest: u32,
}

impl Default for World {
    fn default() -> Self {
        let mut world = Self {
            link: Link::new(POLICY),
            now: 1,
            calls: BTreeMap::new(),
            asks: Vec::new(),
            server: None,
            servers: 0,
            is_connecting: false,
            is_closed: false,
            is_over: false,
            newest: 0,
        };
        world.link.connect(world.now);
        world.carry_out();
        world
    }
}

impl World {
    pub(super) fn take(&mut self, step: Step) {
        if self.is_over {
            return;
        }
        match step {
            Step::Call | Step::Initialize if self.link.reads_host() => {
                let id = self.count() + 1;
                let is_initialize = matches!(step, Step::Initialize);
                let method = match is_initialize {
                    true => "initialize",
                    false => "tools/call",
                };
                let call = Call {
                    is_initialize,
                    ..Call::default()
                };
                self.calls.insert(id, call);
                self.host(&json!({"jsonrpc": "2.0", "id": id, "method": method}));
            }
            Step::Cancel(which) if self.link.reads_host() && !self.calls.is_empty() => {
                let id = u32::from(which) % self.count() + 1;
                let call = self.calls.get_mut(&id).expect("made");
                // MCP 2025-11-25, "Cancellation": not `initialize`.
                if !call.is_initialize {
                    call.is_cancelled = true;
                    let method = "notifications/cancelled";
                    let params = json!({"requestId": id});
                    self.host(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
                }
            }
            Step::AnswerAsk(which) if self.link.reads_host() && !self.asks.is_empty() => {
                let (id, of) = self.asks.remove(usize::from(which) % self.asks.len());
                self.host(&json!({"jsonrpc": "2.0", "id": id, "result": {"of": of}}));
            }
            Step::Answer(which, failed) => {
                let server = self.server.as_mut();
                let Some(server) = server.filter(|server| !server.calls.is_empty()) else {
                    return;
                };
                let id = server.calls.remove(usize::from(which) % server.calls.len());
                let error = json!({"code": 1, "message": "no"});
                let answer = match failed {
                    true => json!({"jsonrpc": "2.0", "id": id, "error": error}),
                    false => json!({"jsonrpc": "2.0", "id": id, "result": {}}),
                };
                self.on(In::FromServer(line(&answer)));
            }
            Step::Ask(id) => {
                let Some(server) = &mut self.server else {
                    return;
                };
                let id = u32::from(id) % 4;
                if server.asked.insert(id) {
                    let ask = json!({"jsonrpc": "2.0", "id": id, "method": "roots/list"});
                    self.on(In::FromServer(line(&ask)));
                }
            }
            Step::Connected if self.is_connecting => self.connected(),
            Step::Fails(how) if self.is_connecting => {
                self.is_connecting = false;
                self.on(In::Unreachable(match how % 3 {
                    0 => Unreachable::Stalled,
                    _ => Unreachable::Passing("no such program"),
                }));
            }
            Step::Gone { on_purpose } if self.server.is_some() => {
                self.server = None;
                self.on(In::Gone { on_purpose });
            }
            Step::Pass(by) => {
                self.now += u64::from(by) * 20;
                if self.link.due().is_some_and(|due| due <= self.now) {
                    self.on(In::Time);
                }
            }
            Step::Close => {
                self.is_closed = true;
                self.on(In::HostClosed);
            }
            _ => {}
        }
    }

    /// Whatever can still happen does, and then the host closes its end.
    pub(super) fn settle(&mut self) {
        for _ in 0..1_000 {
            let server = self.server.as_ref();
            if self.is_over {
                break;
            } else if self.is_connecting {
                self.take(Step::Connected);
            } else if server.is_some_and(|server| !server.calls.is_empty()) {
                self.take(Step::Answer(0, false));
            } else if let Some(due) = self.link.due() {
                self.now = due;
                self.on(In::Time);
            } else if !self.is_closed {
                self.take(Step::Close);
            }
        }
        assert!(self.is_over, "{self:?}");
        for (id, call) in &self.calls {
            // Whoever asks again before it was answered waits for the newer one.
            let may_lack = call.is_cancelled || call.is_initialize;
            let is_answered = call.answers == 1 || may_lack && call.answers == 0;
            assert!(is_answered, "{id}: {call:?}");
        }
    }

    fn count(&self) -> u32 {
        u32::try_from(self.calls.len()).expect("few")
    }

    fn connected(&mut self) {
        self.is_connecting = false;
        self.servers += 1;
        let server = Server {
            number: self.servers,
            ..Server::default()
        };
        self.server = Some(server);
        let unanswered = self
            .link
            .open
            .unanswered()
            .map(|asked| read(asked)["id"].clone());
        let prefix = format!("s{}", self.servers);
        self.link.on(In::Connected(&prefix), self.now);
        if let Some(id) = unanswered {
            let Some(Out::ToServer(first)) = self.link.out.front() else {
                panic!("the `initialize` goes before what was held")
            };
            assert_eq!(read(first)["id"], id);
        }
        self.carry_out();
    }

    fn host(&mut self, message: &Value) {
        self.on(In::Host(line(message)));
    }

    fn on(&mut self, what: In<'_>) {
        self.link.on(what, self.now);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while let Some(out) = self.link.next_out() {
            assert!(!self.is_over, "nothing comes after the end: {out:?}");
            match out {
                Out::Pass(line) => self.host_reads(&read(&line), false),
                Out::Answer(line) => self.host_reads(&read(&line), true),
                Out::ToServer(line) => self.server_reads(&read(&line)),
                Out::Connect => {
                    assert!(self.server.is_none() && !self.is_connecting);
                    self.is_connecting = true;
                }
                Out::Leave => assert!(self.is_closed),
                Out::End => self.is_over = true,
                Out::Used | Out::Say(_) => {}
            }
        }
    }

    fn host_reads(&mut self, message: &Value, ours: bool) {
        if message.get("method").is_some() {
            assert!(!ours);
            let of = self.server.as_ref().expect("it has just asked").number;
            let id = message["id"].clone();
            assert!(
                self.asks.iter().all(|(other, _)| *other != id),
                "ids are told apart"
            );
            return self.asks.push((id, of));
        }
        let id = u32::try_from(message["id"].as_u64().expect("an id")).expect("small");
        let call = self.calls.get_mut(&id).expect("it was made");
        call.answers += 1;
        assert_eq!(call.answers, 1, "{id} was answered twice");
        let is_not_sent = message["error"]["data"]["outcome"] == "not_sent";
        if ours && is_not_sent && !call.is_initialize {
            assert_eq!(call.sent, 0, "{id} was sent");
        }
    }

    fn server_reads(&mut self, message: &Value) {
        let server = self.server.as_mut().expect("there is one");
        if message.get("method").is_none() {
            // Its own question, and no other server's.
            assert_eq!(message["result"]["of"], server.number);
            let id = u32::try_from(message["id"].as_u64().expect("its own id")).expect("small");
            assert!(server.asked.contains(&id));
            return;
        }
        if message["method"] == "notifications/cancelled" {
            let id = message["params"]["requestId"].as_u64();
            return server.calls.retain(|call| Some(u64::from(*call)) != id);
        }
        let id = u32::try_from(message["id"].as_u64().expect("an id")).expect("small");
        let call = self.calls.get_mut(&id).expect("it was made");
        call.sent += 1;
        if !call.is_initialize {
            assert_eq!(call.sent, 1, "{id} was sent twice");
            assert!(id > self.newest, "in the order of the host");
            self.newest = id;
        }
        server.calls.push(id);
    }
}

proptest! {
    #[test]
    fn each_call_gets_one_answer_and_each_server_hears_what_is_its_own(
        steps in prop::collection::vec((any::<u8>(), any::<u8>()), 0..200),
    ) {
        let mut world = World::default();
        for (what, which) in steps {
            world.take(Step::of(what, which));
        }
        world.settle();
    }
}
