//! `wrap` of a server that has a URL: `wrap -- https://…`, and `wrap @NAME` where the entry has a
//! `url`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use mcp_sessiond_client::ClaimRequest;
use mcp_sessiond_proxy::front;

use super::Arguments;
use crate::configured::{configured, waits};
use crate::remote::{self, known_as};
use crate::servers::{self, Entry, Kind, Servers};
use crate::{REFUSED, USAGE, complain};

/// Runs `wrap` of one server that has a URL. None: it has none.
pub(super) fn run(arguments: &Arguments) -> Option<ExitCode> {
    let found = match &arguments.command[..] {
        [url] if url.to_str().is_some_and(servers::is_http) => {
            written(url.to_str()?, &arguments.headers)
        }
        words => match servers::named(words).and_then(of_file) {
            Some(found) if words.len() == 1 && arguments.headers.is_empty() => found,
            _ => return without(arguments),
        },
    };
    let usage = |why: &str| {
        complain(why);
        Some(ExitCode::from(USAGE))
    };
    let (name, kind) = match found {
        Ok(found) => found,
        Err(why) => {
            complain(why);
            return Some(ExitCode::from(REFUSED));
        }
    };
    if arguments.name.is_some() {
        return usage(
            "`--name` is for servers with a command: a session with a server elsewhere belongs to the host",
        );
    }
    let Kind::Http { url, headers } = kind else {
        return without(arguments);
    };
    let connecting = match remote::connecting(&name, &url, headers) {
        Ok(connecting) => connecting,
        Err(why) => {
            complain(format_args!("{name}: {}", why.message));
            return Some(ExitCode::from(REFUSED));
        }
    };
    let claim = ClaimRequest {
        fresh: arguments.fresh,
        ..arguments.claiming.claim()
    };
    let options = arguments.claiming.clone().options();
    Some(front::remote::run(
        &options,
        claim,
        &name,
        connecting,
        waits(&configured()),
    ))
}

/// A command has no headers.
fn without(arguments: &Arguments) -> Option<ExitCode> {
    if arguments.headers.is_empty() {
        return None;
    }
    complain(
        "`--header` is for a server that is given by its URL; those of servers.json have `headers` there",
    );
    Some(ExitCode::from(USAGE))
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
    let name = known_as(url);
    let entry = Entry::of_url(&name, url, &headers)?;
    Ok((name, entry.resolve()?))
}
