//! A terminal with a shell in it: a pane of tmux, which keeps its screen as a terminal does.

use std::path::PathBuf;
use std::process::Command;

use crate::{World, until};

/// It is gone when this is dropped, with what runs in it.
#[derive(Debug)]
pub struct Terminal {
    socket: PathBuf,
}

impl World {
    /// A terminal of this size. Its shell has these variables on top.
    ///
    /// # Panics
    /// When there is no tmux, or no shell in it.
    #[must_use]
    pub fn terminal(&self, columns: u32, rows: u32, variables: &[(&str, &str)]) -> Terminal {
        let terminal = Terminal {
            socket: self.root().join("tmux"),
        };
        let mut command = self.command("tmux");
        for inherited in [
            "TMUX",
            "NO_COLOR",
            "CLICOLOR",
            "CLICOLOR_FORCE",
            "MCP_SESSIOND_PANIC",
        ] {
            command.env_remove(inherited);
        }
        command
            .env("LC_ALL", "C.UTF-8")
            .envs(variables.iter().copied());
        command.arg("-S").arg(&terminal.socket).args([
            "-f",
            "/dev/null",
            "-u",
            "new-session",
            "-d",
        ]);
        command
            .args(["-x", &columns.to_string(), "-y", &rows.to_string(), "-c"])
            .arg(self.root());
        command.arg("exec env PS1='ready$ ' bash --norc --noprofile");
        let done = command.output().expect("tmux");
        assert!(done.status.success(), "{done:?}");
        terminal.wait("a shell", |screen| screen.contains("ready$"));
        terminal
    }
}

impl Terminal {
    fn tmux(&self, words: &[&str]) -> String {
        let mut command = Command::new("tmux");
        let said = command
            .arg("-S")
            .arg(&self.socket)
            .arg("-u")
            .args(words)
            .output()
            .expect("tmux");
        assert!(said.status.success(), "{words:?}: {said:?}");
        String::from_utf8(said.stdout).expect("UTF-8")
    }

    /// What is seen of it.
    ///
    /// # Panics
    /// When it is gone.
    #[must_use]
    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// The same with the sequences that paint it.
    ///
    /// # Panics
    /// When it is gone.
    #[must_use]
    pub fn painted(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-e"])
    }

    /// A variable of tmux about it, such as `cursor_flag`.
    ///
    /// # Panics
    /// When it is gone.
    #[must_use]
    pub fn about(&self, name: &str) -> String {
        self.tmux(&["display-message", "-p", &format!("#{{{name}}}")])
            .trim_end()
            .to_owned()
    }

    /// Presses keys, by tmux's names.
    ///
    /// # Panics
    /// When it is gone.
    pub fn press(&self, keys: &[&str]) -> &Self {
        self.tmux(&[&["send-keys"], keys].concat());
        self
    }

    /// Types a line for the shell.
    ///
    /// # Panics
    /// When it is gone.
    pub fn enter(&self, line: &str) -> &Self {
        self.tmux(&["send-keys", "-l", line]);
        self.press(&["Enter"])
    }

    /// Makes it larger or smaller.
    ///
    /// # Panics
    /// When it is gone.
    pub fn resize(&self, columns: u32, rows: u32) -> &Self {
        self.tmux(&[
            "resize-window",
            "-x",
            &columns.to_string(),
            "-y",
            &rows.to_string(),
        ]);
        self
    }

    /// Looks until the screen is so, and returns it: tmux tells nobody of changes unasked.
    ///
    /// # Panics
    /// When it never is.
    #[track_caller]
    pub fn wait(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        let look = || {
            last = self.screen();
            is_so(&last).then(|| last.clone())
        };
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| until(what, look)));
        found.unwrap_or_else(|_| panic!("{what}, and the screen is\n{last}"))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new("tmux")
            .arg("-S")
            .arg(&self.socket)
            .arg("kill-server")
            .output();
    }
}
