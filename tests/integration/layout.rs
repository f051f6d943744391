//! The layout: which module may name which, where crates alone can't enforce it. `ARCHITECTURE.md`
//! has the picture.
//!
//! Between crates the compiler enforces it: a crate can't import what its `Cargo.toml` does not
//! name, and the first test says what each may name. The other tests read the paths that the code
//! mentions, and search for circles in all three languages.

mod circles;
mod scripts;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use circles::{Circle, File, circles};
use scripts::Language;
use source::{Module, Package};

use crate::fixture;

/// Every package, and the packages of ours that it may depend on.
const PACKAGES: [(&str, &[&str]); 15] = [
    ("proto", &[]),
    ("proto/jsonrpc", &[]),
    ("process/identity", &["proto"]),
    ("process", &["identity"]),
    ("client/rust/http-session", &["jsonrpc", "proto"]),
    ("client/rust", &["http-session", "jsonrpc", "proto"]),
    ("client/c", &["client"]),
    ("daemon/registry", &["identity", "proto"]),
    ("daemon", &["process", "proto", "registry"]),
    ("proxy/relay", &["jsonrpc", "proto"]),
    ("proxy/bundle", &["jsonrpc"]),
    (
        "proxy",
        &["bundle", "client", "jsonrpc", "process", "proto", "relay"],
    ),
    (
        "proxy/serve",
        &[
            "bundle",
            "client",
            "http-session",
            "jsonrpc",
            "process",
            "proto",
            "proxy",
            "upstream",
        ],
    ),
    ("proxy/upstream", &["jsonrpc", "process", "proto", "relay"]),
    (
        ".",
        &[
            "client", "daemon", "jsonrpc", "process", "proto", "proxy", "serve", "upstream",
        ],
    ),
];

/// Packages that do no I/O and read no clock: everything that they depend on, `std` not among it.
const PURE: [(&str, &[&str]); 5] = [
    ("proto/jsonrpc", &["bytes", "serde", "serde_json"]),
    (
        "client/rust/http-session",
        &[
            "bytes",
            "mcp-sessiond-jsonrpc",
            "mcp-sessiond-proto",
            "serde",
            "serde_json",
        ],
    ),
    (
        "process/identity",
        &["mcp-sessiond-proto", "serde", "sha2", "thiserror"],
    ),
    (
        "daemon/registry",
        &["mcp-sessiond-identity", "mcp-sessiond-proto", "serde"],
    ),
    (
        "proxy/relay",
        &[
            "bytes",
            "mcp-sessiond-jsonrpc",
            "mcp-sessiond-proto",
            "serde",
            "serde_json",
        ],
    ),
];

/// Packages with `unsafe` code, and the one file of each that has it.
const UNSAFE: [(&str, &str); 2] = [("process", "sys"), ("client/c", "ffi")];

/// The top modules of one package, each with those that it may name, all of which stand above it,
/// and with the packages of ours. Every package may name `proto` and `jsonrpc`.
type Layers = &'static [(&'static str, &'static [&'static str])];

const DAEMON: Layers = &[
    ("awaited", &[]),
    ("counters", &[]),
    ("writer", &[]),
    ("storage", &["counters", "writer", "process"]),
    ("config", &["storage", "process", "registry"]),
    ("logging", &["config"]),
    ("connections", &["config", "process"]),
    ("contents", &["config", "counters", "storage"]),
    ("tokens", &["process", "registry"]),
    ("ledger", &["writer", "process", "registry"]),
    ("keepers", &["process"]),
    (
        "engine",
        &[
            "awaited", "config", "contents", "counters", "keepers", "ledger", "storage", "tokens",
            "process", "registry",
        ],
    ),
    ("terminator", &["engine", "keepers", "process", "registry"]),
    ("reaper", &["contents", "engine"]),
    ("wills", &["contents", "engine", "storage", "process"]),
    ("parts", &["storage"]),
    (
        "fleet",
        &["contents", "engine", "storage", "wills", "process"],
    ),
    (
        "rpc",
        &[
            "awaited",
            "connections",
            "contents",
            "counters",
            "engine",
            "fleet",
            "parts",
            "storage",
            "wills",
            "process",
            "registry",
        ],
    ),
    ("exporter", &["rpc"]),
    (
        "run",
        &[
            "config",
            "contents",
            "counters",
            "engine",
            "exporter",
            "fleet",
            "logging",
            "parts",
            "reaper",
            "rpc",
            "storage",
            "terminator",
            "wills",
            "process",
        ],
    ),
];

const PROXY: Layers = &[
    ("signals", &["process"]),
    ("front_settings", &[]),
    ("alarm", &[]),
    ("lines", &[]),
    ("socket", &["process"]),
    ("frames", &["socket"]),
    ("memory", &["process"]),
    ("launch_env", &["process"]),
    ("unkept", &["process"]),
    ("named_lines", &[]),
    ("closed", &["process"]),
    ("program", &["client", "process"]),
    ("secrets", &[]),
    ("id_prefix", &["bundle", "client"]),
    ("stderr", &["frames", "named_lines"]),
    (
        "notices",
        &["frames", "stderr", "unkept", "client", "process"],
    ),
    (
        "keeper",
        &[
            "alarm", "frames", "lines", "memory", "program", "secrets", "signals", "socket",
            "stderr", "client", "process", "relay",
        ],
    ),
    (
        "server",
        &[
            "frames",
            "front_settings",
            "keeper",
            "launch_env",
            "lines",
            "memory",
            "notices",
            "program",
            "signals",
            "socket",
            "stderr",
            "bundle",
            "client",
            "process",
            "relay",
        ],
    ),
    (
        "connection",
        &[
            "frames", "lines", "server", "signals", "socket", "stderr", "bundle",
        ],
    ),
    (
        "front",
        &[
            "alarm",
            "closed",
            "connection",
            "frames",
            "front_settings",
            "id_prefix",
            "launch_env",
            "lines",
            "memory",
            "notices",
            "program",
            "server",
            "signals",
            "socket",
            "stderr",
            "bundle",
            "client",
            "process",
            "relay",
        ],
    ),
];

fn package(path: &str) -> Package {
    Package::read(fixture("..").as_ref(), path)
}

/// The short name of a package of ours: `registry` of `mcp-sessiond-registry`.
fn short(dependency: &str) -> Option<&str> {
    dependency.strip_prefix("mcp-sessiond-")
}

#[test]
fn packages_depend_on_what_they_may_and_on_nothing_else() {
    for (path, allowed) in PACKAGES {
        let found: BTreeSet<String> = package(path).dependencies();
        let ours: Vec<&str> = found.iter().filter_map(|name| short(name)).collect();
        assert_eq!(ours, allowed, "{path}/Cargo.toml");
    }
}

#[test]
fn a_package_is_published_after_those_that_it_depends_on() {
    let order = fs::read_to_string(fixture("../packaging/order")).expect("packaging/order");
    let order: Vec<&str> = order
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert_eq!(order.len(), PACKAGES.len());
    for (path, _) in PACKAGES {
        let package = package(path);
        let place = |name: &str| order.iter().position(|listed| *listed == name);
        let own = place(package.field("name"))
            .unwrap_or_else(|| panic!("{path} is not in packaging/order"));
        for dependency in package
            .dependencies()
            .iter()
            .filter(|name| short(name).is_some())
        {
            assert!(
                place(dependency).is_some_and(|at| at < own),
                "{path} is published before {dependency}"
            );
        }
    }
}

#[test]
fn a_package_says_what_it_is() {
    for (path, _) in PACKAGES {
        let package = package(path);
        for field in ["description", "readme", "keywords", "categories"] {
            assert!(
                !package.field(field).is_empty(),
                "{path}/Cargo.toml has no {field}"
            );
        }
        for file in ["README.md", "LICENSE"] {
            let text = fs::read_to_string(fixture(&format!("../{path}/{file}")));
            assert!(text.is_ok_and(|text| !text.is_empty()), "{path}/{file}");
        }
    }
}

#[test]
fn what_does_no_io_has_nothing_that_could() {
    for (path, allowed) in PURE {
        let package = package(path);
        assert_eq!(
            package.dependencies().into_iter().collect::<Vec<_>>(),
            allowed,
            "{path}/Cargo.toml"
        );
        let root = package.root().text.clone();
        assert!(
            root.contains("#![cfg_attr(not(test), no_std)]"),
            "{path} has no std"
        );
        assert!(!root.contains("extern crate std"), "{path} has no std");
        for module in &package.modules {
            let outside = module.mentions.iter().find(|path| is_outside(path));
            assert_eq!(
                outside,
                None,
                "{}: it comes with the facts, or not at all",
                module.file.display()
            );
        }
    }
}

/// What `proto` has that reads a clock, randomness or the environment.
fn is_outside(path: &[String]) -> bool {
    path.first()
        .is_some_and(|root| root == "mcp_sessiond_proto")
        && path
            .iter()
            .any(|part| ["paths", "frame", "hello", "time"].contains(&part.as_str()))
        || path.last().is_some_and(|last| last == "mint")
}

/// What a server takes on with the client library: the daemon's framework for RPCs, and what that
/// brings, is not among it. And what somebody builds who builds the executable, and the core of it.
#[test]
fn who_builds_us_takes_on_little() {
    let none = "--no-default-features";
    for (package, features, most) in [
        ("mcp-sessiond-client", &[none][..], 40),
        ("mcp-sessiond-client", &[], 55),
        ("mcp-sessiond-client", &["--features=axum"], 65),
        ("mcp-sessiond", &[none], 150),
        ("mcp-sessiond", &[], 240),
    ] {
        let mut tree = std::process::Command::new(env!("CARGO"));
        tree.args([
            "tree",
            "--offline",
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--no-dedupe",
        ]);
        tree.args(["--package", package])
            .args(features)
            .current_dir(fixture(".."));
        let tree = tree.output().expect("cargo");
        let crates = String::from_utf8(tree.stdout).expect("text");
        let crates: BTreeSet<(&str, &str)> = crates
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(name, rest)| (name, rest.split(' ').next().unwrap_or_default()))
            .collect();
        let has = |name| crates.iter().any(|(one, _)| *one == name);
        assert!(
            has("mcp-sessiond-proto"),
            "{}",
            String::from_utf8_lossy(&tree.stderr)
        );
        assert!(
            crates.len() <= most && has("tarpc") == (package == "mcp-sessiond"),
            "{package} {features:?}: {}: {crates:?}",
            crates.len()
        );
    }
}

#[test]
fn unsafe_code_is_in_two_files() {
    for (path, _) in PACKAGES {
        let allowed = UNSAFE
            .iter()
            .find(|(package, _)| *package == path)
            .map(|(_, file)| *file);
        for module in package(path).modules {
            let is_allowed = allowed.is_some_and(|file| module.path == [file]);
            assert_eq!(
                module.text.contains("allow(unsafe_code"),
                is_allowed,
                "{}",
                module.file.display()
            );
        }
        let forbids = package(path)
            .root()
            .text
            .contains("#![forbid(unsafe_code)]");
        assert_eq!(forbids, allowed.is_none(), "{path}");
    }
}

/// How many lines a file may have. One noun fits in that; a longer file has more than one.
const LINES_MAX: usize = 800;

#[test]
fn no_file_is_too_long_to_be_read_in_one_go() {
    let mut files = Vec::new();
    rust_files(fixture("..").as_ref(), &mut files);
    assert!(files.len() > 300, "only {} were found", files.len());
    let lines = |file: &PathBuf| fs::read_to_string(file).map_or(0, |text| text.lines().count());
    files.retain(|file| lines(file) > LINES_MAX);
    assert!(files.is_empty(), "{files:?}");
}

/// The files below this folder, without what was built or downloaded.
fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let is_ours = !["target", "node_modules", ".git"]
            .iter()
            .any(|other| name == *other);
        if is_ours && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// What a test needs beside Rust, a C compiler and an ordinary user stands in its `#[ignore]`, and CI,
/// which runs these, too, sees to it that it is there.
#[test]
fn what_a_test_needs_stands_behind_ignore() {
    let run = fs::read_to_string(fixture("run")).expect("tests/run");
    assert!(run.contains("--run-ignored only"), "tests/run runs them");
    let installed: Vec<&str> = run
        .lines()
        .filter_map(|line| line.split_once("need "))
        .flat_map(|(_, words)| words.split(' '))
        .collect();
    let mut files = Vec::new();
    rust_files(fixture("..").as_ref(), &mut files);
    let mut found = 0;
    for file in files {
        let text = fs::read_to_string(&file).expect("a file");
        for line in text.lines().map(str::trim_start) {
            let Some(reason) = line.strip_prefix("#[ignore") else {
                continue;
            };
            let needs = reason
                .strip_prefix(" = \"needs ")
                .and_then(|rest| rest.strip_suffix("\"]"));
            let needs = needs.unwrap_or_else(|| panic!("{}: {line}", file.display()));
            for what in needs.split(" and ") {
                let is_seen_to = [
                    "root",
                    "a quiet machine",
                    "a process of its own",
                    "promtool",
                ]
                .contains(&what)
                    || installed.contains(&what);
                assert!(
                    is_seen_to,
                    "{}: tests/run does not see to {what}",
                    file.display()
                );
            }
            found += 1;
        }
    }
    assert!(found > 200, "{found}");
}

#[test]
fn modules_name_only_what_they_may() {
    for (path, layers) in [("daemon", DAEMON), ("proxy", PROXY)] {
        let package = package(path);
        let listed: BTreeSet<&str> = layers.iter().map(|(module, _)| *module).collect();
        let there: BTreeSet<&str> = package
            .modules
            .iter()
            .filter_map(|module| module.top())
            .collect();
        assert_eq!(there, listed, "the modules of {path}");
        assert_eq!(forbidden(&package.modules, layers), [""; 0], "{path}");
    }
}

/// The files that name a module or a package that they may not name.
fn forbidden(modules: &[Module], layers: Layers) -> Vec<String> {
    let mut above = BTreeSet::new();
    let mut found = Vec::new();
    for (layer, allowed) in layers {
        let mut may: BTreeSet<&str> = allowed.iter().copied().collect();
        may.extend([*layer, "jsonrpc", "proto"]);
        let named = layers
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| may.contains(name) && name != layer);
        found.extend(
            named
                .filter(|name| !above.contains(name))
                .map(|name| format!("{layer}: {name} stands below it")),
        );
        above.insert(*layer);
        for module in modules.iter().filter(|module| module.top() == Some(layer)) {
            let strange = module.named().filter(|named| !may.contains(named.as_str()));
            found.extend(strange.map(|named| format!("{}: {named}", module.file.display())));
        }
    }
    found
}

#[test]
fn siblings_have_no_circle() {
    let mut found: Vec<String> = Vec::new();
    for (package, files) in sources() {
        let circles = circles(&files);
        let explained = circles.iter().map(Circle::explained);
        found.extend(explained.map(|circle| format!("{package}/{circle}")));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The files of every package, in whichever language it is.
fn sources() -> Vec<(&'static str, Vec<File>)> {
    let rust = |(path, _)| {
        (
            path,
            package(path).modules.iter().map(Module::as_file).collect(),
        )
    };
    let mut all: Vec<(&str, Vec<File>)> = PACKAGES.into_iter().map(rust).collect();
    for (language, path, folder) in [
        (Language::TypeScript, "client/typescript", "src"),
        (Language::Python, "client/python", "src/mcp_sessiond"),
    ] {
        let folder = fixture(&format!("../{path}/{folder}"));
        let files = language.read(folder.as_ref(), "mcp_sessiond");
        assert!(
            files.len() > 30,
            "only {} were found in {folder}",
            files.len()
        );
        all.push((path, files));
    }
    all
}

#[test]
fn what_is_forbidden_is_found() {
    let modules = |storage: &str, contents: &str| {
        vec![
            Module::of("", "pub mod storage; pub mod contents; pub mod edge;"),
            Module::of("storage", storage),
            Module::of("contents", contents),
            Module::of("contents::rules", "use super::super::edge::Edge;"),
            Module::of("edge", ""),
        ]
    };
    let layers: Layers = &[
        ("storage", &[]),
        ("contents", &["storage"]),
        ("edge", &["contents"]),
    ];
    let sound = modules(
        "",
        "// crate::edge\nconst TEXT: &str = \"crate::edge::Edge\";",
    );
    assert_eq!(forbidden(&sound[..3], layers), [""; 0]);
    assert_eq!(forbidden(&sound, layers), ["contents/rules.rs: edge"]);
    for text in [
        "use crate::{edge::Edge, storage};",
        "use crate::storage::{self};\nfn f() { super::edge::g() }",
        "use mcp_sessiond_registry as rules;",
    ] {
        let found = forbidden(&modules("", text)[..3], layers);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
    }
    let backwards: Layers = &[
        ("edge", &["contents"]),
        ("contents", &["storage"]),
        ("storage", &[]),
    ];
    assert_eq!(forbidden(&[], backwards).len(), 2);

    let round = modules(
        "use crate::contents::{rules, Contents};",
        "use crate::storage::Storage;",
    );
    assert_eq!(in_rust(&round), [": contents storage"]);
    assert_eq!(in_rust(&sound), [""; 0]);
    let mint: BTreeMap<&str, bool> = [
        ("use mcp_sessiond_proto::paths;", true),
        ("let id = SessionId::mint();", true),
        ("use mcp_sessiond_proto::Epoch;", false),
    ]
    .into();
    for (text, is_found) in mint {
        assert_eq!(
            Module::of("", text)
                .mentions
                .iter()
                .any(|path| is_outside(path)),
            is_found,
            "{text}"
        );
    }
}

fn lines(files: &[File]) -> Vec<String> {
    circles(files).iter().map(Circle::line).collect()
}

fn in_rust(modules: &[Module]) -> Vec<String> {
    let files: Vec<File> = modules.iter().map(Module::as_file).collect();
    lines(&files)
}

#[test]
fn a_circle_that_is_put_in_is_found_in_rust() {
    let through_reexports = [
        Module::of("", "mod storage; pub use storage::Sqlite;"),
        Module::of(
            "storage",
            "mod memory; mod sqlite; use memory::Memory; pub use sqlite::Sqlite;",
        ),
        Module::of("storage::memory", "use crate::Sqlite;"),
        Module::of("storage::sqlite", "use super::Memory;"),
    ];
    assert_eq!(in_rust(&through_reexports), ["storage: memory sqlite"]);

    // From below one file to another one, and from that to the first one's own.
    let across = |below: &str, other: &str| {
        [
            Module::of("", "mod login; mod remote; use remote::Remote;"),
            Module::of("login", "mod browser; use browser::Page;"),
            Module::of("login::browser", below),
            Module::of("remote", other),
        ]
    };
    for below in [
        "use crate::remote::Remote;",
        "use crate::Remote;",
        "use super::super::*;\nfn f(_: Remote) {}",
        "mod os { use super::super::super::remote::Remote; }",
        "use crate::{login::Page, remote};",
    ] {
        let found = in_rust(&across(below, "use crate::login::Page as Shown;"));
        assert_eq!(found, [": login remote"], "{below}");
    }
    // A file and those below it name each other; tests name what they like.
    for below in [
        "use super::Page;\nuse crate::login::browser;",
        "mod os { use super::super::Page; }",
        "use super::super::*;\nfn f(_: Page) {}",
        "const OPEN: char = '{';\n#[cfg(test)]\nmod tests { use crate::remote::Remote; }",
        "// crate::remote\nconst PATH: &str = \"crate::remote\";",
    ] {
        let found = in_rust(&across(below, "use crate::login::Page;"));
        assert_eq!(found, [""; 0], "{below}");
    }
}

#[test]
fn a_circle_that_is_put_in_is_found_in_typescript() {
    let of = |session: &str, get: &str, stream: &str| {
        let file = |path: &str, text: &str| Language::TypeScript.file(path, text, "");
        lines(&[
            file("index.ts", "export { Session } from './session.js';\n"),
            file("session.ts", session),
            file("stream.ts", stream),
            file("durable/get.ts", get),
            file(
                "durable/live.ts",
                "import type { Reader } from './get.js';\n",
            ),
        ])
    };
    let stream = "import {\n  type Session,\n} from './session.js';\n";
    let [none, to_index] = ["", "import { Session } from './index.js';\n"];
    for session in [
        "/** Of a session. */\nimport { Stream } from './stream.js';\n",
        "export * from './stream.js';\n",
        "export function open(): import('./stream.js').Stream {}\n",
        "import './stream.js';\n",
    ] {
        assert_eq!(of(session, none, stream), [": session stream"], "{session}");
        assert_eq!(
            of(session, none, to_index),
            [": session stream"],
            "{session}"
        );
        assert_eq!(of(session, none, none), [""; 0], "{session}");
    }
    let session = "import { Reader } from './durable/live.js';\n";
    let get = "import type { Stream } from '../stream.js';\n";
    assert_eq!(of(session, get, stream), [": durable session stream"]);
    let get = "import { Live } from './live.js';\n";
    assert_eq!(of(session, get, none), ["durable: get live"]);
    let said = "// import { Stream } from './stream.js';\nconst at = './stream.js';\n";
    assert_eq!(of(said, none, stream), [""; 0]);
}

#[test]
fn a_circle_that_is_put_in_is_found_in_python() {
    let of = |session: &str, get: &str, streams: &str| {
        let file = |path: &str, text: &str| Language::Python.file(path, text, "mcp_sessiond");
        lines(&[
            file("__init__.py", "from .session import Session\n"),
            file("session.py", session),
            file("streams.py", streams),
            file("asgi/__init__.py", "from .get import Reader\n"),
            file("asgi/get.py", get),
            file("asgi/live.py", "from . import get\n"),
        ])
    };
    let [none, session] = ["", "from .streams import (\n    Stream,\n    Streams,\n)\n"];
    for streams in [
        "from .session import Session\n",
        "def f():\n    from .session import mint as new\n",
        "if TYPE_CHECKING:\n    from . import session\n",
        "import mcp_sessiond.session as at\n",
        "from mcp_sessiond import Session\n",
    ] {
        assert_eq!(
            of(session, none, streams),
            [": session streams"],
            "{streams}"
        );
        assert_eq!(of(none, none, streams), [""; 0], "{streams}");
    }
    let [above, get] = [
        "from .asgi import Reader\n",
        "from ..streams import Stream\n",
    ];
    let streams = "from .session import Session\n";
    assert_eq!(of(above, get, streams), [": asgi session streams"]);
    assert_eq!(
        of(none, "from .live import Live\n", none),
        ["asgi: get live"]
    );
    let said = "\"\"\"\nfrom mcp_sessiond import Session\n\"\"\"\n# from .session import Session\n";
    assert_eq!(of(session, none, said), [""; 0]);
}
