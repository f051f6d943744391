//! The layout: which room may name which, where a crate alone can't say it. `ARCHITECTURE.md` has
//! the picture.
//!
//! Between crates the compiler keeps the doors: what a `Cargo.toml` does not name can't be
//! imported, and the first test says what each may name. The other tests read the paths that the
//! code mentions.

mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use source::{Module, Package, circles};

use crate::fixture;

/// Every package, and the packages of ours that it may depend on.
const PACKAGES: [(&str, &[&str]); 13] = [
    ("proto", &[]),
    ("process/identity", &["proto"]),
    ("process", &["identity"]),
    ("client/rust", &["proto"]),
    ("client/c", &["client"]),
    ("daemon/registry", &["identity", "proto"]),
    ("daemon", &["process", "proto", "registry"]),
    ("proxy/relay", &["proto"]),
    ("proxy/bundle", &[]),
    ("proxy", &["bundle", "client", "process", "proto", "relay"]),
    (
        "proxy/serve",
        &["bundle", "client", "process", "proto", "proxy", "relay"],
    ),
    ("proxy/upstream", &["process", "proto", "relay"]),
    (
        ".",
        &[
            "client", "daemon", "process", "proto", "proxy", "serve", "upstream",
        ],
    ),
];

/// Packages that do no I/O and read no clock: everything that they depend on, `std` not among it.
const PURE: [(&str, &[&str]); 3] = [
    (
        "process/identity",
        &["mcp-sessiond-proto", "sha2", "thiserror"],
    ),
    (
        "daemon/registry",
        &["mcp-sessiond-identity", "mcp-sessiond-proto"],
    ),
    (
        "proxy/relay",
        &["bytes", "mcp-sessiond-proto", "serde", "serde_json"],
    ),
];

/// Packages with `unsafe` code, and the one file of each that has it.
const UNSAFE: [(&str, &str); 2] = [("process", "sys"), ("client/c", "border")];

/// Rooms of one package, each with the rooms that it may name, all of which stand above it, and
/// with the packages of ours. Every package may name `proto`.
type Rooms = &'static [(&'static str, &'static [&'static str])];

const DAEMON: Rooms = &[
    ("counters", &[]),
    ("writer", &[]),
    ("storage", &["writer", "process"]),
    ("config", &["storage", "process", "registry"]),
    ("logging", &["config"]),
    ("gauge", &["config", "process"]),
    ("contents", &["config", "counters", "storage"]),
    ("tokens", &["process", "registry"]),
    ("ledger", &["writer", "process", "registry"]),
    ("keepers", &["process"]),
    (
        "edge",
        &[
            "config", "contents", "counters", "keepers", "ledger", "storage", "tokens", "process",
            "registry",
        ],
    ),
    ("killer", &["edge", "keepers", "process", "registry"]),
    ("reaper", &["contents", "edge"]),
    ("wills", &["contents", "edge", "storage", "process"]),
    (
        "fleet",
        &["contents", "edge", "storage", "wills", "process"],
    ),
    (
        "service",
        &[
            "contents", "counters", "edge", "fleet", "gauge", "storage", "wills", "process",
            "registry",
        ],
    ),
    ("listener", &["counters", "service", "process"]),
    ("metered", &["counters", "storage"]),
    ("exporter", &["service"]),
    (
        "run",
        &[
            "config", "contents", "counters", "edge", "exporter", "fleet", "killer", "listener",
            "logging", "metered", "reaper", "service", "storage", "wills", "process",
        ],
    ),
];

const PROXY: Rooms = &[
    ("signals", &[]),
    ("waits", &[]),
    ("lines", &[]),
    ("memory", &["process"]),
    ("launch_env", &["process"]),
    ("unkept", &["process"]),
    ("program", &["client", "process"]),
    ("id_prefix", &["bundle", "client", "relay"]),
    ("stderr", &["lines"]),
    ("notices", &["stderr", "unkept", "client", "process"]),
    (
        "keeper",
        &[
            "lines", "memory", "program", "signals", "client", "process", "relay",
        ],
    ),
    (
        "server",
        &[
            "keeper", "lines", "memory", "program", "signals", "stderr", "waits", "bundle",
            "client", "process", "relay",
        ],
    ),
    (
        "front",
        &[
            "id_prefix",
            "launch_env",
            "lines",
            "memory",
            "notices",
            "program",
            "server",
            "signals",
            "stderr",
            "waits",
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
        let door = package.root().text.clone();
        assert!(
            door.contains("#![cfg_attr(not(test), no_std)]"),
            "{path} has no std"
        );
        assert!(!door.contains("extern crate std"), "{path} has no std");
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
            .any(|part| ["paths", "frame", "hello"].contains(&part.as_str()))
        || path.last().is_some_and(|last| last == "mint")
}

/// What a server takes on with the client library: the daemon's framework for RPCs, and what that
/// brings, is not among it.
#[test]
fn a_server_with_the_client_library_takes_on_little() {
    for (features, most) in [
        (&["--no-default-features"][..], 40),
        (&[], 55),
        (&["--features=axum"], 65),
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
        tree.args(["--package", "mcp-sessiond-client"])
            .args(features)
            .current_dir(fixture(".."));
        let tree = tree.output().expect("cargo");
        let crates = String::from_utf8(tree.stdout).expect("text");
        let crates: BTreeSet<&str> = crates
            .lines()
            .filter_map(|line| line.split(' ').next())
            .collect();
        assert!(
            crates.contains("mcp-sessiond-proto"),
            "{}",
            String::from_utf8_lossy(&tree.stderr)
        );
        assert!(
            !crates.contains("tarpc") && crates.len() <= most,
            "{}: {crates:?}",
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

#[test]
fn rooms_name_only_what_they_may() {
    for (path, rooms) in [("daemon", DAEMON), ("proxy", PROXY)] {
        let package = package(path);
        let listed: BTreeSet<&str> = rooms.iter().map(|(room, _)| *room).collect();
        let there: BTreeSet<&str> = package
            .modules
            .iter()
            .filter_map(|module| module.room())
            .collect();
        assert_eq!(there, listed, "the rooms of {path}");
        assert_eq!(trespasses(&package.modules, rooms), [""; 0], "{path}");
    }
}

/// Who names a room, or a package, that it may not.
fn trespasses(modules: &[Module], rooms: Rooms) -> Vec<String> {
    let mut above = BTreeSet::new();
    let mut found = Vec::new();
    for (room, allowed) in rooms {
        let mut may: BTreeSet<&str> = allowed.iter().copied().collect();
        may.extend([*room, "proto"]);
        let named = rooms
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| may.contains(name) && name != room);
        found.extend(
            named
                .filter(|name| !above.contains(name))
                .map(|name| format!("{room}: {name} stands below it")),
        );
        above.insert(*room);
        for module in modules.iter().filter(|module| module.room() == Some(room)) {
            let strange = module.named().filter(|named| !may.contains(named.as_str()));
            found.extend(strange.map(|named| format!("{}: {named}", module.file.display())));
        }
    }
    found
}

#[test]
fn no_file_leads_back_to_itself() {
    let of = |path| {
        circles(&package(path).modules)
            .into_iter()
            .map(move |circle| (path, circle))
    };
    let found: Vec<(&str, Vec<String>)> = PACKAGES
        .into_iter()
        .flat_map(|(path, _)| of(path))
        .collect();
    assert_eq!(found, []);
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
    let rooms: Rooms = &[
        ("storage", &[]),
        ("contents", &["storage"]),
        ("edge", &["contents"]),
    ];
    let sound = modules(
        "",
        "// crate::edge\nconst TEXT: &str = \"crate::edge::Edge\";",
    );
    assert_eq!(trespasses(&sound[..3], rooms), [""; 0]);
    assert_eq!(trespasses(&sound, rooms), ["contents/rules.rs: edge"]);
    for forbidden in [
        "use crate::{edge::Edge, storage};",
        "use crate::storage::{self};\nfn f() { super::edge::g() }",
        "use mcp_sessiond_registry as rules;",
    ] {
        let found = trespasses(&modules("", forbidden)[..3], rooms);
        assert_eq!(found.len(), 1, "{forbidden}: {found:?}");
    }
    let backwards: Rooms = &[
        ("edge", &["contents"]),
        ("contents", &["storage"]),
        ("storage", &[]),
    ];
    assert_eq!(trespasses(&[], backwards).len(), 2);

    let round = modules(
        "use crate::contents::{rules, Contents};",
        "use crate::storage::Storage;",
    );
    assert_eq!(circles(&round), [["contents", "storage"]]);
    assert_eq!(circles(&sound), [[""; 0]; 0]);
    let by_the_door = [
        Module::of("", "mod storage; pub use storage::Sqlite;"),
        Module::of(
            "storage",
            "mod memory; mod sqlite; use memory::Memory; pub use sqlite::Sqlite;",
        ),
        Module::of("storage::memory", "use crate::Sqlite;"),
        Module::of("storage::sqlite", "use super::Memory;"),
    ];
    assert_eq!(
        circles(&by_the_door),
        [["storage::memory", "storage::sqlite"]]
    );
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
