use serde_json::json;

use super::*;

fn converted(host: Host, server: &Value) -> Result<Value, String> {
    convert::converted(host, server).map(Value::Object)
}

#[test]
fn each_host_s_form_becomes_ours() {
    let cases = [
        (
            Host::called("claude"),
            json!({"type": "stdio", "command": "x", "args": [], "env": {"K": "${K}"}}),
            json!({"command": "x", "env": {"K": "${env:K}"}}),
        ),
        (
            Host::called("codex"),
            json!({"command": "x", "enabled": false, "enabled_tools": ["a"]}),
            json!({"command": "x", "disabled": true, "only": ["a"]}),
        ),
        (
            Host::called("codex"),
            json!({"url": "https://x", "bearer_token_env_var": "T"}),
            json!({"type": "http", "url": "https://x", "headers": {"Authorization": "Bearer ${env:T}"}}),
        ),
        (
            Host::called("gemini"),
            json!({"httpUrl": "https://x", "excludeTools": ["b"]}),
            json!({"type": "http", "url": "https://x", "without": ["b"]}),
        ),
        // As `gemini mcp add --transport http` writes it.
        (
            Host::called("gemini"),
            json!({"url": "https://x", "type": "http"}),
            json!({"type": "http", "url": "https://x"}),
        ),
        (
            Host::called("opencode"),
            json!({"type": "local", "command": ["x", "-y"], "environment": {"K": "{env:K} {x}"}}),
            json!({"command": "x", "args": ["-y"], "env": {"K": "${env:K} {x}"}}),
        ),
        (
            Host::called("gemini"),
            json!({"command": "x", "args": ["$A-${B}$C_1", "$1 $ $$D ${"]}),
            json!({"command": "x", "args": ["${env:A}-${env:B}${env:C_1}", "$1 $ $${env:D} ${"]}),
        ),
        (
            Host::called("opencode"),
            json!({"command": ["x"], "environment": {"A": "{file:/a}", "B": "{file:~/b}", "C": "$C"}}),
            json!({"command": "x", "env": {"A": "${file:/a}", "B": "${file:~/b}", "C": "$C"}}),
        ),
        (
            Host::called("cursor"),
            json!({"command": "x", "cwd": "~/work", "tools": ["a"]}),
            json!({"command": "x", "cwd": "~/work"}),
        ),
        (
            Host::called("copilot"),
            json!({"command": "x", "tools": ["a"]}),
            json!({"command": "x", "only": ["a"]}),
        ),
        (
            Host::called("zed"),
            json!({"command": {"path": "x", "args": ["y"], "env": {"K": "1"}}}),
            json!({"command": "x", "args": ["y"], "env": {"K": "1"}}),
        ),
        (
            Host::called("windsurf"),
            json!({"serverUrl": "https://x"}),
            json!({"type": "http", "url": "https://x"}),
        ),
        (
            Host::called("copilot"),
            json!({"type": "local", "command": "x", "tools": ["*"]}),
            json!({"command": "x"}),
        ),
        (
            Host::called("cline"),
            json!({"command": "x", "disabled": true}),
            json!({"command": "x", "disabled": true}),
        ),
        (
            Host::called("cline"),
            json!({"url": "https://x", "transportType": "http"}),
            json!({"type": "http", "url": "https://x"}),
        ),
        (
            Host::called("gemini"),
            json!({"command": "x", "includeTools": ["a", "b(*)", "c(\"d\")"]}),
            json!({"command": "x", "only": ["a", "b", "c"]}),
        ),
        (
            Host::called("cursor"),
            json!({"command": "/usr/bin/mcp-sessiond", "args": ["wrap", "--name", "n", "x", "-y"]}),
            json!({"command": "x", "args": ["-y"]}),
        ),
    ];
    for (host, theirs, ours) in cases {
        assert_eq!(converted(host, &theirs), Ok(ours), "{host}: {theirs}");
    }
}

#[test]
fn what_would_not_be_the_same_server_is_refused() {
    for (host, server, why) in [
        (
            Host::called("gemini"),
            json!({"url": "https://x"}),
            "HTTP with SSE",
        ),
        (
            Host::called("roo"),
            json!({"type": "sse", "url": "https://x"}),
            "HTTP with SSE",
        ),
        (
            Host::called("cline"),
            json!({"transportType": "sse", "url": "https://x"}),
            "HTTP with SSE",
        ),
        (
            Host::called("cursor"),
            json!({"command": "C:\\secret\\npx.cmd"}),
            "for Windows",
        ),
        (
            Host::called("vscode"),
            json!({"command": "x", "args": ["${input:k}"]}),
            "${input:…}",
        ),
        (
            Host::called("vscode"),
            json!({"command": "x", "args": ["${workspaceFolder}"]}),
            "only the host knows",
        ),
        (
            Host::called("claude"),
            json!({"command": "x", "args": ["${K:-secret}"]}),
            "${K:-…}",
        ),
        (
            Host::called("cursor"),
            json!({"command": "mcp-sessiond", "args": ["wrap", "@a"]}),
            "it runs @a",
        ),
        (
            Host::called("cursor"),
            json!({"command": "mcp-sessiond", "args": ["wrap", "--all"]}),
            "it runs all servers",
        ),
        (
            Host::called("cursor"),
            json!({"command": "x", "args": [1]}),
            "must be strings",
        ),
        (
            Host::called("gemini"),
            json!({"command": "x", "args": ["${K:-secret}"]}),
            "${K:-…}",
        ),
        (
            Host::called("opencode"),
            json!({"command": ["x", "{file:./secret}"]}),
            "opencode's own file",
        ),
        (
            Host::called("vscode"),
            json!({"command": "x", "cwd": "secret"}),
            "its `cwd` depends on",
        ),
        (
            Host::called("vscode"),
            json!({"command": "x", "envFile": "./secret"}),
            "its `envFile` depends on",
        ),
        (
            Host::called("codex"),
            json!({"command": "x", "env_vars": ["K"]}),
            "`env_vars`",
        ),
        (
            Host::called("goose"),
            json!({"type": "stdio", "cmd": "x", "env_keys": ["K"]}),
            "`env_keys`",
        ),
        (
            Host::called("goose"),
            json!({"type": "sse", "uri": "https://x"}),
            "HTTP with SSE",
        ),
        (
            Host::called("goose"),
            json!({"type": "builtin", "name": "memory"}),
            "neither a command nor an address",
        ),
        (
            Host::called("goose"),
            Value::Null,
            "an anchor, an alias or a tag",
        ),
    ] {
        let said = converted(host, &server).expect_err("it is refused");
        assert!(said.contains(why) && !said.contains("secret"), "{said}");
    }
}

#[test]
fn what_looks_like_a_secret_is_named() {
    let entry = json!({"env": {"GITHUB_TOKEN": "x", "API_KEY": "x", "KEYBOARD": "x", "OTHER": "sk-x", "MY_TOKEN": "${keyring:a/b}", "PATH": "/"},
        "headers": {"Authorization": "x"}});
    let secrets = convert::secrets(entry.as_object().expect("an object"));
    assert_eq!(
        secrets,
        ["API_KEY", "GITHUB_TOKEN", "OTHER", "Authorization"]
    );
}

#[test]
fn a_file_is_replaced_only_where_it_says_what_it_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("servers.json");
    write::replace(&path, "", "one").expect("written");
    let error = write::replace(&path, "", "two").expect_err("it is there by now");
    assert!(error.to_string().contains("edited meanwhile"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).expect("a text"), "one");
    write::replace(&path, "one", "two").expect("written");
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&path, &link).expect("linked");
    write::replace(&link, "two", "three").expect("written");
    assert!(link.is_symlink() && std::fs::read_to_string(&path).expect("a text") == "three");
    std::fs::remove_file(&path).expect("removed");
    let error = write::replace(&link, "", "four").expect_err("it leads nowhere");
    assert!(
        error.to_string().contains("not there") && link.is_symlink(),
        "{error}"
    );
    assert_eq!(
        std::fs::read_dir(directory.path()).expect("a list").count(),
        1,
        "nothing is left"
    );
}

#[test]
fn what_only_the_host_knows_is_refused() {
    for text in [
        "${cwd}",
        "${file}",
        "${config:editor.fontSize}",
        "${execPath}",
        "${fileWorkspaceFolder}",
        "${workspaceFolder:root}/x",
        "${relativeFile}",
    ] {
        let server = json!({"command": "x", "args": [text]});
        let why = converted(Host::called("vscode"), &server).expect_err(text);
        assert!(why.contains("only the host knows"), "{text}: {why}");
    }
    let line =
        converted(Host::called("cursor"), &json!({"command": "npx -y x"})).expect_err("a line");
    assert!(line.contains("the arguments belong in `args`"), "{line}");
    let boxed = json!({"command": "x", "sandboxEnabled": true});
    let why = converted(Host::called("vscode"), &boxed).expect_err("a sandbox");
    assert!(why.contains("`sandboxEnabled`"), "{why}");
    // A shell's own variable is the server's.
    let server = json!({"command": "sh", "args": ["-c", "echo ${HOME}"]});
    assert_eq!(converted(Host::called("vscode"), &server), Ok(server));
}

#[test]
fn opencode_takes_the_variables_of_environment() {
    let server =
        json!({"type": "local", "command": ["x"], "env": {"A": "1"}, "environment": {"A": "2"}});
    assert_eq!(
        converted(Host::called("opencode"), &server),
        Ok(json!({"command": "x", "env": {"A": "2"}}))
    );
}

#[test]
fn a_name_that_is_there_twice_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("mcp.json");
    for text in [
        r#"{"mcpServers": {}, "mcpServers": {"a": {"command": "x"}}}"#,
        r#"{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}"#,
        r#"{"mcpServers": {"a": {"command": "x", "command": "y"}}}"#,
        r#"{"mcpServers": {"a": {"command": "x", "env": {"K": "1", "K": "2"}}}}"#,
    ] {
        std::fs::write(&path, text).expect("written");
        let error = Host::called("cursor")
            .read(&path)
            .expect_err(text)
            .to_string();
        assert!(
            error.ends_with("twice in one place; remove one"),
            "{text}: {error}"
        );
    }
    std::fs::write(&path, "").expect("written");
    assert_eq!(
        Host::called("cursor").read(&path).expect("a file"),
        Some(Vec::new())
    );
}

#[test]
fn what_gemini_has_switched_off_is_off() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("settings.json");
    let servers = r#""mcpServers": {"a": {"command": "x"}, "b": {"command": "x"}}"#;
    for (switches, host, off) in [
        (
            r#""mcp": {"allowed": ["a"]}, "#,
            Host::called("gemini"),
            &["b"][..],
        ),
        (
            r#""mcp": {"excluded": ["a"]}, "#,
            Host::called("qwen"),
            &["a"],
        ),
        (
            r#""mcp": {"allowed": ["a", "b"], "excluded": ["b"]}, "#,
            Host::called("gemini"),
            &["b"],
        ),
        (r#""mcp": {"allowed": []}, "#, Host::called("gemini"), &[]),
        (
            r#""mcp": {"serverCommand": "x"}, "#,
            Host::called("gemini"),
            &[],
        ),
        (
            r#""mcp": {"allowed": ["a"]}, "#,
            Host::called("cursor"),
            &[],
        ),
        ("", Host::called("gemini"), &[]),
    ] {
        std::fs::write(&path, format!("{{{switches}{servers}}}")).expect("written");
        let read = host.read(&path).expect("a file").expect("it is there");
        let found: Vec<&str> = read
            .iter()
            .filter(|(_, entry)| {
                let entry = convert::converted(host, entry).expect("an entry");
                entry.get("disabled") == Some(&Value::Bool(true))
            })
            .map(|(name, _)| &**name)
            .collect();
        assert_eq!(found, off, "{host}: {switches}");
    }
}
