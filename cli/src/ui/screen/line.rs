//! A line of the screen: pieces of text, each painted.

use anstyle::Style;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// A line that is wider than the screen is cut where it is drawn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Line(Vec<(Style, String)>);

impl Line {
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self::styled(text, Style::new())
    }

    pub(crate) fn styled(text: impl Into<String>, style: Style) -> Self {
        Self(vec![(style, text.into())])
    }

    /// Adds a piece.
    pub(crate) fn push(&mut self, text: impl Into<String>, style: Style) {
        self.0.push((style, text.into()));
    }

    /// All of it in bold.
    pub(crate) fn bold(mut self) -> Self {
        for (style, _) in &mut self.0 {
            *style = style.bold();
        }
        self
    }

    /// The columns that it takes.
    pub(crate) fn width(&self) -> usize {
        self.0.iter().map(|(_, text)| text.width()).sum()
    }

    /// What is left of it behind so many columns.
    pub(crate) fn behind(mut self, columns: usize) -> Self {
        let mut over = columns;
        for (_, text) in &mut self.0 {
            text.drain(..fitting(text, &mut over));
        }
        self
    }

    /// Its first columns, and another line right behind them, at the right edge.
    pub(crate) fn beside(mut self, other: Self, columns: usize) -> Self {
        let mut room = columns.saturating_sub(other.width());
        for (_, text) in &mut self.0 {
            text.truncate(fitting(text, &mut room));
        }
        self.push(" ".repeat(room), Style::new());
        self.0.extend(other.0);
        self
    }

    /// As it is written, in so many columns.
    pub(crate) fn painted(&self, columns: usize) -> String {
        let mut room = columns;
        let piece = |(style, text): &(Style, String)| {
            let text = &text[..fitting(text, &mut room)];
            format!("{style}{text}{style:#}")
        };
        self.0.iter().map(piece).collect()
    }
}

/// How many bytes of a text are in so many columns, which it takes away.
fn fitting(text: &str, room: &mut usize) -> usize {
    let mut bytes = 0;
    for letter in text.chars() {
        let width = letter.width().unwrap_or_default();
        if width > *room {
            *room = 0;
            break;
        }
        *room -= width;
        bytes += letter.len_utf8();
    }
    bytes
}

/// A text in pieces of so many columns.
pub(crate) fn pieces(text: &str, columns: usize) -> Vec<String> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    loop {
        let first = rest.chars().next().map_or(0, char::len_utf8);
        let bytes = fitting(rest, &mut columns.clone()).max(first);
        let (piece, behind) = rest.split_at(bytes);
        pieces.push(piece.to_owned());
        if behind.is_empty() {
            return pieces;
        }
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_by_the_columns_that_its_letters_take() {
        let mut line = Line::plain("aé");
        line.push("\u{6f22}\u{5b57}", Style::new());
        assert_eq!(line.width(), 6);
        for (columns, text) in [
            (6, "aé\u{6f22}\u{5b57}"),
            (5, "aé\u{6f22}"),
            (3, "aé"),
            (0, ""),
        ] {
            assert_eq!(line.painted(columns), text, "{columns}");
        }
        assert_eq!(line.clone().behind(1).painted(9), "é\u{6f22}\u{5b57}");
        assert_eq!(line.clone().behind(4).painted(9), "\u{5b57}");
        let other = Line::plain("xy");
        assert_eq!(
            line.clone().beside(other.clone(), 10).painted(10),
            "aé\u{6f22}\u{5b57}  xy"
        );
        assert_eq!(line.beside(other, 4).painted(4), "aéxy");
    }

    #[test]
    fn a_text_is_broken_where_a_letter_would_go_over_the_edge() {
        assert_eq!(pieces("ab\u{6f22}c", 3), ["ab", "\u{6f22}c"]);
        assert_eq!(pieces("\u{6f22}", 1), ["\u{6f22}"]);
        assert_eq!(pieces("", 3), [""]);
    }
}
