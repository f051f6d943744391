//! What a story shows: scenes, commands, and whether what was expected holds.

use std::io::{self, Write as _};

use serde_json::json;

use crate::ui::table::{BAD, GOOD, HEADING, paint};

/// Prints a line.
pub(super) fn line(text: &str) -> io::Result<()> {
    let mut output = anstream::stdout().lock();
    writeln!(output, "{text}")?;
    output.flush()
}

/// What was shown so far.
pub(super) struct Display {
    json: bool,
    scene: String,
    wrong: usize,
}

impl Display {
    pub(super) fn new(json: bool) -> Self {
        Self {
            json,
            scene: String::new(),
            wrong: 0,
        }
    }

    pub(super) fn scene(&mut self, text: &str) -> io::Result<()> {
        text.clone_into(&mut self.scene);
        self.note(&format!("\n{}", paint(HEADING, text)))
    }

    pub(super) fn note(&self, text: &str) -> io::Result<()> {
        if self.json { Ok(()) } else { line(text) }
    }

    pub(super) fn check(&mut self, expected: &str, holds: bool) -> io::Result<()> {
        self.wrong += usize::from(!holds);
        if self.json {
            return line(
                &json!({"scene": self.scene, "expected": expected, "as_expected": holds})
                    .to_string(),
            );
        }
        let mark = if holds {
            paint(GOOD, "yes")
        } else {
            paint(BAD, "NO ")
        };
        line(&format!("{mark}  {expected}"))
    }

    /// The last line. False: something was not as expected.
    pub(super) fn end(self, good: &str) -> io::Result<bool> {
        match self.wrong {
            0 => self.note(&paint(GOOD, &format!("\n{good}")))?,
            wrong => self.note(&paint(BAD, &format!("\n{wrong} of these do not hold.")))?,
        }
        Ok(self.wrong == 0)
    }
}
