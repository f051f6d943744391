//! Which command lines are launchers, and which adopt orphans.

use super::Kind::{Adopter, Launcher as Launches, Program};
use super::*;

fn kind(table: &Table, line: &str) -> Kind {
    let mut words = line.split(' ');
    let executable = words.next().expect("an executable");
    // `_` stands for a blank within a word.
    let arguments: Vec<Vec<u8>> = words.map(|word| word.replace('_', " ").into_bytes()).collect();
    table.kind(Path::new(executable), &arguments)
}

#[test]
fn programs_are_known_by_their_executable_and_arguments() {
    let table = Table::default();
    // The executable, then the arguments from argv[0] on.
    let lines = [
        ("/usr/bin/dash sh -c exec_server", Launches),
        ("/usr/bin/dash sh ./run.sh", Launches),
        ("/usr/bin/bash bash ./run.sh --flag -i", Launches),
        ("/usr/bin/bash /bin/bash -euo pipefail ./run.sh", Launches),
        ("/usr/bin/bash bash -o pipefail -c server", Launches),
        ("/usr/bin/bash bash -euxo pipefail -O extglob -c server", Launches),
        ("/usr/bin/bash bash +x +o posix -c server", Launches),
        ("/usr/bin/bash bash -lc server", Launches),
        ("/usr/bin/bash -bash -c server", Launches),
        ("/usr/bin/bash bash --login -c server", Launches),
        ("/usr/bin/bash bash --rcfile rc -c server", Launches),
        ("/usr/bin/bash bash -- run.sh", Launches),
        ("/usr/bin/bash bash - run.sh", Launches),
        ("/usr/bin/bash bash -c server -i", Launches),
        ("/usr/bin/zsh zsh -fc server", Launches),
        ("/usr/bin/fish fish --command=server", Launches),
        ("/usr/bin/fish fish --command server", Launches),
        ("/usr/bin/fish fish -C setup run.fish", Launches),
        ("/bin/busybox sh -c server", Launches),
        ("/bin/busybox busybox sh -c server", Launches),
        ("/bin/busybox /bin/busybox ash run.sh", Launches),
        ("/usr/bin/bash bash", Program),
        ("/usr/bin/bash -bash", Program),
        ("/usr/bin/bash bash -l", Program),
        ("/usr/bin/bash bash -i", Program),
        ("/usr/bin/bash bash -ic server", Program),
        ("/usr/bin/bash bash -i -c server", Program),
        ("/usr/bin/bash bash -s argument", Program),
        ("/usr/bin/bash bash -c", Program),
        ("/usr/bin/bash bash --", Program),
        ("/usr/bin/bash bash --rcfile rc", Program),
        ("/usr/bin/bash bash -o vi", Program),
        ("/usr/bin/fish fish -C setup", Program),
        ("/usr/bin/fish fish --interactive -c server", Program),
        ("/usr/bin/bash", Program),
        ("/bin/busybox busybox", Program),
        ("/bin/busybox busybox busybox sh -c server", Program),
        ("/bin/busybox httpd -f", Program),
        ("/opt/bashful/agent sh -c server", Program),
        ("/usr/bin/env env A=1 server", Launches),
        ("/usr/bin/coreutils env A=1 server", Launches),
        ("/usr/bin/node npm_exec_server_a_b    ", Launches),
        ("/usr/bin/node npm_x_server  ", Launches),
        ("/usr/bin/node npm_exec", Launches),
        ("/usr/bin/node node /usr/bin/npx -y server", Launches),
        ("/usr/bin/node node /usr/lib/node_modules/npm/bin/npx-cli.js server", Launches),
        ("/usr/bin/node node /usr/lib/node_modules/npm/bin/npm-cli.js --yes exec server", Launches),
        ("/usr/bin/node node /usr/bin/npm x server", Launches),
        ("/usr/bin/node npm_run_exec", Program),
        ("/usr/bin/node npm_execute", Program),
        ("/usr/bin/node node /usr/bin/npm run exec", Program),
        ("/usr/bin/node node host.js npx", Program),
        ("/usr/bin/node node", Program),
        ("/usr/bin/agent npm_exec_server", Program),
        ("/home/u/.local/bin/uvx uvx server", Launches),
        ("/home/u/.local/bin/uv uv run server.py", Launches),
        ("/home/u/.local/bin/uv uv --directory /srv/run run server.py", Launches),
        ("/home/u/.local/bin/uv uv --directory=/srv -q run server.py", Launches),
        ("/home/u/.local/bin/uv uv tool run server", Launches),
        ("/home/u/.local/bin/uv uv tool uvx server", Launches),
        ("/home/u/.local/bin/uv uv pip run", Program),
        ("/home/u/.local/bin/uv uv --directory run", Program),
        ("/home/u/.local/bin/uv uv tool install run", Program),
        ("/Applications/Claude.app/Contents/Helpers/disclaimer disclaimer server", Launches),
        ("/usr/lib/systemd/systemd /usr/lib/systemd/systemd --user", Adopter),
        ("/usr/lib/systemd/systemd /sbin/init", Program),
        ("/sbin/launchd launchd", Adopter),
        ("/usr/bin/containerd-shim-runc-v2 containerd-shim-runc-v2 -id x", Adopter),
        ("/usr/bin/tini tini -- host", Adopter),
        ("/usr/bin/conmon conmon", Adopter),
        ("/usr/bin/claude claude", Program),
        ("/usr/bin/python3.12 python3 agent.py", Program),
    ];
    for (line, expected) in lines {
        assert_eq!(kind(&table, line), expected, "{line}");
    }
}

#[test]
fn the_configuration_adds_to_the_table() {
    let table = Table {
        launchers: vec![
            Launcher { executable: "/opt/run".into(), arguments: vec![] },
            Launcher { executable: "deno".into(), arguments: vec!["task".into(), "serve".into()] },
        ],
        adopters: vec!["init-*".into(), "/opt/reaper".into()],
        ..Table::default()
    };
    let lines = [
        ("/opt/run run", Launches),
        ("/usr/run run", Program),
        ("/usr/bin/deno deno task serve now", Launches),
        ("/usr/bin/deno deno task", Program),
        ("/usr/bin/deno deno serve task", Program),
        ("/sbin/init-x init", Adopter),
        ("/opt/reaper reaper", Adopter),
        ("/usr/reaper reaper", Program),
        ("/usr/bin/dash sh -c server", Launches),
    ];
    for (line, expected) in lines {
        assert_eq!(kind(&table, line), expected, "{line}");
    }
}
