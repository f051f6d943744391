//! A logout, as desktops of today do it: each application is in a scope of the user manager, which
//! ends all its units.

use mcp_sessiond_tests::{gone, lives};

use super::machine::Machine;
use crate::wrap;

#[test]
#[ignore = "needs systemd"]
fn a_logout_ends_host_keeper_server_and_daemon() {
    let machine = Machine::installed("");
    let world = &machine.world;
    let mut host = world.node_host();
    // systemd.resource-control and org.freedesktop.systemd1(5), StartTransientUnit: PIDs.
    let scope = [
        "org.freedesktop.systemd1.Manager",
        "StartTransientUnit",
        "ssa(sv)a(sa(sv))",
    ];
    let unit = [
        "app-host.scope",
        "fail",
        "1",
        "PIDs",
        "au",
        "1",
        &host.pid().to_string(),
        "0",
    ];
    let at = [
        "--user",
        "call",
        "org.freedesktop.systemd1",
        "/org/freedesktop/systemd1",
    ];
    let moved = machine.run("busctl", &[&at[..], &scope, &unit].concat());
    assert!(moved.status.success(), "{moved:?}");
    host.connect("main", &world.wrapping(&[], &wrap::counter(world)));
    let backend = world.backend();
    let (server, daemon) = (backend.pid(), world.daemon_pid());
    machine.assert_served_by_systemd();
    assert!(
        [host.pid(), backend.keeper, server, daemon]
            .into_iter()
            .all(lives)
    );

    // The manager itself goes when its units have ended.
    machine.systemctl(&["exit"]);
    for pid in [backend.keeper, server, daemon] {
        gone(pid);
    }
    drop(host);
    world.nothing_left();
}
