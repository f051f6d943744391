//! The standalone stream of a user who logs out, and in again.

use mcp_sessiond_tests::{Connected, until};
use serde_json::json;

use super::login::Guarded;

#[test]
#[ignore = "needs python3"]
fn what_is_said_to_a_former_login_reaches_nobody_and_the_next_one_is_listened_to() {
    let guarded = Guarded::new();
    guarded.login();
    guarded.control("listen=1");
    let file = guarded.world.root().join("kept.json");
    let (mut connected, _) = guarded.world.connected(&guarded.server.url, &file);
    connected.initialize();
    let listened = |times: u64| {
        until(&format!("{times} streams"), || {
            (guarded.count("streams") == times).then_some(())
        });
    };
    let said = |connected: &mut Connected| {
        connected
            .message(|line| line["method"] == "notifications/message")
            .1["params"]["data"]
            .clone()
    };
    listened(1);
    guarded.control("say=first");
    assert_eq!(said(&mut connected), "first");
    let logout = guarded
        .world
        .sessiond(&["logout", "test"])
        .output()
        .expect("logout");
    assert!(logout.status.success());
    let refused = guarded.count("refused");
    guarded.control("say=after-the-logout");
    // It has ended the stream, and asks whether it gets another session without a login.
    until("it has noticed", || {
        (guarded.count("refused") > refused).then_some(())
    });
    guarded.login();
    listened(2);
    guarded.control("say=second");
    assert_eq!(said(&mut connected), "second");
    // Another login, without a logout between: the next call begins its session.
    guarded.login();
    connected.text(1, "whoami", &json!({}));
    listened(3);
    guarded.control("say=third");
    assert_eq!(said(&mut connected), "third");
    assert_eq!(connected.said.lines("after-the-logout"), [""; 0]);
}
