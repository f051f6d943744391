//! Which command lines are launchers, and which adopt orphans.

use super::Kind::{Adopter, Launcher as Launches, Program, Unclear};
use super::*;

fn kind(table: &Table, line: &str) -> Kind {
    let mut words = line.split(' ');
    let executable = words.next().expect("an executable");
    // `~` stands for a blank within a word.
    let arguments: Vec<Vec<u8>> = words
        .map(|word| word.replace('~', " ").into_bytes())
        .collect();
    table.kind(Path::new(executable), &arguments)
}

#[test]
fn programs_are_known_by_their_executable_and_arguments() {
    let table = Table::default();
    // The executable, then the arguments from argv[0] on.
    let lines = [
        ("/usr/bin/dash sh -c exec~server", Launches),
        ("/usr/bin/dash sh ./run.sh", Launches),
        ("/usr/bin/bash bash ./run.sh --flag -i", Launches),
        ("/usr/bin/bash /bin/bash -euo pipefail ./run.sh", Launches),
        ("/usr/bin/bash bash -o pipefail -c server", Launches),
        (
            "/usr/bin/bash bash -euxo pipefail -O extglob -c server",
            Launches,
        ),
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
        ("/usr/bin/node npm~exec~server~a~b    ", Launches),
        ("/usr/bin/node npm~x~server  ", Launches),
        ("/usr/bin/node npm~exec", Launches),
        ("/usr/bin/node node /usr/bin/npx -y server", Launches),
        (
            "/usr/bin/node node /usr/lib/node_modules/npm/bin/npx-cli.js server",
            Launches,
        ),
        (
            "/usr/bin/node node /usr/lib/node_modules/npm/bin/npm-cli.js --yes exec server",
            Launches,
        ),
        ("/usr/bin/node node /usr/bin/npm x server", Launches),
        ("/usr/bin/node npm~execute", Program),
        ("/usr/bin/node node host.js npx", Program),
        ("/usr/bin/node node", Program),
        ("/usr/bin/agent npm~exec~server", Program),
        ("/home/u/.local/bin/uvx uvx server", Launches),
        ("/home/u/.local/bin/uv uv run server.py", Launches),
        (
            "/home/u/.local/bin/uv uv --directory /srv/run run server.py",
            Launches,
        ),
        (
            "/home/u/.local/bin/uv uv --directory=/srv -q run server.py",
            Launches,
        ),
        ("/home/u/.local/bin/uv uv tool run server", Launches),
        ("/home/u/.local/bin/uv uv tool uvx server", Launches),
        ("/home/u/.local/bin/uv uv pip run", Program),
        ("/home/u/.local/bin/uv uv --directory run", Program),
        ("/home/u/.local/bin/uv uv tool install run", Program),
        (
            "/Applications/Claude.app/Contents/Helpers/disclaimer disclaimer server",
            Launches,
        ),
        (
            "/usr/lib/systemd/systemd /usr/lib/systemd/systemd --user",
            Adopter,
        ),
        ("/usr/lib/systemd/systemd /sbin/init", Program),
        ("/sbin/launchd launchd", Adopter),
        (
            "/usr/bin/containerd-shim-runc-v2 containerd-shim-runc-v2 -id x",
            Adopter,
        ),
        ("/usr/bin/tini tini -- host", Adopter),
        ("/usr/bin/conmon conmon", Adopter),
        ("/usr/bin/claude claude", Program),
        ("/usr/bin/python3.12 python3 agent.py", Program),
    ];
    for (line, expected) in lines {
        assert_eq!(kind(&table, line), expected, "{line}");
    }
}

/// As they were seen in /proc, but for `op`.
#[test]
fn launchers_that_stay_while_the_server_runs_are_known() {
    let package = Unclear(Evidence::StreamsAndPackage);
    let streams = Unclear(Evidence::Streams);
    let lines = [
        ("/usr/bin/timeout timeout 100 server", Launches),
        ("/usr/bin/timeout timeout --foreground 100 server", Launches),
        ("/usr/bin/coreutils timeout 100 server", Launches),
        ("/usr/bin/setsid setsid -fw server", Launches),
        ("/usr/bin/nice nice -n 5 server", Launches),
        ("/usr/bin/nohup nohup server", Launches),
        ("/usr/bin/stdbuf stdbuf -oL server", Launches),
        (
            "/usr/bin/dash /bin/sh /usr/bin/xvfb-run -a server",
            Launches,
        ),
        ("/usr/local/bin/timeouts timeout 100 server", Program),
        ("/opt/agent/nice-agent nice -n 5 server", Program),
        // npm, by its title and before it has one.
        ("/usr/bin/node npm~run~server     ", Launches),
        ("/usr/bin/node npm~run-script~server~x", Launches),
        ("/usr/bin/node npm~start ", Launches),
        ("/usr/bin/node node /usr/bin/npm run server", Launches),
        (
            "/usr/bin/node node /usr/bin/npm --prefix run start",
            Launches,
        ),
        (
            "/usr/bin/node node /usr/lib/node_modules/npm/bin/npm-cli.js start",
            Launches,
        ),
        ("/usr/bin/node npm~install~run", Program),
        ("/usr/bin/node npm~starts", Program),
        ("/usr/bin/node npm-agent~run~server", Program),
        ("/usr/bin/node node /usr/bin/npm --prefix run", Program),
        ("/usr/bin/node node /usr/bin/npm view run", Program),
        ("/usr/bin/node node npm.js run server", Program),
        // pnpm: an executable since 12, before that a script.
        ("/x/node_modules/pnpm/pnpm pnpm exec server", Launches),
        ("/x/node_modules/pnpm/pnpm pnpm -s run server", Launches),
        ("/x/node_modules/pnpm/pnpm pnpm server", Launches),
        ("/x/node_modules/pnpm/pnpx pnpx server", Launches),
        (
            "/usr/bin/node node /x/node_modules/.bin/pnpm exec server",
            Launches,
        ),
        (
            "/usr/bin/node node /usr/lib/node_modules/pnpm/bin/pnpm.cjs dlx server",
            Launches,
        ),
        ("/usr/bin/node node /x/pnpm-agent.cjs exec server", Program),
        ("/opt/pnpm-agent pnpm exec server", Program),
        // yarn: a project's own, corepack's, one that was installed.
        (
            "/usr/bin/node node /x/node_modules/yarn/bin/yarn.js -s run server",
            Launches,
        ),
        ("/usr/bin/node node /usr/bin/yarn exec server", Launches),
        ("/usr/bin/node node /usr/bin/yarn server", Launches),
        (
            "/usr/bin/node /usr/bin/node /x/.yarn/releases/yarn-4.18.1.cjs server",
            Launches,
        ),
        (
            "/usr/bin/node node /usr/lib/node_modules/corepack/dist/yarn.js server",
            Launches,
        ),
        (
            "/usr/bin/node node /usr/bin/corepack pnpm exec server",
            Launches,
        ),
        ("/usr/bin/node node /x/yarn-agent.cjs server", Program),
        ("/usr/bin/node node /x/yarn/agent.js server", Program),
        // tsx starts node. That one, and node with tsx's loader, run the server itself, or a host.
        (
            "/usr/bin/node node /x/node_modules/.bin/tsx server.ts",
            Launches,
        ),
        ("/usr/bin/node node /usr/bin/tsx watch server.ts", Launches),
        (
            "/usr/bin/node node /x/node_modules/tsx/dist/cli.mjs server.ts",
            Launches,
        ),
        (
            "/usr/bin/node node --require /x/tsx/dist/preflight.cjs --import file:///x/tsx/dist/loader.mjs host.ts",
            Program,
        ),
        ("/usr/bin/node node --import tsx host.ts", Program),
        ("/usr/bin/node node /x/dist/cli.mjs server.ts", Program),
        ("/usr/bin/node node /x/host/tsx.ts", Program),
        (
            "/usr/bin/node node /x/node_modules/.bin/dotenvx run -q -- server",
            Launches,
        ),
        (
            "/usr/bin/node node /x/node_modules/.bin/dotenvx -q -l debug run -- server",
            Launches,
        ),
        ("/usr/bin/node node /usr/bin/dotenvx get run", Program),
        ("/usr/local/bin/dotenvx dotenvx run -- server", Launches),
        // Bun runs what it is given, or has it run.
        ("/x/bun/bin/bunx.exe bunx server", Launches),
        ("/x/bun/bin/bunx.exe bunx -y server", Launches),
        ("/usr/bin/bun bunx server", Launches),
        ("/usr/bin/bun bun x server", Launches),
        ("/x/bun/bin/bun.exe bun --silent x server", Launches),
        ("/usr/bin/bun bun exec server", Launches),
        ("/usr/bin/bun bun run server", streams),
        ("/x/bun/bin/bun.exe bun --silent run server", streams),
        ("/usr/bin/bun bun server", streams),
        ("/usr/bin/bun bun run --bun server", streams),
        ("/usr/bin/bun bun run host.ts", Program),
        ("/usr/bin/bun bun host.ts x", Program),
        ("/usr/bin/bun bun run ./host", Program),
        ("/usr/bin/bun bun /x/host", Program),
        ("/usr/bin/bun bun --preload x host.ts", Program),
        ("/usr/bin/bun bun", Program),
        ("/usr/bin/bun bun run", Program),
        ("/usr/bin/bun node x", Program),
        // The shim of a package, or a host that is one.
        ("/usr/bin/node node /x/node_modules/.bin/server", package),
        (
            "/usr/bin/node node /x/node_modules/@a/server/bin/server.js a",
            package,
        ),
        (
            "/usr/bin/node node /usr/lib/node_modules/agent/cli.js",
            package,
        ),
        (
            "/usr/bin/node node --no-warnings /x/node_modules/agent/cli.js",
            Program,
        ),
        ("/usr/bin/node node /usr/bin/agent", Program),
        ("/usr/bin/node node /x/node_modules_/agent.js", Program),
        (
            "/opt/electron electron /x/node_modules/agent/cli.js",
            Program,
        ),
        // Our own.
        (
            "/usr/bin/node node /usr/bin/mcp-sessiond wrap -- server",
            Launches,
        ),
        (
            "/usr/bin/node node /x/node_modules/.bin/mcp-sessiond wrap -- server",
            Launches,
        ),
        (
            "/usr/bin/node node /x/node_modules/mcp-sessiond/bin/mcp-sessiond.js",
            Launches,
        ),
        ("/usr/bin/node node /x/mcp-sessiond/host.js", Program),
        ("/usr/bin/mcp-sessiond mcp-sessiond wrap -- server", Program),
        // What brings secrets and environments.
        ("/usr/bin/op op run -- server", Launches),
        (
            "/usr/bin/op op --account run run --env-file .env -- server",
            Launches,
        ),
        ("/usr/bin/op op read run", Program),
        ("/usr/bin/op op --account run", Program),
        (
            "/x/doppler_cli/bin/doppler /x/doppler_cli/bin/doppler run --token t -- server",
            Launches,
        ),
        (
            "/usr/bin/doppler doppler --scope run run --command server",
            Launches,
        ),
        ("/usr/bin/doppler doppler setup run", Program),
        ("/usr/bin/direnv direnv exec . server", Launches),
        ("/usr/bin/direnv direnv allow exec", Program),
        ("/usr/bin/mise mise exec -- server", Launches),
        ("/usr/bin/mise mise -C exec x -- server", Launches),
        ("/usr/bin/mise mise activate x", Program),
        (
            "/opt/conda/bin/python3.13 /opt/conda/bin/python /opt/conda/bin/conda run -n x server",
            Launches,
        ),
        (
            "/opt/conda/bin/python3.13 /opt/conda/bin/python /opt/conda/bin/conda --no-plugins run server",
            Launches,
        ),
        (
            "/opt/conda/bin/python3.13 python -m conda run -p /x --live-stream server",
            Launches,
        ),
        (
            "/opt/conda/bin/python3.13 python /opt/conda/bin/conda install run",
            Program,
        ),
        ("/usr/bin/micromamba micromamba run -n x server", Launches),
        (
            "/usr/bin/python3.12 python /usr/bin/poetry -C run run server",
            Launches,
        ),
        ("/usr/bin/python3.12 python /usr/bin/poetry -C run", Program),
        (
            "/usr/bin/python3.12 /usr/bin/python3 /usr/bin/pipx run server",
            Launches,
        ),
        (
            "/usr/bin/python3.12 python3 /usr/bin/pipx install run",
            Program,
        ),
        ("/usr/bin/python3.12 python3 host.py run", Program),
        ("/usr/bin/python3.12 python3 -m host run", Program),
        ("/usr/bin/python3.12 python3", Program),
    ];
    for (line, expected) in lines {
        assert_eq!(kind(&Table::default(), line), expected, "{line}");
    }
}

#[test]
fn the_configuration_adds_to_the_table() {
    let table = Table {
        launchers: vec![
            Launcher {
                executable: "/opt/run".into(),
                arguments: vec![],
            },
            Launcher {
                executable: "deno".into(),
                arguments: vec!["task".into(), "serve".into()],
            },
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
