//! `mcp-sessiond service`: what the user service is doing.

use std::fs::{read_to_string, write};

use mcp_sessiond_tests::write_program;
use serde_json::{Value, json};

use super::machine::{Machine, SERVICE, SOCKET, units};

/// What it prints, its exit code, and its complaints.
fn said(machine: &Machine, arguments: &[&str]) -> (String, Option<i32>, String) {
    let output = machine.sessiond(&[&["service"], arguments].concat());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (
        text(output.stdout),
        output.status.code(),
        text(output.stderr),
    )
}

fn status(machine: &Machine) -> Value {
    serde_json::from_str(&said(machine, &["status", "--json"]).0).expect("JSON")
}

#[test]
#[ignore = "needs systemd"]
fn it_is_told_from_before_it_is_installed_until_it_is_gone() {
    let machine = Machine::new();
    let (text, code, _) = said(&machine, &[]);
    assert!(text.contains("not installed") && code == Some(0), "{text}");
    let (text, code, why) = said(&machine, &["restart"]);
    assert_eq!((&*text, code), ("", Some(66)));
    assert!(why.contains("no service is installed"), "{why}");

    assert_eq!(machine.sessiond(&["install"]).status.code(), Some(0));
    let found = status(&machine);
    let of = |name: &str| units(&machine.world).join(name);
    assert_eq!(found["units"], json!([of(SERVICE), of(SOCKET)]));
    for (name, value) in [
        ("manager", json!("systemd")),
        ("installed", json!(true)),
        ("packaged", json!(false)),
        ("enabled", json!(true)),
        ("listens", json!(true)),
        ("executable", json!(machine.world.binaries.daemon)),
        ("version", found["own_version"].clone()),
        // Who looks at it starts nothing.
        ("pid", Value::Null),
        ("daemon", Value::Null),
        ("finding", Value::Null),
    ] {
        assert_eq!(found[name], value, "{name}: {found}");
    }
    assert_eq!(machine.property(SERVICE, "ActiveState"), "inactive");

    let pid = machine.about()["pid"].clone();
    let found = status(&machine);
    assert_eq!(
        (&found["pid"], &found["daemon"]["pid"]),
        (&pid, &pid),
        "{found}"
    );
    assert_eq!(found["daemon"]["started_by"], "systemd");
    let (text, code, _) = said(&machine, &["status"]);
    let runs = format!("runs (pid {pid}), version ");
    assert!(
        text.contains(&runs) && text.contains("started by systemd") && code == Some(0),
        "{text}"
    );
    assert_eq!(said(&machine, &["restart"]).1, Some(0));
    let next = status(&machine)["pid"].clone();
    assert!(next.is_u64() && next != pid, "{next}");

    machine.systemctl(&["--quiet", "disable", SOCKET]);
    assert_eq!(status(&machine)["enabled"], false);
    assert!(
        said(&machine, &[])
            .0
            .contains("not there after the next login")
    );
    assert_eq!(
        machine.sessiond(&["install", "--remove"]).status.code(),
        Some(0)
    );
    assert_eq!(status(&machine)["installed"], false);
}

#[test]
#[ignore = "needs systemd"]
fn another_version_and_one_that_is_gone_are_told_of() {
    let machine = Machine::installed("");
    let other = machine.world.root().join("other");
    write_program(&other, "#!/bin/sh\necho mcp-sessiond 0.0.1\n");
    let unit = units(&machine.world).join(SERVICE);
    let text = read_to_string(&unit).expect("a unit");
    let text = text.replace(
        machine.world.binaries.daemon,
        other.to_str().expect("UTF-8"),
    );
    write(&unit, text).expect("written");
    machine.systemctl(&["daemon-reload"]);
    let found = status(&machine);
    assert_eq!(found["version"], "0.0.1", "{found}");
    let (text, code, _) = said(&machine, &[]);
    // It may be wrapped anywhere.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("it starts another version") && text.contains("`mcp-sessiond install`"),
        "{text}"
    );
    assert_eq!(code, Some(0));
    std::fs::remove_file(&other).expect("it was there");
    let (text, code, _) = said(&machine, &[]);
    assert!(
        text.contains("other is not there") && code == Some(69),
        "{text}"
    );
}
