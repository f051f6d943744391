//! A world in which every message is unique, and everyone remembers what it has sent and seen.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::model::Input;
use super::*;

/// The longest line that this world writes.
const LONGEST: usize = 400;

/// What a host calls its `initialize`, and its `server/discover`.
const INIT: &str = r#""init""#;
const DISCOVER: &str = r#""discover""#;

/// Why a server is restarted in this world.
const BY_HAND: &str = "the server is restarted by `mcp-sessiond restart`";

#[derive(Default)]
pub(super) struct World {
    unique: u64,
    connection: Option<u64>,
    connections: u64,
    /// What the attached host can do, and whether it has said so.
    can: Value,
    greeted: bool,
    /// The attached host's open calls: what it called them, and what they are.
    open: BTreeMap<String, u64>,
    /// What the attached host has called its progress tokens.
    tokens: BTreeSet<u64>,
    /// Asks that the attached host has seen: their ids, and what they are.
    seen_asks: Vec<(Value, u64)>,
    /// What the running backend was handed: numbers, and what they are. None is of the relay's own.
    handed: Vec<(Value, Option<u64>, bool)>,
    /// Every id that any backend has ever seen.
    ids: BTreeSet<u64>,
    /// The running backend's open asks.
    asks: BTreeMap<u64, Value>,
    /// How many times the running backend has asked: each of them counts anew.
    asked: u64,
    notified: u64,
    told: u64,
    answered: BTreeSet<u64>,
    lives: bool,
    /// Which roots the attached host has.
    roots: u8,
    /// The running backend's requests for roots; and the connection of the host that it has heard
    /// from last, and what of: nothing is 0.
    root_asks: BTreeSet<u64>,
    has_asked_roots: bool,
    heard_roots: Option<(u64, u8)>,
    /// When the host of each call had made its first one, which host that is, and which roots it has.
    made: BTreeMap<u64, (u64, u64, u8)>,
    /// When the attached host has made its first call.
    began: Option<u64>,
    /// Whether the running backend has answered a ping.
    on_pong: bool,
}

impl World {
    fn next(&mut self) -> u64 {
        self.unique += 1;
        self.unique
    }

    /// A backend starts.
    pub(super) fn starts(&mut self, bench: &mut Bench) {
        bench.relay.backend_started(bench.now);
        self.lives = true;
    }

    /// Somebody does something, if they are there and are listened to.
    pub(super) fn take(&mut self, bench: &mut Bench, step: Input) {
        match step {
            Input::Attach {
                sampling,
                orderly,
                changed,
                discover,
                roots,
            } => {
                bench.relay.detach(0, orderly, bench.now);
                self.leave();
                self.connections += 1;
                self.connection = Some(self.connections);
                bench
                    .relay
                    .attach(None, changed.then_some("server.js"), bench.now);
                self.can = json!({});
                if sampling {
                    self.can["sampling"] = json!({});
                }
                if roots > 0 {
                    self.can["roots"] = json!({});
                }
                self.roots = roots;
                if discover {
                    let unique = self.next();
                    let params = json!({"u": unique});
                    let line =
                        json!({"id": "discover", "method": "server/discover", "params": params});
                    bench.front(&line.to_string());
                    self.open.insert(DISCOVER.into(), unique);
                } else {
                    self.greet(bench);
                }
            }
            Input::Detach { orderly } => {
                bench.relay.detach(0, orderly, bench.now);
                self.leave();
            }
            Input::Restart => bench.relay.restart(bench.now),
            _ if self.connection.is_none() && step.is_hosts() => {}
            _ if !bench.relay.reads_front() && step.is_hosts() => {}
            _ if !(self.lives && bench.relay.reads_backend()) && step.is_backends() => {}
            Input::Initialized => {
                if !self.greeted && !self.open.contains_key(DISCOVER) {
                    self.greet(bench);
                } else if self.greeted && !self.open.contains_key(INIT) {
                    bench.front(INITIALIZED);
                }
            }
            Input::Call { id, text, token } => {
                let id = if text {
                    format!("\"{id}\"")
                } else {
                    id.to_string()
                };
                if !self.open.contains_key(&id) && self.greeted && !self.open.contains_key(INIT) {
                    let unique = self.next();
                    self.open.insert(id.clone(), unique);
                    let began = *self.began.get_or_insert(bench.now);
                    self.made
                        .insert(unique, (began, self.connections, self.roots));
                    let meta = if token {
                        format!(r#"{{"progressToken":"{unique}"}}"#)
                    } else {
                        "{}".into()
                    };
                    self.tokens.insert(unique);
                    bench.front(&format!(
                        r#"{{"id":{id},"method":"x","params":{{"u":{unique},"_meta":{meta}}}}}"#
                    ));
                }
            }
            Input::Cancel(at) => {
                if let Some(id) = pick(&self.open.keys().cloned().collect::<Vec<_>>(), at) {
                    bench.front(&format!(
                        r#"{{"method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
                    ));
                }
            }
            Input::AnswerAsk(at) => {
                if let Some((id, unique)) = pick(&self.seen_asks, at) {
                    let roots = json!([{"uri": format!("file:///{}", self.roots)}]);
                    let by = self.connections;
                    let answer = match (self.is_about_roots(unique), self.roots) {
                        (false, _) => json!({"id": id, "result": {"u": unique}}),
                        (true, 0) => json!({"id": id, "error": {"code": -32601, "by": by}}),
                        (true, _) => {
                            json!({"id": id, "result": {"u": unique, "roots": roots, "by": by}})
                        }
                    };
                    bench.front(&answer.to_string());
                }
            }
            Input::AskRoots => {
                let unique = self.next();
                self.asked += 1;
                self.asks.insert(unique, json!(self.asked));
                self.root_asks.insert(unique);
                self.has_asked_roots = true;
                let line =
                    json!({"id": self.asked, "method": "roots/list", "params": {"u": unique}});
                bench.backend(&line.to_string());
            }
            Input::Answer(at, failed) => {
                if let Some((id, unique, first)) = pick(&self.handed, at) {
                    self.handed.retain(|(other, ..)| *other != id);
                    self.on_pong |= id.as_u64().is_some_and(|id| id >= (1 << 31) - 1024);
                    let key = if failed && !first { "error" } else { "result" };
                    let version = "2025-06-18";
                    let odd: &[u8] = match at / 8 % 8 {
                        1 | 2 => b"\"\xE9\"",
                        3 => b"NaN",
                        // The host gets an error in the place of what nobody can read.
                        4 if !first => b"\"\x01\"",
                        _ => b"{}",
                    };
                    let answer = json!({key: {"u": unique, "protocolVersion": version}, "id": id})
                        .to_string();
                    bench.backend_sends(&[b"{\"x\":", odd, b",", &answer.as_bytes()[1..]].concat());
                }
            }
            Input::Progress(at) => {
                if let Some((id, Some(unique), false)) = pick(&self.handed, at) {
                    let params = json!({"progressToken": id, "u": unique});
                    bench.backend(
                        &json!({"method": "notifications/progress", "params": params}).to_string(),
                    );
                }
            }
            Input::Notify => {
                self.notified += 1;
                bench.backend(&notice(self.notified));
            }
            Input::Ask { sampling } => {
                let unique = self.next();
                self.asked += 1;
                let id = if unique.is_multiple_of(2) {
                    json!(self.asked)
                } else {
                    json!(self.asked.to_string())
                };
                self.asks.insert(unique, id.clone());
                let method = if sampling {
                    "sampling/createMessage"
                } else {
                    "x"
                };
                bench.backend(
                    &json!({"id": id, "method": method, "params": {"u": unique}}).to_string(),
                );
            }
            Input::CancelAsk(at) => {
                if let Some((unique, id)) =
                    pick(&self.asks.clone().into_iter().collect::<Vec<_>>(), at)
                {
                    self.asks.remove(&unique);
                    let params = json!({"requestId": id});
                    bench.backend(
                        &json!({"method": "notifications/cancelled", "params": params}).to_string(),
                    );
                }
            }
            Input::PullFront(lines) => (0..lines).for_each(|_| {
                self.pull_front(bench);
            }),
            Input::PullBackend(lines) => (0..lines).for_each(|_| {
                self.pull_backend(bench);
            }),
            Input::Die { after } => {
                bench.now += after;
                if self.lives {
                    self.dies();
                    bench.dies();
                }
            }
            Input::Pass(time) => {
                bench.now += time;
                bench.relay.tick(bench.now);
            }
        }
        for order in bench.relay.effects() {
            match order {
                Effect::Say(_) | Effect::Learned(_) | Effect::Ended(_) => continue,
                Effect::Start => {}
                Effect::ReplaceUnused => {
                    assert!(self.lives, "nobody is there to be replaced");
                    self.is_replaced();
                }
                Effect::Replace { why, hangs } => {
                    assert!(self.lives, "nobody is there to be replaced");
                    assert!(
                        self.on_pong || !hangs,
                        "it may be one that never answers pings"
                    );
                    match &*why {
                        BY_HAND => self.dies(),
                        _ => self.is_replaced(),
                    }
                }
            }
            self.starts(bench);
        }
        let kept = &bench.relay.to_front;
        kept.assert_counts();
        bench.relay.to_backend.assert_counts();
        // Answers and words of our own for an attached front come on top: they are as many as it
        // has asked for.
        let own = self.open.len() + self.ids.len() + 8;
        assert!(
            kept.entries.len() <= LIMITS.queue_messages + own,
            "{}",
            kept.entries.len()
        );
        if self.connection.is_none() {
            assert!(kept.entries.len() <= LIMITS.queue_messages);
            assert!(kept.bytes <= LIMITS.queue_bytes + LONGEST);
        }
    }

    /// The attached host initialises.
    fn greet(&mut self, bench: &mut Bench) {
        bench.front(&initialize(INIT, "2025-06-18", &self.can.to_string()));
        self.open.insert(INIT.into(), 0);
        self.greeted = true;
    }

    /// What the former one had said and nobody was handed goes with it.
    fn is_replaced(&mut self) {
        self.dies();
        self.told = self.notified;
    }

    /// Whether an ask is for roots: the relay's own has no number of this world's.
    fn is_about_roots(&self, unique: u64) -> bool {
        unique == 0 || self.root_asks.contains(&unique)
    }

    fn dies(&mut self) {
        self.lives = false;
        self.heard_roots = None;
        self.on_pong = false;
        self.handed.clear();
        self.asks.clear();
        self.asked = 0;
    }

    fn leave(&mut self) {
        self.connection = None;
        self.began = None;
        self.greeted = false;
        self.open.clear();
        self.tokens.clear();
        self.seen_asks.clear();
    }

    /// The host reads a line, and checks that it is meant for it.
    fn pull_front(&mut self, bench: &mut Bench) -> bool {
        let Some(line) = bench.relay.pull_front() else {
            return false;
        };
        assert!(
            self.connection.is_some(),
            "nobody is there to be handed a line"
        );
        // This host puts up with what some do put up with.
        let line = String::from_utf8_lossy(&line).replace("NaN", "0");
        let line: Value = serde_json::from_str(&line).expect("json");
        let unique = |inner: &str| line[inner]["u"].as_u64();
        match (line["method"].as_str(), line.get("id")) {
            (None, Some(id)) => {
                let asked = self
                    .open
                    .remove(&id.to_string())
                    .expect("an answer to an open call of this front");
                if let Some(told) = unique("result").or(unique("error")).filter(|_| asked != 0) {
                    assert_eq!(told, asked, "an answer to another call");
                    assert!(self.answered.insert(told), "answered twice");
                }
            }
            (Some("notifications/message"), None) => {
                self.told += 1;
                assert_eq!(
                    line["params"]["n"], self.told,
                    "lost, twice or out of order"
                );
            }
            (Some("notifications/progress"), None) => {
                let token: u64 = line["params"]["progressToken"]
                    .as_str()
                    .expect("token")
                    .parse()
                    .expect("token");
                assert_eq!(unique("params"), Some(token), "progress of another call");
                assert!(self.tokens.contains(&token), "progress for another front");
            }
            (Some("notifications/cancelled"), None) => {
                let id = &line["params"]["requestId"];
                assert!(
                    self.seen_asks.iter().any(|(seen, _)| seen == id),
                    "cancelled what nobody saw"
                );
            }
            (Some("roots/list"), Some(id)) if line.get("params").is_none() => {
                assert!(self.has_asked_roots, "no backend has wanted to know");
                assert!(self.roots > 0, "this host can't be asked");
                self.seen_asks.push((id.clone(), 0));
            }
            (Some(_), Some(id)) => self
                .seen_asks
                .push((id.clone(), unique("params").expect("unique"))),
            other => panic!("{other:?}"),
        }
        true
    }

    /// The backend reads a line, and checks that it makes sense to it.
    fn pull_backend(&mut self, bench: &mut Bench) -> bool {
        let Some(line) = bench.relay.pull_backend() else {
            return false;
        };
        assert!(self.lives, "nobody is there to be handed a line");
        let line: Value = serde_json::from_slice(&line).expect("json");
        match (line["method"].as_str(), line.get("id")) {
            (Some(method), Some(id)) => {
                assert!(
                    self.ids.insert(id.as_u64().expect("number")),
                    "an id is used again"
                );
                let unique = line["params"]["u"].as_u64();
                let made = unique.and_then(|unique| self.made.get(&unique));
                if let (Some((began, by, own)), Some((connection, roots))) =
                    (made, self.heard_roots)
                {
                    // A host that does not answer has none, and is not waited for for ever: 2 s since
                    // it has called something.
                    let may_differ = connection >= *by
                        || bench.relay.limits.is_users
                        || roots == 0 && began + 2_000 <= bench.now;
                    assert!(
                        may_differ || roots == *own,
                        "a call in another host's folders"
                    );
                }
                let token = line["params"]["_meta"].get("progressToken");
                assert!(token.is_none_or(|token| token == id));
                self.handed.push((
                    id.clone(),
                    line["params"]["u"].as_u64(),
                    method == "initialize",
                ));
            }
            (None, Some(id)) => {
                let told = line["result"]["u"].as_u64();
                let asked = self.asks.iter().find(|(unique, other)| {
                    *other == id && told.is_none_or(|told| told == **unique)
                });
                // The answer to what was cancelled may come all the same.
                if let Some(unique) = asked.map(|(unique, _)| *unique) {
                    self.asks.remove(&unique);
                    if self.is_about_roots(unique) {
                        let given = line["result"]["roots"][0]["uri"].as_str();
                        let roots = given.map_or(0, |uri| uri[8..].parse().expect("a number"));
                        let by = [&line["result"]["by"], &line["error"]["by"]];
                        // Anything else is the relay's own answer.
                        if let Some(by) = by.iter().find_map(|by| by.as_u64()) {
                            self.heard_roots = Some((by, roots));
                        }
                    }
                } else {
                    assert!(
                        !self.asks.values().any(|other| other == id),
                        "the answer to another ask"
                    );
                }
            }
            _ => {}
        }
        true
    }

    /// A last host comes, and everyone does what is to be done.
    pub(super) fn settle(&mut self, bench: &mut Bench) {
        let attach = Input::Attach {
            sampling: true,
            orderly: false,
            changed: false,
            discover: false,
            roots: 1,
        };
        self.take(bench, attach);
        for round in 0..10_000 {
            self.take(bench, Input::Initialized);
            self.take(bench, Input::AnswerAsk(round));
            let read = self.pull_front(bench) | self.pull_backend(bench);
            self.take(bench, Input::Answer(0, false));
            if !self.lives {
                match bench.relay.next_deadline() {
                    Some(_) => bench.wait(),
                    // The server has ended and nobody wants another one, or the host was told
                    // that it ended at once. It tries again.
                    None => {
                        let (id, text, token) = (0, false, false);
                        self.take(bench, Input::Call { id, text, token });
                        if bench.relay.next_deadline().is_none() && !self.lives {
                            self.take(bench, attach);
                        }
                    }
                }
                self.take(bench, Input::Pass(0));
            }
            if !read
                && self.lives
                && self.handed.is_empty()
                && self.open.is_empty()
                && self.told == self.notified
            {
                return;
            }
        }
        panic!(
            "open {:?}, handed {:?}, told {} of {}",
            self.open, self.handed, self.told, self.notified
        );
    }
}

fn pick<T: Clone>(from: &[T], at: usize) -> Option<T> {
    from.get(at.checked_rem(from.len())?).cloned()
}
