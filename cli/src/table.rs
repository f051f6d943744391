//! Aligned tables without frames, coloured on a terminal only.

use anstyle::{AnsiColor, Style};
use comfy_table::{Cell, Table, presets};

/// Headings.
pub(super) const HEADING: Style = Style::new().bold();
/// What is as it should be.
pub(super) const GOOD: Style = AnsiColor::Green.on_default();
/// What is not.
pub(super) const BAD: Style = AnsiColor::Red.on_default().bold();
/// What deserves a look.
pub(super) const DOUBTFUL: Style = AnsiColor::Yellow.on_default();

/// The lines of a table, its heading first. No column is wrapped.
pub(super) fn render(heading: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(heading.iter().map(|name| Cell::new(name.to_uppercase())));
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    let mut lines = lines.into_iter();
    let heading = lines.next().map(|line| paint(HEADING, &line)).unwrap_or_default();
    std::iter::once(heading).chain(lines).map(|line| line + "\n").collect()
}

/// `text` in a style; what prints it takes the style away where there is no terminal.
pub(super) fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}
