//! A host: starts and kills servers as it is told on standard input, and says what each reports.
//!
//! `start NAME ARGUMENT...` is answered with what the server says first; `kill NAME` once it is
//! dead.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

pub(super) fn play() -> io::Result<()> {
    let mut servers: HashMap<String, Child> = HashMap::new();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let mut words = line.split(' ');
        let (verb, name) = (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        );
        let answer = match verb {
            "start" => {
                let (server, said) = start(words)?;
                servers.insert(name.to_owned(), server);
                said
            }
            "kill" => {
                if let Some(mut server) = servers.remove(name) {
                    server.kill()?;
                    server.wait()?;
                }
                "dead\n".into()
            }
            _ => {
                return Err(io::Error::other(format!(
                    "a host does not know how to {verb:?}"
                )));
            }
        };
        let mut output = io::stdout().lock();
        output.write_all(answer.as_bytes())?;
        output.flush()?;
    }
    Ok(())
}

fn start<'a>(own: impl Iterator<Item = &'a str>) -> io::Result<(Child, String)> {
    let mut server = Command::new(std::env::current_exe()?)
        .args(["demo", "--part", "server", "--"])
        .args(own)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = String::new();
    if let Some(output) = &mut server.stdout {
        BufReader::new(output).read_line(&mut said)?;
    }
    if said.is_empty() {
        return Err(io::Error::other("a server ended before it said anything"));
    }
    Ok((server, said))
}
