//! What a shared server has from a host: next to nothing.

use std::collections::BTreeSet;
use std::fs;

use mcp_sessiond_tests::{Client, Front};
use serde_json::json;

use super::{able, connect, entry, greet, pid, sharing, write_down};
use crate::world;

/// The variables that a process was started with.
fn variables(pid: u32) -> BTreeSet<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).expect("it runs");
    let text = String::from_utf8_lossy(&environment);
    text.split('\0')
        .filter(|text| !text.is_empty())
        .map(|text| text.split('=').next().unwrap_or_default().to_owned())
        .collect()
}

#[test]
#[cfg(target_os = "linux")]
#[ignore = "needs root"]
fn no_variable_of_a_host_reaches_it_nor_its_directory() {
    let world = sharing();
    let _daemon = world.daemon();
    let words = world.wrapping(&[], &["@crowd".to_owned()]);
    let secret = [
        ("SECRET", "an open secret"),
        ("LD_PRELOAD", ""),
        ("XDG_RUNTIME_DIR", "/nowhere"),
        ("LANG", "C"),
    ];
    let mut client = Client::new(world.front_with(&words, &secret));
    greet(&mut client, &able(), "2025-06-18");
    let server = pid(&mut client);
    let allowed: BTreeSet<String> = [
        "HOME",
        "LOGNAME",
        "PATH",
        "SHELL",
        "TERM",
        "USER",
        "MCP_SESSIOND_DIR",
        "SHARED_HANDSHAKES",
    ]
    .map(String::from)
    .into();
    // The server's own are its keeper's; python's launchers may add to them.
    let backend = world.backend();
    let found = variables(backend.keeper);
    assert!(found.is_subset(&allowed), "{found:?}");
    let found = variables(server);
    let is_a_hosts = |name: &&String| {
        secret.iter().any(|(of, _)| of == name) || name.starts_with("MCP_SESSIOND_CONFIG")
    };
    assert_eq!(found.iter().find(is_a_hosts), None);
    assert!(
        found.contains("SHARED_HANDSHAKES") && found.contains("PATH"),
        "{found:?}"
    );
    let home = std::env::home_dir().expect("a home directory");
    assert_eq!(
        fs::read_link(format!("/proc/{server}/cwd")).expect("it runs"),
        fs::canonicalize(home).expect("it is there")
    );
    // The first host goes, and its server is the next one's.
    let mut other = connect(&world);
    client.pipe.kill();
    assert_eq!(pid(&mut other), server);
}

#[test]
fn an_entry_that_would_take_a_variable_of_a_host_is_refused() {
    let world = world("");
    let mut entry = entry(&world);
    entry["env"] = json!({"TOKEN": "${env:TOKEN}"});
    write_down(&world, &json!({"crowd": entry}));
    let mut command = world.sessiond(&["wrap", "@crowd"]);
    let output = command
        .env("TOKEN", "an open secret")
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(65), "{said}");
    assert!(
        said.contains("it is shared, and ${env:TOKEN} is a variable of one host"),
        "{said}"
    );
}

#[test]
fn a_server_with_a_url_can_t_be_shared() {
    let world = world("");
    write_down(
        &world,
        &json!({"far": {"url": "https://example.com/mcp", "shared": true}}),
    );
    let output = world.sessiond(&["wrap", "@far"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(65), "{said}");
    assert!(
        said.contains("only a server with a `command` can be shared"),
        "{said}"
    );
}

#[test]
fn a_secret_that_was_renewed_makes_no_other_server_and_is_read_when_it_is_started_next() {
    let world = sharing();
    let secret = world.root().join("secret");
    let renew = |text: &str| fs::write(&secret, text).expect("a file");
    let mut entry = entry(&world);
    let words = entry["args"].as_array_mut().expect("a list");
    words.push(json!(format!("${{file:{}}}", secret.display())));
    write_down(&world, &json!({"crowd": entry}));
    let has = |client: &mut Client<Front>, secret: &str| {
        let words: Vec<String> =
            serde_json::from_str(&client.call("arguments", json!({}))).expect("JSON");
        assert_eq!(words.last().map(String::as_str), Some(secret));
        pid(client)
    };
    let _daemon = world.daemon();
    renew("former");
    let mut one = connect(&world);
    let former = has(&mut one, "former");
    renew("renewed");
    let mut other = connect(&world);
    assert_eq!(has(&mut other, "former"), former);
    other.pipe.kill();
    let output = world
        .sessiond(&["stop", "crowd"])
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{output:?}");
    // It is started by a host that was there before.
    let renewed = has(&mut one, "renewed");
    assert_ne!(renewed, former);
    assert_eq!(has(&mut connect(&world), "renewed"), renewed);
}
