//! How it is drawn.

use std::time::Duration;

use anstyle::{AnsiColor, Color as Anstyle, Effects, Style as Painted};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::model::{LogPage, Model, Page, Snapshot};
use crate::inventory::listing;
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

pub(super) fn draw(frame: &mut Frame<'_>, model: &mut Model) {
    let outcome = outcome(model, usize::from(frame.area().width));
    let told = u16::try_from(outcome.len()).unwrap_or(1).max(1);
    let rows = [
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(told),
        Constraint::Length(1),
    ];
    let [top, middle, under, bottom] = Layout::vertical(rows).areas(frame.area());
    model.height = usize::from(middle.height).saturating_sub(2);
    match &model.page {
        Page::Log(_) => log(frame, model, top, middle),
        Page::Keys => {
            frame.render_widget(Line::styled("Keys", style(model, HEADING)), top);
            let key = |(key, does): &(&str, &str)| Line::raw(format!("  {key:<15} {does}"));
            lines(frame, below(middle), KEYS.iter().map(key));
        }
        Page::List | Page::Question { .. } => {
            heading(frame, model, top);
            list(frame, model, below(middle));
        }
    }
    lines(frame, under, outcome);
    frame.render_widget(footer(model, usize::from(bottom.width)), bottom);
}

/// What the last action has come to.
fn outcome(model: &Model, width: usize) -> Vec<Line<'static>> {
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
fn footer(model: &Model, width: usize) -> Line<'static> {
    match &model.page {
        Page::Question { action, called, .. } => {
            let (before, behind) = (format!("{} ", action.as_question()), "? y/n");
            let room = width.saturating_sub(before.chars().count() + behind.chars().count());
            let text = format!("{before}{}{behind}", shortened(&harmless(called), room));
            Line::styled(text, style(model, HEADING))
        }
        Page::List => Line::raw("up/down select   l log   r restart   s stop   ? keys   q leave"),
        Page::Log(_) => Line::raw("up/down scroll   Esc back   Ctrl-C leave"),
        Page::Keys => Line::raw("any key: back"),
    }
}

/// How many servers there are, and whether a daemon runs.
fn heading(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let Some(seen) = &model.seen else {
        frame.render_widget(Line::raw("Looking …"), area);
        return;
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
    frame.render_widget(Line::styled(count, style(model, HEADING)), area);
    let width = u16::try_from(daemon.chars().count())
        .unwrap_or(u16::MAX)
        .min(area.width);
    let right = Rect {
        x: area.x + area.width - width,
        width,
        ..area
    };
    frame.render_widget(Line::styled(daemon, style(model, painted)), right);
}

/// The rows, as many as there is room for with the selected one among them, and the notes below.
fn list(frame: &mut Frame<'_>, model: &mut Model, area: Rect) {
    let Some(seen) = &model.seen else { return };
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let mut notes: Vec<Line<'_>> = Vec::new();
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
        notes.push(Line::raw("  … `mcp-sessiond status` says the rest"));
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
    let mut text: Vec<Line<'_>> = Vec::new();
    if needed > 0 && room > 0 {
        let rows = all.split_off(1);
        text.extend(all);
        text.extend(rows.into_iter().skip(first).take(shown));
    }
    let text: Vec<Line<'_>> = text.into_iter().map(|line| from(line, left)).collect();
    lines(frame, area, text.into_iter().chain(notes));
    (model.first, model.left) = (first, left);
}

/// The heading, and a line for each row.
fn table(model: &Model, seen: &Snapshot, width: usize) -> Vec<Line<'static>> {
    let cells: Vec<Vec<String>> = seen.rows.iter().map(|row| row.cells.clone()).collect();
    let width = (!model.is_wide).then_some(width.saturating_sub(MARKS[0].len()));
    let heading = listing::heading(model.is_wide);
    let keepers = std::iter::once(None).chain(seen.rows.iter().map(|row| row.keeper));
    let laid_out = table::laid_out(heading, &cells, width);
    let line = |(number, (cells, keeper)): (usize, (Vec<table::Cell>, Option<_>))| {
        let is_selected = keeper.is_some() && keeper == model.selected;
        let mut spans = vec![Span::raw(MARKS[usize::from(!is_selected)])];
        for (at, table::Cell { text, behind }) in cells.into_iter().enumerate() {
            let painted = if number == 0 {
                Some(HEADING)
            } else {
                listing::style(at, &text)
            };
            let text = harmless(&text);
            spans.push(Span::styled(
                text,
                painted.map_or_else(Style::new, |painted| style(model, painted)),
            ));
            spans.push(Span::raw(" ".repeat(behind)));
        }
        let line = Line::from(spans);
        if is_selected {
            line.patch_style(Style::new().add_modifier(Modifier::BOLD))
        } else {
            line
        }
    };
    laid_out
        .into_iter()
        .zip(keepers)
        .enumerate()
        .map(line)
        .collect()
}

/// The log of a server, its last lines at the bottom.
fn log(frame: &mut Frame<'_>, model: &mut Model, top: Rect, area: Rect) {
    let heading = style(model, HEADING);
    let Page::Log(LogPage {
        called,
        lines: read,
        up,
    }) = &mut model.page
    else {
        return;
    };
    frame.render_widget(
        Line::styled(format!("Log of {}", harmless(called)), heading),
        top,
    );
    let area = below(area);
    let (width, height) = (usize::from(area.width).max(1), usize::from(area.height));
    let broken: Vec<String> = read
        .iter()
        .flat_map(|line| pieces(&harmless(line), width))
        .collect();
    *up = (*up).min(broken.len().saturating_sub(height));
    let end = broken.len() - *up;
    let begin = end.saturating_sub(height);
    let text = broken[begin..end]
        .iter()
        .map(|line| Line::raw(line.clone()));
    if read.is_empty() {
        lines(frame, area, [Line::raw("nothing yet")]);
    } else {
        lines(frame, area, text);
    }
}

/// A line in pieces that are not wider than the screen.
fn pieces(line: &str, width: usize) -> Vec<String> {
    let (mut pieces, mut piece, mut taken) = (Vec::new(), String::new(), 0);
    for letter in line.chars() {
        let wide = if letter.is_ascii() {
            1
        } else {
            Span::raw(letter.to_string()).width()
        };
        if taken + wide > width && taken > 0 {
            pieces.push(std::mem::take(&mut piece));
            taken = 0;
        }
        piece.push(letter);
        taken += wide;
    }
    pieces.push(piece);
    pieces
}

/// A sentence under the rows, an empty line before it.
fn sentence(text: &str, width: usize, style: Style) -> Vec<Line<'static>> {
    let text = wrapped(&harmless(text), Some(width));
    let lines = text
        .lines()
        .map(|line| Line::styled(line.to_owned(), style));
    std::iter::once(Line::default()).chain(lines).collect()
}

/// What is left of a line behind so many columns.
fn from(line: Line<'static>, left: usize) -> Line<'static> {
    if left == 0 {
        return line;
    }
    let mut over = left;
    let spans = line.spans.into_iter().map(|span| {
        let taken = over.min(span.content.chars().count());
        over -= taken;
        Span::styled(
            span.content.chars().skip(taken).collect::<String>(),
            span.style,
        )
    });
    let style = line.style;
    Line::from(spans.collect::<Vec<_>>()).style(style)
}

/// Draws lines from the top; what does not fit is not drawn.
fn lines<'a>(frame: &mut Frame<'_>, area: Rect, lines: impl IntoIterator<Item = Line<'a>>) {
    for (line, y) in lines
        .into_iter()
        .zip(area.y..area.y.saturating_add(area.height))
    {
        frame.render_widget(
            line,
            Rect {
                y,
                height: 1,
                ..area
            },
        );
    }
}

/// Without the empty line at the top, where there is room for one.
fn below(area: Rect) -> Rect {
    let taken = u16::from(area.height > 4);
    Rect {
        y: area.y + taken,
        height: area.height - taken,
        ..area
    }
}

/// What somebody else wrote; a tab has no width of its own.
fn harmless(text: &str) -> String {
    table::printable(text).replace('\t', "    ")
}

/// As everything else that is printed is painted.
fn style(model: &Model, painted: Painted) -> Style {
    let colour = match painted.get_fg_color() {
        Some(Anstyle::Ansi(AnsiColor::Green)) => Some(Color::Green),
        Some(Anstyle::Ansi(AnsiColor::Red)) => Some(Color::Red),
        Some(Anstyle::Ansi(AnsiColor::Yellow)) => Some(Color::Yellow),
        _ => None,
    };
    let is_bold = painted.get_effects().contains(Effects::BOLD);
    let style = Style::new().add_modifier(if is_bold {
        Modifier::BOLD
    } else {
        Modifier::empty()
    });
    match colour {
        Some(colour) if model.has_colours => style.fg(colour),
        _ => style,
    }
}
