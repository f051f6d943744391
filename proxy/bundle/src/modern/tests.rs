//! Lines between a bundle and a server of 2026-07-28.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use super::between::{Out, Translation as _};
use super::server::ServerTranslation;

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
            Out::Host(line) => (&mut bundle, line),
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
    world.server(&refused(-32000));
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    assert_eq!(world.bundle(&cancelled), (vec![], vec![]));
    assert_eq!(world.later(Duration::from_secs(4)), (vec![], vec![]));
    assert_eq!(
        world.later(Duration::from_secs(1)),
        (vec![cancelled], vec![refused(-32000)])
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
        let (again, said) = world.server(&wants(&id, &[]));
        match &again[..] {
            [again] => id = again["id"].clone(),
            _ => break said[0].clone(),
        }
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

#[test]
fn a_subscription_that_ends_is_opened_again_and_what_may_have_changed_is_told() {
    let mut world = World::modern();
    let note = |method: &str| json!({"jsonrpc": "2.0", "method": method});
    let (opened, _) = world.bundle(&note("notifications/initialized"));
    assert_eq!(
        opened[0]["params"]["notifications"],
        json!({"toolsListChanged": true})
    );
    let subscribe = |id: u64, method: &str| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {"uri": "u"}});
    let (of_uri, said) = world.bundle(&subscribe(3, "resources/subscribe"));
    assert_eq!(said, [result_of(&json!(3), &json!({}))]);
    assert_eq!(
        of_uri[0]["params"]["notifications"],
        json!({"resourceSubscriptions": ["u"]})
    );
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
