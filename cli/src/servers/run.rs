//! `wrap @NAME`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use mcp_sessiond_daemon::config::Config;
use mcp_sessiond_process::executable;
use mcp_sessiond_proto::Resume;
use mcp_sessiond_proxy::front::bundle::Waking;
use mcp_sessiond_proxy::keeper::launch::NO_SOURCES;
use mcp_sessiond_proxy::server::shared::{Looking, Shared};

use super::{Entry, Kind, Servers, ServersError};
use crate::ui::output::warn;

/// The name of a server of the file, where that is what a command is.
pub(crate) fn named(command: &[OsString]) -> Option<&str> {
    command
        .first()?
        .to_str()?
        .strip_prefix('@')
        .filter(|name| !name.is_empty())
}

/// The servers that the words behind `serve` name, where they are no command: the first one is a
/// name of the file, or begins with an at. `before` is what stands before them.
///
/// # Errors
/// When the file can't be read, though there are names.
#[cfg(feature = "http")]
pub(crate) fn names_in(
    words: &[OsString],
    before: Option<OsString>,
) -> Result<Option<Vec<String>>, ServersError> {
    if before.is_some_and(|before| before == "--") {
        return Ok(None);
    }
    let is_named = named(words).is_some();
    let found = Servers::usual_path().and_then(|path| Servers::read(&path));
    let servers = match found {
        Ok(servers) => servers,
        Err(error) if is_named => return Err(error),
        Err(_) => return Ok(None),
    };
    let names: Vec<String> = words
        .iter()
        .map(|word| word.to_string_lossy())
        .map(|word| {
            word.strip_prefix('@')
                .map_or_else(|| word.clone().into_owned(), str::to_owned)
        })
        .collect();
    let is_first = names
        .first()
        .is_some_and(|first| servers.listed_as(first).is_some());
    Ok((is_named || is_first).then_some(names))
}

/// The server of this name, where all hosts share it, and how it is looked up again. None: each
/// host has its own.
///
/// # Errors
/// When there is none, or it is wrong.
pub(crate) fn shared(
    name: &str,
    config: &Arc<Config>,
) -> Result<Option<(Shared, Looking)>, ServersError> {
    let servers = Servers::read(&Servers::usual_path()?)?;
    let entry = servers.get(name)?;
    let shared = entry
        .shared(servers.path(), config)
        .map_err(|why| servers.wrong(name, why))?;
    let Some(shared) = shared else {
        return Ok(None);
    };
    warn_of_limits(entry);
    let (entry, list, config) = (entry.clone(), servers.path().to_owned(), config.clone());
    let looking = Looking::new(move || {
        let shared = entry.shared(&list, &config)?;
        shared.ok_or_else(|| "it is no longer shared".to_owned())
    });
    Ok(Some((shared, looking)))
}

/// Whether the entry says that its host's next connection gets the server again.
pub(crate) fn resume_of(name: &str) -> Option<Resume> {
    let servers = Servers::read(&Servers::usual_path().ok()?).ok()?;
    servers.get(name).ok()?.options().resume
}

/// Becomes a `wrap` of what the file has under this name, and does not return then. The kernel so
/// knows this process by the command line and the environment of the server, like every other
/// `wrap`: one that was edited is another server. `options` are those of this `wrap`; with
/// `may_be_lazy` the file says whether the server is started at its first call.
pub(crate) fn exec_wrap(name: &str, options: &[OsString], may_be_lazy: bool) -> ServersError {
    match prepared(name, options, may_be_lazy) {
        Ok((mut command, path)) => ServersError::Exec {
            path,
            error: command.exec(),
        },
        Err(error) => error,
    }
}

fn prepared(
    name: &str,
    options: &[OsString],
    may_be_lazy: bool,
) -> Result<(Command, PathBuf), ServersError> {
    let servers = Servers::read(&Servers::usual_path()?)?;
    let entry = servers.get(name)?;
    let wrong = |why| servers.wrong(name, why);
    if matches!(entry.kind(), Kind::Http { .. }) {
        return Err(wrong(
            "it has no `command`; `wrap` runs servers on stdio, which have one".to_owned(),
        ));
    }
    let own = executable::own().unwrap_or_else(|| "/proc/self/exe".into());
    let mut wrap = Command::new(&own);
    wrap.arg0("mcp-sessiond").arg("wrap").args(options);
    match entry.options().lazy.filter(|_| may_be_lazy) {
        Some(Waking::AtFirstCall) => drop(wrap.arg("--lazy")),
        Some(Waking::AtStart) => drop(wrap.arg("--lazy=start")),
        None => {}
    }
    // The flag comes first, and a server with a name is nobody's but the user's.
    let says = |option: &str| {
        let with_value = format!("{option}=");
        options.iter().any(|word| {
            word == option
                || word
                    .to_str()
                    .is_some_and(|word| word.starts_with(&with_value))
        })
    };
    if let Some(resume) = entry
        .options()
        .resume
        .filter(|_| !says("--resume") && !says("--name"))
    {
        wrap.args(["--resume", resume.as_str()]);
    }
    if !entry.options().has_sources && !says(NO_SOURCES) {
        wrap.arg(NO_SOURCES);
    }
    wrap.arg("--");
    if let Kind::Stdio {
        command,
        args,
        env,
        cwd,
    } = entry.resolve().map_err(wrong)?
    {
        wrap.arg(command).args(args).envs(env);
        if let Some(directory) = cwd {
            wrap.current_dir(directory);
        }
    }
    warn_of_limits(entry);
    Ok((wrap, own))
}

/// Says what of an entry `wrap @NAME` does nothing about.
fn warn_of_limits(entry: &Entry) {
    let (name, limiting) = (entry.name(), entry.options().limiting());
    if !limiting.is_empty() {
        warn(format_args!(
            "the server {name:?}: `wrap @{name}` ignores its `{}`, and lets everything through",
            limiting.join("`, `")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_word_that_begins_with_an_at_names_a_server() {
        let named_by = |words: &[&str]| {
            named(&words.iter().map(OsString::from).collect::<Vec<_>>()).map(str::to_owned)
        };
        assert_eq!(named_by(&["@files"]).as_deref(), Some("files"));
        for other in [
            &["@"][..],
            &["files"],
            &["./@files"],
            &["npx", "@playwright/mcp"],
        ] {
            assert_eq!(named_by(other), None, "{other:?}");
        }
    }
}
