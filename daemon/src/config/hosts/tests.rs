//! The table of hosts against command lines, and against its page.

use super::known::Evidence;
use super::*;

/// A host by its command line: the path of its executable, and its arguments.
fn host(line: &str) -> CommandLine {
    let mut words = line.split(' ').map(str::to_owned);
    let executable = words.next().expect("an executable");
    let arguments = std::iter::once(executable.clone()).chain(words);
    CommandLine::new(executable, arguments.collect())
}

fn of(rows: &[HostRow], line: &str, variables: &[&str]) -> (Option<Siblings>, HostRule) {
    rule_of(rows, &host(line), &|name| variables.contains(&name))
}

fn resume(line: &str, variables: &[&str]) -> Resume {
    of(&[], line, variables).1.resume
}

fn siblings(line: &str) -> Option<Siblings> {
    of(&[], line, &[]).0
}

fn row(executable: &str, argument: Option<&str>) -> HostRow {
    HostRow {
        executable: Some(executable.into()),
        argument: argument.map(str::to_owned),
        ..HostRow::default()
    }
}

#[test]
fn what_is_known_of_hosts() {
    assert_eq!(
        siblings("/Applications/Claude.app/Contents/MacOS/Claude"),
        Some(Siblings::Successor)
    );
    assert_eq!(siblings("/usr/bin/claude"), None);
    let codex = "/opt/codex-x86_64-unknown-linux-musl app-server";
    assert_eq!(siblings(codex), Some(Siblings::Never));
    let gateway = "/usr/bin/node /home/u/.npm/_npx/1/node_modules/.bin/supergateway --stdio x";
    assert_eq!(siblings(gateway), Some(Siblings::Never));
    assert_eq!(
        siblings("/usr/bin/python3.11 -m mcp_proxy"),
        Some(Siblings::Never)
    );
    assert_eq!(
        siblings("/usr/bin/node /srv/my-supergateway-notes.js"),
        None
    );
    assert_eq!(siblings("/usr/bin/cat supergateway"), None);
}

/// One command line of each host of the table, a variable that it gives, and what its servers
/// get.
const LINES: &[(&str, &str, &str, Resume)] = &[
    (
        "Claude Code",
        "/usr/bin/claude",
        "CLAUDE_CODE_SESSION_ID",
        Resume::Conversation,
    ),
    (
        "Claude Code",
        "/usr/lib/node_modules/@anthropic-ai/claude-code/bin/claude.exe",
        "CLAUDE_CODE_SESSION_ID",
        Resume::Conversation,
    ),
    (
        "Claude Code",
        "/home/u/.local/share/claude/versions/2.1.332",
        "CLAUDE_CODE_SESSION_ID",
        Resume::Conversation,
    ),
    (
        "Claude Code",
        "/usr/bin/node /n/node_modules/@anthropic-ai/claude-code/cli.js",
        "",
        Resume::Cut,
    ),
    (
        "Claude Desktop",
        "/opt/Claude/claude-desktop",
        "",
        Resume::Always,
    ),
    (
        "VS Code",
        "/usr/share/code/code --type=utility",
        "",
        Resume::Always,
    ),
    ("Cursor", "/opt/cursor/cursor", "", Resume::Cut),
    ("Codex", "/usr/bin/codex app-server", "", Resume::Never),
    (
        "Gemini CLI",
        "/usr/bin/node /usr/bin/gemini",
        "",
        Resume::Always,
    ),
    (
        "Gemini CLI, ACP",
        "/usr/bin/node /n/node_modules/@google/gemini-cli/dist/index.js --acp",
        "",
        Resume::Never,
    ),
    (
        "Qwen Code",
        "/usr/bin/node --max-old-space-size=9 /usr/bin/qwen --acp",
        "QWEN_CODE_SESSION_ID",
        Resume::Conversation,
    ),
    ("opencode", "/usr/bin/opencode serve", "", Resume::Always),
    (
        "opencode",
        "/usr/lib/node_modules/opencode-ai/bin/opencode.exe serve",
        "",
        Resume::Always,
    ),
    ("opencode, ACP", "/usr/bin/opencode acp", "", Resume::Cut),
    ("Zed", "/usr/libexec/zed-editor", "", Resume::Unknown),
    (
        "Cline",
        "/usr/bin/cline --cline-hub-daemon",
        "",
        Resume::Never,
    ),
    ("Windsurf", "/usr/share/windsurf/windsurf", "", Resume::Cut),
    (
        "Copilot CLI",
        "/usr/bin/node /n/node_modules/@github/copilot/index.js",
        "COPILOT_AGENT_SESSION_ID",
        Resume::Conversation,
    ),
    ("Goose", "/usr/bin/goose session", "", Resume::Cut),
    (
        "Goose's desktop application",
        "/opt/goose/goosed agent",
        "",
        Resume::Never,
    ),
    ("Kiro", "/usr/share/kiro/kiro", "", Resume::Cut),
    ("Kimi", "/home/u/.local/bin/kimi", "", Resume::Cut),
    (
        "OpenClaw",
        "/usr/bin/node /usr/bin/openclaw gateway",
        "",
        Resume::Never,
    ),
    (
        "Antigravity",
        "/usr/share/antigravity/resources/app/extensions/antigravity/bin/language_server_linux_x64 --enable_lsp",
        "",
        Resume::Cut,
    ),
    ("Antigravity", "/home/u/.local/bin/agy", "", Resume::Cut),
    (
        "Amp",
        "/usr/bin/node /n/node_modules/@sourcegraph/amp/dist/main.js",
        "",
        Resume::Cut,
    ),
    (
        "Junie",
        "/home/u/.local/share/junie/versions/1.0/junie/bin/junie",
        "",
        Resume::Cut,
    ),
    (
        "Continue CLI",
        "/usr/bin/node /usr/bin/cn",
        "",
        Resume::Always,
    ),
    (
        "Mistral Vibe, ACP",
        "/usr/bin/python3.12 /home/u/.local/bin/vibe-acp",
        "",
        Resume::Never,
    ),
    (
        "MCP Inspector",
        "/usr/bin/node /n/node_modules/.bin/mcp-inspector --cli",
        "",
        Resume::Always,
    ),
    (
        "mcporter",
        "/usr/bin/node /usr/bin/mcporter call",
        "",
        Resume::Always,
    ),
    (
        "supergateway",
        "/usr/bin/node /usr/bin/supergateway",
        "",
        Resume::Never,
    ),
    (
        "mcp-proxy",
        "/usr/bin/python3 /usr/bin/mcp-proxy --port 1",
        "",
        Resume::Never,
    ),
    (
        "MCPHub",
        "/usr/bin/node /srv/mcphub/dist/index.js",
        "",
        Resume::Never,
    ),
    (
        "MetaMCP",
        "/usr/bin/node /srv/metamcp/index.js",
        "",
        Resume::Never,
    ),
    (
        "LibreChat",
        "/usr/bin/node /srv/LibreChat/api/server/index.js",
        "",
        Resume::Never,
    ),
    (
        "Docker's gateway",
        "/usr/lib/docker-mcp gateway run",
        "",
        Resume::Never,
    ),
];

#[test]
fn every_host_of_the_table_is_found_by_its_command_line() {
    for (name, line, variable, wanted) in LINES {
        let fits = |known: &KnownHost| known.whole_title() == *name && known.fits(&host(line));
        assert!(known_hosts().any(fits), "{name}: {line}");
        assert_eq!(resume(line, &[variable]), *wanted, "{name}: {line}");
    }
    for known in known_hosts().filter(|known| known.has_programs()) {
        let name = known.whole_title();
        let is_there = LINES.iter().any(|(of, ..)| *of == name);
        assert!(is_there, "{name}: there is no command line");
    }
}

/// A mode, or another program of a host, reads the host's file.
#[test]
fn what_reads_another_host_s_file_finds_it() {
    for (line, name) in [
        ("/usr/bin/node /usr/bin/gemini --acp", "gemini"),
        ("/usr/bin/opencode acp", "opencode"),
        ("/opt/goose/goosed agent", "goose"),
    ] {
        let known = known_host(&host(line)).expect("a row");
        assert_eq!(known.reads().map(|file| &*file.name), Some(name), "{line}");
    }
    let mut unread = known_hosts().filter(|known| known.reads_in_vain());
    assert!(unread.next().is_none(), "each `reads` names a row");
}

#[test]
fn the_page_says_of_each_host_how_that_is_known() {
    let page = include_str!("../../../../docs/hosts.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).collect();
    for known in known_hosts() {
        let name = known.title();
        let evidence = match known.evidence {
            Evidence::Run => "| run |",
            Evidence::Read => "| read",
        };
        let says = |line: &&&str| line.contains(name) && line.contains(evidence);
        assert!(rows.iter().find(says).is_some(), "{name}: {evidence}");
    }
}

#[test]
fn of_a_host_without_a_row_nothing_is_known() {
    for line in [
        "/usr/bin/python3 app.py",
        "/usr/bin/node server.js",
        "/bin/unheard-of",
        // A path that only has the name somewhere, and a program of its own.
        "/usr/bin/node /home/claude/server.js",
        "/home/gemini/bin/app",
        "/usr/bin/python3 /srv/app.py gemini-notes",
    ] {
        // Another host's variable, which a host hands on to whatever it starts.
        let given = ["CLAUDE_CODE_SESSION_ID", "COPILOT_AGENT_SESSION_ID"];
        assert_eq!(resume(line, &given), Resume::Unknown, "{line}");
    }
}

#[test]
fn a_host_that_has_renamed_its_process_is_found_by_that_name() {
    let titled = |executable: &str, title: &str, rest: &[&str]| {
        let arguments = std::iter::once(title).chain(rest.iter().copied());
        let line = CommandLine::new(executable, arguments.map(str::to_owned).collect());
        rule_of(&[], &line, &|_| false).1.resume
    };
    // What is left of the former arguments is empty.
    assert_eq!(titled("/usr/bin/node", "kimi-code", &["", ""]), Resume::Cut);
    assert_eq!(titled("/usr/bin/node", "kimi-code    ", &[]), Resume::Cut);
    for (executable, title, rest) in [
        ("/usr/bin/node", "kimi-code", &["server.js"][..]),
        ("/usr/bin/node", "kimi-code-helper", &[""]),
        ("/usr/bin/cat", "kimi-code", &[]),
    ] {
        let resume = titled(executable, title, rest);
        assert_eq!(resume, Resume::Unknown, "{executable} {title} {rest:?}");
    }
}

#[test]
fn the_configuration_comes_first_and_the_strictest_row_counts() {
    let only_siblings = HostRow {
        siblings: Some(Siblings::Fresh),
        ..row("codex", Some("exec"))
    };
    let rows = [only_siblings];
    // Which of several is another question than whether there is one.
    let exec = of(&rows, "/bin/codex exec", &[]);
    assert_eq!(
        (exec.0, exec.1.resume),
        (Some(Siblings::Fresh), Resume::Never)
    );
    let server = of(&rows, "/bin/codex app-server", &[]);
    assert_eq!(server.0, Some(Siblings::Never));
    let says = |resume, argument| HostRow {
        resume: Some(resume),
        ..row("codex", argument)
    };
    let rows = [
        says(Resume::Always, None),
        says(Resume::Cut, Some("app-server")),
    ];
    let rule = |line| of(&rows, line, &[]).1;
    assert_eq!(rule("/bin/codex exec").resume, Resume::Always);
    assert_eq!(rule("/bin/codex app-server").resume, Resume::Cut);
    assert!(rule("/bin/codex exec").is_users && !rule("/bin/cat").is_users);
    // `siblings = "never"` means that nothing is resumed.
    let never = HostRow {
        siblings: Some(Siblings::Never),
        ..row("app", None)
    };
    assert_eq!(of(&[never], "/bin/app", &[]).1.resume, Resume::Never);
}

#[test]
fn a_row_of_the_configuration_may_name_the_conversations_variable() {
    let rows = [HostRow {
        conversation: Some("CHAT".into()),
        ..row("app", None)
    }];
    let rule = |variables: &[&str]| of(&rows, "/bin/app", variables).1.resume;
    let wanted = (Resume::Conversation, Resume::Cut);
    assert_eq!((rule(&["CHAT"]), rule(&[])), wanted);
    assert_eq!(conversation_variables(&rows).collect::<Vec<_>>(), ["CHAT"]);
}

#[test]
fn a_clients_name_only_makes_the_rule_stricter() {
    let client = |name: &str| Some(name.parse::<ClientName>().expect("a name"));
    let of_host = |resume, is_users| HostRule { resume, is_users };
    let name = |rule, name| narrowed(&[], rule, client(name).as_ref());
    for resume in Resume::ALL {
        assert_eq!(name(of_host(resume, false), "mcp"), Resume::Never);
        assert_eq!(name(of_host(resume, false), "another"), resume);
        // The user has said what the host is, whatever its client library is called.
        assert_eq!(name(of_host(resume, true), "mcp"), resume);
        let rows = [HostRow {
            client: client("mine"),
            resume: Some(Resume::Cut),
            ..HostRow::default()
        }];
        let mine = narrowed(&rows, of_host(resume, true), client("mine").as_ref());
        assert_eq!(mine, resume.min(Resume::Cut));
    }
}

#[test]
fn a_row_that_says_nothing_or_too_much_is_refused() {
    let client = |resume| HostRow {
        client: Some("mcp".parse().expect("a name")),
        resume,
        ..HostRow::default()
    };
    let says = HostRow {
        resume: Some(Resume::Always),
        ..HostRow::default()
    };
    assert!(client(Some(Resume::Never)).check().is_ok());
    for (row, why) in [
        (says, "needs `executable` or `client`"),
        (row("app", None), "needs `siblings`, `resume` or"),
        (client(Some(Resume::Always)), "can't allow more"),
        (client(None), "can't allow more"),
        (
            HostRow {
                resume: Some(Resume::Unknown),
                ..row("app", None)
            },
            "`always`, `cut` or `never`",
        ),
        (
            HostRow {
                executable: Some("app".into()),
                ..client(Some(Resume::Never))
            },
            "not both",
        ),
    ] {
        assert!(
            row.check().is_err_and(|error| error.contains(why)),
            "{row:?}"
        );
    }
}
