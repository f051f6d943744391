//! The table of hosts: what each does to its servers decides what a claim of theirs gets.

use mcp_sessiond_process::CommandLine;
use mcp_sessiond_proto::{ClientName, Resume, Siblings};
use mcp_sessiond_registry::HostRule;
use serde::{Deserialize, Serialize};

/// A host, and what counts for claims of its servers.
///
/// It is known by `executable`, with an `argument` or not, or by `client`. A row with `client` can
/// only make the rule stricter: a client says its own name, and so must not get more by it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostRow {
    /// The file name of its executable, which may end in `*`, or its absolute path. Of an
    /// interpreted program, the interpreter's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executable: Option<String>,
    /// A part of the path of one of its first arguments: of an interpreted program, the name of its
    /// package or script; of a program with several modes, the mode (`acp`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argument: Option<String>,
    /// What the host calls itself: `clientInfo.name` of its first message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientName>,
    /// Which of several alike its servers get, unless they ask for something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub siblings: Option<Siblings>,
    /// Whether a server that is kept goes on serving the host's next connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<Resume>,
    /// The variable in which it names the conversation to its servers. A server that has it is
    /// resumed in the same conversation; `resume` counts for one that does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
}

impl HostRow {
    /// What is wrong with it, in a sentence.
    ///
    /// # Errors
    /// A row that matches nothing, or says nothing, or allows a resume by the client's word.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let says = self.siblings.is_some() || self.resume.is_some() || self.conversation.is_some();
        match (&self.executable, &self.client) {
            (None, None) => Err("a row needs `executable` or `client`"),
            (Some(_), Some(_)) => Err("a row has `executable` or `client`, and not both"),
            (None, _) if self.argument.is_some() => Err("`argument` needs `executable`"),
            (None, _) if self.siblings.is_some() || self.conversation.is_some() => {
                Err("a row with `client` has `resume`, and neither `siblings` nor `conversation`")
            }
            (None, _) if !matches!(self.resume, Some(Resume::Cut | Resume::Never)) => Err(
                "a row with `client` says `resume = \"cut\"` or `resume = \"never\"`: a client's own word can't allow more",
            ),
            _ if !says => Err("a row needs `siblings`, `resume` or `conversation`"),
            _ => Ok(()),
        }
    }

    fn fits(&self, host: &CommandLine) -> bool {
        let is_called = |name: &String| host.is_called(name);
        self.executable.as_ref().is_some_and(is_called)
            && self.argument.as_deref().is_none_or(|part| host.runs(part))
    }

    /// What it says about resuming a server that was given these variables, if it says anything.
    fn resume(&self, gives: &impl Fn(&str) -> bool) -> Option<Resume> {
        let row = Row {
            siblings: self.siblings,
            resume: self.resume,
            conversation: self.conversation.as_deref(),
        };
        row.resume(gives)
    }
}

/// What is said of a host.
#[derive(Debug, Clone, Copy)]
struct Row<'a> {
    siblings: Option<Siblings>,
    resume: Option<Resume>,
    conversation: Option<&'a str>,
}

impl Row<'_> {
    fn resume(&self, gives: &impl Fn(&str) -> bool) -> Option<Resume> {
        match self.conversation {
            // What is never kept is not kept in a conversation, either.
            Some(name) if self.resume != Some(Resume::Never) && gives(name) => Some(Resume::Always),
            Some(_) => self.resume.or(Some(Resume::Cut)),
            None if self.siblings == Some(Siblings::Never) => Some(Resume::Never),
            None => self.resume,
        }
    }
}

/// How a host of the built-in table is recognised.
#[derive(Debug, Clone, Copy)]
enum Program {
    /// By its executable: a file name, which may end in `*`, or the last parts of its path.
    Named(&'static str),
    /// By the script, module or package that an interpreter runs: the last part of an argument's
    /// path, or several parts that follow each other anywhere in it.
    Script(&'static str),
}

/// How it is known what a host does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Evidence {
    /// It was run.
    Run,
    /// Its source or its documentation was read, or somebody else's account of a run.
    Read,
}
use Evidence::{Read, Run};
use Program::{Named, Script};

/// A host of the built-in table.
#[derive(Debug, Clone, Copy)]
struct Known {
    host: &'static str,
    programs: &'static [Program],
    /// Words, one of which its arguments must have: a program may have several modes.
    mode: &'static [&'static str],
    row: Row<'static>,
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "the pages are compared with it")
    )]
    evidence: Evidence,
}

const fn host(
    host: &'static str,
    programs: &'static [Program],
    resume: Resume,
    evidence: Evidence,
) -> Known {
    let row = Row {
        siblings: None,
        resume: Some(resume),
        conversation: None,
    };
    Known {
        host,
        programs,
        mode: &[],
        row,
        evidence,
    }
}

impl Known {
    const fn mode(self, mode: &'static [&'static str]) -> Self {
        Self { mode, ..self }
    }

    const fn conversation(self, variable: &'static str) -> Self {
        let row = Row {
            conversation: Some(variable),
            ..self.row
        };
        Self { row, ..self }
    }

    const fn siblings(self, siblings: Siblings) -> Self {
        let row = Row {
            siblings: Some(siblings),
            ..self.row
        };
        Self { row, ..self }
    }

    fn fits(&self, host: &CommandLine) -> bool {
        let is_interpreter = || INTERPRETERS.iter().any(|name| host.is_called(name));
        let is = |program: &Program| match program {
            Named(name) => host.is_called(name) || host.is_at(name),
            Script(script) => is_interpreter() && host.runs_script(script),
        };
        self.programs.iter().any(is)
            && (self.mode.is_empty() || self.mode.iter().any(|word| host.has_argument(word)))
    }
}

/// What people call a host: `Claude Code`. None: it is not in the built-in table. A mode of a host
/// that has a row of its own goes by the host's name.
pub fn host_title(host: &CommandLine) -> Option<&'static str> {
    let known = HOSTS.iter().find(|known| known.fits(host))?;
    Some(known.host.split(',').next().unwrap_or(known.host))
}

const INTERPRETERS: [&str; 5] = ["node", "nodejs", "bun", "python*", "deno"];

/// Every host that `setup` knows, every host of `docs/hosts.md`, and programs that serve several
/// clients from one process. Where several fit, the strictest counts.
///
/// `Always` is for a host that is known to start one server for the whole process, whatever
/// conversations share it. `Cut` with a row is what an unknown host gets: it says that somebody has
/// looked, and found no reason for more.
const HOSTS: &[Known] = &[
    // The variable changes at `/clear`, and is the same after `--resume`.
    host(
        "Claude Code",
        &[
            Named("claude"),
            // npm's package, on Linux and macOS, too.
            Named("claude.exe"),
            Named("claude/versions/*"),
            Script("claude"),
            Script("@anthropic-ai/claude-code"),
        ],
        Resume::Cut,
        Run,
    )
    .conversation("CLAUDE_CODE_SESSION_ID"),
    // It starts each server twice from one process, for its chat and for its agent panel, and
    // closes one before it starts it again. Its two clients were imitated.
    host(
        "Claude Desktop",
        &[Named("Claude"), Named("claude-desktop")],
        Resume::Always,
        Read,
    )
    .siblings(Siblings::Successor),
    // The extension host starts a server at its first use, for all chats.
    host(
        "VS Code",
        &[
            Named("code"),
            Named("code-insiders"),
            Named("codium"),
            Named("Code Helper*"),
            Named("Code - Insiders Helper*"),
            Script("extensionHostProcess.js"),
            // On the machine that a remote window works on.
            Script("bootstrap-fork"),
        ],
        Resume::Always,
        Read,
    ),
    // It starts each server twice, and which of them stays is not known.
    host(
        "Cursor",
        &[Named("cursor"), Named("Cursor"), Named("Cursor Helper*")],
        Resume::Cut,
        Read,
    ),
    // One process has all threads, each with servers of its own. ChatGPT's desktop app uses it.
    host(
        "Codex",
        &[Named("codex"), Named("codex-*")],
        Resume::Never,
        Run,
    ),
    host(
        "Gemini CLI",
        &[Script("gemini"), Script("@google/gemini-cli")],
        Resume::Always,
        Run,
    ),
    host(
        "Gemini CLI, ACP",
        &[Script("gemini"), Script("@google/gemini-cli")],
        Resume::Never,
        Run,
    )
    .mode(&["--acp", "--experimental-acp"]),
    // In ACP, too, all its sessions share one server.
    host(
        "Qwen Code",
        &[Script("qwen"), Script("@qwen-code/qwen-code")],
        Resume::Always,
        Run,
    ),
    // All sessions of a directory share its servers.
    host("opencode", &[Named("opencode")], Resume::Always, Run),
    host("opencode, ACP", &[Named("opencode")], Resume::Cut, Run).mode(&["acp"]),
    host(
        "Zed",
        &[Named("zed"), Named("zed-editor")],
        Resume::Cut,
        Read,
    ),
    // A hub in the background starts a server for each conversation, and closes it.
    host(
        "Cline",
        &[Named("cline"), Script("cline")],
        Resume::Never,
        Run,
    ),
    host(
        "Windsurf",
        &[
            Named("windsurf"),
            Named("Windsurf"),
            Named("Windsurf Helper*"),
        ],
        Resume::Cut,
        Read,
    ),
    host(
        "Copilot CLI",
        &[
            Named("copilot"),
            Script("copilot"),
            Script("@github/copilot"),
        ],
        Resume::Cut,
        Run,
    )
    .conversation("COPILOT_AGENT_SESSION_ID"),
    host("Goose", &[Named("goose")], Resume::Cut, Read),
    // The desktop application serves all conversations from one process.
    host(
        "Goose's desktop application",
        &[Named("goosed")],
        Resume::Never,
        Read,
    ),
    host(
        "Kiro",
        &[Named("kiro"), Named("kiro-cli"), Named("Kiro Helper*")],
        Resume::Cut,
        Read,
    ),
    host("Kimi", &[Named("kimi"), Script("kimi")], Resume::Cut, Read),
    // Its gateway serves the conversations of all channels from one process.
    host(
        "OpenClaw",
        &[Named("openclaw"), Script("openclaw"), Script("openclaw/*")],
        Resume::Never,
        Read,
    ),
    host(
        "Continue CLI",
        &[Script("cn"), Script("@continuedev/cli")],
        Resume::Always,
        Run,
    ),
    // One process has all sessions of the editor, each with servers of its own.
    host(
        "Mistral Vibe, ACP",
        &[Named("vibe-acp"), Script("vibe-acp")],
        Resume::Never,
        Run,
    ),
    host(
        "MCP Inspector",
        &[
            Script("mcp-inspector"),
            Script("@modelcontextprotocol/inspector"),
        ],
        Resume::Always,
        Run,
    ),
    host("mcporter", &[Script("mcporter")], Resume::Always, Run),
    // They serve several clients from one process, and don't say which to their servers.
    host(
        "supergateway",
        &[Script("supergateway"), Script("supergateway/*")],
        Resume::Never,
        Run,
    ),
    host(
        "mcp-proxy",
        &[
            Script("mcp-proxy"),
            Script("mcp_proxy"),
            Script("mcp-proxy/*"),
            Script("mcp_proxy/*"),
        ],
        Resume::Never,
        Run,
    ),
    host(
        "MCPHub",
        &[Script("mcphub"), Script("mcphub/*")],
        Resume::Never,
        Read,
    ),
    host(
        "MetaMCP",
        &[Script("metamcp"), Script("metamcp/*")],
        Resume::Never,
        Read,
    ),
    host(
        "LibreChat",
        &[
            Script("librechat/*"),
            Script("LibreChat/*"),
            Script("@librechat/*"),
        ],
        Resume::Never,
        Read,
    ),
    host(
        "Docker's gateway",
        &[Named("docker-mcp")],
        Resume::Never,
        Read,
    ),
];

/// Names of clients that make the rule stricter, in whatever host. `mcp` is the default name of the
/// Python SDK: libraries in web backends start a server for each call, for different users (run:
/// LangChain, LlamaIndex).
const CLIENTS: &[(&str, Resume)] = &[
    ("mcp", Resume::Never),
    ("Cline", Resume::Never),
    ("@cline/core", Resume::Never),
    ("Roo Code", Resume::Cut),
];

/// What counts for a host: what the configuration says, else the built-in table. `gives` says
/// whether the server was given a variable, and something in it.
pub(super) fn rule_of(
    configured: &[HostRow],
    host: &CommandLine,
    gives: &impl Fn(&str) -> bool,
) -> (Option<Siblings>, HostRule) {
    let rows = || configured.iter().filter(|row| row.fits(host));
    let known = || HOSTS.iter().filter(|known| known.fits(host));
    let of_users = rows().filter_map(|row| row.resume(gives)).min();
    let of_table = known().filter_map(|known| known.row.resume(gives)).min();
    let never = (of_table == Some(Resume::Never)).then_some(Siblings::Never);
    let siblings = rows()
        .find_map(|row| row.siblings)
        // A row that allows a resume does so for a server with the library as well.
        .or_else(|| (of_users == Some(Resume::Never)).then_some(Siblings::Never))
        .or_else(|| if of_users.is_some() { None } else { never })
        .or_else(|| known().find_map(|known| known.row.siblings));
    let rule = HostRule {
        resume: of_users.or(of_table).unwrap_or(Resume::Cut),
        is_users: of_users.is_some(),
    };
    (siblings, rule)
}

/// What the name of a client makes of its host's rule: the same, or a stricter one.
pub(super) fn narrowed(
    configured: &[HostRow],
    of_host: HostRule,
    client: Option<&ClientName>,
) -> Resume {
    let Some(client) = client else {
        return of_host.resume;
    };
    let rows = configured
        .iter()
        .filter(|row| row.client.as_ref() == Some(client));
    let of_users = rows.filter_map(|row| row.resume).min();
    let of_table = CLIENTS
        .iter()
        .filter(|(name, _)| !of_host.is_users && *name == client.as_str())
        .map(|(_, resume)| *resume)
        .min();
    of_users
        .or(of_table)
        .map_or(of_host.resume, |resume| resume.min(of_host.resume))
}

/// The variables in which hosts name the conversation, as far as the configuration says.
pub(super) fn conversation_variables(configured: &[HostRow]) -> impl Iterator<Item = String> {
    configured.iter().filter_map(|row| row.conversation.clone())
}

#[cfg(test)]
mod tests {
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
            Resume::Always,
        ),
        (
            "Claude Code",
            "/home/u/.local/share/claude/versions/2.1.332",
            "CLAUDE_CODE_SESSION_ID",
            Resume::Always,
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
            "",
            Resume::Always,
        ),
        ("opencode", "/usr/bin/opencode serve", "", Resume::Always),
        ("opencode, ACP", "/usr/bin/opencode acp", "", Resume::Cut),
        ("Zed", "/usr/libexec/zed-editor", "", Resume::Cut),
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
            Resume::Always,
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
            let fits = |known: &&Known| known.host == *name && known.fits(&host(line));
            assert!(HOSTS.iter().any(|known| fits(&known)), "{name}: {line}");
            assert_eq!(resume(line, &[variable]), *wanted, "{name}: {line}");
        }
        for known in HOSTS {
            assert!(
                LINES.iter().any(|(name, ..)| *name == known.host),
                "{}: there is no command line",
                known.host
            );
        }
    }

    #[test]
    fn the_page_says_of_each_host_how_that_is_known() {
        let page = include_str!("../../../docs/sessions.md");
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).collect();
        for known in HOSTS {
            let (name, _) = known.host.split_once(',').unwrap_or((known.host, ""));
            let evidence = match known.evidence {
                Run => "| run |",
                Read => "| read",
            };
            let says = |line: &&&str| line.contains(name) && line.contains(evidence);
            assert!(rows.iter().find(says).is_some(), "{name}: {evidence}");
        }
    }

    #[test]
    fn an_unknown_host_is_resumed_after_a_cut_only() {
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
            assert_eq!(resume(line, &given), Resume::Cut, "{line}");
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
        assert_eq!((rule(&["CHAT"]), rule(&[])), (Resume::Always, Resume::Cut));
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
}
