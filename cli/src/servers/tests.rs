use mcp_sessiond_proxy::front::bundle::Waking;

use super::*;

const PATH: &str = "/home/u/servers.json";

fn parse(text: &str) -> Result<Servers, ServersError> {
    Servers::parse(text.as_bytes(), Path::new(PATH))
}

fn get(text: &str, name: &str) -> Result<Entry, String> {
    parse(text)
        .and_then(|servers| servers.get(name).cloned())
        .map_err(|error| error.to_string())
}

/// Why an entry is wrong.
fn why(entry: &str) -> String {
    let said = get(&format!(r#"{{"servers": {{"a": {entry}}}}}"#), "a").expect_err("it is wrong");
    said.strip_prefix(&format!("the server \"a\" in {PATH}: "))
        .expect("it names the server")
        .to_owned()
}

#[test]
fn a_server_is_found_in_either_form() {
    let whole = r#"{"command": "npx", "args": ["-y", "x"], "env": {"A": "1"}, "cwd": "/", "disabled": true}"#;
    for form in ["mcpServers", "servers"] {
        let text =
            format!(r#"{{"inputs": [], "{form}": {{"a b": {whole}, "url": {{"url": "x"}}}}}}"#);
        let entry = get(&text, "a b").expect("it is there");
        let kind = entry.resolve().expect("nothing is to be looked up");
        assert_eq!(
            kind,
            Kind::Stdio {
                command: "npx".to_owned(),
                args: vec!["-y".to_owned(), "x".to_owned()],
                env: [("A".to_owned(), "1".to_owned())].into(),
                cwd: Some("/".into()),
            }
        );
        assert!(entry.options().disabled);
    }
    let mark = "\u{feff}{\"servers\":{\"a\":{\"command\":\"x\"}}}";
    assert!(get(mark, "a").is_ok(), "with a byte order mark");
}

#[test]
fn one_that_is_wrong_takes_no_other_with_it_and_the_order_stays() {
    let servers = parse(
        r#"{"mcpServers": {"z": {"command": "x"}, "bad": {"command": 1}, "twice": {"command": "x"}, "twice": {}},
            "servers": {"remote": {"type": "http", "url": "https://x/mcp", "headers": {"A": "b"}}, "z": {}, "a": {"command": "x"}}}"#,
    );
    let servers = servers.expect("it has the form");
    let names: Vec<&str> = servers.entries().map(Entry::name).collect();
    assert_eq!(names, ["remote", "a"]);
    let bad: Vec<(&str, &str)> = servers.bad().collect();
    assert_eq!(
        bad,
        [
            (
                "z",
                "it is there twice, in `mcpServers` and in `servers`; remove one"
            ),
            ("bad", "`command` must be a string"),
            ("twice", "it is there twice; remove one"),
        ]
    );
}

#[test]
fn what_can_t_be_run_is_said_with_a_mend() {
    assert_eq!(
        why(r#"{"command": "@b"}"#),
        "`command` is the program to run"
    );
    assert!(why(r#"{"command": "x", "envFile": ".env"}"#).contains("put its variables into `env`"));
    assert_eq!(
        why(r#"{"command": "x", "args": [1]}"#),
        "`args` must be a list of strings"
    );
    assert_eq!(
        why("1"),
        "a server is an object, with a `command` or a `url`"
    );
    assert_eq!(why("{}"), "it has neither a `command` nor a `url`");
    assert_eq!(
        why(r#"{"command": "x", "url": "https://x"}"#),
        "it has a `command` and a `url`; remove one"
    );
    assert!(
        why(r#"{"type": "sse", "url": "https://x"}"#)
            .contains("write \"http\" and the `url` for that")
    );
    assert_eq!(
        why(r#"{"type": "tcp", "url": "x"}"#),
        "\"tcp\" is not a `type`; there are \"stdio\" and \"http\""
    );
    assert_eq!(
        why(r#"{"type": "http", "command": "x"}"#),
        "its `type` is \"http\", but it has no `url`"
    );
    assert_eq!(
        why(r#"{"url": "x.org"}"#),
        "`url` must begin with https:// or http://"
    );
    assert_eq!(
        why(r#"{"url": "https://x", "headers": {"a b": ""}}"#),
        "\"a b\" is not a name of a header"
    );
    assert_eq!(
        why(r#"{"command": "x", "calls": 0}"#),
        "`calls` must be a number from 1 to 4294967295"
    );
    assert_eq!(
        why(r#"{"command": "x", "only": "a"}"#),
        "`only` must be a list of strings"
    );
    assert_eq!(
        why(r#"{"command": "x", "shared": 1}"#),
        "`shared` must be true or false"
    );
    for (name, expected) in [
        ("fils", "; did you mean files?"),
        ("browser", "; there are: files, web"),
    ] {
        let unknown =
            get(r#"{"servers": {"files": {}, "web": {}}}"#, name).expect_err("it is not there");
        assert_eq!(
            unknown,
            format!("there is no server {name:?} in {PATH}{expected}")
        );
    }
}

#[test]
fn what_can_t_be_looked_up_is_named() {
    let why = |entry: &str| {
        let entry =
            get(&format!(r#"{{"servers": {{"a": {entry}}}}}"#), "a").expect("it is right so far");
        entry.resolve().expect_err("it can't be looked up")
    };
    assert!(
        why(r#"{"command": "x", "args": ["${input:key}"]}"#)
            .contains("${input:…} is not known here")
    );
    assert!(
        why(r#"{"command": "x", "env": {"K": "${env:MCP_NO_SUCH}"}}"#)
            .contains("${env:MCP_NO_SUCH} is not set")
    );
    assert!(
        why(r#"{"url": "https://x", "headers": {"K": "${file:gone}"}}"#)
            .contains("could not read /home/u/gone")
    );
    assert_eq!(
        why(r#"{"command": "x", "cwd": "work"}"#),
        "`cwd` is /home/u/work, which is not a directory"
    );
}

#[test]
fn options_of_ours_are_read_and_those_of_others_ignored() {
    let entry = get(
        r#"{"servers": {"a": {"command": "x", "alwaysAllow": ["y"], "timeout": 60, "cwd": null, "shared": true, "only": ["get_*"],
            "without": ["get_all"], "rename": {"get_it": "it"}, "lazy": "start", "calls": 3, "timeout_ms": 1500}}}"#,
        "a",
    );
    let entry = entry.expect("it is right");
    let options = entry.options();
    assert!(options.shared && options.lazy == Some(Waking::AtStart) && !options.disabled);
    assert_eq!(options.only.as_deref(), Some(&["get_*".to_owned()][..]));
    assert_eq!(options.without, ["get_all"]);
    assert_eq!(options.rename.get("get_it").map(String::as_str), Some("it"));
    assert_eq!(options.calls.map(std::num::NonZero::get), Some(3));
    assert_eq!(
        options.timeout,
        Some(std::time::Duration::from_millis(1500))
    );
}

#[test]
fn no_value_is_shown() {
    let servers = parse(
        r#"{"servers": {"a": {"command": "x", "args": ["secret"], "env": {"TOKEN": "secret"}}, "bad": {"command": "x", "env": {"K": ["secret"]}},
            "b": {"url": "https://me:secret@x.org:8/mcp?key=secret", "headers": {"Authorization": "secret"}}}}"#,
    );
    let shown = format!("{:?}", servers.expect("it has the form"));
    assert!(!shown.contains("secret"), "{shown}");
    for name in ["TOKEN", "Authorization", "https://x.org:8/mcp"] {
        assert!(shown.contains(name), "{shown}");
    }
}

#[test]
fn an_edit_is_what_was_added_removed_and_changed() {
    let old = parse(
        r#"{"servers": {"a": {"command": "x"}, "b": {"command": "x"}, "c": {"command": "${env:A}"}}}"#,
    );
    let new = parse(
        r#"{"mcpServers": {"d": {"command": "x"}, "c": {"command": "${env:A}"}, "a": {"command": "x", "lazy": true}}}"#,
    );
    let edit = Servers::changes(&old.expect("right"), &new.expect("right"));
    assert_eq!(
        edit,
        Edit {
            added: vec!["d".into()],
            removed: vec!["b".into()],
            changed: vec!["a".into()]
        }
    );
}
