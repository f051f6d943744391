//! Aligned tables without frames, coloured on a terminal only, and what stands in them.

use anstream::adapter::strip_str;
use anstyle::{AnsiColor, Style};
pub(crate) use mcp_sessiond_proto::text::printable;
use terminal_size::{Width, terminal_size_of};

/// Headings.
pub(crate) const HEADING: Style = Style::new().bold();
/// What is as it should be.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// What is not.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
/// What deserves a look.
pub(crate) const DOUBTFUL: Style = AnsiColor::Yellow.on_default();

/// The lines of a table, its heading first. Cells may be painted. No column is wrapped.
pub(crate) fn render(heading: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    fitted(
        heading,
        &rows.into_iter().collect::<Vec<_>>(),
        None,
        |_, cell| cell.to_owned(),
    )
}

/// The same, or a block of lines for each row where the table is wider than the terminal. What
/// reads a pipe gets the table.
pub(crate) fn listing(heading: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    within(heading, &rows.into_iter().collect::<Vec<_>>(), columns())
}

/// The same, or a sentence where there are no rows.
pub(crate) fn listing_or(
    heading: &[&str],
    rows: impl ExactSizeIterator<Item = Vec<String>>,
    none: &str,
) -> String {
    if rows.len() == 0 {
        format!("{none}\n")
    } else {
        listing(heading, rows)
    }
}

/// How wide the terminal is that standard output is, if it is one.
pub(crate) fn columns() -> Option<usize> {
    terminal_size_of(std::io::stdout()).map(|(Width(columns), _)| usize::from(columns))
}

fn within(heading: &[&str], rows: &[Vec<String>], columns: Option<usize>) -> String {
    let table = fitted(heading, rows, None, |_, cell| cell.to_owned());
    let widest = table.lines().map(length).max().unwrap_or_default();
    if columns.is_none_or(|columns| widest <= columns) {
        return table;
    }
    let names = heading
        .iter()
        .map(|name| name.len())
        .max()
        .unwrap_or_default();
    let line = |(name, cell): (&&str, &String)| {
        let gap = " ".repeat(names - name.len() + 2);
        format!("{}{gap}{cell}\n", paint(HEADING, &name.to_uppercase()))
    };
    let block = |row: &Vec<String>| {
        heading
            .iter()
            .zip(row)
            .filter(|(_, cell)| *cell != "-")
            .map(line)
            .collect()
    };
    rows.iter().map(block).collect::<Vec<String>>().join("\n")
}

/// The same within so many columns: the first cells of a row are shortened, in their middle, where
/// that is too much. There may be more cells than headings; those are left out. `style` paints a
/// cell that has its final length.
pub(crate) fn fitted(
    heading: &[&str],
    rows: &[Vec<String>],
    width: Option<usize>,
    style: impl Fn(usize, &str) -> String,
) -> String {
    let mut text = String::new();
    for (number, cells) in laid_out(heading, rows, width).into_iter().enumerate() {
        for (at, Cell { text: cell, behind }) in cells.iter().enumerate() {
            text += &if number == 0 {
                paint(HEADING, cell)
            } else {
                style(at, cell)
            };
            text += &" ".repeat(*behind);
        }
        text += "\n";
    }
    text
}

/// A cell of its final length.
pub(crate) struct Cell {
    pub(crate) text: String,
    /// How many spaces come behind it.
    pub(crate) behind: usize,
}

/// How many columns the table has that shortens nothing.
pub(crate) fn width(heading: &[&str], rows: &[Vec<String>]) -> usize {
    let widest = |at: usize, name: &str| {
        let cells = rows.iter().filter_map(|row| row.get(at));
        cells.map(|cell| length(cell)).chain([length(name)]).max()
    };
    let widths = heading.iter().enumerate();
    let all: usize = widths.filter_map(|(at, name)| widest(at, name)).sum();
    all + GAP * heading.len().saturating_sub(1)
}

/// Columns between two cells.
const GAP: usize = 2;

/// The cells of the lines that [`fitted`] makes, those of the heading first.
pub(crate) fn laid_out(
    heading: &[&str],
    rows: &[Vec<String>],
    width: Option<usize>,
) -> Vec<Vec<Cell>> {
    /// How many cells can be shortened, and to what.
    const ELASTIC: [usize; 2] = [16, 10];
    let mut widths: Vec<usize> = heading.iter().map(|name| length(name)).collect();
    for row in rows {
        for (most, cell) in widths.iter_mut().zip(row) {
            *most = (*most).max(length(cell));
        }
    }
    let whole = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
    let mut over = width.map_or(0, |width| whole.saturating_sub(width));
    // The second one first: the first names the row.
    for (at, least) in ELASTIC.into_iter().enumerate().rev() {
        let taken = over.min(widths[at].saturating_sub(least));
        widths[at] -= taken;
        over -= taken;
    }
    let line = |cells: &[String]| {
        let last = widths.len().min(cells.len()).saturating_sub(1);
        let cell = |(at, (cell, width)): (usize, (&String, &usize))| {
            let text = shortened(cell, *width);
            let behind = if at < last {
                width - length(&text) + GAP
            } else {
                0
            };
            Cell { text, behind }
        };
        cells.iter().zip(&widths).enumerate().map(cell).collect()
    };
    let names: Vec<String> = heading.iter().map(|name| name.to_uppercase()).collect();
    std::iter::once(&names)
        .chain(rows)
        .map(|row| line(row))
        .collect()
}

/// How many characters of a text are seen.
fn length(text: &str) -> usize {
    strip_str(text).map(|part| part.chars().count()).sum()
}

/// A text of at most so many characters, without its middle where it has more. A short last word is
/// kept, such as a pid; else a short first one, and the end of what is behind it.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    if length(text) <= most {
        return text.to_owned();
    }
    let letters: Vec<char> = text.chars().collect();
    let kept = most.saturating_sub(1);
    let first = letters.iter().take_while(|letter| **letter != ' ').count() + 1;
    let last = letters
        .iter()
        .rev()
        .take_while(|letter| **letter != ' ')
        .count()
        + 1;
    let tail = if last + 3 <= kept {
        last
    } else if first + 6 <= kept {
        kept - first
    } else {
        kept / 2
    };
    let head = kept - tail;
    letters[..head]
        .iter()
        .chain(['…'].iter())
        .chain(&letters[letters.len() - tail..])
        .collect()
}

/// Words in lines of so many columns. The first line goes on at the column `at`, and the others are
/// indented by `indent`. A word that is longer has a line of its own.
pub(crate) fn filled(text: &str, at: usize, indent: usize, width: usize) -> String {
    let (mut lines, mut column) = (String::new(), at);
    for (nth, word) in text.split_whitespace().enumerate() {
        let length = word.chars().count();
        if nth > 0 && column + 1 + length > width {
            lines += &format!("\n{:indent$}{word}", "");
            column = indent + length;
        } else {
            let blank = if nth > 0 { " " } else { "" };
            lines += blank;
            lines += word;
            column += blank.len() + length;
        }
    }
    lines + "\n"
}

/// Words in lines of so many columns, those behind the first indented.
pub(crate) fn wrapped(text: &str, width: Option<usize>) -> String {
    width.map_or_else(|| format!("{text}\n"), |width| filled(text, 0, 2, width))
}

/// Lines within so many columns: what is too long goes on below, behind the indentation of its
/// line.
pub(crate) fn lines_within(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else {
        return text.to_owned();
    };
    let fitting = |line: &str| {
        let indent = line.len() - line.trim_start().len();
        if line.chars().count() <= width {
            format!("{line}\n")
        } else {
            line[..indent].to_owned() + &filled(line, indent, indent + 2, width)
        }
    };
    text.lines().map(fitting).collect()
}

/// `text` in a style; what prints it takes the style away where there is no terminal.
pub(crate) fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// A time span as people say it.
pub(crate) fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0 => format!("{ms} ms"),
        1..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A size as people say it.
pub(crate) fn bytes(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / 1024 / 1024),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_keeps_within_its_columns() {
        let row = |first: &str, second: &str| {
            vec![first.into(), second.into(), "third".into(), "more".into()]
        };
        let rows = [
            row(&"é".repeat(40), "second 4711"),
            row("short", &"x".repeat(30)),
        ];
        let plain = |_: usize, cell: &str| cell.to_owned();
        for width in [39, 40, 60, 100] {
            let text = strip_str(&fitted(&["a", "b", "c"], &rows, Some(width), plain)).to_string();
            let most = text.lines().map(|line| line.chars().count()).max();
            assert_eq!(most, Some(width.min(79)), "{text}");
            assert!(text.lines().all(|line| !line.ends_with(' ')), "{text}");
        }
        let whole = fitted(&["a", "b", "c", "d"], &rows, None, plain);
        assert!(
            whole.contains(&"é".repeat(40)) && whole.contains("more"),
            "{whole}"
        );
        assert_eq!(shortened("npx @playwright/mcp", 16), "npx …ywright/mcp");
        assert_eq!(shortened("containerd-like-name", 11), "conta…-name");
        assert_eq!(shortened("claude-desktop 4711", 14), "claude-d… 4711");
        assert_eq!(shortened("abc", 3), "abc");
    }

    #[test]
    fn a_table_that_is_too_wide_is_a_block_for_each_row() {
        let rows = [
            ["one", "-", "long"].map(String::from).to_vec(),
            ["two", "b", "-"].map(String::from).to_vec(),
        ];
        let shown = |columns| strip_str(&within(&["a", "bc", "d"], &rows, columns)).to_string();
        assert_eq!(shown(Some(13)), "A    BC  D\none  -   long\ntwo  b   -\n");
        assert_eq!(
            (shown(None), shown(Some(100))),
            (shown(Some(13)), shown(Some(13)))
        );
        assert_eq!(shown(Some(12)), "A   one\nD   long\n\nA   two\nBC  b\n");
    }

    #[test]
    fn what_is_painted_is_aligned_as_it_is_seen() {
        let rows = [
            vec![paint(BAD, "ill"), "x".into()],
            vec!["healthy".into(), "y".into()],
        ];
        let text = strip_str(&render(&["state", "n"], rows)).to_string();
        assert_eq!(text, "STATE    N\nill      x\nhealthy  y\n");
    }

    #[test]
    fn words_are_wrapped_between_them() {
        assert_eq!(
            wrapped("one two  three four", Some(9)),
            "one two\n  three\n  four\n"
        );
        assert_eq!(wrapped("one two", None), "one two\n");
        assert_eq!(
            wrapped("incomprehensible words", Some(5)),
            "incomprehensible\n  words\n"
        );
    }

    #[test]
    fn lines_keep_their_indentation() {
        let text = "a: one  two\n  + three four five\n";
        assert_eq!(lines_within(text, None), text);
        assert_eq!(lines_within(text, Some(19)), text);
        assert_eq!(
            lines_within(text, Some(14)),
            "a: one  two\n  + three four\n    five\n"
        );
    }

    #[test]
    fn what_a_server_wrote_does_nothing_to_a_terminal() {
        assert_eq!(printable("\u{1b}[2J\tok\u{7}é"), "\u{fffd}[2J\tok\u{fffd}é");
        assert_eq!(printable("a\u{202e}cod.exe\n"), "a\u{fffd}cod.exe\u{fffd}");
    }
}
