//! A server behind a balancer that knows by a cookie which of several has a session.

use std::fs;

use serde_json::{Value, json};

use super::{front, pinged};
use crate::world;

#[test]
#[ignore = "needs python3"]
fn a_sessions_cookie_goes_with_it_also_into_the_next_process() {
    let world = world("");
    let _daemon = world.daemon();
    let server = pinged(&world);
    fs::write(world.root().join("sticky"), "").expect("a file");
    fs::write(world.root().join("ping"), "result").expect("a file");
    let session = || {
        let mut client = front(&world, &server);
        client.initialize();
        let within: Vec<Value> = (0..5)
            .map(|_| {
                let id = client.request("tools/list", json!({}));
                client.answer(id)["result"]["within"].take()
            })
            .collect();
        client.pipe.kill();
        within
    };
    let first = session();
    assert!(first[0].is_string(), "{first:?}");
    assert!(first.iter().all(|within| *within == first[0]), "{first:?}");
    assert_eq!(session(), first, "the next front goes on");
    // Two clients' sessions are two, and so are their cookies.
    let serve = world.serve(&["--name", "sticky", "--upstream", &server.url], &[]);
    let mut clients = [serve.connected("2025-11-25"), serve.connected("2025-11-25")];
    let mut within = || -> [Value; 2] {
        clients
            .each_mut()
            .map(|client| client.call("x", &json!({})).answer()["result"]["within"].take())
    };
    let first = within();
    assert!(first[0] != first[1] && first[0].is_string(), "{first:?}");
    assert!((0..4).all(|_| within() == first));
}
