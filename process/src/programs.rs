//! The table of programs: launchers, interpreters and runners, by the names of their executables.
//!
//! Four questions are answered from it: whether a process is a launcher, so that its parent may be
//! the host ([`launches`]); how its command line is read for display ([`grammars`],
//! [`inner_program`]); which script an interpreter runs, so that a change of it can be noticed
//! ([`runs`]); and whether a program is a shell ([`is_shell`]). A new program is one entry.
//!
//! An option that is missing in a [`Grammar`] costs a server its display name; one that is listed
//! wrongly could show a secret.

/// A program, by the names of its executables.
struct Program {
    /// File names.
    names: &'static [&'static str],
    /// When it is a launcher: it starts servers on behalf of a host, and stays while they run.
    launches: Option<Launches>,
    /// How its command line is read for display. The first whose verb fits holds.
    grammars: &'static [Grammar],
    /// Where the command of the program stands that it only prepares the ground for.
    inner: Inner,
    /// What it runs.
    runs: Runs,
}

/// When a program is a launcher.
#[derive(Clone, Copy)]
pub(crate) struct Launches {
    /// What it must have been told first, options aside; words of one verb are apart by a blank.
    /// Empty: whatever it was told.
    pub(crate) verbs: &'static [&'static str],
    /// Options that may stand before that and take their value from the next argument.
    pub(crate) values: &'static [&'static str],
}

/// A script or module that starts servers on behalf of a host.
pub(crate) struct Script {
    /// How its path ends; a name may end in `*`.
    pub(crate) names: &'static [&'static str],
    /// See [`Launches`].
    pub(crate) verbs: &'static [&'static str],
    /// See [`Launches`].
    pub(crate) values: &'static [&'static str],
}

/// What the first operand of a program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// A package, with or without a version.
    Package,
    /// A file, of whose path the end is shown.
    Script,
    /// An image of a container.
    Image,
    /// A program, which may be an interpreter with a script of its own.
    Command,
}

/// How a program's command line is read for display.
pub struct Grammar {
    /// Words that follow the program, and are shown: `run` of `uv run`.
    pub verb: &'static str,
    /// What its first operand is.
    pub operand: Operand,
    /// Options that stand alone. One that ends in `*` stands for all that begin so.
    pub flags: &'static str,
    /// Options whose value is the next word, unless it is behind a `=`.
    pub values: &'static str,
    /// Letters that may stand together behind one dash, none of which takes a value.
    pub letters: &'static str,
    /// Options whose value is the operand: `-m` of Python.
    pub names: &'static str,
}

/// Where the command of the program stands that a launcher only prepares the ground for.
#[derive(Clone, Copy)]
pub enum Inner {
    /// Nowhere: it starts no other program, or shows by itself what it runs.
    None,
    /// Behind its options, which are known.
    Operand(&'static Grammar),
    /// Behind two dashes: its options are many.
    BehindDashes,
    /// Behind this verb and so many more words.
    BehindVerb {
        /// The verb.
        verb: &'static str,
        /// How many words stand between the verb and the command.
        more: usize,
    },
}

/// What a program runs.
#[derive(Clone, Copy)]
pub enum Runs {
    /// Itself.
    Itself,
    /// Something else, and nobody can tell what that is.
    Another,
    /// A script, which stands behind these options.
    Script(&'static ScriptOptions),
}

/// Options of an interpreter, as far as they matter to where its script stands. Words are apart by
/// blanks.
pub struct ScriptOptions {
    /// Words before the script.
    pub verbs: &'static str,
    /// Those that take their value from the next argument.
    pub valued: &'static str,
    /// Those after which there is no script.
    pub ending: &'static str,
    /// Letters that take their value from the next argument where they stand at the end of a
    /// cluster.
    pub valued_letters: &'static str,
    /// Letters after which there is no script.
    pub ending_letters: &'static str,
}

/// When an executable of this file name is a launcher. None: never, by this table alone.
pub(crate) fn launches(name: &str) -> Option<Launches> {
    named(name)?.launches
}

/// How the command line of an executable of this file name is read for display; empty where it is
/// not known.
pub fn grammars(name: &str) -> &'static [Grammar] {
    versioned(name).map_or(&[], |program| program.grammars)
}

/// Where the command of the program stands that an executable of this file name starts.
pub fn inner_program(name: &str) -> Inner {
    named(name).map_or(Inner::None, |program| program.inner)
}

/// What an executable of this file name runs.
pub fn runs(name: &str) -> Runs {
    versioned(name).map_or(Runs::Itself, |program| program.runs)
}

/// Whether an executable of this file name is a shell.
pub fn is_shell(name: &str) -> bool {
    SHELLS.contains(&name)
}

fn named(name: &str) -> Option<&'static Program> {
    PROGRAMS
        .iter()
        .find(|program| program.names.contains(&name))
}

/// The same where the name may end in a version: `python3.13` is `python`.
fn versioned(name: &str) -> Option<&'static Program> {
    named(name)
        .or_else(|| named(name.trim_end_matches(|last: char| last.is_ascii_digit() || last == '.')))
}

/// Executables that adopt orphans, beside `systemd --user`: service managers, and the inits of
/// containers. A name may end in `*`.
pub(crate) const ADOPTERS: [&str; 7] = [
    "launchd",
    "containerd-shim*",
    "tini",
    "dumb-init",
    "docker-init",
    "catatonit",
    "conmon",
];

/// Shells. One is a launcher where it was given something to run.
const SHELLS: [&str; 10] = [
    "sh", "bash", "rbash", "dash", "ash", "zsh", "ksh", "ksh93", "mksh", "fish",
];

/// Executables that are many programs in one, and go by `argv[0]`, or by the first argument.
pub(crate) const MULTI_CALL: [&str; 3] = ["busybox", "toybox", "coreutils"];

/// A launcher whatever it was told.
const ALWAYS: Option<Launches> = Some(Launches {
    verbs: &[],
    values: &[],
});

const fn after(
    verbs: &'static [&'static str],
    values: &'static [&'static str],
) -> Option<Launches> {
    Some(Launches { verbs, values })
}

const fn program(names: &'static [&'static str]) -> Program {
    Program {
        names,
        launches: None,
        grammars: &[],
        inner: Inner::None,
        runs: Runs::Itself,
    }
}

/// What starts something else, and nobody can tell what.
const fn starter(names: &'static [&'static str]) -> Program {
    Program {
        runs: Runs::Another,
        ..program(names)
    }
}

/// A starter whose command line is read for display.
const fn runner(names: &'static [&'static str], grammars: &'static [Grammar]) -> Program {
    Program {
        grammars,
        ..starter(names)
    }
}

/// A launcher whatever it was told, whose command stands behind these options.
const fn prefix(names: &'static [&'static str], grammar: &'static Grammar) -> Program {
    Program {
        launches: ALWAYS,
        inner: Inner::Operand(grammar),
        ..starter(names)
    }
}

const fn interpreter(
    names: &'static [&'static str],
    grammars: &'static [Grammar],
    options: &'static ScriptOptions,
) -> Program {
    Program {
        grammars,
        runs: Runs::Script(options),
        ..program(names)
    }
}

/// The programs, each name once. Which launchers were run, and when, stands in docs/settings.md; of
/// `op` only the documented command line is known. Some of these become the server themselves
/// (`env`, `nice`, `nohup`, `stdbuf`, `setsid` without `--fork`, `direnv exec`, `mise exec`) and
/// are seen nowhere but in a version that does not; `xvfb-run` is a script of `sh`.
static PROGRAMS: [Program; 42] = [
    prefix(&["env"], &ENV),
    prefix(&["nice"], &NICE),
    prefix(&["nohup"], &NOHUP),
    prefix(&["stdbuf"], &STDBUF),
    prefix(&["setsid"], &SETSID),
    // `disclaimer` is the helper that Claude Desktop on macOS starts every server under, and that
    // stays.
    Program {
        launches: ALWAYS,
        ..starter(&["timeout", "disclaimer"])
    },
    Program {
        inner: Inner::Operand(&XVFB),
        ..starter(&["xvfb-run"])
    },
    // Any word that is none of pnpm's own may be a script's name.
    Program {
        launches: ALWAYS,
        grammars: &PNPM,
        ..starter(&["pnpm"])
    },
    Program {
        launches: ALWAYS,
        grammars: &[NPX],
        ..starter(&["pnpx"])
    },
    Program {
        launches: ALWAYS,
        ..program(&["pn", "pnx"])
    },
    runner(&["yarn"], &PNPM),
    runner(&["npx"], &[NPX]),
    runner(&["npm"], &NPM),
    Program {
        launches: ALWAYS,
        grammars: &[UVX],
        ..starter(&["uvx"])
    },
    // `uv tool uvx` is what uvx turns itself into. The common form is
    // `uv --directory DIR run server.py`.
    Program {
        launches: after(
            &["run", "tool run", "tool uvx"],
            &[
                "--allow-insecure-host",
                "--cache-dir",
                "--color",
                "--config-file",
                "--directory",
                "--preview-features",
                "--project",
                "--python-fetch",
                "--python-preference",
                "--trusted-host",
            ],
        ),
        grammars: &UV,
        ..starter(&["uv"])
    },
    runner(&["pipx"], &[PIPX]),
    interpreter(&["node", "nodejs"], &[NODE], &NODE_SCRIPT),
    runner(&["tsx"], &[NODE]),
    Program {
        grammars: &[NODE],
        ..program(&["ts-node"])
    },
    interpreter(&["deno"], &DENO, &DENO_SCRIPT),
    // Bun's executables out of npm end in `.exe` everywhere.
    Program {
        launches: ALWAYS,
        grammars: &[BUNX],
        ..starter(&["bunx"])
    },
    Program {
        launches: ALWAYS,
        ..program(&["bunx.exe"])
    },
    interpreter(&["bun"], &BUN, &BUN_SCRIPT_OPTIONS),
    interpreter(&["python", "pypy"], &[PYTHON_LINE], &PYTHON_SCRIPT),
    interpreter(&["pythonw"], &[], &PYTHON_SCRIPT),
    interpreter(&["ruby"], &[], &RUBY_SCRIPT),
    interpreter(&["perl"], &[], &PERL_SCRIPT),
    interpreter(&["php"], &[], &PHP_SCRIPT),
    interpreter(&SHELLS, &[], &SHELL_SCRIPT),
    runner(&["docker", "podman"], &CONTAINER),
    Program {
        grammars: &CONTAINER,
        ..program(&["nerdctl"])
    },
    Program {
        launches: after(
            &["run"],
            &[
                "--account",
                "--config",
                "--encoding",
                "--format",
                "--session",
            ],
        ),
        inner: Inner::BehindDashes,
        ..starter(&["op"])
    },
    Program {
        launches: after(
            &["run"],
            &[
                "--api-host",
                "--config-dir",
                "--configuration",
                "--scope",
                "--timeout",
                "--token",
                "-t",
            ],
        ),
        inner: Inner::BehindDashes,
        ..starter(&["doppler"])
    },
    Program {
        launches: after(
            &["exec", "x"],
            &["-C", "--cd", "-E", "--env", "-j", "--jobs"],
        ),
        inner: Inner::BehindDashes,
        ..starter(&["mise"])
    },
    Program {
        inner: Inner::BehindDashes,
        ..program(&["infisical", "dotenv", "rtx", "aws-vault"])
    },
    Program {
        launches: after(&["exec"], &[]),
        inner: Inner::BehindVerb {
            verb: "exec",
            more: 1,
        },
        ..starter(&["direnv"])
    },
    Program {
        launches: after(&["run"], &["-l", "--log-level"]),
        ..starter(&["dotenvx"])
    },
    Program {
        launches: after(&["run"], &["-l", "--log-level"]),
        inner: Inner::Operand(&CONDA),
        ..starter(&["mamba", "micromamba"])
    },
    Program {
        inner: Inner::Operand(&CONDA),
        ..starter(&["conda"])
    },
    Program {
        inner: BEHIND_RUN,
        ..starter(&["poetry", "pdm", "hatch"])
    },
    Program {
        inner: BEHIND_RUN,
        ..program(&["rye", "pipenv"])
    },
    starter(&[
        "yarnpkg",
        "corepack",
        "sudo",
        "asdf",
        "java",
        "dotnet",
        "ssh",
        "busybox",
        "mcp-sessiond",
    ]),
];

const BEHIND_RUN: Inner = Inner::BehindVerb {
    verb: "run",
    more: 0,
};

pub(crate) const NPM_SCRIPT: Script = Script {
    names: &["npm", "npm-cli.js"],
    verbs: &["exec", "x", "run", "run-script", "start"],
    values: &["-C", "--prefix", "-w", "--workspace"],
};

/// By the script that node runs.
pub(crate) const NODE_SCRIPTS: [Script; 3] = [
    NPM_SCRIPT,
    // As with pnpm, any word may be a script's name. A project can bring its own yarn:
    // `.yarn/releases/yarn-4.18.1.cjs`. The last is our own package's, which starts the executable
    // for this machine.
    Script {
        names: &[
            "npx",
            "npx-cli.js",
            "pnpm",
            "pnpm.cjs",
            "pnpm.mjs",
            "pnpx",
            "pnpx.cjs",
            "pnpx.mjs",
            "yarn",
            "yarn.js",
            "yarnpkg",
            "yarnpkg.js",
            "yarn-1.*",
            "yarn-2.*",
            "yarn-3.*",
            "yarn-4.*",
            "corepack",
            "corepack.js",
            "tsx",
            "tsx/dist/cli.mjs",
            "tsx/dist/cli.cjs",
            "mcp-sessiond",
            "mcp-sessiond.js",
        ],
        verbs: &[],
        values: &[],
    },
    Script {
        names: &["dotenvx", "dotenvx.js"],
        verbs: &["run"],
        values: &["-l", "--log-level"],
    },
];

/// By the script or module that Python runs. Poetry and pipx become the server, as long as the
/// system has exec.
pub(crate) const PYTHON_SCRIPTS: [Script; 2] = [
    Script {
        names: &["conda", "mamba", "pipx"],
        verbs: &["run"],
        values: &[],
    },
    Script {
        names: &["poetry"],
        verbs: &["run"],
        values: &["-C", "--directory", "-P", "--project"],
    },
];

/// Long options of shells that take their value from the next argument.
pub(crate) const SHELL_VALUE_OPTIONS: [&str; 9] = [
    "--rcfile",
    "--init-file",
    "--emulate",
    "--init-command",
    "--debug",
    "--debug-output",
    "--debug-stack-frames",
    "--features",
    "--profile",
];

const NO_OPTIONS: ScriptOptions = ScriptOptions {
    verbs: "",
    valued: "",
    ending: "",
    valued_letters: "",
    ending_letters: "",
};
const NODE_SCRIPT: ScriptOptions = ScriptOptions {
    valued: "\
        --require --import --loader --experimental-loader --conditions --env-file \
        --env-file-if-exists --title --icu-data-dir --openssl-config --watch-path --input-type",
    ending: "--eval --print --run --test",
    valued_letters: "rC",
    ending_letters: "ep",
    ..NO_OPTIONS
};
const PYTHON_SCRIPT: ScriptOptions = ScriptOptions {
    valued: "--check-hash-based-pycs",
    valued_letters: "WX",
    ending_letters: "cm",
    ..NO_OPTIONS
};
const DENO_SCRIPT: ScriptOptions = ScriptOptions {
    verbs: "run serve",
    valued: "\
        --config --import-map --cert --location --seed --preload --import --require --ext --port \
        --host --log-level --env-file",
    valued_letters: "cL",
    ..NO_OPTIONS
};
const BUN_SCRIPT_OPTIONS: ScriptOptions = ScriptOptions {
    verbs: "run",
    valued: "\
        --preload --require --import --config --cwd --tsconfig-override --conditions --env-file \
        --define --filter --port",
    ending: "--eval --print",
    valued_letters: "rcdF",
    ending_letters: "ep",
};
const RUBY_SCRIPT: ScriptOptions = ScriptOptions {
    valued: "--encoding --external-encoding --internal-encoding",
    valued_letters: "ICrE",
    ending_letters: "e",
    ..NO_OPTIONS
};
const PERL_SCRIPT: ScriptOptions = ScriptOptions {
    valued_letters: "I",
    ending_letters: "eE",
    ..NO_OPTIONS
};
const PHP_SCRIPT: ScriptOptions = ScriptOptions {
    valued: "--define --php-ini",
    ending: "--run --server",
    valued_letters: "dcz",
    ending_letters: "rSBRE",
    ..NO_OPTIONS
};
const SHELL_SCRIPT: ScriptOptions = ScriptOptions {
    valued: "--rcfile --init-file",
    ending: "--command",
    valued_letters: "oO",
    ending_letters: "cs",
    ..NO_OPTIONS
};

const NPX: Grammar = Grammar {
    verb: "",
    operand: Operand::Package,
    flags: "\
        --yes --no --no-* --quiet --silent --verbose --offline --prefer-* --ignore-* --workspaces \
        --include-workspace-root --legacy-peer-deps --force --shell-auto-fallback",
    values: "\
        -p --package --registry --cache --userconfig --prefix --loglevel -w --workspace -n --node-options \
        --node-arg --script-shell",
    letters: "yqsd",
    names: "",
};

const NPM: [Grammar; 3] = [
    Grammar {
        verb: "exec",
        ..NPX
    },
    Grammar { verb: "x", ..NPX },
    Grammar { verb: "run", ..NPX },
];

const PNPM: [Grammar; 3] = [
    Grammar { verb: "dlx", ..NPX },
    Grammar {
        verb: "exec",
        ..NPX
    },
    Grammar { verb: "run", ..NPX },
];

const UVX: Grammar = Grammar {
    verb: "",
    operand: Operand::Package,
    flags: "\
        --quiet --verbose --no-* --isolated --offline --refresh --upgrade --reinstall --active --frozen \
        --locked --dev --all-extras --all-groups --all-packages --only-dev --exact --native-tls \
        --managed-python --script --gui-script --compile-bytecode --lfs",
    values: "\
        --from -w --with --with-editable --with-requirements --with-executables-from -p --python --directory \
        --project --index --default-index -i --index-url --extra-index-url -f --find-links --cache-dir \
        --env-file --extra --no-extra --group --no-group --only-group --package --refresh-package -P \
        --upgrade-package --reinstall-package -c --constraints --constraint -b --build-constraints \
        --overrides --index-strategy --keyring-provider --link-mode --resolution --prerelease \
        --fork-strategy --config-file -C --config-setting --color --python-preference --python-fetch \
        --python-platform --allow-insecure-host --trusted-host --exclude-newer --no-build-package \
        --no-binary-package --no-build-isolation-package --preview-features --torch-backend",
    letters: "qvnUs",
    names: "",
};

const UV: [Grammar; 3] = [
    Grammar {
        verb: "tool run",
        ..UVX
    },
    Grammar {
        verb: "tool uvx",
        ..UVX
    },
    Grammar {
        verb: "run",
        operand: Operand::Command,
        names: "-m --module",
        ..UVX
    },
];

const PIPX: Grammar = Grammar {
    verb: "run",
    operand: Operand::Package,
    flags: "--no-cache --quiet --verbose --pypackages --system-site-packages --no-path-check",
    values: "--spec --python --pip-args -i --index-url --backend --with --fetch-missing-python",
    letters: "qv",
    names: "",
};

const NODE: Grammar = Grammar {
    verb: "",
    operand: Operand::Script,
    flags: "\
        --no-* --enable-* --inspect --inspect-brk --watch --permission --use-* --preserve-symlinks \
        --preserve-symlinks-main --trace-warnings --trace-uncaught --trace-deprecation --throw-deprecation \
        --expose-gc --expose_gc --abort-on-uncaught-exception --experimental-strip-types \
        --experimental-transform-types --experimental-sqlite --experimental-vm-modules \
        --experimental-specifier-resolution --experimental-modules --experimental-json-modules \
        --experimental-wasm-modules --experimental-fetch --experimental-require-module \
        --experimental-permission --experimental-websocket --experimental-import-meta-resolve \
        --interpreted-frames-native-stack",
    values: "\
        -r --require --import --loader --experimental-loader -C --conditions --env-file --env-file-if-exists \
        --title --icu-data-dir --openssl-config --watch-path --input-type --max-old-space-size --stack-size \
        --unhandled-rejections --dns-result-order",
    letters: "",
    names: "",
};

const PYTHON_LINE: Grammar = Grammar {
    verb: "",
    operand: Operand::Script,
    flags: "",
    values: "-W -X --check-hash-based-pycs",
    letters: "bBdEhiIOPqRsSuvVx",
    names: "-m",
};

const DENO_RUN: Grammar = Grammar {
    verb: "run",
    operand: Operand::Script,
    flags: "\
        --allow-* --deny-* --no-* --unstable --unstable-* --quiet --cached-only --frozen --watch \
        --node-modules-dir --reload --lock --check --inspect --inspect-brk --vendor",
    values: "\
        -c --config --import-map -L --log-level --cert --seed --location --preload --import --require --ext \
        --port --host",
    letters: "ANRWESIqr",
    names: "",
};

const DENO: [Grammar; 3] = [
    Grammar {
        verb: "run",
        ..DENO_RUN
    },
    Grammar {
        verb: "serve",
        ..DENO_RUN
    },
    Grammar {
        verb: "task",
        operand: Operand::Package,
        ..DENO_RUN
    },
];

const BUN_SCRIPT: Grammar = Grammar {
    verb: "",
    operand: Operand::Script,
    flags: "--bun --smol --watch --hot --silent --no-* --prefer-* --if-present --inspect",
    values: "\
        --cwd -c --config --env-file -r --preload --require --import -d --define --conditions -F --filter \
        --tsconfig-override --port",
    letters: "bi",
    names: "",
};

const BUNX: Grammar = Grammar {
    operand: Operand::Package,
    values: "-p --package",
    ..BUN_SCRIPT
};

const BUN: [Grammar; 3] = [
    Grammar { verb: "x", ..BUNX },
    Grammar {
        verb: "run",
        ..BUN_SCRIPT
    },
    BUN_SCRIPT,
];

const DOCKER_RUN: Grammar = Grammar {
    verb: "run",
    operand: Operand::Image,
    flags: "\
        --interactive --tty --rm --detach --init --privileged --read-only --publish-all --no-healthcheck \
        --oom-kill-disable --quiet --sig-proxy --disable-content-trust --replace --tls-verify",
    values: "\
        -a --attach --add-host --annotation --cap-add --cap-drop --cidfile --cpus -c --cpu-shares \
        --cpuset-cpus --device --dns --dns-search --domainname -e --env --env-file --entrypoint --expose \
        --gpus --group-add -h --hostname --ip --ipc -l --label --label-file --link --log-driver --log-opt \
        --mac-address -m --memory --memory-swap --mount --name --net --network --network-alias --pid \
        --pids-limit --platform -p --publish --pull --restart --runtime --secret --security-opt --shm-size \
        --stop-signal --stop-timeout --sysctl --tmpfs --ulimit -u --user --userns --uts -v --volume \
        --volumes-from -w --workdir",
    letters: "itdPq",
    names: "",
};

const CONTAINER: [Grammar; 2] = [
    Grammar {
        verb: "run",
        ..DOCKER_RUN
    },
    Grammar {
        verb: "container run",
        ..DOCKER_RUN
    },
];

/// What changes how a program is started, and is not shown itself. Its operand is the program.
const fn before(flags: &'static str, values: &'static str, letters: &'static str) -> Grammar {
    Grammar {
        verb: "",
        operand: Operand::Command,
        flags,
        values,
        letters,
        names: "",
    }
}

const ENV: Grammar = before("--ignore-environment -", "-u --unset -C --chdir", "i");
const NOHUP: Grammar = before("", "", "");
const NICE: Grammar = before("", "-n --adjustment", "");
const STDBUF: Grammar = before("", "-i --input -o --output -e --error", "");
const SETSID: Grammar = before("--wait --fork --ctty", "", "wfc");
const XVFB: Grammar = before(
    "--auto-servernum --auto-display",
    "-e --error-file -f --auth-file -n --server-num -s --server-args -w --wait",
    "adl",
);
const CONDA: Grammar = Grammar {
    verb: "run",
    ..before(
        "--no-capture-output --live-stream --verbose --dev --debug-wrapper-scripts",
        "-n --name -p --prefix --cwd -e --env",
        "v",
    )
};

#[cfg(test)]
mod tests;
