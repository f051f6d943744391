//! `install` and `uninstall`, and the units that they write.

use std::fs::{create_dir_all, read_to_string};
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use mcp_sessiond_tests::{World, copy_program};

use super::machine::{Machine, SERVICE, SOCKET, config, files, is_there, succeeded, units};
use super::{StoredInstance, keeping};
use crate::{BINARIES, fixture};

#[test]
#[ignore = "needs systemd"]
fn installed_again_it_says_what_has_changed() {
    let (machine, _host, mut kept) = keeping("");
    let former = machine.world.daemon_pid();
    let said = machine.install();
    assert!(
        !said.contains("wrote") && !said.contains("changed"),
        "{said}"
    );
    // The executable may be a new one of the same name.
    assert_ne!(machine.world.daemon_pid(), former);
    let moved = machine.world.root().join("mcp 100% sessiond");
    copy_program(machine.world.binaries.daemon, &moved);
    let said = succeeded(&machine.run(moved.to_str().expect("UTF-8"), &["install"]));
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("  "))
        .map(str::trim)
        .collect();
    let path = moved.display().to_string().replace('%', "%%");
    assert_eq!(
        lines,
        [
            format!("- ExecStart={} run", machine.world.binaries.daemon),
            format!("+ ExecStart=\"{path}\" run")
        ]
    );
    kept.assert_kept("one");
    assert_eq!(machine.about()["executable"], moved.display().to_string());
    machine.assert_served_by_systemd();
}

#[test]
#[ignore = "needs systemd"]
fn uninstall_leaves_nothing_but_the_sessions() {
    let machine = Machine::new();
    let said = machine.install();
    assert!(
        said.contains(&machine.world.socket().display().to_string()),
        "{said}"
    );
    let shown = succeeded(&machine.sessiond(&["install", "--remove", "--dry-run"]));
    let host = machine.world.host();
    let mut kept = StoredInstance::store(host.instance(&[]), "one");
    let daemon = machine.world.daemon_pid();
    let said = succeeded(&machine.sessiond(&["install", "--remove"]));
    assert!(said.contains("The sessions stay in"), "{said}");
    assert!(!is_there(daemon), "it is stopped");
    assert_eq!(files(&config(&machine.world)), Vec::<PathBuf>::new());
    assert!(!machine.world.socket().exists());
    for unit in [SERVICE, SOCKET] {
        assert_eq!(machine.property(unit, "LoadState"), "not-found");
        assert!(
            shown.contains(&units(&machine.world).join(unit).display().to_string()),
            "{shown}"
        );
    }
    let again = succeeded(&machine.sessiond(&["install", "--remove"]));
    assert_eq!(again, "Nothing is installed.\n");
    // The lease outlives even that.
    let _daemon = machine.world.daemon();
    kept.assert_kept("one");
}

#[test]
#[ignore = "needs systemd"]
fn print_touches_nothing_and_no_start_starts_nothing() {
    let machine = Machine::new();
    let shown = succeeded(&machine.sessiond(&["install", "--dry-run"]));
    assert!(files(&config(&machine.world)).is_empty() && !machine.world.directory().exists());
    succeeded(&machine.sessiond(&["install", "--no-start"]));
    for unit in [SERVICE, SOCKET] {
        let text = read_to_string(units(&machine.world).join(unit)).expect("installed");
        assert!(shown.contains(&text), "{shown}");
        assert_eq!(machine.property(unit, "ActiveState"), "inactive");
    }
    assert_eq!(machine.property(SOCKET, "UnitFileState"), "enabled");
}

#[test]
#[ignore = "needs systemd"]
fn a_unit_that_something_else_manages_is_left_alone() {
    let machine = Machine::new();
    create_dir_all(units(&machine.world)).expect("a directory");
    let masked = units(&machine.world).join(SOCKET);
    symlink("/dev/null", &masked).expect("linked");
    let refused = machine.sessiond(&["install"]);
    assert_eq!(refused.status.code(), Some(70), "{refused:?}");
    assert!(masked.is_symlink());
    assert_eq!(files(&config(&machine.world)), [masked]);
}

#[test]
#[ignore = "needs systemd"]
fn without_a_user_manager_install_refuses() {
    let world = World::new(&BINARIES);
    let mut command = world.sessiond(&["install"]);
    command
        .env("XDG_RUNTIME_DIR", world.root())
        .env_remove("DBUS_SESSION_BUS_ADDRESS");
    command.env("XDG_CONFIG_HOME", config(&world));
    let refused = command.output().expect("it runs");
    assert_eq!(refused.status.code(), Some(69), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("no systemd user manager can be reached"),
        "{said}"
    );
    assert!(files(&config(&world)).is_empty());
}

#[test]
#[ignore = "needs systemd"]
fn the_units_are_valid_as_they_stand_and_as_installed() {
    let machine = Machine::installed("");
    // As they stand they are for what `cargo install` made.
    let home = machine.world.root().join("h");
    create_dir_all(home.join(".cargo/bin")).expect("a directory");
    symlink(
        machine.world.binaries.daemon,
        home.join(".cargo/bin/mcp-sessiond"),
    )
    .expect("linked");
    let (as_they_stand, installed) = (PathBuf::from(fixture("../systemd")), units(&machine.world));
    let both = [SERVICE, SOCKET];
    for (directory, units) in [
        (
            as_they_stand,
            &[&both[..], &["mcp-sessiond-serve@.service"]].concat(),
        ),
        (installed, &both.to_vec()),
    ] {
        let mut verify = machine.manager.command("systemd-analyze");
        verify
            .args(["--user", "verify"])
            .args(units.iter().map(|unit| directory.join(unit)))
            .env("HOME", &home);
        let verified = verify.output().expect("it runs");
        assert!(
            verified.status.success() && verified.stderr.is_empty(),
            "{verified:?}"
        );
    }
}
