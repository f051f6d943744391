//! Launchers that every machine has, or that npm brings: the server below has the host above, and
//! finds its token again. Those that are downloaded: tests/hosts/launchers.

use std::path::{Path, PathBuf};

use mcp_sessiond_tests::{Host, Instance, World, copy_program};
use serde_json::{Value, json};

use crate::world;

/// Starts an instance by this command line.
fn start(host: &Host, words: &[&str], variables: &Value) -> Instance {
    Instance(host.server_with(words, variables))
}

/// The host that the daemon finds above an instance, and what is between.
fn host_of(instance: &mut Instance) -> (u64, Vec<String>) {
    let who = instance.call("who_am_i", json!({})).expect("who it is");
    let steps = who["walk"].as_array().expect("the walk").iter();
    let launchers = steps.filter(|step| step["role"] == "launcher");
    let names = launchers
        .filter_map(|step| step["name"].as_str().map(str::to_owned))
        .collect();
    (who["host"].as_u64().unwrap_or_default(), names)
}

/// Whether what the first one stores is what the second one loads.
fn assert_resumes(world: &World, words: &[&str], variables: &Value, between: &[&str]) {
    let host = world.host();
    let mut first = start(&host, words, variables);
    first.first_run("kept");
    let (found, launchers) = host_of(&mut first);
    assert_eq!(
        (found, launchers),
        (u64::from(host.pid()), owned(between)),
        "{words:?}"
    );
    first.kill();
    // What was killed is the launcher. The server sees that its input has ended.
    world.wait_stat("leases", 0);
    let loaded = start(&host, words, variables).load();
    assert_eq!(loaded.token.as_deref(), Some("kept"), "{words:?}");
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn below_a_launcher_a_server_is_the_hosts() {
    let world = world("");
    let _daemon = world.daemon();
    let instance = world.binaries.instance;
    let script = format!("{instance}; exit $?");
    let lines: [(&[&str], &[&str]); 11] = [
        (&["env", "A=1", instance], &[]),
        (&["nice", "-n", "1", instance], &[]),
        (&["nohup", instance], &[]),
        (&["stdbuf", "-oL", instance], &[]),
        (&["setsid", "--wait", instance], &[]),
        (&["setsid", "--fork", "--wait", instance], &["setsid"]),
        (&["timeout", "1000", instance], &["timeout"]),
        (&["timeout", "--foreground", "1000", instance], &["timeout"]),
        (
            &["nice", "timeout", "1000", "setsid", "-fw", instance],
            &["setsid", "timeout"],
        ),
        (
            &["timeout", "1000", "bash", "-c", &script],
            &["bash", "timeout"],
        ),
        (&["bash", "-c", &script], &["bash"]),
    ];
    for (words, between) in lines {
        assert_resumes(&world, words, &json!({}), between);
    }
}

#[test]
#[ignore = "needs npm"]
fn below_npm_a_server_is_the_hosts() {
    let world = world("");
    let _daemon = world.daemon();
    let package = world.root().join("package");
    std::fs::create_dir(&package).expect("a directory");
    let instance = world.binaries.instance;
    let described = json!({"name": "p", "version": "1.0.0", "scripts": {"server": instance, "start": instance}});
    std::fs::write(package.join("package.json"), described.to_string()).expect("written");
    let variables = json!({"directory": package.to_str(), "npm_config_update_notifier": "false"});
    for words in [
        &["npm", "run", "--silent", "server"][..],
        &["npm", "--silent", "start"],
        &["npm", "exec", "-c", instance],
        &["npx", "-c", instance],
    ] {
        let host = world.host();
        let (found, launchers) = host_of(&mut start(&host, words, &variables));
        assert_eq!(found, u64::from(host.pid()), "{words:?}: {launchers:?}");
        assert_eq!(
            launchers.last().map(String::as_str),
            Some("node"),
            "{words:?}"
        );
    }
    assert_resumes_below_npm(&world, &variables);
}

/// npm's shell may become the server, or stay.
fn assert_resumes_below_npm(world: &World, variables: &Value) {
    let host = world.host();
    let words = ["npm", "run", "--silent", "server"];
    let mut first = start(&host, &words, variables);
    first.first_run("kept");
    first.kill();
    world.wait_stat("leases", 0);
    assert_eq!(
        start(&host, &words, variables).load().token.as_deref(),
        Some("kept")
    );
}

/// A program in JavaScript that starts another one, in these ways: as a shim does, as a host does.
const SHIM: &str = "require('child_process').spawnSync(process.env.SERVER, process.argv.slice(2), {stdio: 'inherit'})";
const HOST: &str = "const server = require('child_process').spawn(process.env.SERVER, process.argv.slice(2), {stdio: ['pipe', 'pipe', 'inherit']}); \
                    process.stdin.pipe(server.stdin); server.stdout.pipe(process.stdout)";

fn written(directory: &Path, name: &str, script: &str) -> String {
    let path = directory.join(name);
    std::fs::create_dir_all(path.parent().expect("one")).expect("a directory");
    std::fs::write(&path, script).expect("written");
    path.into_os_string().into_string().expect("UTF-8")
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "needs node"]
fn a_packages_shim_is_a_launcher_and_a_host_in_a_package_is_not() {
    let world = world("");
    let _daemon = world.daemon();
    let packages = world.root().join("node_modules");
    let shim = written(&packages, "server/bin/server.js", SHIM);
    let agent = written(&packages, "agent/cli.js", HOST);
    let elsewhere = written(world.root(), "agent.js", SHIM);
    let ours = written(world.root(), "bin/mcp-sessiond", SHIM);
    let packaged: PathBuf = packages.join("server-linux/instance");
    std::fs::create_dir(packages.join("server-linux")).expect("a directory");
    copy_program(world.binaries.instance, &packaged);
    let packaged = packaged.to_str().expect("UTF-8");
    let foreign = world.binaries.instance;
    for (script, server, is_launcher) in [
        (&shim, packaged, true),
        (&ours, foreign, true),
        // It speaks to what it has started; it has started what is not its package's; it is no
        // package's itself.
        (&agent, packaged, false),
        (&shim, foreign, false),
        (&elsewhere, packaged, false),
    ] {
        let host = world.host();
        let mut instance = start(
            &host,
            &["node", script, "an argument"],
            &json!({"SERVER": server}),
        );
        let expected = if is_launcher {
            host.pid()
        } else {
            instance.0.pid()
        };
        assert_eq!(
            host_of(&mut instance).0,
            u64::from(expected),
            "{script} {server}"
        );
    }
}

/// What `doctor` says, in one line.
fn doubts(world: &World) -> String {
    let check = world.sessiond(&["doctor"]).output().expect("doctor");
    let said = String::from_utf8(check.stdout).expect("UTF-8");
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
#[ignore = "needs python3"]
fn a_host_that_ends_with_its_only_server_is_named_once() {
    let world = world("");
    let _daemon = world.daemon();
    let unknown = "import subprocess, sys; subprocess.run(sys.argv[1:])";
    for _ in 0..3 {
        let host = world.host();
        let mut server = start(
            &host,
            &["python3", "-c", unknown, world.binaries.instance],
            &json!({}),
        );
        server.first_run("lost");
        // That is python. The server ends with its input.
        server.kill();
        world.wait_stat("sessions", 0);
    }
    let said = "ends again and again together with `instance`, the only server that it had";
    world.log.wait(said);
    assert_eq!(world.log.text().matches(said).count(), 1);
    let doubts = doubts(&world);
    assert!(
        doubts.contains(said) && doubts.contains("name it in `launchers`"),
        "{doubts}"
    );
    // One whose servers come again is a host.
    let host = world.host();
    let mut first = host.instance(&[]);
    let session = first.first_run("kept").session();
    first.kill();
    host.instance(&[])
        .load()
        .assert_resumed(&session, Some("kept"));
    drop(host);
    world.wait_stat("sessions", 0);
    assert_eq!(
        world.log.text().matches("again and again together").count(),
        1
    );
}

#[test]
fn a_server_that_has_another_key_at_each_start_is_told_what_differs() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    for port in ["4001", "4002", "4003", "4004"] {
        let mut instance = start(
            &host,
            &[world.binaries.instance, "--port", port],
            &json!({}),
        );
        instance.first_run("lost");
        instance.kill();
        world.wait_stat("leases", 0);
    }
    world
        .log
        .wait("starts with none of the state of earlier starts");
    let doubts = doubts(&world);
    assert!(
        doubts.contains("its arguments differ at each start"),
        "{doubts}"
    );
    assert_eq!(
        doubts.matches("starts with none of the state").count(),
        1,
        "{doubts}"
    );
}
