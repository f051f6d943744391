//! A line on its way, and what it carries: one message, or a batch of them. Lines are spliced here,
//! never written anew.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use bytes::Bytes;

use mcp_sessiond_jsonrpc::Edits;
use mcp_sessiond_jsonrpc::message::{Line, Message, Part};

/// A line that waits to be handed out.
pub(super) struct Entry<P> {
    /// The line, without its newline.
    pub line: Bytes,
    /// What it carries, and where; one part, unless it is a batch.
    pub parts: Vec<(Range<usize>, P)>,
    batch: bool,
}

impl<P> Entry<P> {
    /// A line that carries one message.
    pub(super) fn one(line: Bytes, part: P) -> Self {
        let span = 0..line.len();
        Self {
            line,
            parts: vec![(span, part)],
            batch: false,
        }
    }

    /// Keeps the parts that are wanted, and gives those back that are not, if there are any, as an
    /// entry of their own.
    pub(super) fn split(self, mut wanted: impl FnMut(&P) -> bool) -> (Option<Self>, Option<Self>) {
        let Self { line, parts, batch } = self;
        let (kept, others): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|(_, part)| wanted(part));
        if kept.is_empty() || others.is_empty() {
            let whole = |parts: Vec<_>| {
                (!parts.is_empty()).then_some(Self {
                    line: line.clone(),
                    parts,
                    batch,
                })
            };
            return (whole(kept), whole(others));
        }
        (
            Some(Self::batch(&line, kept)),
            Some(Self::batch(&line, others)),
        )
    }

    /// A batch of what stood in another one.
    fn batch(from: &Bytes, parts: Vec<(Range<usize>, P)>) -> Self {
        let mut line =
            Vec::with_capacity(parts.iter().map(|(span, _)| span.len() + 1).sum::<usize>() + 1);
        let parts = parts
            .into_iter()
            .map(|(span, part)| {
                line.push(if line.is_empty() { b'[' } else { b',' });
                let start = line.len();
                line.extend_from_slice(&from[span]);
                (start..line.len(), part)
            })
            .collect();
        line.push(b']');
        Self {
            line: line.into(),
            parts,
            batch: true,
        }
    }
}

/// What becomes of a message: it goes on with edits, or it ends here.
pub(super) type Verdict<P> = Option<(Edits, P)>;

/// Translates a line: asks about every message in it, and leaves everything else as it stands.
/// `other` is for what is not JSON-RPC; if that shows an id, it does not go on. None if nothing
/// is to be handed on.
pub(super) fn translate<P>(
    line: &Bytes,
    read: &Line<'_>,
    other: impl Fn() -> P,
    mut each: impl FnMut(&Message<'_>) -> Verdict<P>,
) -> Option<Entry<P>> {
    match read {
        Line::Blank => None,
        Line::One(Part::Unreadable(_)) => None,
        Line::One(Part::Other) => Some(Entry::one(line.clone(), other())),
        Line::One(Part::Message(message)) => {
            let (edits, part) = each(message)?;
            if edits.is_empty() {
                return Some(Entry::one(line.clone(), part));
            }
            Some(Entry::one(edits.spliced(message).into(), part))
        }
        Line::Batch(elements) => {
            let mut out = Vec::with_capacity(line.len() + 16 * elements.len());
            let mut parts = Vec::with_capacity(elements.len());
            let mut from = 0;
            for (span, element) in elements {
                out.extend_from_slice(&line[from..span.start]);
                let start = out.len();
                let verdict = match element {
                    Part::Message(message) => each(message).map(|(edits, part)| {
                        edits.write(message, &mut out);
                        part
                    }),
                    Part::Unreadable(_) => None,
                    Part::Other => {
                        out.extend_from_slice(&line[span.clone()]);
                        Some(other())
                    }
                };
                parts.push((start..out.len(), verdict));
                from = span.end;
            }
            out.extend_from_slice(&line[from..]);
            let whole = Entry {
                line: out.into(),
                parts,
                batch: true,
            };
            let kept = whole.split(Option::is_some).0?;
            let Entry { line, parts, batch } = kept;
            let parts = parts
                .into_iter()
                .filter_map(|(span, part)| Some((span, part?)))
                .collect();
            Some(Entry { line, parts, batch })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_split_into_batches() {
        let line = Bytes::from_static(b"[ 1 , 22,333 ]");
        let entry = Entry {
            line,
            parts: vec![(2..3, 1), (6..8, 2), (9..12, 3)],
            batch: true,
        };
        let (odd, even) = entry.split(|part| part % 2 == 1);
        assert_eq!(odd.expect("odd").line, "[1,333]");
        assert_eq!(even.expect("even").line, "[22]");
    }
}
