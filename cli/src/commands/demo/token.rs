//! The story: what happens, and which session every server should be in afterwards.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Instant;

use serde_json::json;

use super::sandbox::{Host, Sandbox};
use super::server::SessionUse;
use crate::ui::table::{BAD, GOOD, HEADING, paint};

/// The servers of the first host, told apart by their arguments.
const SERVERS: [(&str, &str); 3] = [
    ("prod", "--db prod"),
    ("staging", "--db staging"),
    ("test", "--db test"),
];

/// Plays it. False: a server was in a session that it should not have been in.
pub(super) fn run(json: bool) -> io::Result<bool> {
    let sandbox = Sandbox::new()?;
    let mut table = Table::new(json);
    let mut one = Host::start(&sandbox)?;
    let mut two = Host::start(&sandbox)?;

    table.scene("Two hosts start their servers; the first one starts the daemon")?;
    for (name, arguments) in SERVERS {
        let visit = one.start_server(name, arguments)?;
        table.fresh("one", name, &visit)?;
    }
    let visit = two.start_server("prod", "--db prod")?;
    table.fresh("two", "prod", &visit)?;

    table.scene("SIGKILL to every server of host one, and they are started again")?;
    for (name, _) in SERVERS {
        one.kill_server(name)?;
    }
    for (name, arguments) in SERVERS.into_iter().rev() {
        let visit = one.start_server(name, arguments)?;
        table.resumed("one", name, &visit)?;
    }

    let pid = sandbox.kill_daemon()?;
    table.scene(&format!(
        "SIGKILL to the daemon (pid {pid}), then to servers of both hosts; the next one starts another daemon"
    ))?;
    for (name, _) in &SERVERS[..2] {
        one.kill_server(name)?;
    }
    two.kill_server("prod")?;
    let visit = two.start_server("prod", "--db prod")?;
    table.resumed("two", "prod", &visit)?;
    for (name, arguments) in &SERVERS[..2] {
        let visit = one.start_server(name, arguments)?;
        table.resumed("one", name, &visit)?;
    }

    table
        .scene("A second server with the arguments of one that lives: nobody's session is taken")?;
    let visit = one.start_server("twin", "--db test")?;
    table.fresh("one", "twin", &visit)?;

    let pid = one.pid();
    one.kill()?;
    one = Host::start(&sandbox)?;
    table.scene(&format!(
        "SIGKILL to host one (pid {pid}); another takes its place, and begins afresh"
    ))?;
    for (name, arguments) in SERVERS {
        let visit = one.start_server(name, arguments)?;
        table.fresh("one", name, &visit)?;
    }
    two.kill_server("prod")?;
    let visit = two.start_server("prod", "--db prod")?;
    table.resumed("two", "prod", &visit)?;

    let left = sandbox.token_files()?;
    let strays = left
        .iter()
        .filter(|file| file.starts_with(&format!("token-{pid}-")))
        .count();
    table.end(strays, &sandbox.directory().display().to_string())
}

/// The table, a row at a time.
struct Table {
    json: bool,
    scene: String,
    began: Instant,
    /// The session that each server was in last, by host and name.
    last: HashMap<(&'static str, &'static str), SessionUse>,
    /// Every session ever seen: a fresh one must be none of them.
    seen: Vec<String>,
    wrong: usize,
    rows: usize,
}

impl Table {
    fn new(json: bool) -> Self {
        let (last, seen) = (HashMap::new(), Vec::new());
        Self {
            json,
            scene: String::new(),
            began: Instant::now(),
            last,
            seen,
            wrong: 0,
            rows: 0,
        }
    }

    fn scene(&mut self, text: &str) -> io::Result<()> {
        text.clone_into(&mut self.scene);
        self.began = Instant::now();
        if self.json {
            return Ok(());
        }
        let heading = format!(
            "{:6} {:9} {:24} {:24}",
            "HOST", "SERVER", "SHOULD BE IN", "IS IN"
        );
        say(&format!(
            "\n{}\n{}\n",
            paint(HEADING, text),
            heading.trim_end()
        ))
    }

    fn fresh(
        &mut self,
        host: &'static str,
        name: &'static str,
        visit: &SessionUse,
    ) -> io::Result<()> {
        let right =
            visit.visit == 1 && !visit.session.is_empty() && !self.seen.contains(&visit.session);
        self.row(host, name, "a new session", visit, right)
    }

    fn resumed(
        &mut self,
        host: &'static str,
        name: &'static str,
        visit: &SessionUse,
    ) -> io::Result<()> {
        let former = self.last.get(&(host, name)).cloned();
        let right = former.as_ref().is_some_and(|former| {
            former.session == visit.session && former.visit + 1 == visit.visit
        });
        let expected = former.map_or_else(String::new, |former| {
            describe(&former.session, former.visit + 1)
        });
        self.row(host, name, &expected, visit, right)
    }

    fn row(
        &mut self,
        host: &'static str,
        name: &'static str,
        expected: &str,
        visit: &SessionUse,
        right: bool,
    ) -> io::Result<()> {
        let took = self.began.elapsed().as_millis();
        self.began = Instant::now();
        self.rows += 1;
        self.wrong += usize::from(!right);
        self.seen.push(visit.session.clone());
        self.last.insert((host, name), visit.clone());
        if self.json {
            let row = json!({
                "scene": self.scene, "host": host, "server": name, "expected": expected,
                "session": visit.session, "visit": visit.visit, "as_expected": right,
            });
            return say(&format!("{row}\n"));
        }
        let is = describe(&visit.session, visit.visit);
        let verdict = if right {
            paint(GOOD, "yes")
        } else {
            paint(BAD, "NO")
        };
        say(&format!(
            "{host:6} {name:9} {expected:24} {is:24} {verdict}  {took} ms\n"
        ))
    }

    /// The verdict. `strays`: token files of a host that is gone.
    fn end(&self, strays: usize, directory: &str) -> io::Result<bool> {
        let good = self.wrong == 0 && strays == 0;
        if !self.json {
            let right = self.rows - self.wrong;
            let style = if good { GOOD } else { BAD };
            let verdict = paint(
                style,
                &format!(
                    "{right} of {} servers were in the session they should be in",
                    self.rows
                ),
            );
            say(&format!(
                "\n{verdict}; {strays} token files of the dead host are left.\nEverything happened in {directory}, which is gone now.\n"
            ))?;
        }
        Ok(good)
    }
}

fn describe(session: &str, visit: u32) -> String {
    if session.is_empty() {
        "none".into()
    } else {
        format!("{session}, visit {visit}")
    }
}

fn say(text: &str) -> io::Result<()> {
    let mut output = anstream::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}
