//! Units that a package has put where those of all users are, and clients that find them there.

use mcp_sessiond_tests::World;

use super::machine::{files, packaged};
use crate::BINARIES;

/// A machine whose administrator has the units in `$UNITS`: with /run and /etc/systemd/user of its
/// own, and the user manager that a login would start. What follows is what the user does.
const MACHINE: &str = r#"
set -eu
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/user
mkdir -m 700 "/run/user/$(id -u)"
mount --bind "$UNITS" /etc/systemd/user
managed() { XDG_RUNTIME_DIR=/run/user/$(id -u) systemctl --user "$@"; }
XDG_RUNTIME_DIR=/run/user/$(id -u) /usr/lib/systemd/systemd --user >"$HOME/manager.log" 2>&1 &
trap 'managed exit || true; wait' EXIT
until managed is-system-running >/dev/null 2>&1 || [ "$(managed is-system-running 2>/dev/null)" = degraded ]; do sleep 0.05; done
started_by() { mcp-sessiond debug about --json | sed -n 's/.*"started_by": *"\([a-z_]*\)".*/\1/p'; }
"#;

fn on_machine(world: &World, script: &str) -> String {
    packaged(world, MACHINE, script)
}

#[test]
#[ignore = "needs systemd"]
fn clients_start_the_daemon_by_the_units_of_a_package() {
    let world = World::new(&BINARIES);
    let said = on_machine(
        &world,
        r"
printf one | mcp-sessiond token store --for $$
mcp-sessiond token load --for $$
echo
started_by
managed is-active mcp-sessiond.service
",
    );
    assert_eq!(said, "one\nsystemd\nactive\n");
}

#[test]
#[ignore = "needs systemd"]
fn units_that_are_masked_start_nothing() {
    let world = World::new(&BINARIES);
    let said = on_machine(
        &world,
        r"
mkdir -p ~/.config/systemd/user
ln -s /dev/null ~/.config/systemd/user/mcp-sessiond.socket
printf one | mcp-sessiond token store --for $$
started_by
managed is-active mcp-sessiond.service || true
",
    );
    assert_eq!(said, "on_demand\ninactive\n");
}

#[test]
#[ignore = "needs systemd"]
fn install_enables_the_units_of_a_package_and_writes_none() {
    let world = World::new(&BINARIES);
    let said = on_machine(
        &world,
        r"
mcp-sessiond install
managed is-enabled mcp-sessiond.socket
managed is-active mcp-sessiond.socket
mcp-sessiond install --remove
managed is-enabled mcp-sessiond.socket || true
managed is-active mcp-sessiond.socket || true
",
    );
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines[0],
        "The units are those of the package that has brought this executable."
    );
    let asked = lines
        .iter()
        .position(|line| *line == "enabled")
        .expect("it was enabled");
    assert_eq!(lines[asked + 1], "active", "{said}");
    assert!(
        lines[asked + 2].starts_with("The units are those of a package, and stay"),
        "{said}"
    );
    assert_eq!(lines[lines.len() - 2..], ["disabled", "inactive"], "{said}");
    let units: Vec<_> = files(&world.root().join(".config"))
        .into_iter()
        .filter(|path| !path.is_symlink())
        .collect();
    assert!(units.is_empty(), "{units:?}");
}
