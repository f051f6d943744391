//! `mcp-sessiond logs` with a real journal, in a mount namespace of its own.

use mcp_sessiond_tests::World;

use super::machine::packaged;
use crate::BINARIES;

/// A machine with /run of its own, in which systemd-journald listens, and a user manager in the
/// control group that tells the journal that it is one. Its units are those of a package.
const MACHINE: &str = r#"
set -eu
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/systemd/journal /run/log/journal /run/user
mkdir -m 700 "/run/user/$(id -u)"
mount --bind "$UNITS" /etc/systemd/user
managed() { XDG_RUNTIME_DIR=/run/user/$(id -u) systemctl --user "$@"; }
groups() { for at in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do [ ! -e $at/cgroup.procs ] || echo $at/mcps$$.slice; done; }
/usr/lib/systemd/systemd-journald >"$HOME/journald.log" 2>&1 &
journald=$!
(
  for at in $(groups); do mkdir -p $at/user@$(id -u).service; sh -c 'echo $PPID' >$at/user@$(id -u).service/cgroup.procs; done
  XDG_RUNTIME_DIR=/run/user/$(id -u) exec /usr/lib/systemd/systemd --user
) >"$HOME/manager.log" 2>&1 &
trap 'managed exit || true; kill $journald; wait; find $(groups) -depth -type d -exec rmdir {} +' EXIT
until managed is-system-running >/dev/null 2>&1 || [ "$(managed is-system-running 2>/dev/null)" = degraded ]; do sleep 0.05; done
"#;

fn on_machine(world: &World, script: &str) -> String {
    packaged(world, MACHINE, script)
}

#[test]
#[ignore = "needs systemd"]
fn the_log_of_the_service_is_in_the_journal() {
    let world = World::new(&BINARIES);
    let said = on_machine(
        &world,
        r#"
mcp-sessiond logs 2>&1 && echo shown || echo "code $?"
managed enable --now --quiet mcp-sessiond.socket
mcp-sessiond token load --for $$ || true
# The journal writes what it is told a moment later.
until mcp-sessiond logs | grep " INFO ready "; do sleep 0.05; done
mcp-sessiond logs --json | grep '"ready ' | grep -c '"level":"info"'
mkfifo ~/followed
# A shell that is not interactive ignores SIGINT in what it starts in the background.
env --default-signal=INT mcp-sessiond logs -f -n 1 >~/followed 2>&1 &
following=$!
exec 3<~/followed
read -r last <&3
mkdir -p ~/.config/mcp-sessiond
echo 'claim_wait_ms = 1234' >~/.config/mcp-sessiond/config.toml
managed reload mcp-sessiond.service
while read -r line <&3; do case $line in *'reloaded the configuration'*) break;; esac; done
echo "followed $line"
kill -INT $following
code=0; wait $following || code=$?
cat <&3
echo "ended $code"
"#,
    );
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        lines[0].contains("mcp-sessiond.service logs to the journal, which has nothing of it"),
        "{said}"
    );
    assert_eq!(lines[1], "code 66", "{said}");
    let ready = lines
        .iter()
        .find(|line| line.contains(" INFO ready "))
        .expect("a line");
    assert!(
        ready.starts_with("20")
            && ready
                .split_whitespace()
                .next()
                .is_some_and(|time| time.ends_with('Z'))
    );
    assert!(lines.contains(&"1"), "as JSON: {said}");
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("followed 20") && line.contains("claim_wait_ms")),
        "{said}"
    );
    assert_eq!(lines.last(), Some(&"ended 0"), "{said}");
}

#[test]
#[ignore = "needs systemd"]
fn a_service_that_does_not_start_says_why_from_the_journal() {
    let world = World::new(&BINARIES);
    let said = on_machine(
        &world,
        r#"
managed enable --now --quiet mcp-sessiond.socket
mkfifo ~/listens
mcp-sessiond serve --name test --listen unix:"$HOME"/by-hand -- cat >~/listens &
by_hand=$!
read -r line <~/listens
code=0; mcp-sessiond install --serve test --listen unix:"$HOME"/service -- cat 2>&1 || code=$?
echo "code $code, by hand $by_hand"
kill $by_hand; wait $by_hand || true
"#,
    );
    let (shown, by_hand) = said
        .rsplit_once("code 70, by hand ")
        .unwrap_or_else(|| panic!("{said}"));
    let last = shown.lines().last().unwrap_or_default();
    let why = format!(
        "its unit was removed: process {} serves serve.test already",
        by_hand.trim_end()
    );
    assert!(last.contains(&why), "{said}");
}
