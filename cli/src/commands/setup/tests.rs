use super::*;
use crate::hosts::edit::{Edit, edited};
use crate::hosts::entries::form;
use crate::hosts::tolerant;

/// The text with all its servers wrapped, and after that unwrapped again.
fn both(host: Host, text: &str) -> (String, String) {
    let edits = |how: &dyn Fn(&Form<'_>, &str) -> Vec<Edit>| {
        let tree = tree(host, text).expect("a file");
        let servers = servers(host, tree.as_ref()).expect("servers");
        servers
            .iter()
            .flat_map(|server| how(&form(host, server.entry).expect("an entry"), server.own))
            .collect::<Vec<_>>()
    };
    let wrapped = edited(
        text,
        edits(&|form, own| form.wrap(host, text, "/bin/mcp-sessiond", own)),
    );
    let made: Vec<_> = {
        let tree = tree(host, text).expect("a file");
        let servers = servers(host, tree.as_ref()).expect("servers");
        let made = |server: &Server<'_>| Wrapped {
            name: server.name.clone(),
            executable: "/bin/mcp-sessiond".to_owned(),
            has_made_arguments: matches!(
                form(host, server.entry),
                Ok(Form::Command {
                    arguments: None,
                    ..
                })
            ),
            listed: None,
            is_shared: false,
        };
        servers.iter().map(made).collect()
    };
    check(host, text, &wrapped, |name, entry| {
        if entry.get("url").is_none()
            && entry.get("serverUrl").is_none()
            && entry.get("dev").is_none()
        {
            let own = name.split(" (").next().unwrap_or_default();
            entries::expect_wrapped(host, entry, "/bin/mcp-sessiond", own);
        }
    })
    .expect("only commands have changed");
    let unwrapped = undo::unwrapped(host, &wrapped, text, (&made, &[])).expect("a file");
    (wrapped, unwrapped)
}

#[test]
fn the_command_moves_and_nothing_else() {
    let cases = [
        (
            Host::called("claude-desktop"),
            r#"{"mcpServers": {"a": {"command": "npx", "args": ["-y", "x"], "env": {"K": "v"}}}}"#,
            r#"{"mcpServers": {"a": {"command": "/bin/mcp-sessiond", "args": ["wrap", "--entry", "a", "--", "npx", "-y", "x"], "env": {"K": "v"}}}}"#,
        ),
        // Each argument on a line of its own, tabs, a comma at the end, a comment, and CRLF.
        (
            Host::called("vscode"),
            "{\r\n\t\"servers\": { // mine\r\n\t\t\"a\": {\r\n\t\t\t\"args\": [\r\n\t\t\t\t\"x\", /* y */\r\n\t\t\t],\r\n\t\t\t\"command\": \"n\\u0070x\",\r\n\t\t},\r\n\t},\r\n}\r\n",
            "{\r\n\t\"servers\": { // mine\r\n\t\t\"a\": {\r\n\t\t\t\"args\": [\r\n\t\t\t\t\"wrap\", \"--entry\", \"a\", \"--\", \"n\\u0070x\",\r\n\t\t\t\t\"x\", /* y */\r\n\t\t\t],\r\n\t\t\t\"command\": \"/bin/mcp-sessiond\",\r\n\t\t},\r\n\t},\r\n}\r\n",
        ),
        // No arguments: on one line, and on its own.
        (
            Host::called("cursor"),
            r#"{"mcpServers": {"a": {"command": "x"}, "b": {"command":"y","env":{}}, "c": {"command": "z", "args": [ ]}}}"#,
            r#"{"mcpServers": {"a": {"command": "/bin/mcp-sessiond", "args": ["wrap", "--entry", "a", "--", "x"]}, "b": {"command":"/bin/mcp-sessiond", "args": ["wrap", "--entry", "b", "--", "y"],"env":{}}, "c": {"command": "/bin/mcp-sessiond", "args": ["wrap", "--entry", "c", "--", "z" ]}}}"#,
        ),
        (
            Host::called("cursor"),
            "{\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"x\"\n    }\n  }\n}",
            "{\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"/bin/mcp-sessiond\",\n      \"args\": [\"wrap\", \"--entry\", \"a\", \"--\", \"x\"]\n    }\n  }\n}",
        ),
        (
            Host::called("opencode"),
            r#"{"mcp": {"a": {"type": "local", "command": ["npx", "x"]}, "b": {"type": "remote", "url": "https://x"}}}"#,
            r#"{"mcp": {"a": {"type": "local", "command": ["/bin/mcp-sessiond", "wrap", "--entry", "a", "--", "npx", "x"]}, "b": {"type": "remote", "url": "https://x"}}}"#,
        ),
        // A name that is no label of ours, and one that would be taken for an option.
        (
            Host::called("cursor"),
            r#"{"mcpServers": {"a\u001b": {"command": "x"}, "--take": {"command": "y"}}}"#,
            r#"{"mcpServers": {"a\u001b": {"command": "/bin/mcp-sessiond", "args": ["wrap", "--", "x"]}, "--take": {"command": "/bin/mcp-sessiond", "args": ["wrap", "--", "y"]}}}"#,
        ),
        // opencode 2, and an older file with a server of that name; OpenClaw.
        (
            Host::called("opencode"),
            r#"{"mcp": {"servers": {"a": {"type": "local", "command": ["x"], "disabled": false}}}}"#,
            r#"{"mcp": {"servers": {"a": {"type": "local", "command": ["/bin/mcp-sessiond", "wrap", "--entry", "a", "--", "x"], "disabled": false}}}}"#,
        ),
        (
            Host::called("opencode"),
            r#"{"mcp": {"servers": {"type": "local", "command": ["x"]}}}"#,
            r#"{"mcp": {"servers": {"type": "local", "command": ["/bin/mcp-sessiond", "wrap", "--entry", "servers", "--", "x"]}}}"#,
        ),
        (
            Host::called("openclaw"),
            r#"{"mcp": {"sessionIdleTtlMs": 1, "servers": {"a": {"command": "x"}}}, "gateway": {}}"#,
            r#"{"mcp": {"sessionIdleTtlMs": 1, "servers": {"a": {"command": "/bin/mcp-sessiond", "args": ["wrap", "--entry", "a", "--", "x"]}}}, "gateway": {}}"#,
        ),
        // Amp's name with a point in it, among its other settings; Antigravity's remote servers.
        (
            Host::called("amp"),
            r#"{"amp.showCosts": true, "amp.mcpServers": {"a": {"command": "x", "env": {"K": "${K}"}}}, "mcpServers": {"b": {"command": "y"}}}"#,
            r#"{"amp.showCosts": true, "amp.mcpServers": {"a": {"command": "/bin/mcp-sessiond", "args": ["wrap", "--entry", "a", "--", "x"], "env": {"K": "${K}"}}}, "mcpServers": {"b": {"command": "y"}}}"#,
        ),
        (
            Host::called("antigravity"),
            r#"{"mcpServers": {"a": {"serverUrl": "https://x", "command": "x"}, "b": {"command": "y", "disabled": false}}}"#,
            r#"{"mcpServers": {"a": {"serverUrl": "https://x", "command": "x"}, "b": {"command": "/bin/mcp-sessiond", "args": ["wrap", "--entry", "b", "--", "y"], "disabled": false}}}"#,
        ),
        // What VS Code watches or debugs.
        (
            Host::called("vscode"),
            r#"{"servers": {"a": {"command": "x", "dev": {"watch": "src/**"}}}}"#,
            r#"{"servers": {"a": {"command": "x", "dev": {"watch": "src/**"}}}}"#,
        ),
        // The value on a line of its own, and the servers of a single project.
        (
            Host::called("claude"),
            "{\"projects\": {\"/x\": {\"mcpServers\": {\"a\": {\"command\":\n  \"x\"}}}, \"/y\": {}}}",
            "{\"projects\": {\"/x\": {\"mcpServers\": {\"a\": {\"command\":\n  \"/bin/mcp-sessiond\",\n  \"args\": [\"wrap\", \"--entry\", \"a\", \"--\", \"x\"]}}}, \"/y\": {}}}",
        ),
        (
            Host::called("zed"),
            r#"{"context_servers": {"a": {"command": {"path": "x", "args": ["y"]}}}}"#,
            r#"{"context_servers": {"a": {"command": {"path": "/bin/mcp-sessiond", "args": ["wrap", "--entry", "a", "--", "x", "y"]}}}}"#,
        ),
        (
            Host::called("codex"),
            "# mine\n[mcp_servers.a]\ncommand = 'np\\x'  # so\nargs = [\n  \"-y\",\n]\n\n[mcp_servers.a.env]\nK = \"v\"\n\n[mcp_servers.b]\ncommand = \"y\"\n\n[other]\nx = 1\n",
            "# mine\n[mcp_servers.a]\ncommand = \"/bin/mcp-sessiond\"  # so\nargs = [\n  \"wrap\", \"--entry\", \"a\", \"--\", 'np\\x',\n  \"-y\",\n]\n\n[mcp_servers.a.env]\nK = \"v\"\n\n[mcp_servers.b]\ncommand = \"/bin/mcp-sessiond\"\nargs = [\"wrap\", \"--entry\", \"b\", \"--\", \"y\"]\n\n[other]\nx = 1\n",
        ),
        (
            Host::called("codex"),
            "mcp_servers.a.command = \"x\"\nmcp_servers.b = { command = \"y\", cwd = \"/\" }\n",
            "mcp_servers.a.command = \"/bin/mcp-sessiond\"\nmcp_servers.a.args = [\"wrap\", \"--entry\", \"a\", \"--\", \"x\"]\nmcp_servers.b = { command = \"/bin/mcp-sessiond\", args = [\"wrap\", \"--entry\", \"b\", \"--\", \"y\"], cwd = \"/\" }\n",
        ),
        // YAML: with and without brackets, quotes, comments, and no arguments.
        (
            Host::called("goose"),
            "extensions:\n  a: # mine\n    cmd: npx # so\n    args:\n    - -y\n    # between\n    - 'x y'\n    type: stdio\n  b:\n    type: stdio\n    args: [-y, x]\n    cmd: 'it''s'\n  c: {type: stdio, cmd: C,  args: []}\n  d:\n    cmd: y\n",
            "extensions:\n  a: # mine\n    cmd: \"/bin/mcp-sessiond\" # so\n    args:\n    - \"wrap\"\n    - \"--entry\"\n    - \"a\"\n    - \"--\"\n    - npx\n    - -y\n    # between\n    - 'x y'\n    type: stdio\n  b:\n    type: stdio\n    args: [\"wrap\", \"--entry\", \"b\", \"--\", 'it''s', -y, x]\n    cmd: \"/bin/mcp-sessiond\"\n  c: {type: stdio, cmd: \"/bin/mcp-sessiond\",  args: [\"wrap\", \"--entry\", \"c\", \"--\", C]}\n  d:\n    cmd: \"/bin/mcp-sessiond\"\n    args: [\"wrap\", \"--entry\", \"d\", \"--\", y]\n",
        ),
        (
            Host::called("goose"),
            "extensions:\r\n  a:\r\n    args:\r\n      - \"x\"\r\n    cmd: /a[b]c",
            "extensions:\r\n  a:\r\n    args:\r\n      - \"wrap\"\r\n      - \"--entry\"\r\n      - \"a\"\r\n      - \"--\"\r\n      - /a[b]c\r\n      - \"x\"\r\n    cmd: \"/bin/mcp-sessiond\"",
        ),
    ];
    for (host, text, expected) in cases {
        let (wrapped, unwrapped) = both(host, text);
        assert_eq!(wrapped, expected, "{host}");
        assert_eq!(unwrapped, text, "{host}");
        let tree = tree(host, &wrapped).expect("a file");
        for Server { name, entry, .. } in servers(host, tree.as_ref()).expect("servers") {
            let form = form(host, entry).expect("an entry");
            assert!(
                form.is_ours("/bin/mcp-sessiond") || matches!(form, Form::NotWrappable(_)),
                "{host} {name}"
            );
        }
    }
}

#[test]
fn who_is_wrapped_already_is_seen() {
    for (words, is_ours) in [
        (&["mcp-sessiond", "wrap", "--", "x"][..], true),
        (&["/opt/bin/mcp-sessiond", "wrap", "x"], true),
        (&["npx", "-y", "mcp-sessiond@1.2", "wrap", "--", "x"], true),
        (&["env", "A=1", "mcp-sessiond", "wrap", "x"], true),
        (
            &["npx", "server-filesystem", "/home/me/mcp-sessiond"],
            false,
        ),
        (&["/x/other", "wrap", "--", "x"], true),
        (&["mcp-session", "wrap"], false),
    ] {
        let text = serde_json::json!({"command": words[0], "args": &words[1..]}).to_string();
        let entry = crate::hosts::tree::json(&text, &tolerant())
            .expect("JSON")
            .expect("a value");
        assert_eq!(
            form(Host::called("cursor"), &entry)
                .expect("an entry")
                .is_ours("/x/other"),
            is_ours,
            "{words:?}"
        );
    }
}

#[test]
fn what_is_there_twice_is_refused() {
    for text in [
        r#"{"mcpServers": {}, "mcpServers": {"a": {"command": "x"}}}"#,
        r#"{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}"#,
        r#"{"mcpServers": {"a": {"command": "x", "command": "y"}}}"#,
    ] {
        let tree = tree(Host::called("claude"), text).expect("a file");
        let found = servers(Host::called("claude"), tree.as_ref()).and_then(|servers| {
            servers
                .iter()
                .try_for_each(|server| form(Host::called("claude"), server.entry).map(drop))
        });
        let why = found.expect_err(text);
        assert!(why.ends_with("twice in one place; remove one"), "{why}");
    }
}

#[test]
fn a_command_of_windows_stays_as_it_is() {
    for (command, is_windows) in [
        ("C:\\Program Files\\nodejs\\npx.cmd", true),
        ("d:/tools/server", true),
        ("cmd", true),
        ("cmd.exe", true),
        ("wsl.exe", true),
        ("/mnt/c/Windows/System32/wsl.exe", true),
        ("NPX.CMD", true),
        ("npx", false),
        ("/opt/cmd/server", false),
        ("c:server", false),
        ("executable", false),
    ] {
        for text in [
            serde_json::json!({"command": command, "args": ["/c", "npx"]}).to_string(),
            serde_json::json!({"command": [command, "/c", "npx"]}).to_string(),
        ] {
            let entry = crate::hosts::tree::json(&text, &tolerant())
                .expect("JSON")
                .expect("a value");
            let form = form(Host::called("cursor"), &entry).expect("an entry");
            let is_left = matches!(form, Form::NotWrappable(entries::WINDOWS));
            assert_eq!(is_left, is_windows, "{text}");
        }
    }
}

#[test]
fn servers_in_settings_are_named() {
    for (text, expected) in [
        (
            r#"{"mcp": {"servers": {"a": {"command": "x"}, "b": {}}}}"#,
            &["a", "b"][..],
        ),
        (r#"{"mcp.servers": {"a": {"command": "x"}}}"#, &["a"]),
        (
            r#"{"folders": [], "settings": {"mcp": {"servers": {"a": {}}}}}"#,
            &["a"],
        ),
        (
            r#"{"customizations": {"vscode": {"mcp": {"servers": {"a": {}}}}}}"#,
            &["a"],
        ),
        (r#"{"mcp": {"servers": null, "inputs": []}}"#, &[]),
        (r#"{"servers": {"a": {"command": "x"}}}"#, &[]),
    ] {
        let path = Path::new("/settings.json");
        let tree = tree(Host::called("vscode"), text).expect("a file");
        let lines = |host, only: &[&str]| {
            let only: Vec<String> = only.iter().map(ToString::to_string).collect();
            lines_in_settings(host, path, tree.as_ref(), &only).expect("a file")
        };
        let found = lines(Host::called("vscode"), &[]);
        let names: Vec<&str> = found.iter().map(|line| &*line.server).collect();
        assert_eq!(names, expected, "{text}");
        assert!(found.iter().all(|line| line.outcome == Outcome::Skipped));
        assert!(lines(Host::called("vscode"), &["c"]).is_empty());
        assert!(
            lines(Host::called("cursor"), &[]).is_empty(),
            "it is VS Code's alone"
        );
    }
}

#[test]
fn secrets_are_not_shown() {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    for (line, expected) in [
        ("npx -y @x/y --token s3cret", "npx -y @x/y …"),
        ("server", "server"),
        ("uvx mcp-server-git", "uvx mcp-server-git"),
        ("npx -y @x/y@latest", "npx -y @x/y@latest"),
        (
            "/usr/bin/node build/index.js",
            "/usr/bin/node build/index.js",
        ),
        ("notion-mcp s3cret", "notion-mcp …"),
        ("npx me:s3cret@x/y", "npx …"),
        ("https://me:s3cret@x", "…"),
        ("server --token s3cret", "server …"),
        ("server --token=s3cret", "server …"),
        ("docker run -e TOKEN=s3cret image", "docker run …"),
        ("npx https://me:s3cret@x/y.tgz", "npx …"),
        ("env TOKEN=s3cret server", "env …"),
    ] {
        assert_eq!(redacted_command(&words(line)), expected, "{line}");
    }
}

#[test]
fn what_was_edited_since_stays_when_it_is_taken_back() {
    let one = |has_made_arguments| Wrapped {
        name: "a".to_owned(),
        executable: "/bin/mcp-sessiond".to_owned(),
        has_made_arguments,
        listed: None,
        is_shared: false,
    };
    for (text, expected) in [
        // A field that somebody has put between the command and the arguments that we made.
        (
            r#"{"mcpServers": {"a": {"command": "/bin/mcp-sessiond", "env": {"K": "v"}, "args": ["wrap", "--", "x"]}}}"#,
            r#"{"mcpServers": {"a": {"command": "x", "env": {"K": "v"}, "args": []}}}"#,
        ),
        // A comma at the end, from a formatter.
        (
            r#"{"mcpServers": {"a": {"command": "/bin/mcp-sessiond", "cwd": "/", "args": ["wrap", "--", "x", ]}}}"#,
            r#"{"mcpServers": {"a": {"command": "x", "cwd": "/", "args": [ ]}}}"#,
        ),
        // An argument of their own.
        (
            r#"{"mcpServers": {"a": {"command": "/bin/mcp-sessiond", "args": ["wrap", "--", "x", "-v"]}}}"#,
            r#"{"mcpServers": {"a": {"command": "x", "args": ["-v"]}}}"#,
        ),
        // Another name.
        (
            r#"{"mcpServers": {"b": {"command": "/bin/mcp-sessiond", "args": ["wrap", "--", "x"]}}}"#,
            r#"{"mcpServers": {"b": {"command": "x"}}}"#,
        ),
        // Options of `wrap`: it is theirs now.
        (
            r#"{"mcpServers": {"a": {"command": "/bin/mcp-sessiond", "args": ["wrap", "--fresh", "--", "x"]}}}"#,
            r#"{"mcpServers": {"a": {"command": "/bin/mcp-sessiond", "args": ["wrap", "--fresh", "--", "x"]}}}"#,
        ),
    ] {
        let bare =
            undo::unwrapped(Host::called("cursor"), text, "{}", (&[one(true)], &[])).expect(text);
        assert_eq!(bare, expected);
    }
}

#[test]
fn what_goose_has_written_anew_is_taken_back() {
    let one = Wrapped {
        name: "a".to_owned(),
        executable: "/bin/mcp-sessiond".to_owned(),
        has_made_arguments: false,
        listed: None,
        is_shared: false,
    };
    for (arguments, expected) in [
        ("\n    - wrap\n    - --\n    - x", " []"),
        ("\n    - wrap\n    - --\n    - x\n    - -v", "\n    - -v"),
    ] {
        let text = |command: &str, arguments: &str| {
            format!("extensions:\n  a:\n    cmd: {command}\n    args:{arguments}\n    envs: {{}}\n")
        };
        let bare = undo::unwrapped(
            Host::called("goose"),
            &text("/bin/mcp-sessiond", arguments),
            "",
            (std::slice::from_ref(&one), &[]),
        );
        assert_eq!(bare.expect("a file"), text("x", expected));
    }
}

#[test]
fn an_executable_that_is_gone_is_replaced() {
    for (words, is_replaced) in [
        (&["/gone/mcp-sessiond", "wrap", "--", "x"][..], true),
        (&["mcp-sessiond", "wrap", "--", "x"], false),
        (&["npx", "-y", "mcp-sessiond@1.2", "wrap", "--", "x"], false),
    ] {
        for text in [
            serde_json::json!({"command": words[0], "args": &words[1..]}).to_string(),
            serde_json::json!({"command": words}).to_string(),
        ] {
            let entry = crate::hosts::tree::json(&text, &tolerant())
                .expect("JSON")
                .expect("a value");
            let edit = form(Host::called("cursor"), &entry)
                .expect("an entry")
                .renew("/bin/mcp-sessiond");
            assert_eq!(edit.is_some(), is_replaced, "{text}");
            let new = edited(&text, edit.into_iter().collect());
            assert_eq!(new, text.replace("/gone", "/bin"));
        }
    }
}
