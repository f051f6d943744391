//! Keepers: who may register one, what a daemon still knows of it after its end, and that no
//! backend outlives its owner.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use mcp_sessiond_tests::{
    Instance, Keeper, Loaded, World, assert_refused, gone, lives, signal, until, until_removed,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::world;

/// The backends that the daemon knows.
fn backends(world: &World) -> Vec<Value> {
    world.listed("list_backends")
}

/// Waits until the daemon knows of no backend any more.
fn wait_off_the_record(world: &World) {
    world.wait_backends(0);
}

/// An instance asks for the backend of a session, again while a former one is being ended.
fn find(instance: &mut Instance, of: &Loaded, epoch: u64) -> Result<Value, Value> {
    until("no former one is being ended", || {
        let found = instance.call(
            "find_backend",
            json!({"session": of.session(), "epoch": epoch.to_string()}),
        );
        let is_early = found
            .as_ref()
            .is_err_and(|refusal| refusal["code"] == "unavailable");
        (!is_early).then_some(found)
    })
}

/// A keeper asks who may attach.
fn front(keeper: &mut Keeper, of: &Loaded, epoch: u64) -> Result<Value, Value> {
    let params =
        json!({"session": of.session(), "keeper": keeper.name, "epoch": epoch.to_string()});
    keeper.call("check_front", params)
}

#[test]
fn only_who_is_below_the_holder_registers() {
    let world = world("");
    let _daemon = world.daemon();
    let (host, other_host) = (world.host(), world.host());
    let (mut holder, of) = host.loaded(&[]);
    let epoch = of.epoch.unwrap_or_default();

    let (mut twin, _) = host.loaded(&[]);
    let mut keeper = Keeper::below(&world, &mut twin);
    let error = assert_refused(keeper.register(&of), "not_an_ancestor");
    assert_eq!(error["pid"], holder.0.pid());

    // Whoever has another key, or is of another host, learns nothing.
    let (mut sibling, _) = host.loaded(&["--label", "sibling"]);
    let mut keeper = Keeper::below(&world, &mut sibling);
    assert_refused(keeper.register(&of), "unknown_session");
    let mut stranger = other_host.instance(&[]);
    let mut keeper = Keeper::below(&world, &mut stranger);
    assert_refused(keeper.register(&of), "unknown_session");
    let none = Loaded {
        session: Some("none".into()),
        ..of.clone()
    };
    assert_refused(keeper.register(&none), "unknown_session");

    // What is no process of its own, or can't be told from its parent's children, is no keeper.
    let params = json!({"session": of.session(), "epoch": epoch.to_string(), "keeper": "0000000a", "program": "x"});
    assert_refused(holder.call("keep_backend", params), "invalid_argument");
    let mut keeper = Keeper::member_below(&world, &mut holder);
    assert_refused(keeper.register(&of), "invalid_argument");

    let mut keeper = Keeper::below(&world, &mut holder);
    assert_refused(
        keeper.register(&Loaded {
            epoch: Some(epoch + 1),
            ..of.clone()
        }),
        "stale_epoch",
    );
    assert_refused(front(&mut keeper, &of, epoch), "unknown_backend");
    assert_eq!(backends(&world), Vec::<Value>::new());
    let kept = keeper.register(&of).expect("below the holder");
    assert_eq!(
        (&kept["owner"]["pid"], &kept["stop_wait_ms"]),
        (&json!(host.pid()), &json!("2000"))
    );
    let known = json!({
        "session": of.session(), "keeper": keeper.name, "keeper_pid": keeper.pid, "host": host.pid(),
        "program": "server",
    });
    assert_eq!(backends(&world), [known]);
    assert_eq!(world.stat("backends"), 1);

    // Repeating the call has no further effect; the keeper can't register for another session.
    keeper.register(&of).expect("registered already");
    assert_eq!(world.stat("backends"), 1);
    let front = front(&mut keeper, &of, epoch).expect("the newest");
    assert_eq!(front["process"]["pid"], holder.0.pid());
}

#[test]
fn the_epoch_says_who_attaches() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let (mut first, of, mut keeper) = world.keeper(&host);
    let epoch = of.epoch.unwrap_or_default();
    assert_eq!(
        find(&mut first, &of, epoch).expect("its own")["keeper"],
        keeper.name
    );

    first.kill();
    assert_refused(front(&mut keeper, &of, 1), "lease_ended");
    let (mut second, again) = host.loaded(&[]);
    assert_eq!((again.session(), again.epoch), (of.session(), Some(2)));
    assert_refused(front(&mut keeper, &of, 1), "stale_epoch");
    assert_eq!(
        front(&mut keeper, &of, 2).expect("the newest")["process"]["pid"],
        second.0.pid()
    );
    assert_refused(find(&mut second, &of, epoch), "stale_epoch");
    assert_eq!(
        find(&mut second, &of, 2).expect("its own")["keeper_pid"],
        keeper.pid
    );

    // What was started under a lease that is gone does not register.
    let mut late = Keeper::below(&world, &mut second);
    assert_refused(late.register(&of), "stale_epoch");
    // Nor does another one beside a keeper that lives.
    assert_refused(late.register(&again), "unavailable");
    assert!(lives(keeper.pid));
    keeper.kill();
    world.wait_stat("backends_ended_total", 1);
    late.register(&again).expect("the former one is gone");
    assert_eq!(backends(&world).len(), 1);
    assert_eq!(backends(&world)[0]["keeper"], late.name);
}

#[test]
fn each_backend_of_a_session_is_found_and_ended_by_its_name() {
    let world = world("");
    let mut daemon = world.daemon();
    let host = world.host();
    let (mut holder, of) = host.loaded(&[]);
    let kept = |holder: &mut Instance, name: &str| {
        let mut keeper = Keeper::below(&world, holder);
        keeper
            .register_as(&of, Some(name))
            .expect("below the holder");
        keeper
    };
    let (files, mut web) = (kept(&mut holder, "files"), kept(&mut holder, "the web"));
    let mut second = Keeper::below(&world, &mut holder);
    assert_refused(second.register_as(&of, Some("the web")), "unavailable");
    web.kill();
    world.wait_stat("backends_ended_total", 1);
    let mut other = kept(&mut holder, "the web");
    let taken = assert_refused(other.register_as(&of, Some("files")), "invalid_argument");
    assert_eq!(taken["sentence"], "this keeper holds another backend");
    let long = "x".repeat(129);
    let error = other.register_as(&of, Some(&long)).expect_err("too long");
    let sentence = error["message"].as_str().unwrap_or_default();
    assert!(
        sentence.ends_with(
            "the name of a backend is 1 to 128 bytes of text without control characters"
        ),
        "{error}"
    );

    daemon.kill();
    let _daemon = world.daemon();
    let epoch = of.epoch.unwrap_or_default().to_string();
    let mut find = |name: Option<&str>| {
        let mut params = json!({"session": of.session(), "epoch": epoch});
        if let Some(name) = name {
            params["backend"] = name.into();
        }
        holder.call("find_backend", params).expect("its own")
    };
    assert_eq!(
        (
            &find(Some("files"))["keeper"],
            &find(Some("the web"))["keeper"]
        ),
        (&json!(files.name), &json!(other.name))
    );
    assert_eq!((find(Some("mail")), find(None)), (Value::Null, Value::Null));

    let stop = |backend: Option<&str>| {
        let mut params = json!({"session": of.session()});
        if let Some(backend) = backend {
            params["backend"] = backend.into();
        }
        world.peer().call("stop_backend", params)
    };
    assert_refused(stop(Some("mail")), "unknown_backend");
    stop(Some("files")).expect("it is there");
    gone(files.pid);
    world.until_recorded("only the other is on the record", || {
        let names = backends(&world)
            .into_iter()
            .map(|mut known| known["backend"].take());
        names.eq([json!("the web")]).then_some(())
    });
    let _files = kept(&mut holder, "files");
    stop(None).expect("they are there");
    wait_off_the_record(&world);
}

#[test]
fn a_daemon_that_was_killed_has_its_keepers_again() {
    let world = world("");
    let mut daemon = world.daemon();
    let host = world.host();
    let (mut holder, of, mut keeper) = world.keeper(&host);
    let backend = keeper.start_and_tell(&of);
    let known = backends(&world);
    assert_eq!(known[0]["pid"], backend);

    daemon.restart();
    assert_eq!(backends(&world), known);
    assert_eq!(
        front(&mut keeper, &of, 1).expect("the newest")["process"]["pid"],
        holder.0.pid()
    );
    assert!(lives(keeper.pid) && lives(backend));

    keeper.kill();
    gone(backend);
    wait_off_the_record(&world);
}

#[test]
fn what_a_killed_keeper_leaves_is_killed() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let (mut holder, of, mut keeper) = world.keeper(&host);
    let told = keeper.start_and_tell(&of);
    // Another one of the same session of processes, which the daemon was not told of.
    let untold = keeper.start_backend();
    keeper.kill();
    gone(told);
    gone(untold);
    wait_off_the_record(&world);
    // The session goes on, and has another one.
    let _next = Keeper::below(&world, &mut holder).registered(&of);
}

/// A pid is told by a keeper, and believed only of its own child.
#[test]
fn a_backend_is_a_child_of_its_keeper() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let (mut holder, of, mut keeper) = world.keeper(&host);
    for pid in [
        std::process::id(),
        host.pid(),
        holder.0.pid(),
        keeper.pid,
        1,
        0,
    ] {
        let params = json!({"session": of.session(), "keeper": keeper.name, "pid": pid});
        assert_refused(keeper.call("backend_started", params), "invalid_argument");
    }
    let backend = keeper.start_backend();
    let params = json!({"session": of.session(), "keeper": "0000000a", "pid": backend});
    assert_refused(
        keeper.call("backend_started", params.clone()),
        "unknown_backend",
    );
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
    let (_holder, of, mut keeper) = world.keeper(&host);
    let told = keeper.start_and_tell(&of);
    let untold = keeper.start_backend();
    // A keeper of which nothing is left that the daemon could be sure of.
    let (mut sibling, of_sibling) = host.loaded(&["--label", "sibling"]);
    let mut doubtful = Keeper::below(&world, &mut sibling).registered(&of_sibling);
    let not_ours = doubtful.start_backend();

    daemon.kill();
    keeper.kill();
    doubtful.kill();
    daemon.start_again();
    gone(told);
    gone(untold);
    wait_off_the_record(&world);
    assert!(lives(not_ours), "whose it is could not be known");
    signal(not_ours, Signal::SIGKILL);
}

#[test]
fn no_keeper_outlives_its_host() {
    let world = world("backends.stop_wait_ms = 1");
    let _daemon = world.daemon();
    let mut host = world.host();
    let (mut holder, of) = host.loaded(&[]);
    let mut keeper = Keeper::below(&world, &mut holder);
    assert_eq!(
        keeper.register(&of).expect("below the holder")["stop_wait_ms"],
        "1"
    );
    let (mut sibling, of_sibling) = host.loaded(&["--label", "sibling"]);
    let mut deaf = Keeper::deaf_below(&world, &mut sibling).registered(&of_sibling);
    let left = [keeper.start_and_tell(&of), deaf.start_and_tell(&of_sibling)];
    host.kill();
    gone(keeper.pid);
    gone(deaf.pid);
    world.log.wait("was killed");
    left.into_iter().for_each(gone);
    world.wait_stat("backends_ended_total", 2);
    assert_eq!((world.stat("backends"), world.stat("hosts")), (0, 0));
}

/// A keeper that was asked to end, and a daemon that was killed before it could see to it.
#[test]
fn the_next_daemon_sees_to_it_that_keepers_end() {
    let world = world("backends.stop_wait_ms = 1");
    let mut daemon = world.daemon();
    let host = world.host();
    let (mut holder, of) = host.loaded(&[]);
    let mut former = Keeper::deaf_below(&world, &mut holder).registered(&of);
    let left = former.start_and_tell(&of);
    let stopped = world
        .peer()
        .call("stop_backend", json!({"session": of.session()}));
    stopped.expect("it is there");
    daemon.restart();
    gone(former.pid);
    gone(left);
    wait_off_the_record(&world);
}

#[test]
fn a_daemon_on_demand_stays_until_the_last_keeper_is_gone() {
    let world = world("idle_exit_ms = 0\nbackends.stop_wait_ms = 1");
    let mut host = world.host();
    let (mut holder, of) = host.loaded(&["--start"]);
    let mut deaf = Keeper::deaf_below(&world, &mut holder).registered(&of);
    let left = deaf.start_and_tell(&of);
    let daemon = world.daemon_pid();
    host.kill();
    gone(daemon);
    assert!(
        !lives(deaf.pid) && !lives(left),
        "nobody is left to end them"
    );
}

#[test]
fn a_backend_can_be_stopped_by_hand() {
    let world = world("");
    let stop = |session: &str| {
        let ended = world
            .sessiond(&["stop", session])
            .output()
            .expect("it runs");
        (
            ended.status.code(),
            String::from_utf8_lossy(&ended.stderr).into_owned(),
        )
    };
    assert_eq!(
        stop("any").0,
        Some(66),
        "nothing is kept, and no daemon is started"
    );
    let mut daemon = world.daemon();
    let host = world.host();
    let (mut holder, of, mut keeper) = world.keeper(&host);
    let backend = keeper.start_and_tell(&of);
    let (code, said) = stop("none");
    assert!(
        code == Some(66) && said.contains("no server is called `none`"),
        "{said}"
    );
    assert_eq!(stop(&of.session()), (Some(0), String::new()));
    assert!(!lives(keeper.pid), "it was waited for");
    gone(backend);
    world.wait_backends(0);
    assert_eq!(stop(&of.session()).0, Some(66));
    assert_eq!(find(&mut holder, &of, 1).expect("its own"), Value::Null);
    daemon.kill();
    assert_eq!(stop(&of.session()).0, Some(66));
    std::fs::set_permissions(world.directory(), std::fs::Permissions::from_mode(0o755))
        .expect("it is ours");
    let (code, said) = stop("any");
    assert!(
        code == Some(69) && said.contains("0755"),
        "nobody is believed in there: {said}"
    );
}

#[test]
fn sockets_of_nobody_are_deleted_at_the_start() {
    let world = world("");
    let mut daemon = world.daemon();
    let host = world.host();
    let (_holder, _, mut keeper) = world.keeper(&host);
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
    let place = socket(&keeper.name);
    let place = place.parent().expect("a directory");
    until_removed(place, "its socket is deleted", || {
        (!is_there(&keeper.name)).then_some(())
    });
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
    assert!(
        world
            .log
            .text()
            .contains("keepers has mode 0755 instead of 0700"),
        "{}",
        world.log.text()
    );
}
