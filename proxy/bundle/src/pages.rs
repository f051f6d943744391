//! A list of which pages come one by one.

use std::collections::BTreeSet;

use mcp_sessiond_jsonrpc::code;
use mcp_sessiond_jsonrpc::object::{Object, raw};
use mcp_sessiond_jsonrpc::owned::Outcome;
use serde_json::value::RawValue;

use crate::call::List;

/// Pages of one list. A server may never come to an end.
pub(crate) const PAGES_MAX: usize = 1_000;

/// The pages that have come so far.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    first: Option<Object>,
    items: Vec<Box<RawValue>>,
    /// What the items are called.
    names: BTreeSet<String>,
    /// The text of the cursor of the page that is next.
    next: Option<Box<RawValue>>,
    /// Those of the pages before.
    former: BTreeSet<String>,
    count: usize,
}

/// What a page has brought.
#[derive(Debug)]
pub(crate) enum Page {
    /// There is more, behind this cursor.
    More(Box<RawValue>),
    /// The whole list, as one page; or that there is no such method.
    Whole(Outcome),
    /// There is more than is asked for.
    TooMany,
    /// It can't be made out, and why.
    Failed(String),
}

impl Pages {
    /// Whether the page behind this cursor is the next one. It is asked for by this: a second
    /// request for it would bring it twice.
    pub(crate) fn continues_at(&mut self, cursor: &RawValue) -> bool {
        self.next
            .take_if(|next| next.get() == cursor.get())
            .is_some()
    }

    /// The next page has come. A cursor that leads nowhere, or to where one has led before, ends the
    /// list; of what comes twice by that the first counts.
    pub(crate) fn add(&mut self, list: List, page: &Outcome) -> Page {
        let page = match page {
            Ok(page) => Object::read(page).ok_or("the answer is not an object".to_owned()),
            // Many servers with resources have no templates, and answer so.
            Err(error) if error.code == code::NO_METHOD && self.first.is_none() => {
                return Page::Whole(Err(error.clone()));
            }
            Err(error) => Err(error.message.clone()),
        };
        let items = page.and_then(|page| match page.array(list.key()) {
            Some(items) => Ok((page, items)),
            None => Err(format!("there is no {:?}", list.key())),
        });
        let (page, items) = match items {
            Ok(read) => read,
            Err(why) => return Page::Failed(why),
        };
        let is_first = self.first.is_none();
        for item in items {
            let name = Object::read(&item).and_then(|item| item.text(list.name()));
            let is_new = name.is_none_or(|name| self.names.insert(name));
            if is_new || is_first {
                self.items.push(item);
            }
        }
        self.count += 1;
        let cursor = page.get("nextCursor").map(ToOwned::to_owned);
        self.next = cursor.filter(|cursor| {
            !["null", "\"\""].contains(&cursor.get()) && self.former.insert(cursor.get().to_owned())
        });
        self.first.get_or_insert(page);
        match &self.next {
            None => Page::Whole(Ok(self.so_far(list))),
            Some(next) if self.count < PAGES_MAX => Page::More(next.clone()),
            Some(_) => Page::TooMany,
        }
    }

    /// How many have come.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// What has come, as one page.
    pub(crate) fn so_far(&self, list: List) -> Box<RawValue> {
        let mut whole = self.first.clone().unwrap_or_default();
        whole.remove("nextCursor");
        whole.set(list.key(), raw(&self.items));
        whole.write()
    }
}

/// The parameters of a request for the page behind a cursor.
pub(crate) fn behind(cursor: Option<Box<RawValue>>) -> Option<Box<RawValue>> {
    cursor.map(|cursor| {
        let mut params = Object::default();
        params.set("cursor", cursor);
        params.write()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw_of(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).expect("JSON")
    }

    fn add(pages: &mut Pages, text: &str) -> Page {
        pages.add(List::Tools, &Ok(raw_of(text)))
    }

    #[test]
    fn pages_make_one_list_that_stays_as_it_was_written() {
        let mut pages = Pages::default();
        let first = r#"{"_meta":{"a":1.0},"tools":[{"name":"b","x":1e400}],"nextCursor":"\u0032"}"#;
        let Page::More(cursor) = add(&mut pages, first) else {
            panic!("there is more")
        };
        assert_eq!(cursor.get(), r#""\u0032""#);
        assert!(
            !pages.continues_at(&raw_of("\"3\""))
                && pages.continues_at(&cursor)
                && !pages.continues_at(&cursor)
        );
        let Page::Whole(Ok(whole)) =
            add(&mut pages, r#"{"tools":[{"name":"a"}],"nextCursor":null}"#)
        else {
            panic!("it is whole")
        };
        assert_eq!(
            whole.get(),
            r#"{"_meta":{"a":1.0},"tools":[{"name":"b","x":1e400},{"name":"a"}]}"#
        );
    }

    #[test]
    fn a_cursor_that_leads_nowhere_ends_a_list() {
        for (cursors, names) in [
            (&[r#""""#][..], &["0"][..]),
            (&["null"], &["0"]),
            (&["1", "1"], &["0", "1"]),
            (&["\"a\"", "\"b\"", "\"a\""], &["0", "1", "2"]),
        ] {
            let mut pages = Pages::default();
            let mut last = None;
            for (name, cursor) in cursors.iter().enumerate() {
                // What was listed before comes again.
                let tools = format!(r#"[{{"name":"{name}"}},{{"name":"0"}}]"#);
                let tools = if name == 0 {
                    r#"[{"name":"0"}]"#.to_owned()
                } else {
                    tools
                };
                let page = format!(r#"{{"tools":{tools},"nextCursor":{cursor}}}"#);
                last = Some(add(&mut pages, &page));
            }
            let Some(Page::Whole(Ok(whole))) = last else {
                panic!("{cursors:?}: {last:?}")
            };
            let tools: Vec<_> = names
                .iter()
                .map(|name| format!(r#"{{"name":"{name}"}}"#))
                .collect();
            assert_eq!(whole.get(), format!(r#"{{"tools":[{}]}}"#, tools.join(",")));
        }
    }
}
