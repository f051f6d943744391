//! A server that compresses what it says: what reads bodies reads these, or says which coding it can't read.

use std::fs;

use serde_json::json;

use super::{front, pinged};
use crate::world;

#[test]
#[ignore = "needs python3"]
fn what_a_server_compresses_is_read_or_its_coding_is_named() {
    let world = world("");
    let _daemon = world.daemon();
    let server = pinged(&world);
    let sends_in = |coding| fs::write(world.root().join("coding"), coding).expect("a file");
    for coding in ["asked", "gzip", "deflate", "raw"] {
        sends_in(coding);
        let mut client = front(&world, &server);
        client.initialize();
        for method in ["tools/list", "tools/call"] {
            let id = client.request(method, json!({}));
            let answer = client.answer(id);
            assert!(answer["result"]["within"].is_string(), "{coding}: {answer}");
        }
        client.pipe.kill();
        let serve = world.serve(&["--name", coding, "--upstream", &server.url], &[]);
        let mut client = serve.connected("2025-11-25");
        let answer = client.call("x", &json!({})).answer();
        assert!(answer["result"]["within"].is_string(), "{coding}: {answer}");
        // What is passed on as it came has the coding that client and server agree on.
        let reply = serve.client().modern("tools/list", &json!({}));
        let named = match coding {
            "asked" => "gzip",
            "raw" => "deflate",
            other => other,
        };
        assert_eq!(reply.header("content-encoding"), Some(named), "{coding}");
    }
    sends_in("br");
    let mut client = front(&world, &server);
    let id = client.request("initialize", json!({"protocolVersion": "2025-11-25"}));
    let answer = client.answer(id);
    let said = answer["error"]["message"].as_str();
    assert!(said.is_some_and(|said| said.contains("\"br\"")), "{answer}");
}
