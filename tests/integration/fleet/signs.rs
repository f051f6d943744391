//! Heartbeats between daemons on one database: what depends on one that gives none any more is
//! done by another.

use mcp_sessiond_process::fault::FLEET_VARIABLE;
use mcp_sessiond_tests::{Daemon, Instance, Peer, World, assert_refused, until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::of;
use crate::world;

const WILL: &str = r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"gone"}}"#;

/// A sign each 100 ms; after 2 s without one a daemon is dead. Long enough for a machine that is
/// busy with tests.
const TIMES: &str = "100:2000";

/// So many machines, as far as their daemons can tell.
pub(crate) fn machines<const N: usize>(url: &str) -> [(World, Daemon); N] {
    std::array::from_fn(|_| {
        let world = world(&format!(
            "[storage]\nurl = \"{url}\"\n[sessions]\npoll_ms = 10\nsweep_ms = 100\n"
        ));
        let daemon = world.start(&[(FLEET_VARIABLE, TIMES)]);
        daemon.ready();
        (world, daemon)
    })
}

/// Opens a stream of the session `web`/`s`, with a will.
fn open(author: &mut Instance, stream: &str) {
    author
        .call(
            "open_stream",
            json!({"of": of(), "stream": stream, "will": WILL}),
        )
        .expect("opened");
}

/// Waits until the stream has said its will, which is all that it has said.
fn assert_carried_out(peer: &mut Peer, stream: &str) {
    let mut said = Value::Null;
    while said["ended"] != json!([stream]) {
        said = peer
            .call("wait", json!({"of": of(), "after": [{"stream": stream}]}))
            .expect("waited");
    }
    assert_eq!(said["events"].as_array().map(Vec::len), Some(1), "{said}");
    assert_eq!(said["events"][0]["message"], json!(WILL));
}

fn append(author: &mut Instance, stream: &str) -> Result<Value, Value> {
    author.call(
        "append",
        json!({"of": of(), "stream": stream, "messages": ["{}"]}),
    )
}

pub(crate) fn a_daemon_that_was_killed(url: &str) {
    let [(here, mut killed), (there, _daemon)] = machines(url);
    there.peer().call("create_session", of()).expect("created");
    let host = here.host();
    let mut author = host.instance(&[]);
    open(&mut author, "a");
    killed.kill();
    // Its author lives; but nobody could tell of its end.
    assert_carried_out(&mut there.peer(), "a");
    killed.start_again();
    let late = json!({"of": of(), "stream": "a", "messages": ["{}"]});
    assert_refused(here.peer().call("append", late), "stream_closed");
}

pub(crate) fn a_daemon_that_was_stopped_and_comes_back(url: &str) {
    let [(here, stopped), (there, _daemon)] = machines(url);
    there.peer().call("create_session", of()).expect("created");
    let host = here.host();
    let mut author = host.instance(&[]);
    open(&mut author, "a");
    stopped.signal(Signal::SIGSTOP);
    assert_carried_out(&mut there.peer(), "a");
    stopped.signal(Signal::SIGCONT);
    assert_refused(append(&mut author, "a"), "stream_closed");
    // It is a member again.
    open(&mut author, "b");
    append(&mut author, "b").expect("appended");
    author.kill();
    let after = json!([{"stream": "b"}]);
    // `wait` is what tells; the first of both events may come alone.
    until("its own daemon carries the will out", || {
        let said = there
            .peer()
            .call("wait", json!({"of": of(), "after": after}))
            .expect("waited");
        (said["events"].as_array().map(Vec::len) == Some(2)).then_some(())
    });
    assert_carried_out(&mut there.peer(), "a");
}

pub(crate) fn several_that_see_it_and_one_that_lives(url: &str) {
    let [(here, mut killed), (there, _there), (yonder, _yonder)] = machines(url);
    there.peer().call("create_session", of()).expect("created");
    let (host, other) = (here.host(), yonder.host());
    let (mut author, mut living) = (host.instance(&[]), other.instance(&[]));
    for stream in ["a", "b", "c", "d"] {
        open(&mut author, stream);
    }
    open(&mut living, "living");
    killed.kill();
    for stream in ["a", "b", "c", "d"] {
        assert_carried_out(&mut there.peer(), stream);
        assert_carried_out(&mut yonder.peer(), stream);
    }
    // By then it was silent for as long, as far as the others could tell from its author.
    append(&mut living, "living").expect("its daemon sends heartbeats");
}

/// A daemon that starts finds the will of one that is gone, and whose sign nobody has seen.
pub(crate) fn one_that_starts_later(url: &str) {
    let [(here, mut killed)] = machines(url);
    here.peer().call("create_session", of()).expect("created");
    let host = here.host();
    let mut author = host.instance(&[]);
    open(&mut author, "a");
    killed.kill();
    let [(there, _daemon)] = machines(url);
    assert_carried_out(&mut there.peer(), "a");
}

/// The cases on a database.
macro_rules! signs {
    ($needs:ident $database:expr) => {
        crate::fleet::signs::signs! { @cases $needs $database,
            signs::a_daemon_that_was_killed
            signs::a_daemon_that_was_stopped_and_comes_back
            signs::several_that_see_it_and_one_that_lives
            signs::one_that_starts_later
            serving::of_a_machine_that_lives_and_then_is_gone
            serving::of_a_daemon_that_was_stopped_and_comes_back
            serving::of_requests_without_a_session_on_each_machine
        }
    };
    (@cases $needs:ident $database:expr, $($room:ident::$case:ident)*) => {$(
        crate::needs! { $needs
            #[test]
            fn $case() {
                let database = $database;
                crate::fleet::$room::$case(&database.url());
            }
        }
    )*};
}
pub(crate) use signs;
