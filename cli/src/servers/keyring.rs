//! `${keyring:SERVICE/ACCOUNT}`: the desktop's store of secrets, asked by the program that comes
//! with it.
//!
//! A crate for it would bring a D-Bus client on Linux. On macOS the keychain asks the user about
//! each program that reads, and again when that program was upgraded, but lets `security` read what
//! `security` has stored.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long the program may take: time for the user to unlock the store, and less than the 30 s
/// that a host gives its server.
const LIMIT: Duration = Duration::from_secs(20);

/// How large a secret may be. Linux takes no variable that is larger.
const SECRET_MAX: u64 = 128 * 1024;

/// A store of secrets.
struct Store {
    program: &'static str,
    /// The words that ask for a secret; these two stand for service and account.
    words: &'static [&'static str],
    /// The words that store one.
    store_command: &'static str,
    /// What to do where there is no such program.
    fix: &'static str,
    /// The exit code for a secret that is not there.
    nothing: i32,
}

const STORE: Store = if cfg!(target_os = "macos") {
    Store {
        program: "/usr/bin/security",
        words: &[
            "find-generic-password",
            "-s",
            "SERVICE",
            "-a",
            "ACCOUNT",
            "-w",
        ],
        store_command: "security add-generic-password -s SERVICE -a ACCOUNT -w",
        fix: "it is part of macOS",
        nothing: 44,
    }
} else {
    Store {
        program: "secret-tool",
        words: &["lookup", "service", "SERVICE", "account", "ACCOUNT"],
        store_command: "secret-tool store --label=SERVICE service SERVICE account ACCOUNT",
        fix: "it comes with libsecret: the package libsecret-tools of Debian and Ubuntu, libsecret of Fedora and Arch; or write \
               ${file:PATH} with a file that only you can read",
        nothing: 1,
    }
};

/// The command that stores a secret under these names, for the user to run.
pub(crate) fn store_command(service: &str, account: &str) -> String {
    with_names(STORE.store_command, service, account)
}

fn with_names(words: &str, service: &str, account: &str) -> String {
    let quoted = |name: &str| format!("'{}'", name.replace('\'', "'\\''"));
    let put = |word: &str| {
        let (option, value) = word.split_at(word.find('=').map_or(0, |at| at + 1));
        match value {
            "SERVICE" => format!("{option}{}", quoted(service)),
            "ACCOUNT" => format!("{option}{}", quoted(account)),
            _ => word.to_owned(),
        }
    };
    words.split(' ').map(put).collect::<Vec<_>>().join(" ")
}

/// The secret of this name, `SERVICE/ACCOUNT`.
pub(super) fn secret(name: &str) -> Result<String, String> {
    let (service, account) = name
        .rsplit_once('/')
        .filter(|(service, account)| !service.is_empty() && !account.is_empty())
        .ok_or_else(|| {
            format!("${{keyring:{name}}} names no secret; write ${{keyring:SERVICE/ACCOUNT}}")
        })?;
    let mut command = Command::new(STORE.program);
    for word in STORE.words {
        command.arg(match *word {
            "SERVICE" => service,
            "ACCOUNT" => account,
            word => word,
        });
    }
    if cfg!(target_os = "linux")
        && std::env::var_os("DBUS_SESSION_BUS_ADDRESS").is_none()
        && let Some(bus) = usual_bus()
    {
        command.env("DBUS_SESSION_BUS_ADDRESS", bus);
    }
    let said = output(command, LIMIT).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            format!("${{keyring:{name}}} needs the program {}; {}", STORE.program, STORE.fix)
        }
        io::ErrorKind::TimedOut => format!(
            "${{keyring:{name}}}: {} has not answered for {} s; is the store locked, and does it ask for its password?",
            STORE.program,
            LIMIT.as_secs()
        ),
        _ => format!("${{keyring:{name}}}: {}: {error}", STORE.program),
    })?;
    if said.code == Some(0) {
        let secret = String::from_utf8(said.output);
        let secret =
            secret.map_err(|_| format!("the secret of ${{keyring:{name}}} is not UTF-8"))?;
        return Ok(secret
            .strip_suffix('\n')
            .map(str::to_owned)
            .unwrap_or(secret));
    }
    if said.code == Some(STORE.nothing) && (said.errors.is_empty() || cfg!(target_os = "macos")) {
        let store_command = store_command(service, account);
        return Err(format!(
            "there is no secret of the service {service:?} and the account {account:?}; store it with: {store_command}"
        ));
    }
    Err(format!(
        "${{keyring:{name}}} could not be read; {}",
        said.errors
    ))
}

/// The bus of this user's session. Some hosts (Codex) give a server no variable that names it.
fn usual_bus() -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;
    let user = nix::unistd::Uid::current();
    let bus = format!("/run/user/{user}/bus");
    let is_own = Path::new(&bus)
        .metadata()
        .is_ok_and(|found| found.uid() == user.as_raw());
    is_own.then(|| format!("unix:path={bus}"))
}

/// What a program has said.
struct CommandOutput {
    code: Option<i32>,
    output: Vec<u8>,
    /// In one line.
    errors: String,
}

/// Runs the program, which is killed when it takes longer than it may.
fn output(mut command: Command, limit: Duration) -> io::Result<CommandOutput> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (output, errors) = (read(child.stdout.take()), read(child.stderr.take()));
    let ended = std::time::Instant::now() + limit;
    let left = || ended.saturating_duration_since(std::time::Instant::now());
    let (Ok(output), Ok(errors)) = (output.recv_timeout(limit), errors.recv_timeout(left())) else {
        return Err(stop(&mut child));
    };
    // Whatever has closed both is about to end.
    let code = child.wait()?.code();
    let lines = String::from_utf8_lossy(&errors);
    let errors = lines
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("; ");
    Ok(CommandOutput {
        code,
        output,
        errors,
    })
}

fn stop(child: &mut Child) -> io::Error {
    let _ = child.kill();
    let _ = child.wait();
    io::ErrorKind::TimedOut.into()
}

/// All that comes out of a pipe, from a thread that waits for it.
fn read(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut all = Vec::new();
        if let Some(pipe) = pipe {
            let _ = pipe.take(SECRET_MAX).read_to_end(&mut all);
        }
        let _ = sender.send(all);
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_program_that_does_not_answer_is_killed() {
        let directory = tempfile::tempdir().expect("a directory");
        let pid = directory.path().join("pid");
        let script = format!("echo $$ > {}; exec sleep 1000", pid.display());
        let error = output(shell(&script), Duration::from_millis(500))
            .err()
            .expect("it takes too long");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let pid: i32 = std::fs::read_to_string(pid)
            .expect("it ran")
            .trim()
            .parse()
            .expect("a pid");
        let found = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None);
        assert_eq!(found, Err(nix::errno::Errno::ESRCH));
    }

    #[test]
    fn what_a_program_says_is_read_whole() {
        let said = output(
            shell("head -c 100000 /dev/zero; echo one >&2; echo two >&2; exit 3"),
            LIMIT,
        );
        let said = said.expect("it runs");
        assert_eq!(
            (said.code, said.output.len(), &*said.errors),
            (Some(3), 100_000, "one; two")
        );
    }

    #[test]
    fn a_name_stands_in_a_command_as_it_is() {
        let words = "store --label=SERVICE service SERVICE account ACCOUNT";
        assert_eq!(
            with_names(words, "MY ACCOUNT", "SERVICE"),
            "store --label='MY ACCOUNT' service 'MY ACCOUNT' account 'SERVICE'"
        );
    }

    #[test]
    fn a_name_is_a_service_and_an_account() {
        for name in ["", "x", "/x", "x/"] {
            let error = secret(name).expect_err("it is no name");
            assert!(
                error.ends_with("write ${keyring:SERVICE/ACCOUNT}"),
                "{error}"
            );
        }
    }
}
