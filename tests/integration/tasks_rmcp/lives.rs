//! Clients that go away before they know of a task. What else becomes of tasks whose worker, client or
//! daemon is gone is in `tests/conformance/tasks`.

use nix::sys::signal::Signal;
use serde_json::json;

use super::{Setup, each};

/// Closing the response of a call cancels it, in 2026-07-28.
#[test]
fn a_client_that_has_gone_before_it_could_hear_of_its_task_leaves_none_that_works() {
    // In a storage of its own: what it holds is listed.
    for storage in ["sqlite:", "memory:"] {
        let mut place = Setup::new(storage);
        let gate = place.gate();
        place.daemon.signal(Signal::SIGSTOP);
        let errors = place.server.errors.clone();
        place
            .client()
            .hang_up("watched", &gate.named(), || drop(errors.wait("called")));
        errors.wait("gone");
        place.daemon.signal(Signal::SIGCONT);
        let statuses = || {
            let owner = format!("service {}", place.service);
            let sessions = place.world.listed("list_contents");
            let mut own = sessions.iter().filter(|session| session["owner"] == *owner);
            let session = own.next()?["session"].clone();
            let of = json!({"of": {"service": place.service, "session": session}});
            let tasks = place.world.peer().call("list_tasks", of).ok()?;
            Some(tasks[0]["status"].clone()).filter(|status| status == "cancelled")
        };
        mcp_sessiond_tests::until("its task is cancelled", statuses);
        assert!(errors.lines("dropped").is_empty(), "no work has begun");
    }
}

#[test]
fn a_client_that_goes_away_from_a_call_without_a_task_ends_the_work() {
    each(|place| {
        let gate = place.gate();
        let errors = place.server.errors.clone();
        place
            .client()
            .plain()
            .hang_up("watched", &gate.named(), || drop(errors.wait("working")));
        errors.wait("gone");
        errors.wait("dropped");
    });
}
