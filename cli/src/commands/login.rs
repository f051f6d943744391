//! `mcp-sessiond login`: the user's login with a remote server of `servers.json`.

use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use clap_complete::ArgValueCandidates;
use mcp_sessiond_upstream::Remote;
use mcp_sessiond_upstream::login::Login;
use mcp_sessiond_upstream::login::browser::Wishes;

use crate::completion;
use crate::exit_code::{DATA_ERROR, SOFTWARE};
use crate::runtime::block_on;
use crate::servers::remote::redacted_url;
use crate::servers::{Kind, Servers, ServersError, is_http};
use crate::ui::output::{print, warn};

#[derive(Debug, Args)]
#[command(after_help = "\
NAME is a server of servers.json that has a `url`, or the URL that `wrap` was given. The page of its authorization server opens in your browser; all your processes use \
the login from then on, and renew it by themselves. Where no browser can be opened, open the printed address yourself, on this \
machine: the browser comes back to a port of 127.0.0.1.

Exit codes: 0 you are logged in; 65 the server's entry is wrong, or has no `url`; 66 no such server; 70 the login failed.

Examples:
  mcp-sessiond login github
  mcp-sessiond login https://example.org/mcp
  mcp-sessiond login github --no-browser --scope repo --scope read:user")]
pub(crate) struct Arguments {
    /// The server's name in servers.json, or its URL
    #[arg(add = ArgValueCandidates::new(completion::remote))]
    name: String,
    /// Only print the address of the page
    #[arg(long)]
    no_browser: bool,
    /// A scope to ask for, instead of those that the server names; several by several options
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,
    /// The id of a client that you have registered with the authorization server yourself
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
}

/// The login with the server of this name, or an exit code.
fn login_with(name: &str) -> Result<Login, ExitCode> {
    let refused = |why: &dyn std::fmt::Display| {
        warn(format_args!("the server {name:?}: {why}"));
        ExitCode::from(DATA_ERROR)
    };
    if is_http(name) {
        let remote = Remote::new(&redacted_url(name), name, []).map_err(|why| refused(&why))?;
        return remote
            .login()
            .cloned()
            .ok_or_else(|| refused(&"it can have no login"));
    }
    let found = |error: ServersError| {
        let code = error.code();
        warn(error);
        ExitCode::from(code)
    };
    let servers = Servers::usual_path()
        .and_then(|path| Servers::read(&path))
        .map_err(found)?;
    let entry = servers.get(name).map_err(found)?;
    match entry.resolve().map_err(|why| refused(&why))? {
        Kind::Stdio { .. } => Err(refused(&"it has no `url`, and so no login")),
        Kind::Http { url, headers } => {
            let remote = Remote::new(name, &url, headers).map_err(|why| refused(&why))?;
            remote.login().cloned().ok_or_else(|| {
                refused(
                    &"its entry has an `Authorization` header, which is used instead of a login",
                )
            })
        }
    }
}

pub(crate) fn run(arguments: Arguments) -> ExitCode {
    let Arguments {
        name,
        no_browser,
        scopes,
        client_id,
    } = arguments;
    let login = match login_with(&name) {
        Ok(login) => login,
        Err(code) => return code,
    };
    let done = block_on(async {
        let waiting = login
            .begin(Wishes { scopes, client_id })
            .await
            .map_err(|error| error.to_string())?;
        print(&format!(
            "To log in, open this page in a browser of this machine:\n{}\n",
            waiting.url
        ));
        if !no_browser {
            open_page(&waiting.url);
        }
        waiting.finish().await.map_err(|error| error.to_string())
    });
    match done.unwrap_or_else(|error| Err(error.to_string())) {
        Ok(()) => print(&format!("You are logged in to {name}.\n")),
        Err(why) => {
            warn(why);
            ExitCode::from(SOFTWARE)
        }
    }
}

/// Opens a page. Where that is not possible, the user has its address.
fn open_page(url: &str) {
    let opener = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    let mut command = Command::new(opener);
    command
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if command.spawn().is_err() {
        warn(format_args!(
            "no browser could be opened: there is no {opener}"
        ));
    }
}
