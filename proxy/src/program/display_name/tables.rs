//! The interpreters and launchers that are known, with their options. An option that is missing
//! here costs a server its telling word; one that is listed wrongly could show a secret.

use std::slice::from_ref;

/// What the first operand of a program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operand {
    /// A package, with or without a version.
    Package,
    /// A file, of whose path the end is shown.
    Script,
    /// An image of a container.
    Image,
    /// A program, which may be an interpreter with a script of its own.
    Command,
}

/// How a program's command line is read.
pub(super) struct Grammar {
    /// Words that follow the program, and are shown: `run` of `uv run`.
    pub verb: &'static str,
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

/// The grammars of a program. The first whose verb fits holds.
pub(super) fn grammars(program: &str) -> &'static [Grammar] {
    match program {
        "npx" => from_ref(&NPX),
        "npm" => &NPM,
        "pnpx" => from_ref(&NPX),
        "pnpm" | "yarn" => &PNPM,
        "uvx" => from_ref(&UVX),
        "uv" => &UV,
        "pipx" => from_ref(&PIPX),
        "node" | "nodejs" | "tsx" | "ts-node" => from_ref(&NODE),
        "deno" => &DENO,
        "bunx" => from_ref(&BUNX),
        "bun" => &BUN,
        "docker" | "podman" | "nerdctl" => &CONTAINER,
        _ if is_python(program) => from_ref(&PYTHON),
        _ => &[],
    }
}

/// `python`, `python3`, `python3.12`, `pypy3`.
fn is_python(program: &str) -> bool {
    let version = program
        .strip_prefix("python")
        .or_else(|| program.strip_prefix("pypy"));
    version.is_some_and(|version| {
        version
            .chars()
            .all(|letter| letter.is_ascii_digit() || letter == '.')
    })
}

/// The grammar of a program that only prepares the ground for another one.
pub(super) fn of_launcher(program: &str) -> Option<&'static Grammar> {
    Some(match program {
        "env" => &ENV,
        "nohup" => &NOHUP,
        "nice" => &NICE,
        "stdbuf" => &STDBUF,
        "setsid" => &SETSID,
        "xvfb-run" => &XVFB,
        "conda" | "mamba" | "micromamba" => &CONDA,
        _ => return None,
    })
}

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

const PYTHON: Grammar = Grammar {
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
