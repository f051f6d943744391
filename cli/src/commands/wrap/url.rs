//! `wrap` of a server that has a URL: `wrap -- https://…`, and `wrap @NAME` where the entry has a
//! `url`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use mcp_sessiond_client::ClaimRequest;
use mcp_sessiond_proxy::front;
use mcp_sessiond_proxy::front::failed_start::StartError;

use super::{Arguments, usage};
use crate::config::{front_settings, load_or_default};
use crate::exit_code::DATA_ERROR;
use crate::servers::remote::{self, redacted_url};
use crate::servers::{self, Entry, Kind, Servers};

/// Runs `wrap` of one server that has a URL. None: it has none.
///
/// # Errors
/// When what was written of it is wrong.
pub(super) fn run(arguments: &Arguments) -> Result<Option<ExitCode>, StartError> {
    let found = match &arguments.command[..] {
        [url] if url.to_str().is_some_and(servers::is_http) => {
            written(&url.to_string_lossy(), &arguments.headers)
        }
        words => match servers::named(words).and_then(of_file) {
            Some(found) if words.len() == 1 && arguments.headers.is_empty() => found,
            _ => return without(arguments),
        },
    };
    let wrong = |sentence| StartError {
        code: DATA_ERROR,
        sentence,
    };
    let (name, kind) = found.map_err(wrong)?;
    if arguments.name.is_some() {
        return Err(usage(
            "`--name` is for servers with a command: a session with a server elsewhere belongs to the host",
        ));
    }
    let Kind::Http { url, headers } = kind else {
        return without(arguments);
    };
    let server = remote::server(&name, &url, &headers)
        .map_err(|why| wrong(format!("{name}: {}", why.message)))?;
    let of_entry = || servers::resume_of(servers::named(&arguments.command)?);
    let claim = ClaimRequest {
        fresh: arguments.fresh,
        resume: arguments.resume.or_else(of_entry),
        ..arguments.claiming.clone().claim()
    };
    let options = arguments.claiming.clone().options();
    Ok(Some(front::remote::run(
        &options,
        claim,
        &name,
        server,
        front_settings(&load_or_default()),
    )))
}

/// A command has no headers.
fn without(arguments: &Arguments) -> Result<Option<ExitCode>, StartError> {
    if arguments.headers.is_empty() {
        return Ok(None);
    }
    Err(usage(
        "`--header` is for a server that is given by its URL; those of servers.json have `headers` there",
    ))
}

type Found = Result<(String, Kind), String>;

/// The server of the file, if it has a URL.
fn of_file(name: &str) -> Option<Found> {
    let servers = Servers::usual_path()
        .and_then(|path| Servers::read(&path))
        .ok()?;
    let entry = servers.get(name).ok()?;
    matches!(entry.kind(), Kind::Http { .. }).then(|| {
        let kind = entry
            .resolve()
            .map_err(|why| format!("the server {name:?}: {why}"))?;
        Ok((name.to_owned(), kind))
    })
}

/// The server at this URL. It is known by the URL, without what may be secret in it.
fn written(url: &str, headers: &[String]) -> Found {
    let headers = headers.iter().map(|header| {
        let (name, value) = header
            .split_once(':')
            .ok_or("a header is written as `NAME: VALUE`")?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    });
    let headers: BTreeMap<_, _> = headers.collect::<Result<_, &str>>()?;
    let name = redacted_url(url);
    let entry = Entry::of_url(&name, url, &headers)?;
    Ok((name, entry.resolve()?))
}
