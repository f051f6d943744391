//! How it is drawn.

use std::time::Duration;

use anstyle::Style;

use super::model::{LogPage, Model, Page, Snapshot};
use crate::inventory::listing;
use crate::ui::screen::line::{Line, pieces};
use crate::ui::table::{self, BAD, DOUBTFUL, GOOD, HEADING, shortened, wrapped};

/// What stands before the row that is selected, and before the others.
const MARKS: [&str; 2] = ["> ", "  "];

/// How old what is shown may be before it is said.
const FRESH: Duration = Duration::from_secs(3);

const KEYS: &[(&str, &str)] = &[
    (
        "up, down, k, j",
        "select a server (page up, page down, home, end: further)",
    ),
    (
        "Enter, l",
        "show its log; there the same keys scroll, and Esc, q or l go back",
    ),
    (
        "r",
        "restart it, as `mcp-sessiond restart` does, after a question",
    ),
    (
        "s",
        "stop it, as `mcp-sessiond stop` does, after a question",
    ),
    (
        "left, right",
        "show what is beside the screen, where it is wide",
    ),
    ("q, Esc, Ctrl-C", "leave; all servers stay as they are"),
    ("Ctrl-Z", "suspend"),
];

/// The lines of a screen of this size.
pub(super) fn lines(model: &mut Model, width: usize, height: usize) -> Vec<Line> {
    let mut outcome = outcome(model, width);
    if outcome.is_empty() {
        outcome.push(Line::default());
    }
    let middle = height.saturating_sub(outcome.len() + 2);
    model.height = middle.saturating_sub(2);
    let room = middle - usize::from(has_gap(middle));
    let (top, mut lines) = match &model.page {
        Page::Log(_) => log(model, width, room),
        Page::Keys => {
            let key = |(key, does): &(&str, &str)| Line::plain(format!("  {key:<15} {does}"));
            let top = Line::styled("Keys", style(model, HEADING));
            (top, KEYS.iter().map(key).collect())
        }
        Page::List | Page::Question { .. } => {
            let top = heading(model, width);
            (top, list(model, width, room))
        }
    };
    if has_gap(middle) {
        lines.insert(0, Line::default());
    }
    lines.insert(0, top);
    lines.resize(middle + 1, Line::default());
    lines.extend(outcome);
    lines.truncate(height.saturating_sub(1));
    lines.push(footer(model, width));
    lines
}

/// Whether there is room for an empty line below the first one.
fn has_gap(height: usize) -> bool {
    height > 4
}

/// What the last action has come to.
fn outcome(model: &Model, width: usize) -> Vec<Line> {
    const MOST: usize = 3;
    let (text, painted) = match &model.outcome {
        Some(Ok(text)) => (text, GOOD),
        Some(Err(text)) => (text, BAD),
        None => return Vec::new(),
    };
    let text = wrapped(&harmless(text), Some(width));
    text.lines()
        .take(MOST)
        .map(|line| Line::styled(line.to_owned(), style(model, painted)))
        .collect()
}

/// The last line: what is asked, or which keys there are.
fn footer(model: &Model, width: usize) -> Line {
    match &model.page {
        Page::Question { action, called, .. } => {
            let (before, behind) = (format!("{} ", action.as_question()), "? y/n");
            let room = width.saturating_sub(before.chars().count() + behind.chars().count());
            let text = format!("{before}{}{behind}", shortened(&harmless(called), room));
            Line::styled(text, style(model, HEADING))
        }
        Page::List => Line::plain("up/down select   l log   r restart   s stop   ? keys   q leave"),
        Page::Log(_) => Line::plain("up/down scroll   Esc back   Ctrl-C leave"),
        Page::Keys => Line::plain("any key: back"),
    }
}

/// How many servers there are, and whether a daemon runs.
fn heading(model: &Model, width: usize) -> Line {
    let Some(seen) = &model.seen else {
        return Line::plain("Looking …");
    };
    let count = match seen.rows.len() {
        1 => "1 server".to_owned(),
        count => format!("{count} servers"),
    };
    let old = model.seen_at.elapsed();
    let (daemon, painted) = match (old > FRESH, seen.has_daemon) {
        (true, _) => (format!("no answer for {} s", old.as_secs()), BAD),
        (false, true) => ("the daemon runs".to_owned(), GOOD),
        (false, false) => ("no daemon runs".to_owned(), DOUBTFUL),
    };
    let daemon = Line::styled(daemon, style(model, painted));
    Line::styled(count, style(model, HEADING)).beside(daemon, width)
}

/// The rows, as many as there is room for with the selected one among them, and the notes below.
fn list(model: &mut Model, width: usize, height: usize) -> Vec<Line> {
    let Some(seen) = &model.seen else {
        return Vec::new();
    };
    let mut notes: Vec<Line> = Vec::new();
    if let Some(trouble) = &seen.trouble {
        notes.extend(sentence(trouble, width, style(model, BAD)));
    }
    for note in &seen.notes {
        notes.extend(sentence(note, width, Style::new()));
    }
    // Of what is said, half of the screen at most, where the rows need the other half.
    let needed = if seen.rows.is_empty() {
        0
    } else {
        seen.rows.len() + 1
    };
    let room = height.saturating_sub(needed).max(height / 2);
    if notes.len() > room {
        notes.truncate(room.saturating_sub(1));
        notes.push(Line::plain("  … `mcp-sessiond status` says the rest"));
    }
    let room = height.saturating_sub(notes.len());
    let shown = room.saturating_sub(1).min(seen.rows.len());
    let at = seen
        .rows
        .iter()
        .position(|row| row.keeper.is_some() && row.keeper == model.selected);
    let at = at.unwrap_or_default();
    let first = model
        .first
        .min(at)
        .max((at + 1).saturating_sub(shown.max(1)));
    let first = first.min(seen.rows.len().saturating_sub(shown));
    let mut all = table(model, seen, width);
    let widest = all.iter().map(Line::width).max().unwrap_or_default();
    let left = model.left.min(widest.saturating_sub(width));
    let mut text: Vec<Line> = Vec::new();
    if needed > 0 && room > 0 {
        let rows = all.split_off(1);
        text.extend(all);
        text.extend(rows.into_iter().skip(first).take(shown));
    }
    let text = text.into_iter().map(|line| line.behind(left));
    let lines = text.chain(notes).take(height).collect();
    (model.first, model.left) = (first, left);
    lines
}

/// The heading, and a line for each row.
fn table(model: &Model, seen: &Snapshot, width: usize) -> Vec<Line> {
    let cells: Vec<Vec<String>> = seen.rows.iter().map(|row| row.cells.clone()).collect();
    let width = (!model.is_wide).then_some(width.saturating_sub(MARKS[0].len()));
    let heading = listing::heading(model.is_wide);
    let keepers = std::iter::once(None).chain(seen.rows.iter().map(|row| row.keeper));
    let laid_out = table::laid_out(heading, &cells, width);
    let line = |(number, (cells, keeper)): (usize, (Vec<table::Cell>, Option<_>))| {
        let is_selected = keeper.is_some() && keeper == model.selected;
        let mut line = Line::plain(MARKS[usize::from(!is_selected)]);
        for (at, table::Cell { text, behind }) in cells.into_iter().enumerate() {
            let painted = if number == 0 {
                Some(HEADING)
            } else {
                listing::style(at, &text)
            };
            let painted = painted.map_or_else(Style::new, |painted| style(model, painted));
            line.push(harmless(&text), painted);
            line.push(" ".repeat(behind), Style::new());
        }
        if is_selected { line.bold() } else { line }
    };
    laid_out
        .into_iter()
        .zip(keepers)
        .enumerate()
        .map(line)
        .collect()
}

/// The log of a server, its last lines at the bottom, and its heading.
fn log(model: &mut Model, width: usize, height: usize) -> (Line, Vec<Line>) {
    let heading = style(model, HEADING);
    let Page::Log(LogPage { called, lines, up }) = &mut model.page else {
        return (Line::default(), Vec::new());
    };
    let top = Line::styled(format!("Log of {}", harmless(called)), heading);
    if lines.is_empty() {
        return (top, vec![Line::plain("nothing yet")]);
    }
    let broken: Vec<String> = lines
        .iter()
        .flat_map(|line| pieces(&harmless(line), width.max(1)))
        .collect();
    *up = (*up).min(broken.len().saturating_sub(height));
    let end = broken.len() - *up;
    let begin = end.saturating_sub(height);
    (top, broken[begin..end].iter().map(Line::plain).collect())
}

/// A sentence under the rows, an empty line before it.
fn sentence(text: &str, width: usize, style: Style) -> Vec<Line> {
    let text = wrapped(&harmless(text), Some(width));
    let lines = text
        .lines()
        .map(|line| Line::styled(line.to_owned(), style));
    std::iter::once(Line::default()).chain(lines).collect()
}

/// What somebody else wrote; a tab has no width of its own.
fn harmless(text: &str) -> String {
    table::printable(text).replace('\t', "    ")
}

/// As everything else that is printed is painted.
fn style(model: &Model, painted: Style) -> Style {
    if model.has_colours {
        painted
    } else {
        painted.fg_color(None)
    }
}
