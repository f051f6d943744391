//! One server and many clients: nothing of one reaches another, whatever happens in which
//! order.

mod rules;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Effect, Multiplexer, RECENT_MS};

/// Ids, tokens and resources that every host uses.
const IDS: u64 = 3;
const URIS: [&str; 3] = ["x:/a", "x:/a/b", "x:/ab"];

#[derive(Debug, Clone, Copy)]
enum Input {
    Come {
        able: bool,
        again: bool,
    },
    Leave(usize),
    Call {
        client: usize,
        id: u64,
        token: bool,
    },
    Cancel {
        client: usize,
        id: u64,
    },
    Subscribe {
        client: usize,
        uri: usize,
        is_on: bool,
    },
    AnswerAsk(usize),
    Answer {
        call: usize,
        failed: bool,
    },
    Progress(usize),
    Ask(usize),
    /// About a call that was answered just now.
    AskLate(usize),
    CancelAsk(usize),
    Updated(usize),
    Changed,
    Pass(u64),
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        2 => any::<[bool; 2]>().prop_map(|[able, again]| Input::Come { able, again }),
        1 => any::<usize>().prop_map(Input::Leave),
        8 => (any::<usize>(), 0..IDS, any::<bool>()).prop_map(|(client, id, token)| Input::Call { client, id, token }),
        2 => (any::<usize>(), 0..IDS).prop_map(|(client, id)| Input::Cancel { client, id }),
        2 => (any::<usize>(), 0..URIS.len(), any::<bool>())
            .prop_map(|(client, uri, is_on)| Input::Subscribe { client, uri, is_on }),
        2 => any::<usize>().prop_map(Input::AnswerAsk),
        6 => (any::<usize>(), any::<bool>()).prop_map(|(call, failed)| Input::Answer { call, failed }),
        4 => any::<usize>().prop_map(Input::Progress),
        4 => any::<usize>().prop_map(Input::Ask),
        1 => any::<usize>().prop_map(Input::AskLate),
        1 => any::<usize>().prop_map(Input::CancelAsk),
        2 => (0..URIS.len()).prop_map(Input::Updated),
        1 => Just(Input::Changed),
        1 => (0..400_000u64).prop_map(Input::Pass),
        1 => (0..RECENT_MS).prop_map(Input::Pass),
    ]
}

/// A call as the server has it.
struct Open {
    number: Value,
    token: Option<Value>,
    tag: Value,
    method: String,
}

/// What the model knows.
#[derive(Default)]
struct World {
    multiplexer: Multiplexer,
    now: u64,
    serial: u64,
    next_place: u64,
    clients: BTreeMap<u64, Host>,
    /// At the server.
    calls: Vec<Open>,
    /// Tags of calls that it has answered, and when.
    answered: Vec<(Value, u64)>,
    asks: BTreeMap<u64, (u64, bool)>,
    next_ask: u64,
    refused: u64,
    handed: u64,
}

#[derive(Default)]
struct Host {
    welcome: bool,
    /// Tags of open calls by id, the newest last.
    calls: BTreeMap<u64, Vec<String>>,
    tokens: BTreeMap<String, String>,
    subscribed: BTreeSet<usize>,
    /// Asks that it was handed.
    asks: Vec<u64>,
    /// Ids of calls that it has cancelled: there may be no answer.
    cancelled: BTreeSet<u64>,
}

fn pick<T>(all: &[T], at: usize) -> Option<&T> {
    if all.is_empty() {
        None
    } else {
        all.get(at % all.len())
    }
}

fn line(value: &Value) -> Bytes {
    value.to_string().into()
}

impl World {
    fn client(&self, at: usize) -> Option<u64> {
        let welcome: Vec<u64> = self
            .clients
            .iter()
            .filter(|(_, host)| host.welcome)
            .map(|(number, _)| *number)
            .collect();
        pick(&welcome, at).copied()
    }

    fn says(&mut self, client: u64, message: &Value) {
        self.multiplexer
            .from_client(client, &line(message), self.now);
    }

    fn hears(&mut self, message: &Value) {
        self.multiplexer.from_server(&line(message), self.now);
    }

    /// The server asks about a call.
    fn asks_about(&mut self, tag: &Value) {
        self.next_ask += 1;
        let params = json!({"message": tag});
        let ask = json!({"jsonrpc": "2.0", "id": self.next_ask, "method": "elicitation/create", "params": params});
        let client = tag
            .as_str()
            .and_then(|tag| tag.split('/').next()?.parse().ok())
            .unwrap_or_default();
        self.asks.insert(self.next_ask, (client, false));
        self.hears(&ask);
    }

    fn take(&mut self, step: Input) {
        match step {
            Input::Come { able, again } => {
                self.next_place += 1;
                let client = self.next_place;
                self.clients.insert(client, Host::default());
                let capabilities = if able {
                    json!({"elicitation": {}})
                } else {
                    json!({})
                };
                let params = json!({"protocolVersion": "2025-06-18", "capabilities": capabilities});
                let initialize =
                    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
                self.multiplexer.arrive(client, line(&initialize), again);
            }
            Input::Leave(at) => {
                let clients: Vec<u64> = self.clients.keys().copied().collect();
                if let Some(client) = pick(&clients, at) {
                    self.clients.remove(client);
                    self.multiplexer.leave(*client, self.now);
                }
            }
            Input::Call { client, id, token } => {
                let Some(client) = self.client(client) else {
                    return;
                };
                self.serial += 1;
                let tag = format!("{client}/{}", self.serial);
                let mut params = json!({"tag": tag});
                let Some(host) = self.clients.get_mut(&client) else {
                    return;
                };
                if token {
                    // The same text for different calls, of this client and of others.
                    let token = format!("t{id}");
                    params["_meta"] = json!({"progressToken": token});
                    host.tokens.insert(tag.clone(), token);
                }
                host.calls.entry(id).or_default().push(tag);
                self.says(
                    client,
                    &json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}),
                );
            }
            Input::Cancel { client, id } => {
                let Some(client) = self.client(client) else {
                    return;
                };
                self.clients.entry(client).or_default().cancelled.insert(id);
                let params = json!({"requestId": id});
                self.says(
                    client,
                    &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}),
                );
            }
            Input::Subscribe { client, uri, is_on } => {
                let Some(client) = self.client(client) else {
                    return;
                };
                let Some(host) = self.clients.get_mut(&client) else {
                    return;
                };
                let method = if is_on {
                    host.subscribed.insert(uri);
                    "resources/subscribe"
                } else {
                    host.subscribed.remove(&uri);
                    "resources/unsubscribe"
                };
                let params = json!({"uri": URIS[uri]});
                self.says(
                    client,
                    &json!({"jsonrpc": "2.0", "id": "s", "method": method, "params": params}),
                );
            }
            Input::AnswerAsk(at) => {
                let Some(client) = self.client(at) else {
                    return;
                };
                let asks = self
                    .clients
                    .get_mut(&client)
                    .map(|host| core::mem::take(&mut host.asks));
                for ask in asks.into_iter().flatten() {
                    self.says(
                        client,
                        &json!({"jsonrpc": "2.0", "id": ask, "result": {"by": client}}),
                    );
                }
                // Nobody is believed who answers for another.
                self.says(
                    client,
                    &json!({"jsonrpc": "2.0", "id": self.next_ask + 1, "result": {}}),
                );
            }
            Input::Answer { call, failed } => {
                if self.calls.is_empty() {
                    return;
                }
                let at = call % self.calls.len();
                let Open {
                    number,
                    tag,
                    method,
                    ..
                } = self.calls.remove(at);
                if method == "tools/call" {
                    self.answered.push((tag.clone(), self.now));
                }
                let result = match &*method {
                    "initialize" => {
                        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "tag": null})
                    }
                    _ => json!({"tag": tag}),
                };
                let answer = if failed {
                    json!({"jsonrpc": "2.0", "id": number, "error": {"code": 1, "message": "", "data": {"tag": tag}}})
                } else {
                    json!({"jsonrpc": "2.0", "id": number, "result": result})
                };
                self.hears(&answer);
            }
            Input::Progress(at) => {
                let Some(Open {
                    token: Some(token),
                    tag,
                    ..
                }) = pick(&self.calls, at)
                else {
                    return;
                };
                let params = json!({"progressToken": token, "message": tag});
                let progress =
                    json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
                self.hears(&progress);
            }
            Input::Ask(at) => {
                let plain: Vec<&Open> = self
                    .calls
                    .iter()
                    .filter(|call| call.method == "tools/call")
                    .collect();
                let Some(Open { tag, .. }) = pick(&plain, at) else {
                    return;
                };
                self.asks_about(&tag.clone());
            }
            Input::AskLate(at) => {
                let late: Vec<&Value> = self
                    .answered
                    .iter()
                    .filter(|(_, at)| self.now < at + RECENT_MS)
                    .map(|(tag, _)| tag)
                    .collect();
                let Some(tag) = pick(&late, at) else { return };
                self.asks_about(&(*tag).clone());
            }
            Input::CancelAsk(at) => {
                let asks: Vec<u64> = self.asks.keys().copied().collect();
                let Some(ask) = pick(&asks, at) else { return };
                self.asks.remove(ask);
                let params = json!({"requestId": ask});
                self.hears(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
            }
            Input::Updated(uri) => {
                let params = json!({"uri": URIS[uri]});
                self.hears(
                    &json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params}),
                );
            }
            Input::Changed => {
                self.hears(
                    &json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}),
                );
            }
            Input::Pass(ms) => self.now += ms,
        }
    }

    /// Checks what is to be done.
    fn look(&mut self) {
        for effect in self.multiplexer.effects() {
            match effect {
                Effect::Admit(client) => {
                    let host = self.clients.get_mut(&client).expect("it is there");
                    assert!(!core::mem::replace(&mut host.welcome, true));
                }
                Effect::Own(client, _) | Effect::Later(client, _) => {
                    drop(self.clients.remove(&client).expect("it is there"));
                }
                Effect::End => unreachable!("no server of this model is stopped"),
                Effect::ToServer(line) => {
                    self.server_gets(&serde_json::from_slice(&line).expect("JSON"));
                }
                Effect::ToClient(client, line) => {
                    self.client_gets(client, &serde_json::from_slice(&line).expect("JSON"));
                }
            }
        }
    }

    fn server_gets(&mut self, message: &Value) {
        match (
            message.get("method").and_then(Value::as_str),
            message.get("id"),
        ) {
            (Some(method), Some(id)) => {
                assert!(
                    self.calls.iter().all(|call| call.number != *id),
                    "{message}"
                );
                let (params, method) = (&message["params"], method.to_string());
                let token = params["_meta"].get("progressToken").cloned();
                assert!(token.is_none() || token.as_ref() == Some(id), "{message}");
                self.calls.push(Open {
                    number: id.clone(),
                    token,
                    tag: params["tag"].clone(),
                    method,
                });
            }
            (Some("notifications/cancelled"), None) => {
                let id = &message["params"]["requestId"];
                assert!(id.is_u64(), "{message}");
            }
            (Some(_), None) => {}
            (None, id) => {
                let id = id.and_then(Value::as_u64).expect("an ask's");
                let (client, handed) = self.asks.remove(&id).expect("it is open");
                match message["result"]["by"].as_u64() {
                    Some(by) => assert!(handed && by == client, "{message}"),
                    None => self.refused += 1,
                }
            }
        }
    }

    fn client_gets(&mut self, client: u64, message: &Value) {
        let own = |tag: &Value| {
            assert!(
                tag.as_str()
                    .is_some_and(|tag| tag.starts_with(&format!("{client}/"))),
                "{client}: {message}"
            );
            tag.as_str().unwrap_or_default().to_string()
        };
        let host = self.clients.get_mut(&client).expect("it is there");
        assert!(host.welcome);
        match (
            message.get("method").and_then(Value::as_str),
            &message["id"],
        ) {
            (None, id) if id == "s" => {}
            (None, id) => {
                let tag = own(if message["error"].is_null() {
                    &message["result"]["tag"]
                } else {
                    &message["error"]["data"]["tag"]
                });
                let calls = host
                    .calls
                    .get_mut(&id.as_u64().expect("an id"))
                    .expect("its own");
                let at = calls.iter().position(|of| *of == tag).expect("it is open");
                calls.remove(at);
            }
            (Some("notifications/progress"), _) => {
                let tag = own(&message["params"]["message"]);
                assert_eq!(message["params"]["progressToken"], *host.tokens[&tag]);
            }
            (Some("elicitation/create"), id) => {
                own(&message["params"]["message"]);
                let ask = id.as_u64().expect("a number");
                self.handed += 1;
                host.asks.push(ask);
                self.asks.get_mut(&ask).expect("it is open").1 = true;
            }
            (Some("notifications/cancelled"), _) => {
                let ask = message["params"]["requestId"].as_u64().expect("a number");
                let at = host.asks.iter().position(|of| *of == ask);
                at.map(|at| host.asks.remove(at));
            }
            (Some("notifications/resources/updated"), _) => {
                let uri = message["params"]["uri"].as_str().expect("a URI");
                let below =
                    |of: &usize| uri == URIS[*of] || uri.starts_with(&format!("{}/", URIS[*of]));
                assert!(host.subscribed.iter().any(below), "{client}: {message}");
            }
            (Some(method), _) => assert!(method.ends_with("list_changed"), "{message}"),
        }
    }

    /// Everything is answered: then every host has its answers, and no other ones.
    fn settle(&mut self) {
        while !self.calls.is_empty() {
            self.take(Input::Answer {
                call: 0,
                failed: false,
            });
            self.look();
        }
        for (client, host) in &self.clients {
            let waits = |(id, calls): (&u64, &Vec<String>)| {
                !calls.is_empty() && !host.cancelled.contains(id)
            };
            assert!(!host.calls.iter().any(waits), "{client} waits for ever");
        }
    }
}

proptest! {
    #[test]
    fn no_message_reaches_the_wrong_place(steps in prop::collection::vec(input(), 0..200)) {
        let mut world = World::default();
        for step in steps {
            world.take(step);
            world.look();
        }
        world.settle();
    }
}

/// A host that can be asked comes.
const COME: Input = Input::Come {
    able: true,
    again: false,
};

/// The server answers the first open call.
const ANSWER: Input = Input::Answer {
    call: 0,
    failed: false,
};

fn call(client: usize) -> Input {
    Input::Call {
        client,
        id: 0,
        token: false,
    }
}

/// How many asks were handed out, and how many refused.
fn asked(steps: impl IntoIterator<Item = Input>) -> (u64, u64) {
    let mut world = World::default();
    for step in steps {
        world.take(step);
        world.look();
    }
    let asked = (world.handed, world.refused);
    world.settle();
    asked
}

/// The test above means something: asks are handed out, and others are refused.
#[test]
fn asks_are_handed_out_where_one_place_has_calls() {
    let steps = [
        COME,
        ANSWER,
        COME,
        call(0),
        Input::Ask(0),
        Input::AnswerAsk(0),
        call(1),
        Input::Ask(0),
    ];
    assert_eq!(asked(steps), (1, 1));
}

#[test]
fn an_ask_about_a_call_that_was_cancelled_long_ago_is_nobody_else_s() {
    let cancel = Input::Cancel { client: 0, id: 0 };
    let wait = Input::Pass(400_000);
    assert_eq!(
        asked([
            COME,
            ANSWER,
            COME,
            call(0),
            cancel,
            wait,
            wait,
            call(1),
            Input::Ask(0)
        ]),
        (0, 1)
    );
}

#[test]
fn an_ask_after_its_answer_is_nobody_else_s() {
    let begun = [COME, ANSWER, COME, call(0), call(1), ANSWER];
    let with = |steps: &[Input]| asked(begun.into_iter().chain(steps.iter().copied()));
    assert_eq!(with(&[Input::AskLate(0)]), (0, 1));
    assert_eq!(
        with(&[Input::Pass(RECENT_MS - 1), Input::AskLate(0)]),
        (0, 1)
    );
    assert_eq!(
        with(&[Input::Pass(RECENT_MS), Input::Ask(0)]),
        (1, 0),
        "an ask about the call that is left"
    );
}
