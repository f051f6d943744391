//! Keepers: who may register one, what a daemon still knows of it after its end, and that no backend outlives its owner.

use mcp_sessiond_tests::{Keeper, Loaded, World, gone, lives, until};
use serde_json::{Value, json};

use crate::world;

/// The backends that the daemon knows.
fn backends(world: &World) -> Vec<Value> {
    let listed = world.peer().call("list_backends", json!({})).expect("backends");
    listed.as_array().expect("a list").clone()
}

/// A keeper asks who may attach.
fn front(keeper: &mut Keeper, of: &Loaded, epoch: u64) -> Result<Value, Value> {
    let params = json!({"session": of.session(), "keeper": keeper.name, "epoch": epoch.to_string()});
    keeper.call("check_front", params)
}

#[track_caller]
fn assert_refused(answer: Result<Value, Value>, code: &str) {
    let error = answer.expect_err(code);
    assert_eq!(error["code"], code, "{error}");
}

#[test]
fn only_who_is_below_the_holder_registers() {
    let world = world("");
    let _daemon = world.daemon();
    let (host, other_host) = (world.host(), world.host());
    let mut holder = host.instance(&[]);
    let of = holder.load();
    let epoch = of.epoch.unwrap_or_default();

    let mut sibling = host.instance(&["--label", "sibling"]);
    sibling.load();
    let mut keeper = Keeper::below(&world, &mut sibling);
    let error = keeper.register(&of).expect_err("not below the holder");
    assert_eq!((&error["code"], &error["pid"]), (&json!("not_an_ancestor"), &json!(holder.0.pid())));

    // Whoever is of another host learns nothing.
    let mut stranger = other_host.instance(&[]);
    let mut keeper = Keeper::below(&world, &mut stranger);
    assert_refused(keeper.register(&of), "unknown_session");
    let none = Loaded { session: Some("none".into()), ..of.clone() };
    assert_refused(keeper.register(&none), "unknown_session");

    // What is no process of its own, or can't be told from its parent's children, is no keeper.
    let params =
        json!({"session": of.session(), "epoch": epoch.to_string(), "keeper": "0000000a", "program": "x"});
    assert_refused(holder.call("keep_backend", params), "invalid_argument");
    let mut keeper = Keeper::member_below(&world, &mut holder);
    assert_refused(keeper.register(&of), "invalid_argument");

    let mut keeper = Keeper::below(&world, &mut holder);
    assert_refused(keeper.register(&Loaded { epoch: Some(epoch + 1), ..of.clone() }), "stale_epoch");
    assert_refused(front(&mut keeper, &of, epoch), "unknown_backend");
    assert_eq!(backends(&world), Vec::<Value>::new());
    let kept = keeper.register(&of).expect("below the holder");
    assert_eq!((&kept["owner"]["pid"], &kept["stop_wait_ms"]), (&json!(host.pid()), &json!("2000")));
    let known = json!({
        "session": of.session(), "keeper": keeper.name, "keeper_pid": keeper.pid, "host": host.pid(),
        "program": "server",
    });
    assert_eq!(backends(&world), [known]);
    assert_eq!(world.stat("backends"), 1);

    // The same once more comes to the same; another session's it can't be.
    keeper.register(&of).expect("registered already");
    assert_eq!(world.stat("backends"), 1);
    let front = front(&mut keeper, &of, epoch).expect("the newest");
    assert_eq!(front["pid"], holder.0.pid());
}

#[test]
fn the_epoch_says_who_attaches() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let mut first = host.instance(&[]);
    let of = first.load();
    let mut keeper = Keeper::below(&world, &mut first);
    keeper.register(&of).expect("below the holder");
    let find = json!({"session": of.session(), "epoch": of.epoch.unwrap_or_default().to_string()});
    assert_eq!(first.call("find_backend", find.clone()).expect("its own")["keeper"], keeper.name);

    first.kill();
    assert_refused(front(&mut keeper, &of, 1), "lease_ended");
    let mut second = host.instance(&[]);
    let again = second.load();
    assert_eq!((again.session(), again.epoch), (of.session(), Some(2)));
    assert_refused(front(&mut keeper, &of, 1), "stale_epoch");
    assert_eq!(front(&mut keeper, &of, 2).expect("the newest")["pid"], second.0.pid());
    assert_refused(second.call("find_backend", find), "stale_epoch");
    let find = json!({"session": of.session(), "epoch": "2"});
    assert_eq!(second.call("find_backend", find).expect("its own")["keeper_pid"], keeper.pid);

    // What was started under a lease that is gone does not register.
    let mut late = Keeper::below(&world, &mut second);
    assert_refused(late.register(&of), "stale_epoch");
    // Another one in its place, and the former has to go.
    late.register(&again).expect("below the holder");
    gone(keeper.pid);
    until("the former is off the record", || (world.stat("backends_ended_total") == 1).then_some(()));
    assert_eq!(backends(&world).len(), 1);
    assert_eq!(backends(&world)[0]["keeper"], late.name);
}

#[test]
fn a_daemon_that_was_killed_has_its_keepers_again() {
    let world = world("");
    let mut daemon = world.daemon();
    let host = world.host();
    let mut holder = host.instance(&[]);
    let of = holder.load();
    let mut keeper = Keeper::below(&world, &mut holder);
    keeper.register(&of).expect("below the holder");
    let backend = keeper.start_and_tell(&of);
    let known = backends(&world);
    assert_eq!(known[0]["pid"], backend);

    daemon.restart();
    assert_eq!(backends(&world), known);
    assert_eq!(front(&mut keeper, &of, 1).expect("the newest")["pid"], holder.0.pid());
    assert!(lives(keeper.pid) && lives(backend));

    keeper.kill();
    gone(backend);
    until("it is off the record", || backends(&world).is_empty().then_some(()));
}

#[test]
fn what_a_killed_keeper_leaves_is_killed() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let mut holder = host.instance(&[]);
    let of = holder.load();
    let mut keeper = Keeper::below(&world, &mut holder);
    keeper.register(&of).expect("below the holder");
    let told = keeper.start_and_tell(&of);
    // Another one of the same session of processes, which the daemon was not told of.
    let untold = keeper.start_backend();
    keeper.kill();
    gone(told);
    gone(untold);
    until("it is off the record", || backends(&world).is_empty().then_some(()));
    // The session goes on, and has another one.
    let mut next = Keeper::below(&world, &mut holder);
    next.register(&of).expect("below the holder");
}

/// A pid is told by a keeper, and believed only of its own child.
#[test]
fn a_backend_is_a_child_of_its_keeper() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let mut holder = host.instance(&[]);
    let of = holder.load();
    let mut keeper = Keeper::below(&world, &mut holder);
    keeper.register(&of).expect("below the holder");
    for pid in [std::process::id(), host.pid(), holder.0.pid(), keeper.pid, 1, 0] {
        let params = json!({"session": of.session(), "keeper": keeper.name, "pid": pid});
        assert_refused(keeper.call("backend_started", params), "invalid_argument");
    }
    let backend = keeper.start_backend();
    let params = json!({"session": of.session(), "keeper": "0000000a", "pid": backend});
    assert_refused(keeper.call("backend_started", params.clone()), "unknown_backend");
    let mut other = Keeper::below(&world, &mut holder);
    assert_refused(other.call("backend_started", params), "invalid_argument");
}
