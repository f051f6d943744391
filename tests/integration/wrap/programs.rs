//! Programs as hosts run them, and messages as hosts write them: what works directly works wrapped.

use std::fs;

use mcp_sessiond_tests::{Client, World, signal, write_program};
use nix::sys::signal::Signal;

use super::{keeping, root, tiny, wrapped};

/// A script without `#!`, which counts.
fn script(world: &World) -> Vec<String> {
    let words: Vec<String> = tiny(world).iter().map(|word| format!("'{word}'")).collect();
    let path = format!("{}/script", root(world));
    write_program(
        &path,
        &format!("test \"$1\" = one && exec {}\n", words.join(" ")),
    );
    vec![path, "one".to_owned()]
}

#[test]
fn a_script_that_names_no_interpreter_is_run_by_the_shell() {
    for options in [&[][..], &["--no-start"]] {
        let world = keeping("");
        let _daemon = options.is_empty().then(|| world.daemon());
        let command = world.wrapping(options, &script(&world));
        let mut client = Client::connected(world.front(&command));
        assert_eq!(client.count(), 1, "{options:?}");
    }
}

/// As a shell does for `<(…)`. What no argument names is closed.
#[test]
#[cfg(target_os = "linux")]
fn a_descriptor_that_an_argument_names_is_passed_on() {
    let world = keeping("");
    let _daemon = world.daemon();
    let at = |name: &str| format!("{}/{name}", root(&world));
    fs::write(at("given"), "from the host").expect("written");
    let reading = format!("cat \"$0\" > '{}'; exec \"$@\"", at("read"));
    let server = ["sh", "-c", &reading, "/dev/fd/7"].map(String::from);
    let server = [&server[..], &tiny(&world)].concat();
    let opening = format!("exec 7<'{0}' 8<'{0}' \"$0\" \"$@\"", at("given"));
    let host = ["sh", "-c", &opening].map(String::from);
    let command = [&host[..], &wrapped(&world, &server)].concat();
    let mut client = Client::connected(world.front(&command));
    assert_eq!(client.count(), 1);
    let read = fs::read_to_string(at("read"));
    assert_eq!(read.expect("the server has read it"), "from the host");
    let of_server =
        |number: u32| fs::read_link(format!("/proc/{}/fd/{number}", world.backend().pid()));
    assert!(of_server(7).is_ok() && of_server(8).is_err());
}

/// As directly: `setsid` forks where it leads a process group, as a server of ours does, and not where a
/// host has started it.
#[test]
#[cfg(target_os = "linux")]
fn a_launcher_that_ends_before_anything_was_said_leaves_its_server() {
    for (options, launcher) in [
        (&[][..], &["setsid"][..]),
        (&["--lazy"], &["setsid"]),
        (&["--name", "mine"], &["setsid"]),
        (&[], &["sh", "-c", "exec 7<&0; \"$@\" <&7 7<&- &", "sh"]),
    ] {
        let world = keeping("");
        let _daemon = world.daemon();
        let launcher = launcher.iter().map(|word| (*word).to_owned());
        let server: Vec<String> = launcher.chain(tiny(&world)).collect();
        let command = world.wrapping(options, &server);
        let mut client = Client::connected(world.front(&command));
        assert_eq!(client.count(), 1, "{command:?}");
        client.pipe.kill();
        let mut client = Client::connected(world.front(&command));
        assert_eq!(client.count(), 2, "it is kept: {command:?}");
        let backend = world.backend();
        signal(backend.pid(), Signal::SIGKILL);
        backend.wait("it has ended", |status| status.pid.is_none());
        assert_eq!(client.count(), 1, "a fresh one takes its place");
    }
}

#[test]
fn a_message_without_a_newline_behind_it_is_told() {
    let world = keeping("");
    let _daemon = world.daemon();
    let mut front = world.front(&wrapped(&world, &tiny(&world)));
    front.send(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    front.errors.wait("without a newline behind it");
    front.send(b"\n");
    assert!(front.line().is_some(), "it is answered all the same");
}
