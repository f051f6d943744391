//! How keepers of a service's sessions start and end.

use mcp_sessiond_proto::Epoch;
use mcp_sessiond_proto::backends::{Attach, KeeperRequest};
use mcp_sessiond_proxy::keeper::dial::{DialError, dial};
use mcp_sessiond_tests::{gone, signal};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{Bench, answer, request};

#[test]
fn a_keeper_without_a_front_ends_after_the_linger_time() {
    let mut bench = Bench::new("[http]\nlinger_ms = 50\n");
    let backend = bench.world.backend();
    bench.serving.process.kill();
    gone(backend.keeper);
    bench.world.serving("web").leased();
}

#[test]
fn a_keeper_ends_with_its_session() {
    let mut bench = Bench::new("");
    let backend = bench.world.backend();
    bench.world.terminate("web", "s");
    gone(backend.keeper);
    bench.serving.wait("gone");
    let attached = bench.serving.attach("s", &bench.raw.command);
    assert_eq!(attached["why"], "there is no such session of this service");
}

#[test]
fn a_keeper_ends_when_it_is_told_to() {
    let mut bench = Bench::new("");
    let backend = bench.world.backend();
    bench.serving.tell(json!({"end": "s"}));
    bench.serving.wait("ended");
    gone(backend.keeper);
    assert_ne!(
        bench.serving.attach("s", &bench.raw.command)["incarnation"],
        bench.incarnation
    );
}

/// The keepers tell the new daemon which service they belong to, and which process was attached.
#[test]
fn a_service_is_found_again_when_the_records_are_lost() {
    let mut bench = Bench::new("");
    bench.serving.send("s", &request(1, "hold"));
    bench.raw.wait_heard("hold");
    let backend = bench.world.backend();
    bench.daemon.kill();
    bench.world.lose_records();
    bench.daemon.start_again();
    assert_eq!(bench.world.backend().keeper, backend.keeper);
    let mut second = bench.world.serving("web");
    assert_eq!(
        second.wait("taken")["taken"]["pid"],
        bench.serving.process.pid()
    );
    bench.raw.say(&answer(1));
    assert_eq!(bench.serving.line(), (1, answer(1)));
    assert_eq!(bench.serve_again()["incarnation"], bench.incarnation);
    assert_eq!(bench.serving.line(), (1, answer(1)));
}

/// As by `mcp-sessiond stop`.
#[test]
fn a_keeper_is_listed_and_stopped_by_hand() {
    let mut bench = Bench::new("");
    let backend = bench.world.backend();
    let listed = bench.world.listed("list_backends");
    assert_eq!(
        (&listed[0]["service"], &listed[0]["host"]),
        (&json!("web"), &json!(0))
    );
    let stopped = bench
        .world
        .sessiond(&["stop", "--all"])
        .output()
        .expect("it runs");
    assert!(stopped.status.success(), "{stopped:?}");
    gone(backend.keeper);
    bench.serving.wait("gone");
}

#[test]
fn a_killed_keeper_takes_its_backend_with_it_and_a_new_one_is_started() {
    let mut bench = Bench::new("");
    let backend = bench.world.backend();
    let pid = backend.status().pid.expect("it runs");
    signal(backend.keeper, Signal::SIGKILL);
    bench.serving.wait("gone");
    gone(pid);
    assert_ne!(
        bench.serving.attach("s", &bench.raw.command)["incarnation"],
        bench.incarnation
    );
    assert_ne!(bench.world.backend().keeper, backend.keeper);
}

/// A keeper refuses every process that does not hold the lease, also while the daemon is away.
#[test]
fn only_the_leaseholder_attaches() {
    let mut bench = Bench::new("");
    let backend = bench.world.backend();
    let refusal = |epoch, service: Option<&str>, continues| {
        let service = service.map(|name| name.parse().expect("a name"));
        let session = "s".parse().expect("an id");
        let attach = Attach {
            session,
            epoch: Epoch(epoch),
            initialize: None,
            service,
            continues,
            refuses_after_loss: false,
            lost_is_told: false,
            lost: None,
        };
        match dial(backend.socket(), &KeeperRequest::Attach(attach)) {
            Err(DialError::Refused(error)) => error.code(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refusal(1, Some("web"), true), "session_held");
    assert_eq!(refusal(2, Some("web"), true), "stale_epoch");
    assert_eq!(refusal(1, Some("other"), true), "unknown_session");
    assert_eq!(refusal(1, None, false), "unknown_session");
    assert_eq!(refusal(1, Some("web"), false), "invalid_argument");
    bench.daemon.kill();
    assert_eq!(refusal(1, Some("web"), true), "stale_epoch");
    bench.serving.send("s", &request(1, "x"));
    assert_eq!(
        bench.serving.line(),
        (1, answer(1)),
        "and the leaseholder is not affected"
    );
}

/// A keeper must be a descendant of the leaseholder.
#[test]
fn only_a_descendant_of_the_leaseholder_registers_as_a_keeper() {
    let bench = Bench::new("");
    let words = [
        "keep",
        "--session",
        "s",
        "--service",
        "web",
        "--epoch",
        "1",
        "--",
        "sleep",
        "60",
    ];
    let output = bench.world.sessiond(&words).output().expect("it runs");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    let why = report["failed"]
        .as_str()
        .unwrap_or_else(|| panic!("{report}"));
    assert!(why.contains("is not an ancestor"), "{why}");
    assert_eq!(bench.world.backends().len(), 1);
}
