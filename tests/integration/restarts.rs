//! A server is killed and started again by the same host.

use crate::world;

#[test]
fn an_instance_that_is_started_again_resumes() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let mut first = host.instance(&["--db", "prod"]);
    let session = first.load().assert_fresh().session();
    first.store("one");
    first.store("two");
    first.kill();
    let mut second = host.instance(&["--db", "prod"]);
    let resumed = second.load();
    assert_eq!((resumed.token.as_deref(), resumed.session()), (Some("two"), session));
    second.store("three");
    host.log.wait("Session resumed successfully");
}
