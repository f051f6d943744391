//! Keepers: who may register one, what a daemon still knows of it after its end, and that no backend outlives its owner.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use mcp_sessiond_tests::{Keeper, Loaded, World, gone, lives, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
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
    // Nobody was told of it, and it goes all the same.
    keeper.kill();
    gone(backend);
}

#[test]
fn what_lost_its_keeper_while_there_was_no_daemon_is_killed_by_the_next() {
    let world = world("");
    let mut daemon = world.daemon();
    let host = world.host();
    let mut holder = host.instance(&[]);
    let of = holder.load();
    let mut keeper = Keeper::below(&world, &mut holder);
    keeper.register(&of).expect("below the holder");
    let told = keeper.start_and_tell(&of);
    let untold = keeper.start_backend();
    // A keeper of which nothing is left that the daemon could be sure of.
    let mut sibling = host.instance(&["--label", "sibling"]);
    let of_sibling = sibling.load();
    let mut doubtful = Keeper::below(&world, &mut sibling);
    doubtful.register(&of_sibling).expect("below the holder");
    let not_ours = doubtful.start_backend();

    daemon.kill();
    keeper.kill();
    doubtful.kill();
    daemon.start_again();
    gone(told);
    gone(untold);
    until("they are off the record", || backends(&world).is_empty().then_some(()));
    assert!(lives(not_ours), "whose it is could not be known");
    let _ = kill(Pid::from_raw(not_ours.cast_signed()), Signal::SIGKILL);
}

#[test]
fn no_keeper_outlives_its_host() {
    let world = world("backends.stop_wait_ms = 1");
    let _daemon = world.daemon();
    let mut host = world.host();
    let mut holder = host.instance(&[]);
    let of = holder.load();
    let mut keeper = Keeper::below(&world, &mut holder);
    assert_eq!(keeper.register(&of).expect("below the holder")["stop_wait_ms"], "1");
    let mut sibling = host.instance(&["--label", "sibling"]);
    let of_sibling = sibling.load();
    let mut deaf = Keeper::deaf_below(&world, &mut sibling);
    deaf.register(&of_sibling).expect("below the holder");
    let left = [keeper.start_and_tell(&of), deaf.start_and_tell(&of_sibling)];
    host.kill();
    gone(keeper.pid);
    gone(deaf.pid);
    world.log.wait("was killed");
    left.into_iter().for_each(gone);
    until("nothing is left", || (world.stat("backends_ended_total") == 2).then_some(()));
    assert_eq!((world.stat("backends"), world.stat("hosts")), (0, 0));
}

/// A keeper that was asked to end, and a daemon that was killed before it could see to it.
#[test]
fn the_next_daemon_sees_to_it_that_keepers_end() {
    let world = world("backends.stop_wait_ms = 1");
    let mut daemon = world.daemon();
    let host = world.host();
    let mut holder = host.instance(&[]);
    let of = holder.load();
    let mut former = Keeper::deaf_below(&world, &mut holder);
    former.register(&of).expect("below the holder");
    let left = former.start_and_tell(&of);
    let mut next = Keeper::below(&world, &mut holder);
    next.register(&of).expect("below the holder");
    daemon.restart();
    gone(former.pid);
    gone(left);
    assert!(lives(next.pid));
    assert_eq!(backends(&world)[0]["keeper"], next.name);
}

#[test]
fn a_daemon_on_demand_stays_until_the_last_keeper_is_gone() {
    let world = world("idle_exit_ms = 0\nbackends.stop_wait_ms = 1");
    let mut host = world.host();
    let mut holder = host.instance(&["--start"]);
    let of = holder.load();
    let mut deaf = Keeper::deaf_below(&world, &mut holder);
    deaf.register(&of).expect("below the holder");
    let left = deaf.start_and_tell(&of);
    let about = world.peer().call("about", json!({})).expect("about");
    let daemon = about["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a pid");
    host.kill();
    gone(daemon);
    assert!(!lives(deaf.pid) && !lives(left), "nobody is left to end them");
}

#[test]
fn a_backend_can_be_stopped_by_hand() {
    let world = world("");
    let stop = |session: &str| {
        let ended = world.sessiond(&["stop", session]).output().expect("it runs");
        (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
    };
    assert_eq!(stop("any").0, Some(69), "none is started");
    let mut daemon = world.daemon();
    let host = world.host();
    let mut holder = host.instance(&[]);
    let of = holder.load();
    let mut keeper = Keeper::below(&world, &mut holder);
    keeper.register(&of).expect("below the holder");
    let backend = keeper.start_and_tell(&of);
    let (code, said) = stop("none");
    assert!(code == Some(66) && said.contains("no backend"), "{said}");
    assert_eq!(stop(&of.session()), (Some(0), String::new()));
    assert!(!lives(keeper.pid), "it was waited for");
    gone(backend);
    assert_eq!(stop(&of.session()).0, Some(66));
    let find = json!({"session": of.session(), "epoch": "1"});
    assert_eq!(holder.call("find_backend", find).expect("its own"), Value::Null);
    daemon.kill();
    assert_eq!(stop(&of.session()).0, Some(69));
}

#[test]
fn sockets_of_nobody_are_deleted_at_the_start() {
    let world = world("");
    let mut daemon = world.daemon();
    let host = world.host();
    let mut holder = host.instance(&[]);
    let of = holder.load();
    let mut keeper = Keeper::below(&world, &mut holder);
    keeper.register(&of).expect("below the holder");
    daemon.kill();
    let socket = |name: &str| world.directory().join("keepers").join(name);
    let bind = |name: &str| UnixListener::bind(socket(name)).expect("nobody has the name");
    // Of the keeper that is there, of one that is gone, and of one that has yet to register.
    drop(bind(&keeper.name));
    drop(bind("0000000a"));
    let about_to_register = bind("0000000b");
    daemon.start_again();
    let is_there = |name: &str| socket(name).symlink_metadata().is_ok();
    assert!(is_there(&keeper.name) && !is_there("0000000a") && is_there("0000000b"));
    drop(about_to_register);
    keeper.kill();
    until("its socket is deleted", || (!is_there(&keeper.name)).then_some(()));
}

#[test]
fn a_directory_of_sockets_that_is_open_to_others_is_refused() {
    let world = world("");
    let mut daemon = world.daemon();
    daemon.kill();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(world.directory().join("keepers"), open).expect("it is ours");
    daemon.start_with(&[]);
    assert!(!daemon.ready_or_ended());
    assert_eq!(daemon.wait().code(), Some(70));
    assert!(world.log.text().contains("keepers has mode 0755 instead of 0700"), "{}", world.log.text());
}
