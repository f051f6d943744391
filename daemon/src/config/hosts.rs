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
    /// resumed in the same conversation: after a cut, and where the host reconnects at once after a
    /// close. `resume` counts for one that does not have it, or has it from the host's own start.
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
        if self
            .resume
            .is_some_and(|resume| !Resume::CHOICES.contains(&resume))
        {
            return Err("`resume` is `always`, `cut` or `never`");
        }
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
            Some(name) if self.resume != Some(Resume::Never) && gives(name) => {
                Some(Resume::Conversation)
            }
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
    /// By the name that a script has given its process, in the place of its arguments.
    Titled(&'static str),
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
use Program::{Named, Script, Titled};

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
            Titled(title) => is_interpreter() && host.is_titled(title),
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
/// conversations share it; `Cut` for one that was seen or read to start a killed server again.
/// `Unknown` is what a host without a row gets: a row with it says that somebody has looked.
const HOSTS: &[Known] = &[
    // The variable changes at `/clear`, and is the same after `--resume`.
    host(
        "Claude Code",
        &[
            Named("claude"),
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
    // In ACP, too, all its sessions share one server, which names the first. A subagent's own servers
    // are closed at its end.
    host(
        "Qwen Code",
        &[Script("qwen"), Script("@qwen-code/qwen-code")],
        Resume::Cut,
        Run,
    )
    .conversation("QWEN_CODE_SESSION_ID"),
    // All sessions of a directory share its servers.
    host("opencode", &[Named("opencode")], Resume::Always, Run),
    host("opencode, ACP", &[Named("opencode")], Resume::Cut, Run).mode(&["acp"]),
    // It kills each server that it ends, whatever the reason.
    host(
        "Zed",
        &[Named("zed"), Named("zed-editor")],
        Resume::Unknown,
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
    // It renames its process. In ACP, too, all its sessions share one server.
    host(
        "Kimi",
        &[Named("kimi"), Script("kimi"), Titled("kimi-code")],
        Resume::Cut,
        Run,
    ),
    // Its gateway serves the conversations of all channels from one process.
    host(
        "OpenClaw",
        &[Named("openclaw"), Script("openclaw"), Script("openclaw/*")],
        Resume::Never,
        Read,
    ),
    // In its editor the servers are started by a language server.
    host(
        "Antigravity",
        &[
            Named("antigravity"),
            Named("Antigravity"),
            Named("Antigravity Helper*"),
            Named("antigravity/bin/*"),
            Named("antigravity/resources/bin/*"),
            Named("agy"),
        ],
        Resume::Cut,
        Read,
    ),
    host(
        "Amp",
        &[Named("amp"), Script("amp"), Script("@sourcegraph/amp")],
        Resume::Cut,
        Read,
    ),
    host("Junie", &[Named("junie")], Resume::Cut, Read),
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
        resume: of_users.or(of_table).unwrap_or(Resume::Unknown),
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
mod tests;
