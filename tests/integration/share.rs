//! `mcp-sessiond share`: what becomes of hosts' files and of `servers.json`, and that one process
//! serves all of them then.

use std::fs;

use mcp_sessiond_tests::{Client, World};
use serde_json::{Value, json};

use crate::import::{home, hosts, said_by, servers, write, written};
use crate::shared::entry;
use crate::world;

fn share(world: &World, words: &[&str]) -> (Option<i32>, String, String) {
    said_by(world, &[&["share"], words].concat())
}

fn file(world: &World, file: &str) -> String {
    fs::read_to_string(home(world).join(file)).expect("the host's file")
}

/// A file of Claude Code's, or of a host with one like it.
fn of(server: &Value) -> String {
    json!({"mcpServers": {"docs": server, "own": {"command": "own"}}}).to_string()
}

const CLAUDE: &str = ".claude.json";
const CURSOR: &str = ".cursor/mcp.json";

#[test]
fn all_hosts_run_one_server_until_that_is_taken_back() {
    let world = world("");
    let hosts = hosts();
    let before: Vec<String> = hosts
        .iter()
        .map(|(_, _, text, _)| text.replace("NAME", "docs"))
        .collect();
    for ((_, file, ..), text) in hosts.iter().zip(&before) {
        write(&world, file, text);
    }
    let now = || -> Vec<String> { hosts.iter().map(|host| file(&world, host.1)).collect() };
    let (code, said, errors) = share(&world, &["docs", "--dry-run"]);
    assert_eq!((code, &*errors), (Some(0), ""), "{said}");
    assert!(said.contains("docs: is added, and shared"), "{said}");
    // Nobody who could say yes is there.
    assert_eq!(share(&world, &["docs"]).0, Some(64));
    assert!(now() == before && !servers(&world).exists(), "{said}");

    let (code, said, errors) = share(&world, &["docs", "--yes"]);
    assert_eq!((code, &*errors), (Some(0), ""), "{said}");
    let changed = format!("{} files were changed", hosts.len() + 1);
    assert!(said.contains(&changed), "{said}");
    let shared = json!({"command": "npx", "args": ["-y", "x"], "env": {"A": "1"}, "shared": true, "by_share": "server"});
    assert_eq!(written(&world), json!({"mcpServers": {"docs": shared}}));
    for ((host, ..), text) in hosts.iter().zip(now()) {
        assert!(text.contains("\"wrap\", \"@docs\"]"), "{host}: {text}");
    }
    let after = now();
    let (code, said, _) = share(&world, &["docs", "--yes"]);
    assert_eq!((code, now()), (Some(0), after), "{said}");
    assert!(said.contains("nothing to change"), "{said}");

    let (code, said, errors) = share(&world, &["docs", "--undo", "--yes"]);
    assert_eq!(code, Some(0), "{said}{errors}");
    let says = "\"docs\" is not wrapped now; `mcp-sessiond setup` wraps it";
    assert!(errors.contains(says), "{errors}");
    assert_eq!(now(), before);
    assert_eq!(written(&world), json!({"mcpServers": {}}));
    assert_eq!(share(&world, &["docs", "--undo"]).0, Some(66));
}

#[test]
fn what_two_hosts_run_from_their_files_is_one_process() {
    let world = world("");
    let _daemon = world.daemon();
    let mut server = entry(&world);
    server.as_object_mut().expect("an entry").remove("shared");
    write(&world, CLAUDE, &of(&server));
    write(&world, CURSOR, &of(&server));
    let (code, said, errors) = share(&world, &["docs", "--yes"]);
    assert_eq!((code, &*errors), (Some(0), ""), "{said}");
    let pids = [CLAUDE, CURSOR].map(|host| {
        let text = file(&world, host);
        let own: Value = serde_json::from_str(&text).expect("JSON");
        let own = &own["mcpServers"]["docs"];
        let arguments = own["args"].as_array().expect("a list");
        let words = [&own["command"]].into_iter().chain(arguments);
        let words: Vec<String> = words
            .map(|word| word.as_str().expect("text").to_owned())
            .collect();
        let host = world.host();
        let mut client = Client::connected(host.front(&words));
        let pid = client.call("pid", json!({}));
        (pid, host, client)
    });
    let [(one, ..), (other, ..)] = &pids;
    assert_eq!(one, other);
}

#[test]
fn who_has_a_server_three_times_hears_of_it() {
    let world = world("");
    let _daemon = world.daemon();
    let server = [
        world.binaries.shared_server,
        world.root().to_str().expect("UTF-8"),
    ];
    let front = || {
        let host = world.host();
        let words = world.wrapping(&["--entry", "docs"], &server.map(str::to_owned));
        let client = Client::connected(host.front(&words));
        (host, client)
    };
    let said = |verb: &str| said_by(&world, &[verb]).1;
    let mut fronts = vec![front(), front()];
    for verb in ["status", "doctor"] {
        assert!(
            !said(verb).contains("mcp-sessiond share"),
            "two are no burden"
        );
    }
    fronts.push(front());
    for verb in ["status", "doctor"] {
        let said = said(verb).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("docs: 3 processes, "), "{said}");
        assert!(
            said.contains("`mcp-sessiond share docs` makes them one"),
            "{said}"
        );
    }
}

#[test]
fn a_server_that_is_not_the_same_everywhere_is_shared_where_it_is() {
    let world = world("");
    let (one, other) = (of(&json!({"command": "x"})), of(&json!({"command": "y"})));
    write(&world, CLAUDE, &one);
    write(&world, CURSOR, &other);
    let (code, said, errors) = share(&world, &["docs", "--yes"]);
    assert_eq!(code, Some(65), "{said}");
    assert!(
        errors.contains("is not the same server in claude ("),
        "{errors}"
    );
    assert!(file(&world, CLAUDE) == one && !servers(&world).exists());

    let (code, said, errors) = share(&world, &["docs", "--from", "cursor", "--yes"]);
    assert_eq!(code, Some(0), "{said}{errors}");
    assert!(
        errors.contains(".claude.json) has another server of this name"),
        "{errors}"
    );
    assert_eq!(file(&world, CLAUDE), one);
    assert_eq!(written(&world)["mcpServers"]["docs"]["command"], "y");
    // One that is in the list already is not replaced.
    let (code, _, errors) = share(&world, &["docs", "--from", "claude", "--yes"]);
    assert_eq!(code, Some(65), "{errors}");
    assert!(
        errors.contains("has another server of this name"),
        "{errors}"
    );
}

/// As `claude mcp add` writes one: for the project alone, in the user's file.
#[test]
fn servers_of_single_projects_are_shared_as_well() {
    let world = world("");
    let text = |own: &str, other: &str| {
        let docs =
            |command: &str| json!({"docs": {"command": command}, "docs (/c)": {"command": "z"}});
        let of = |command: &str| json!({"mcpServers": docs(command)});
        let projects = json!({"/a": of(own), "/b": of(other)});
        json!({"projects": projects}).to_string()
    };
    write(&world, CLAUDE, &text("x", "y"));
    let (code, _, errors) = share(&world, &["docs", "--yes"]);
    assert_eq!(code, Some(65), "{errors}");
    assert!(
        errors.contains("(/a in ") && errors.contains("(/b in "),
        "{errors}"
    );
    write(&world, CLAUDE, &text("x", "x"));
    let (code, said, errors) = share(&world, &["docs", "--yes"]);
    assert_eq!(code, Some(0), "{said}{errors}");
    let now: Value = serde_json::from_str(&file(&world, CLAUDE)).expect("JSON");
    for project in ["/a", "/b"] {
        let servers = &now["projects"][project]["mcpServers"];
        assert_eq!(servers["docs"]["args"], json!(["wrap", "@docs"]));
        assert_eq!(servers["docs (/c)"], json!({"command": "z"}));
    }
    assert_eq!(share(&world, &["docs", "--undo", "--yes"]).0, Some(0));
    assert_eq!(file(&world, CLAUDE), text("x", "x"));
    assert_eq!(written(&world), json!({"mcpServers": {}}));
    // What was wrapped by hand is so again.
    let by_hand = of(&json!({"command": "mcp-sessiond", "args": ["wrap", "--", "x"]}));
    write(&world, CLAUDE, &by_hand);
    assert_eq!(share(&world, &["docs", "--yes"]).0, Some(0));
    assert_eq!(written(&world)["mcpServers"]["docs"]["command"], "x");
    let (code, _, errors) = share(&world, &["docs", "--undo", "--yes"]);
    assert_eq!((code, &*errors), (Some(0), ""));
    assert_eq!(file(&world, CLAUDE), by_hand);
}

#[test]
fn what_can_t_be_shared_is_said_and_stays() {
    let world = world("");
    write(
        &world,
        CLAUDE,
        r#"{"mcpServers": {"far": {"url": "https://x"}, "docs": {"command": "x"}}}"#,
    );
    for (words, code, says) in [
        (&["doc"][..], 66, "did you mean docs?"),
        (
            &["far", "--yes"],
            65,
            "only a server with a `command` can be shared",
        ),
        (
            &["docs", "--from", "cursor"],
            66,
            "cursor has no server \"docs\"",
        ),
        (&["docs", "--undo"], 66, "`share` has not shared \"docs\""),
        (
            &["docs", "--undo", "--from", "claude"],
            64,
            "cannot be used with",
        ),
    ] {
        let (exit, _, errors) = share(&world, words);
        assert_eq!(exit, Some(code), "{words:?}: {errors}");
        assert!(errors.contains(says), "{words:?}: {errors}");
    }
    assert!(!servers(&world).exists());
}

/// What somebody has put into `servers.json`, or needs of it, stays there.
#[test]
fn an_undo_takes_back_what_was_put_there_and_nothing_else() {
    let world = world("");
    let docs = json!({"command": "x"});
    let listed = |entry: Value| json!({"mcpServers": {"docs": entry}}).to_string();
    let shared = json!({"command": "x", "shared": true});
    let undo = || {
        let (code, said, errors) = share(&world, &["docs", "--undo", "--yes"]);
        assert_eq!(
            (code, file(&world, CLAUDE)),
            (Some(0), of(&docs)),
            "{said}{errors}"
        );
        errors
    };
    let put = || {
        write(&world, CLAUDE, &of(&docs));
        assert_eq!(share(&world, &["docs", "--yes"]).0, Some(0));
        assert_eq!(written(&world)["mcpServers"]["docs"]["shared"], true);
    };
    // It was there before, shared or not.
    for before in [docs.clone(), shared.clone()] {
        fs::write(servers(&world), listed(before.clone())).expect("servers.json");
        put();
        undo();
        assert_eq!(written(&world)["mcpServers"]["docs"], before);
        fs::remove_file(servers(&world)).expect("servers.json");
    }
    // Somebody has edited it since.
    put();
    let edited = json!({"command": "x", "shared": true, "by_share": "server", "timeout_ms": 1});
    fs::write(servers(&world), listed(edited.clone())).expect("servers.json");
    assert!(undo().contains("stays as it is there: somebody has edited it since"));
    assert_eq!(written(&world)["mcpServers"]["docs"], edited);
    fs::remove_file(servers(&world)).expect("servers.json");
    // Another host was given it by hand.
    put();
    write(
        &world,
        CURSOR,
        &of(&json!({"command": "mcp-sessiond", "args": ["wrap", "@docs"]})),
    );
    assert!(undo().contains("stays as it is there: cursor runs it"));
    let kept = json!({"command": "x", "shared": true, "by_share": "server"});
    assert_eq!(written(&world)["mcpServers"]["docs"], kept);
    write(&world, CURSOR, "{");
    assert!(undo().contains("can't be understood"));
    // As soon as nobody does, it is taken back.
    write(&world, CURSOR, &of(&json!({"command": "own"})));
    undo();
    assert_eq!(written(&world), json!({"mcpServers": {}}));
}

/// An entry whose variables somebody has written anew can't be given back, and `servers.json` has the last
/// copy of what they were.
#[test]
fn what_is_nowhere_else_is_not_taken_away() {
    let world = world("");
    let before = of(&json!({"command": "x", "env": {"KEY": "secret"}}));
    for env in [json!({"NEW": "1"}), json!({"KEY": ""}), Value::Null] {
        write(&world, CLAUDE, &before);
        assert_eq!(share(&world, &["docs", "--yes"]).0, Some(0));
        let text = file(&world, CLAUDE).replace("\"env\":{}", &format!("\"env\":{env}"));
        write(&world, CLAUDE, &text);
        let (code, said, errors) = share(&world, &["docs", "--undo", "--yes"]);
        assert_eq!(code, Some(0), "{said}{errors}");
        assert!(errors.contains("is another one"), "{env}: {errors}");
        assert_eq!(
            written(&world)["mcpServers"]["docs"]["env"]["KEY"],
            "secret"
        );
        fs::remove_file(servers(&world)).expect("servers.json");
    }
}

/// A kill may come between any two of the files that are written, and others may write them, too: the
/// same command again finishes the job.
#[test]
fn an_undo_that_was_killed_is_finished_by_the_next_one() {
    let world = world("");
    let docs = json!({"command": "x"});
    write(&world, CLAUDE, &of(&docs));
    assert_eq!(said_by(&world, &["setup", "claude", "--yes"]).0, Some(0));
    let wrapped = file(&world, CLAUDE);
    assert_eq!(share(&world, &["docs", "--yes"]).0, Some(0));
    // The record and the list are written, the host's file is not.
    let shared = file(&world, CLAUDE);
    write(&world, CLAUDE, &wrapped);
    assert_eq!(share(&world, &["docs", "--yes"]).0, Some(0));
    assert_eq!(file(&world, CLAUDE), shared);
    write(&world, CLAUDE, &wrapped);
    let (code, said, errors) = share(&world, &["docs", "--undo", "--yes"]);
    assert_eq!(code, Some(0), "{said}{errors}");
    let now: Value = serde_json::from_str(&file(&world, CLAUDE)).expect("JSON");
    assert_eq!(now["mcpServers"]["docs"]["command"], "x");
    assert_eq!(written(&world), json!({"mcpServers": {}}));
    // The hosts' files are written, the list is not.
    write(&world, CURSOR, &of(&docs));
    assert_eq!(share(&world, &["docs", "--yes"]).0, Some(0));
    assert_eq!(said_by(&world, &["setup", "--undo", "--yes"]).0, Some(0));
    assert_eq!(written(&world)["mcpServers"]["docs"]["shared"], true);
    let (code, said, errors) = share(&world, &["docs", "--undo", "--yes"]);
    assert_eq!(code, Some(0), "{said}{errors}");
    assert_eq!(written(&world), json!({"mcpServers": {}}));
}

/// What `import` has hosts run is `import`'s, and what is called `docs (old)` is no server of a project.
#[test]
fn what_somebody_else_has_done_stays() {
    let world = world("");
    write(&world, CLAUDE, &of(&json!({"command": "x"})));
    let rewrite = ["import", "--rewrite", "claude", "docs", "--yes"];
    assert_eq!(said_by(&world, &rewrite).0, Some(0));
    let (claude, list) = (file(&world, CLAUDE), written(&world));
    // Of a host that runs what is listed, that is what another one has to be.
    write(&world, CURSOR, &of(&json!({"command": "other"})));
    let (code, said, errors) = share(&world, &["docs", "--from", "claude", "--yes"]);
    assert_eq!(code, Some(0), "{said}{errors}");
    assert_eq!(file(&world, CURSOR), of(&json!({"command": "other"})));
    assert_eq!(
        share(&world, &["docs", "--undo"]).0,
        Some(64),
        "nobody is there"
    );
    assert_eq!(share(&world, &["docs", "--undo", "--yes"]).0, Some(0));
    assert_eq!((file(&world, CLAUDE), written(&world)), (claude, list));
    let old = r#"{"mcpServers": {"docs": {"command": "x"}, "docs (old)": {"command": "x"}}}"#;
    write(&world, CURSOR, old);
    assert_eq!(share(&world, &["docs", "--yes"]).0, Some(0));
    let now: Value = serde_json::from_str(&file(&world, CURSOR)).expect("JSON");
    assert_eq!(now["mcpServers"]["docs (old)"], json!({"command": "x"}));
    let here = r#"{"mcpServers": {"here": {"command": "./run.sh"}}}"#;
    write(&world, CURSOR, here);
    let (code, _, errors) = share(&world, &["here", "--yes"]);
    assert_eq!(code, Some(65), "{errors}");
    assert!(errors.contains("write an absolute one"), "{errors}");
}

/// The other servers of a host's file stay wrapped, and can be given back later, byte for byte.
#[test]
fn what_setup_has_wrapped_is_not_concerned() {
    let world = world("");
    let before = of(&json!({"command": "x"}));
    write(&world, CLAUDE, &before);
    let setup = |words: &[&str]| said_by(&world, &[&["setup", "claude", "--yes"], words].concat());
    assert_eq!(setup(&[]).0, Some(0));
    assert_eq!(share(&world, &["docs", "--yes"]).0, Some(0));
    let args = || {
        let now: Value = serde_json::from_str(&file(&world, CLAUDE)).expect("JSON");
        ["docs", "own"].map(|name| now["mcpServers"][name]["args"].clone())
    };
    let wrapped = json!(["wrap", "--entry", "own", "--", "own"]);
    assert_eq!(args(), [json!(["wrap", "@docs"]), wrapped.clone()]);
    assert_eq!(share(&world, &["docs", "--undo", "--yes"]).0, Some(0));
    // Hosts make nothing of an empty list.
    assert_eq!(args(), [json!([]), wrapped.clone()]);
    // Of one server `setup` takes back only that.
    assert_eq!(setup(&["--only", "docs"]).0, Some(0));
    let entry = json!(["wrap", "--entry", "docs", "--", "x"]);
    assert_eq!(args(), [entry, wrapped.clone()]);
    let (code, said, errors) = setup(&["--undo", "--only", "docs"]);
    assert_eq!(code, Some(0), "{said}{errors}");
    assert_eq!(args(), [json!([]), wrapped]);
    assert_eq!(setup(&["--undo"]).0, Some(0));
    let now: Value = serde_json::from_str(&file(&world, CLAUDE)).expect("JSON");
    assert_eq!(now["mcpServers"]["own"], json!({"command": "own"}));
}
