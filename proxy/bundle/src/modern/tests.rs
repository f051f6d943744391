//! Lines between a bundle and a server of 2026-07-28.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant};

use super::between::{Out, Translation as _, translated};
use super::server::ServerTranslation;
use crate::pipe::{End, Pipe, Receipt, TrackedLine};

/// A bundle and a server, with a translation between.
struct World {
    translation: ServerTranslation,
    now: Instant,
}

fn line(message: &Value) -> Bytes {
    message.to_string().into()
}

/// What goes to the server, and what to the bundle.
fn sorted(out: Vec<Out>) -> (Vec<Value>, Vec<Value>) {
    let (mut server, mut bundle) = (Vec::new(), Vec::new());
    for one in out {
        let (to, line) = match &one {
            Out::Server(line) => (&mut server, line),
            Out::Host(line) | Out::Question(line) => (&mut bundle, line),
        };
        to.push(serde_json::from_slice(line).expect("JSON"));
    }
    (server, bundle)
}

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

impl World {
    fn new(discovers: bool) -> Self {
        let translation = ServerTranslation::new(Arc::new(AtomicBool::new(discovers)));
        let now = Instant::now();
        Self { translation, now }
    }

    fn bundle(&mut self, message: &Value) -> (Vec<Value>, Vec<Value>) {
        sorted(self.translation.on_host(line(message), self.now))
    }

    fn server(&mut self, message: &Value) -> (Vec<Value>, Vec<Value>) {
        sorted(self.translation.on_server(line(message), self.now))
    }

    fn later(&mut self, time: Duration) -> (Vec<Value>, Vec<Value>) {
        self.now += time;
        sorted(self.translation.on_time(self.now))
    }

    /// A server that has refused `initialize`, and answers `server/discover`.
    fn modern() -> Self {
        let mut world = Self::new(false);
        assert_eq!(world.bundle(&initialize()), (vec![initialize()], vec![]));
        let (asked, said) = world.server(&refused(-32022));
        assert_eq!((asked.len(), said.len()), (1, 0));
        let (asked, said) = world.server(&discovered(&asked[0]));
        assert_eq!(asked, Vec::<Value>::new());
        assert_eq!(said[0]["result"]["protocolVersion"], "2025-06-18");
        assert_eq!(said[0]["result"]["serverInfo"]["name"], "s");
        world
    }

    /// A call, as the server gets it.
    fn call(&mut self, id: u64) -> Value {
        let params = json!({"name": "t", "_meta": {"progressToken": 7}});
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        let (mut asked, said) = self.bundle(&call);
        assert_eq!((asked.len(), said.len()), (1, 0));
        let asked = asked.remove(0);
        let meta = &asked["params"]["_meta"];
        assert_eq!(
            (&meta[VERSION], &meta["progressToken"]),
            (&json!("2026-07-28"), &json!(7))
        );
        asked
    }
}

fn initialize() -> Value {
    let client = json!({"name": "h", "version": "1"});
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {"sampling": {}}, "clientInfo": client});
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
}

fn refused(code: i64) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "no"}})
}

fn discovered(asked: &Value) -> Value {
    assert_eq!(asked["method"], "server/discover");
    assert_eq!(asked["params"]["_meta"][VERSION], "2026-07-28");
    let server = json!({"name": "s", "version": "1"});
    let capabilities = json!({"tools": {"listChanged": true}, "resources": {"subscribe": true}});
    let result = json!({
        "supportedVersions": ["2026-07-28"], "capabilities": capabilities,
        "_meta": {"io.modelcontextprotocol/serverInfo": server},
    });
    result_of(&asked["id"], &result)
}

fn result_of(id: &Value, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

fn wants(id: &Value, keys: &[&str]) -> Value {
    let requests: Value = keys
        .iter()
        .map(|key| {
            (
                (*key).to_owned(),
                json!({"method": "elicitation/create", "params": {}}),
            )
        })
        .collect::<serde_json::Map<_, _>>()
        .into();
    let result =
        json!({"resultType": "input_required", "inputRequests": requests, "requestState": "s"});
    result_of(id, &result)
}

#[test]
fn one_that_takes_initialize_is_not_changed() {
    let mut world = World::new(false);
    world.bundle(&initialize());
    let answer = result_of(&json!(1), &json!({"protocolVersion": "2025-06-18"}));
    assert_eq!(world.server(&answer), (vec![], vec![answer]));
    // Not even what can't be read.
    let odd = Bytes::from_static(b"[1,\xff");
    let passed = world.translation.on_server(odd.clone(), world.now);
    assert_eq!(passed, [Out::Host(odd.clone())]);
    let passed = world.translation.on_host(odd.clone(), world.now);
    assert_eq!(passed, [Out::Server(odd)]);
}

#[test]
fn one_that_refuses_both_has_its_own_error() {
    let others = [
        json!({"error": {"code": -32601, "message": "what?"}}),
        json!({"result": {"supportedVersions": ["2027-01-01"]}}),
    ];
    for other in others {
        let mut world = World::new(false);
        world.bundle(&initialize());
        let (asked, _) = world.server(&refused(-32000));
        let mut answer = json!({"jsonrpc": "2.0", "id": asked[0]["id"]});
        for (name, value) in other.as_object().expect("an object") {
            answer[name] = value.clone();
        }
        assert_eq!(world.server(&answer), (vec![], vec![refused(-32000)]));
    }
    // So has one that does not answer.
    let mut world = World::new(false);
    world.bundle(&initialize());
    world.server(&refused(-32602));
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    assert_eq!(world.bundle(&cancelled), (vec![], vec![]));
    assert_eq!(world.later(Duration::from_secs(4)), (vec![], vec![]));
    assert_eq!(
        world.later(Duration::from_secs(1)),
        (vec![cancelled], vec![refused(-32602)])
    );
}

#[test]
fn what_has_become_of_initialize_on_its_way_is_no_refusal() {
    let mut world = World::new(false);
    world.bundle(&initialize());
    let mut lost = refused(-32000);
    lost["error"]["data"] = json!({"outcome": "unknown"});
    assert_eq!(world.server(&lost), (vec![], vec![lost]));
}

#[test]
fn one_that_has_ended_on_initialize_is_asked_by_discover_first() {
    let mut world = World::new(true);
    let (asked, _) = world.bundle(&initialize());
    let (_, said) = world.server(&discovered(&asked[0]));
    assert_eq!(said[0]["result"]["serverInfo"]["name"], "s");
    // And one that does not know that by `initialize` then.
    let mut world = World::new(true);
    let (asked, _) = world.bundle(&initialize());
    let mut unknown = refused(-32601);
    unknown["id"] = asked[0]["id"].clone();
    assert_eq!(world.server(&unknown), (vec![initialize()], vec![]));
}

#[test]
fn what_the_server_wants_to_know_is_asked_and_the_call_is_made_again() {
    let mut world = World::modern();
    let mut asked = world.call(5);
    for round in 1..=2 {
        let (again, questions) = world.server(&wants(&asked["id"], &["a:1", "b/\"2"]));
        assert_eq!((again.len(), questions.len()), (0, 2));
        let first = world.bundle(&result_of(&questions[0]["id"], &json!({"n": round})));
        assert_eq!(first, (vec![], vec![]));
        // Whoever answers twice has answered.
        assert_eq!(
            world.bundle(&result_of(&questions[1]["id"], &json!({"n": round}))),
            {
                let mut params = asked["params"].clone();
                params["inputResponses"] = json!({"a:1": {"n": round}, "b/\"2": {"n": round}});
                params["requestState"] = json!("s");
                asked = json!({
                    "jsonrpc": "2.0", "id": format!("mcp-sessiond/modern/round/{round}:5"),
                    "method": "tools/call", "params": params,
                });
                (vec![asked.clone()], vec![])
            }
        );
    }
    let done = json!({"content": [], "resultType": "complete"});
    let answered = world.server(&result_of(&asked["id"], &done));
    assert_eq!(answered, (vec![], vec![result_of(&json!(5), &done)]));
}

#[test]
fn a_server_that_never_has_enough_is_not_asked_for_ever() {
    let mut world = World::modern();
    let mut id = world.call(5)["id"].clone();
    let error = loop {
        let (_, said) = world.server(&wants(&id, &[]));
        if let [said] = &said[..] {
            break said.clone();
        }
        // It is busy, and has a moment.
        assert_eq!(world.later(Duration::from_millis(249)), (vec![], vec![]));
        let (again, _) = world.later(Duration::from_millis(1));
        id = again[0]["id"].clone();
    };
    assert_eq!(error["id"], 5);
    let why = error["error"]["message"].as_str().expect("a sentence");
    assert!(why.contains("32 times"), "{why}");
}

#[test]
fn a_call_that_is_cancelled_asks_nothing_more() {
    let mut world = World::modern();
    let cancel = |id: &Value| json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    world.call(5);
    assert_eq!(
        world.bundle(&cancel(&json!(5))),
        (vec![cancel(&json!(5))], vec![])
    );
    let asked = world.call(6);
    let (_, questions) = world.server(&wants(&asked["id"], &["a"]));
    let (to_server, to_host) = world.bundle(&cancel(&json!(6)));
    assert_eq!(to_server, Vec::<Value>::new());
    assert_eq!(to_host[0]["params"]["requestId"], questions[0]["id"]);
    let late = world.bundle(&result_of(&questions[0]["id"], &json!({})));
    // The call is over, and has no answer twice: the bundle drops that.
    assert!(late.0.is_empty());
}

#[test]
fn what_a_former_front_has_asked_is_told_to_be_unknown() {
    let question = {
        let mut former = World::modern();
        let asked = former.call(5);
        former
            .server(&wants(&asked["id"], &["a:1/\"x"]))
            .1
            .remove(0)
    };
    let mut world = World::modern();
    let (asked, said) = world.bundle(&result_of(&question["id"], &json!({})));
    assert_eq!((asked.len(), &said[0]["id"]), (0, &json!(5)));
    let why = said[0]["error"]["message"].as_str().expect("a sentence");
    assert!(why.contains("it is not known"), "{why}");
    // The same if the question itself comes again.
    let (_, said) = world.server(&wants(&json!("mcp-sessiond/modern/round/1:5"), &["a"]));
    assert_eq!(said[0]["id"], 5);
    assert!(said[0]["error"].is_object());
}

/// A keeper has kept them, and says them before the server is asked what it speaks.
#[test]
fn answers_that_come_before_the_era_is_known_are_those_of_the_calls_of_a_former_process() {
    let mut world = World::new(false);
    for begun in [false, true] {
        if begun {
            world.bundle(&initialize());
        }
        let (_, said) = world.server(&wants(&json!(5), &["a"]));
        assert_eq!(
            (&said[0]["id"], &said[0]["error"]["data"]["outcome"]),
            (&json!(5), &json!("unknown"))
        );
        let result = json!({"content": []});
        let round = json!("mcp-sessiond/modern/round/1:6");
        let (_, said) = world.server(&result_of(&round, &result));
        assert_eq!(said, [result_of(&json!(6), &result)]);
    }
}

/// What is stored of a line is recognised by its mark when the line comes again.
#[tokio::test]
async fn a_question_does_not_hide_what_its_line_is_to_the_next_process() {
    let mut former = World::modern();
    let asks = wants(&former.call(5)["id"], &["a"]);
    for (world, marks) in [(former, [None]), (World::modern(), [Some("7")])] {
        let (server, from) = mpsc::channel(1);
        let (to, _of_bundle) = mpsc::channel(1);
        let end = End::by_drop();
        let mut pipe = translated(Pipe { to, from, end }, world.translation);
        let receipt = Receipt::marked("7".to_owned(), || ());
        let line = line(&asks);
        server
            .send(TrackedLine { line, receipt })
            .await
            .expect("read");
        let said = pipe.from.recv().await.expect("a line");
        assert_eq!([said.receipt.mark()], marks, "{:?}", said.line);
    }
}

fn note(method: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": method})
}

fn subscribe(id: u64, method: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {"uri": "u"}})
}

fn acknowledged(opened: &Value) -> Value {
    let meta = json!({"io.modelcontextprotocol/subscriptionId": opened["id"]});
    let mut said = note("notifications/subscriptions/acknowledged");
    said["params"] = json!({"_meta": meta});
    said
}

#[test]
fn a_subscription_that_ends_is_opened_again_and_what_may_have_changed_is_told() {
    let mut world = World::modern();
    let (opened, _) = world.bundle(&note("notifications/initialized"));
    assert_eq!(
        opened[0]["params"]["notifications"],
        json!({"toolsListChanged": true})
    );
    assert_eq!(world.server(&acknowledged(&opened[0])), (vec![], vec![]));
    let (of_uri, said) = world.bundle(&subscribe(3, "resources/subscribe"));
    assert_eq!(said, Vec::<Value>::new(), "the server has not agreed yet");
    assert_eq!(
        of_uri[0]["params"]["notifications"],
        json!({"resourceSubscriptions": ["u"]})
    );
    let agreed = (vec![], vec![result_of(&json!(3), &json!({}))]);
    assert_eq!(world.server(&acknowledged(&of_uri[0])), agreed);
    let ended = |opened: &Value| result_of(&opened["id"], &json!({}));
    let (_, said) = world.server(&ended(&opened[0]));
    assert_eq!(said, [note("notifications/tools/list_changed")]);
    let (_, said) = world.server(&ended(&of_uri[0]));
    assert_eq!(said[0]["params"]["uri"], "u");
    assert!(world.translation.deadline().is_some());
    let (again, _) = world.later(Duration::from_secs(1));
    assert_eq!(again.len(), 2);
    assert!(!again.contains(&opened[0]), "another id");
    assert!(world.translation.deadline().is_none());
    // What is not wanted any more is cancelled, and one that is refused stays so.
    let (cancelled, _) = world.bundle(&subscribe(4, "resources/unsubscribe"));
    assert_eq!(cancelled[0]["params"]["requestId"], again[1]["id"]);
    let mut refusal = refused(-32601);
    refusal["id"] = again[0]["id"].clone();
    assert_eq!(world.server(&refusal), (vec![], vec![]));
    assert!(world.translation.deadline().is_none());
}

#[test]
fn a_subscription_that_is_refused_is_refused_to_the_host() {
    let mut world = World::modern();
    let (opened, _) = world.bundle(&subscribe(3, "resources/subscribe"));
    let mut refusal = refused(-32602);
    refusal["id"] = opened[0]["id"].clone();
    let (_, said) = world.server(&refusal);
    assert_eq!(
        (&said[0]["id"], &said[0]["error"]["code"]),
        (&json!(3), &json!(-32602))
    );
    // The host may try again.
    assert_eq!(
        world.bundle(&subscribe(4, "resources/subscribe")).0.len(),
        1
    );
}

#[test]
fn one_that_never_lasts_is_opened_less_and_less_often() {
    let mut world = World::modern();
    let (mut opened, _) = world.bundle(&note("notifications/initialized"));
    for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
        world.server(&result_of(&opened[0]["id"], &json!({})));
        let early = world.later(Duration::from_millis(pause * 1000 - 1));
        assert_eq!(early, (vec![], vec![]), "{pause}");
        (opened, _) = world.later(Duration::from_millis(1));
        assert_eq!(opened.len(), 1, "{pause}");
    }
    world.later(Duration::from_secs(61));
    world.server(&result_of(&opened[0]["id"], &json!({})));
    assert_eq!(world.later(Duration::from_secs(1)).0.len(), 1);
}

#[test]
fn what_a_server_wanted_to_know_is_no_other_servers() {
    let mut world = World::modern();
    let (opened, _) = world.bundle(&note("notifications/initialized"));
    let asked = world.call(5);
    let (_, questions) = world.server(&wants(&asked["id"], &["a"]));
    let other = world.call(6);
    let mut gone = refused(-32000);
    gone["id"] = opened[0]["id"].clone();
    gone["error"]["data"] = json!({"outcome": "unknown"});
    let (to_server, said) = world.server(&gone);
    assert_eq!(to_server, Vec::<Value>::new());
    let of_call = said.iter().find(|said| said["id"] == 5).expect("an answer");
    assert_eq!(of_call["error"]["data"]["outcome"], "unknown");
    let is_cancel = |said: &&Value| said["params"]["requestId"] == questions[0]["id"];
    assert!(said.iter().any(|said| is_cancel(&said)), "{said:?}");
    // The host answers nevertheless, and the other call is the keeper's to answer.
    let late = world.bundle(&result_of(&questions[0]["id"], &json!({})));
    assert_eq!(late, (vec![], vec![]));
    let answered = result_of(&other["id"], &json!({}));
    assert_eq!(world.server(&answered), (vec![], vec![answered]));
}

#[test]
fn who_answers_twice_has_answered() {
    let mut world = World::modern();
    let asked = world.call(5);
    let (_, questions) = world.server(&wants(&asked["id"], &["a"]));
    let answer = result_of(&questions[0]["id"], &json!({}));
    assert_eq!(world.bundle(&answer).0.len(), 1, "the call is made again");
    assert_eq!(world.bundle(&answer), (vec![], vec![]));
    // What a server has asked itself is its own to hear.
    let own = result_of(&json!("p1"), &json!({}));
    assert_eq!(world.bundle(&own), (vec![own], vec![]));
}

#[test]
fn a_result_that_wants_nothing_that_can_be_known_is_an_error() {
    for result in [
        json!({"resultType": "input_required"}),
        json!({"resultType": "input_required", "inputRequests": [1]}),
        json!({"resultType": "input_required", "inputRequests": {"a": 1}, "requestState": "s"}),
    ] {
        let mut world = World::modern();
        let asked = world.call(5);
        let (again, said) = world.server(&result_of(&asked["id"], &result));
        assert_eq!((again.len(), &said[0]["id"]), (0, &json!(5)), "{result}");
        assert!(said[0]["error"].is_object(), "{result}");
    }
    // What a tool says of it is none.
    let mut world = World::modern();
    let asked = world.call(5);
    let text = json!({"content": [{"type": "text", "text": "input_required"}]});
    let (_, said) = world.server(&result_of(&asked["id"], &text));
    assert_eq!(said[0]["result"], text);
}

#[test]
fn one_that_has_said_why_it_ends_is_heard() {
    let mut world = World::new(false);
    world.bundle(&initialize());
    world.server(&refused(-32000));
    // It may have to be started again for the question.
    assert!(world.translation.deadline().is_none());
    let (_, said) = sorted(world.translation.on_server_end());
    assert_eq!(said, [refused(-32000)]);
}

mod host {
    //! A host of 2026-07-28, in front of servers `a` and `b`, whose tools begin with their names.

    use crate::Target;
    use crate::modern::host::HostTranslation;

    use super::*;

    struct Host {
        translation: HostTranslation,
        last: u64,
    }

    fn server_of(target: &Target) -> Option<String> {
        let (_, name) = target.listed_name()?;
        Some(name.split('_').next()?.to_owned())
    }

    impl Host {
        fn new() -> Self {
            let translation = HostTranslation::new(Box::new(server_of));
            let mut host = Self {
                translation,
                last: 0,
            };
            let (begun, _) = host.request("tools/list", json!({}));
            assert_eq!(begun[0]["method"], "initialize");
            host.bundle(&result_of(&begun[0]["id"], &json!({"capabilities": {}})));
            let (_, said) = host.bundle(&result_of(&json!(1), &json!({"tools": []})));
            assert_eq!(said[0]["result"]["ttlMs"], 0);
            host
        }

        fn host(&mut self, message: &Value) -> (Vec<Value>, Vec<Value>) {
            sorted(self.translation.on_host(line(message), Instant::now()))
        }

        fn bundle(&mut self, message: &Value) -> (Vec<Value>, Vec<Value>) {
            sorted(self.translation.on_server(line(message), Instant::now()))
        }

        fn request(&mut self, method: &str, mut params: Value) -> (Vec<Value>, Vec<Value>) {
            self.last += 1;
            params["_meta"][VERSION] = json!("2026-07-28");
            let id = self.last;
            self.host(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
        }

        /// A call of this tool. Its id at the bundle.
        fn call(&mut self, tool: &str) -> Value {
            let (asked, said) = self.request("tools/call", json!({"name": tool}));
            assert_eq!((asked.len(), said.len()), (1, 0));
            assert_eq!(asked[0]["params"], json!({"name": tool, "_meta": {}}));
            asked[0]["id"].clone()
        }

        /// A server asks something by this id of its own.
        fn asks(&mut self, server: &str, id: u64) -> (Vec<Value>, Vec<Value>) {
            let id = format!("{server}:{id}");
            let method = "elicitation/create";
            self.bundle(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {}}))
        }

        /// The host comes back with answers to all that it was asked.
        fn comes_back(&mut self, asked: &Value) -> (Vec<Value>, Vec<Value>) {
            let result = &asked["result"];
            assert_eq!(result["resultType"], "input_required", "{asked}");
            let requests = result["inputRequests"].as_object().expect("an object");
            let responses: Value = requests
                .keys()
                .map(|key| (key.clone(), json!({"action": "accept"})))
                .collect::<serde_json::Map<_, _>>()
                .into();
            let state = &result["requestState"];
            let params = json!({"name": "x", "inputResponses": responses, "requestState": state});
            self.request("tools/call", params)
        }
    }

    #[test]
    fn a_server_asks_during_a_call_of_its_own() {
        let mut host = Host::new();
        let (of_b, of_a) = (host.call("b_slow"), host.call("a_ask"));
        let (_, said) = host.asks("a", 7);
        assert_eq!(said[0]["id"], of_a);
        // The other call ends meanwhile, as it would have.
        let (_, ended) = host.bundle(&result_of(&of_b, &json!({})));
        assert_eq!(ended[0]["id"], of_b);
        let (answered, waits) = host.comes_back(&said[0]);
        assert_eq!((&answered[0]["id"], waits.len()), (&json!("a:7"), 0));
        let again = host.last;
        let (_, ended) = host.bundle(&result_of(&of_a, &json!({})));
        assert_eq!(ended[0]["id"], again);
    }

    #[test]
    fn an_answer_that_comes_after_the_end_of_its_call_reaches_the_server() {
        let mut host = Host::new();
        let call = host.call("a_ask");
        let (_, said) = host.asks("a", 7);
        host.bundle(&result_of(&call, &json!({"n": 1})));
        let (answered, ended) = host.comes_back(&said[0]);
        assert_eq!(answered[0]["id"], "a:7");
        assert_eq!(
            (&ended[0]["id"], &ended[0]["result"]["n"]),
            (&json!(host.last), &json!(1))
        );
        // Nobody has the state any more.
        let (_, said) = host.comes_back(&said[0]);
        assert!(said[0]["error"].is_object());
    }

    #[test]
    fn who_asks_during_no_call_of_its_own_is_refused_and_so_is_one_too_many() {
        let mut host = Host::new();
        let is_refused = |(asked, said): (Vec<Value>, Vec<Value>)| {
            said.is_empty() && asked.iter().any(|asked| asked["error"]["code"] == -32601)
        };
        assert!(is_refused(host.asks("a", 1)));
        host.request("tools/list", json!({}));
        let of_b = host.call("b_slow");
        assert!(is_refused(host.asks("a", 2)));
        let (_, said) = host.asks("b", 3);
        assert_eq!(said[0]["id"], of_b);
        let waiting = (4..).take_while(|id| !is_refused(host.asks("b", *id)));
        assert_eq!(waiting.count(), 64);
        // They are asked when the host comes back, and refused where the call has ended then.
        let (_, next) = host.comes_back(&said[0]);
        assert_eq!(
            next[0]["result"]["inputRequests"]
                .as_object()
                .map(serde_json::Map::len),
            Some(64)
        );
        host.asks("b", 100);
        host.bundle(&result_of(&of_b, &json!({})));
        let (answered, ended) = host.comes_back(&next[0]);
        assert_eq!((answered.len(), ended.len()), (65, 1));
        let refused = answered
            .iter()
            .filter(|answer| answer.get("error").is_some());
        assert_eq!(refused.count(), 1);
    }

    #[test]
    fn who_is_asked_and_never_comes_back_keeps_so_many_calls_waiting() {
        let mut host = Host::new();
        for id in 0..64 {
            host.call("a_ask");
            assert_eq!(host.asks("a", id).0.len(), 0);
        }
        let first = json!(2);
        host.call("a_ask");
        let (given_up, said) = host.asks("a", 64);
        assert_eq!(said.len(), 1);
        assert_eq!(
            (&given_up[0]["id"], given_up[0]["error"].is_object()),
            (&json!("a:0"), true)
        );
        assert_eq!(given_up[1]["params"]["requestId"], first);
    }

    #[test]
    fn a_host_that_leaves_waits_for_no_change_and_for_no_question() {
        let mut host = Host::new();
        let wanted = json!({"notifications": {"toolsListChanged": true}});
        host.request("subscriptions/listen", wanted);
        let listening = host.last;
        let call = host.call("a_ask");
        host.asks("a", 7);
        let (to_bundle, to_host) = sorted(host.translation.on_host_end());
        assert_eq!(to_host[0]["id"], listening);
        assert_eq!(to_bundle[0]["id"], "a:7");
        assert_eq!(to_bundle[1]["params"]["requestId"], call);
    }

    #[test]
    fn an_id_that_was_answered_is_free_again() {
        let mut host = Host::new();
        let call = host.call("a_ask");
        host.asks("a", 7);
        host.last -= 1;
        let other = host.call("a_get");
        assert_ne!(other, call);
        let (_, said) = host.bundle(&result_of(&other, &json!({"n": 2})));
        assert_eq!(
            (&said[0]["id"], &said[0]["result"]["n"]),
            (&call, &json!(2))
        );
    }
}
