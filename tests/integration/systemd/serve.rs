//! `install --serve`: `serve` as a service of its own.

use std::fs::{create_dir_all, read_link, write};
use std::path::PathBuf;

use mcp_sessiond_tests::{HttpClient, until};
use serde_json::{Value, json};

use super::machine::{Machine, config, files, is_there, succeeded, units};
use crate::wrap::{counter, gate, open, tiny};

const UNIT: &str = "mcp-sessiond-serve@test.service";

/// `install --serve test` with these options of `serve`, in front of this server.
fn arguments(machine: &Machine, options: &[&str], server: &[String]) -> Vec<String> {
    let listen = format!("unix:{}", socket(machine).display());
    let given = ["install", "--serve", "test", "--listen", &listen];
    let options = given.iter().chain(options).copied().map(String::from);
    options
        .chain(["--".to_owned()])
        .chain(server.iter().cloned())
        .collect()
}

fn install(machine: &Machine, options: &[&str], server: &[String]) -> std::process::Output {
    let arguments = arguments(machine, options, server);
    machine.sessiond(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

fn socket(machine: &Machine) -> PathBuf {
    machine.world.root().join("serve.sock")
}

fn client(machine: &Machine) -> HttpClient {
    let at = socket(machine).to_str().expect("UTF-8").to_owned();
    HttpClient {
        at,
        path: "/mcp".to_owned(),
        headers: Vec::new(),
        last: 0,
    }
}

/// What `doctor` says, in one line.
fn doctor(machine: &Machine) -> String {
    let said = machine.sessiond(&["doctor"]).stdout;
    String::from_utf8_lossy(&said)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

fn main_pid(machine: &Machine) -> u32 {
    machine.property(UNIT, "MainPID").parse().expect("a pid")
}

/// Has the standard error of `serve` written to the machine's log.
fn log(machine: &Machine) {
    let over = units(&machine.world).join(format!("{UNIT}.d/test.conf"));
    create_dir_all(over.parent().expect("a directory")).expect("a directory");
    let log = machine.world.root().join("log");
    write(
        over,
        format!("[Service]\nStandardError=append:{}\n", log.display()),
    )
    .expect("written");
}

/// The unit as it is installed.
fn unit_text(machine: &Machine) -> String {
    std::fs::read_to_string(units(&machine.world).join(UNIT)).expect("installed")
}

#[test]
#[ignore = "needs systemd"]
fn a_call_goes_on_when_serve_is_killed_and_uninstall_leaves_nothing() {
    let machine = Machine::new();
    let world = &machine.world;
    succeeded(&install(&machine, &[], &counter(world)));
    assert_eq!(machine.property(UNIT, "UnitFileState"), "enabled");
    let mut client = client(&machine);
    client.initialize("2025-11-25");
    assert_eq!(client.text("increment", &json!({})), "1");
    let server = world.backend();
    let gate = gate(world, "gate");
    let event = client
        .call("slow", &json!({"gate": gate}))
        .said()
        .id
        .expect("an id");
    machine.systemctl(&["kill", "--signal=KILL", "--kill-whom=main", UNIT]);
    // systemctl has no verb that waits for a restart.
    until("it is started again", || {
        (machine.property(UNIT, "NRestarts") == "1"
            && machine.property(UNIT, "ActiveState") == "active")
            .then_some(())
    });
    let mut back = client.resume(&event);
    open(&gate);
    assert_eq!(back.answer()["result"]["content"][0]["text"], "2");
    machine.systemctl(&["restart", UNIT]);
    assert_eq!(client.text("increment", &json!({})), "3", "the same server");
    assert_eq!(world.backend().keeper, server.keeper);

    let environment: Value =
        serde_json::from_str(&client.text("env", &json!({}))).expect("the server's environment");
    assert_eq!(
        environment["PATH"].as_str(),
        std::env::var("PATH").ok().as_deref()
    );
    assert!(environment.get("NOTIFY_SOCKET").is_none(), "{environment}");
    let directory = read_link(format!("/proc/{}/cwd", server.pid())).expect("a directory");
    assert_eq!(directory, std::env::current_dir().expect("a directory"));
    let check = doctor(&machine);
    assert!(check.contains("the service of test runs"), "{check}");
    let verified = machine.run(
        "systemd-analyze",
        &[
            "--user",
            "verify",
            units(world).join(UNIT).to_str().expect("UTF-8"),
        ],
    );
    assert!(
        verified.status.success() && verified.stderr.is_empty(),
        "{verified:?}"
    );

    let serve = main_pid(&machine);
    succeeded(&machine.sessiond(&["install", "--remove", "--serve", "test"]));
    assert!(!is_there(serve));
    assert_eq!(files(&config(world)), Vec::<PathBuf>::new());
    assert_eq!(machine.property(UNIT, "LoadState"), "not-found");
    assert_eq!(
        world.backend().keeper,
        server.keeper,
        "the server stays for another while"
    );
    succeeded(&machine.sessiond(&[
        "debug",
        "sweep",
        "--service",
        "serve.test",
        "--older-than",
        "0s",
    ]));
    world.wait_backends(0);
    let again = succeeded(&machine.sessiond(&["install", "--remove", "--serve", "test"]));
    assert_eq!(again, "Nothing is installed.\n");
}

#[test]
#[ignore = "needs systemd"]
fn it_is_not_started_again_and_again_while_another_process_serves_the_name() {
    let machine = Machine::new();
    let world = &machine.world;
    let _daemon = world.daemon();
    log(&machine);
    install_without_start(&machine);
    let by_hand = world.serve(&["--name", "test"], &tiny(world));
    let refused = machine.run("systemctl", &["--user", "start", UNIT]);
    assert!(!refused.status.success(), "{refused:?}");
    let properties = ["ActiveState", "NRestarts", "ExecMainStatus"];
    assert_eq!(
        properties.map(|name| machine.property(UNIT, name)),
        ["failed", "0", "75"]
    );
    assert!(
        machine
            .log()
            .contains(&format!("process {} serves", by_hand.pid())),
        "{}",
        machine.log()
    );
    let check = doctor(&machine);
    assert!(check.contains(&format!("{UNIT} is failed")), "{check}");
    drop(by_hand);
    machine.systemctl(&["restart", UNIT]);
    client(&machine).initialize("2025-11-25");
}

/// Leaves the start to the test, and that of a daemon.
fn install_without_start(machine: &Machine) {
    // The first `--no-start` is an option of `install`, the second of `serve`.
    let words = arguments(machine, &["--no-start"], &tiny(&machine.world));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    succeeded(&machine.sessiond(&[&["install", "--no-start"], &words[1..]].concat()));
}

/// It exits with this code, and says this in its last line.
#[track_caller]
fn assert_refused(refused: &std::process::Output, code: i32, words: &str) {
    let said = String::from_utf8_lossy(&refused.stderr);
    let last = said.lines().last().unwrap_or_default();
    assert_eq!(refused.status.code(), Some(code), "{refused:?}");
    assert!(last.contains(words), "{said}");
}

#[test]
#[ignore = "needs systemd"]
fn what_cannot_start_here_gets_no_unit() {
    let machine = Machine::new();
    let server = tiny(&machine.world);
    let missing = install(&machine, &[], &["no-such-program".to_owned()]);
    assert_refused(&missing, 127, "no-such-program can't be run");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").to_string();
    let words = [
        "install", "--serve", "test", "--listen", &port, "--", &server[0],
    ];
    let own = format!("(pid {}) listens there", std::process::id());
    assert_refused(&machine.sessiond(&words), 75, &own);
    let _listens = std::os::unix::net::UnixListener::bind(socket(&machine)).expect("bound");
    let taken = install(&machine, &[], &server);
    assert_refused(&taken, 75, "another process listens there");
    assert_eq!(files(&config(&machine.world)), Vec::<PathBuf>::new());
}

#[test]
#[ignore = "needs systemd"]
fn a_unit_that_does_not_start_is_removed_and_its_last_line_printed() {
    let machine = Machine::new();
    let world = &machine.world;
    let _daemon = world.daemon();
    log(&machine);
    let before = files(&config(world));
    let by_hand = world.serve(&["--name", "test"], &tiny(world));
    let refused = install(&machine, &[], &tiny(world));
    let why = format!("process {} serves", by_hand.pid());
    assert_refused(&refused, 70, &why);
    assert_eq!(files(&config(world)), before);
    assert_eq!(machine.property(UNIT, "ActiveState"), "inactive");
    drop(by_hand);
    succeeded(&install(&machine, &[], &tiny(world)));
    client(&machine).initialize("2025-11-25");
}

#[test]
#[ignore = "needs systemd"]
fn a_service_that_runs_goes_on_where_another_one_in_its_place_does_not_start() {
    let machine = Machine::new();
    let server = tiny(&machine.world);
    log(&machine);
    succeeded(&install(&machine, &[], &server));
    let former = unit_text(&machine);
    // It listens itself where it is to listen again.
    succeeded(&install(&machine, &[], &server));
    let nowhere = format!("unix:{}/nowhere/s", machine.world.root().display());
    let words = [
        "install", "--serve", "test", "--listen", &nowhere, "--", &server[0],
    ];
    assert_refused(&machine.sessiond(&words), 70, "nowhere/s: ");
    let now = unit_text(&machine);
    assert_eq!(now, former);
    assert_eq!(machine.property(UNIT, "ActiveState"), "active");
    client(&machine).initialize("2025-11-25");
}

#[test]
#[ignore = "needs systemd"]
fn it_waits_for_a_daemon() {
    let machine = Machine::new();
    let world = &machine.world;
    log(&machine);
    install_without_start(&machine);
    let waits = |times: usize| {
        // The service makes the file with its first line.
        until("it waits for a daemon", || {
            (machine.log().matches("waiting for one").count() == times).then_some(())
        });
    };
    machine.systemctl(&["start", "--no-block", UNIT]);
    waits(1);
    machine.systemctl(&["stop", UNIT]);
    assert_eq!(
        machine.property(UNIT, "Result"),
        "success",
        "it has ended at once"
    );
    machine.systemctl(&["start", "--no-block", UNIT]);
    waits(2);
    let _daemon = world.daemon();
    machine.systemctl(&["start", UNIT]);
    assert_eq!(machine.property(UNIT, "ActiveState"), "active");
    client(&machine).initialize("2025-11-25");
}

#[test]
#[ignore = "needs systemd"]
fn print_and_no_start_install_nothing_that_runs() {
    let machine = Machine::new();
    let server = tiny(&machine.world);
    let words = arguments(&machine, &[], &server);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let shown = succeeded(&machine.sessiond(&[&["install", "--dry-run"], &words[1..]].concat()));
    assert!(files(&config(&machine.world)).is_empty(), "{shown}");
    succeeded(&machine.sessiond(&[&["install", "--no-start"], &words[1..]].concat()));
    assert_eq!(machine.property(UNIT, "ActiveState"), "inactive");
    assert_eq!(machine.property(UNIT, "UnitFileState"), "enabled");
    let text = unit_text(&machine);
    assert!(shown.contains(&text), "{shown}");
    machine.systemctl(&["start", UNIT]);
    client(&machine).initialize("2025-11-25");
}
