//! What the parts of sessions are like, such as the servers of a list: as long as the connection is
//! open by which they were told, and some of them can't be used. So nothing is shown of a front that
//! is gone, and whoever connects to another daemon tells it again.

use std::collections::BTreeMap;
use std::sync::Mutex;

use mcp_sessiond_proto::Lock as _;
use mcp_sessiond_proto::debug::{ContentPage, PAGE_MAX, SessionParts};
use mcp_sessiond_proto::sessions::{Part, PartState};

use crate::storage::RecordId;

/// Sessions whose parts are known at once: a status is up to 16 KiB.
const SESSIONS_MAX: usize = 256;

/// Parts that a metric names.
const NAMED_MAX: usize = 100;

/// A connection, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Teller(u64);

/// The parts of sessions.
#[derive(Debug, Default)]
pub struct Parts(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    tellers: u64,
    sessions: BTreeMap<RecordId, (Teller, Vec<Part>)>,
}

impl Parts {
    /// A connection that may tell something.
    pub fn teller(&self) -> Teller {
        let mut inner = self.0.locked();
        inner.tellers += 1;
        Teller(inner.tellers)
    }

    /// These are a session's parts now. What has changed is logged.
    pub fn told(&self, teller: Teller, place: RecordId, parts: &[Part]) {
        let mut inner = self.0.locked();
        let former = inner.sessions.remove(&place).map(|(_, parts)| parts);
        log_changes(&place, former.as_deref().unwrap_or_default(), parts);
        let all_are_ready = parts.iter().all(|part| part.is == PartState::Ready);
        if !all_are_ready && inner.sessions.len() < SESSIONS_MAX {
            inner.sessions.insert(place, (teller, parts.to_vec()));
        }
    }

    /// What this connection has told of a session is not so any more.
    pub fn withdraw(&self, teller: Teller, place: &RecordId) {
        let mut inner = self.0.locked();
        if inner
            .sessions
            .get(place)
            .is_some_and(|(by, _)| *by == teller)
        {
            inner.sessions.remove(place);
        }
    }

    /// A connection has ended.
    pub fn forget(&self, teller: Teller) {
        let mut inner = self.0.locked();
        inner.sessions.retain(|_, (by, _)| *by != teller);
    }

    /// The sessions that have parts that can't be used, in order of owner and id, a page at a time.
    pub fn list(&self, page: ContentPage) -> Vec<SessionParts> {
        let after = page.after.map(|(owner, session)| RecordId {
            owner,
            name: session.to_string(),
        });
        let inner = self.0.locked();
        let listed = inner
            .sessions
            .iter()
            .filter(|(place, _)| after.as_ref().is_none_or(|after| *place > after))
            .take(PAGE_MAX);
        listed
            .filter_map(|(place, (_, parts))| {
                Some(SessionParts {
                    owner: place.owner.clone(),
                    session: place.name.parse().ok()?,
                    parts: parts.clone(),
                })
            })
            .collect()
    }

    /// The parts that have failed, by name and code: in how many sessions.
    pub fn failed(&self) -> BTreeMap<(String, String), u64> {
        let inner = self.0.locked();
        let mut failed = BTreeMap::new();
        let parts = inner.sessions.values().flat_map(|(_, parts)| parts);
        for part in parts.filter(|part| part.is == PartState::Failed) {
            let what = (part.part.clone(), part.code.clone().unwrap_or_default());
            if failed.len() < NAMED_MAX || failed.contains_key(&what) {
                *failed.entry(what).or_default() += 1;
            }
        }
        failed
    }
}

/// Never a message: it may quote what a server has said.
fn log_changes(place: &RecordId, former: &[Part], parts: &[Part]) {
    let session = &place.name;
    for part in parts {
        let name = &part.part;
        let was = former.iter().find(|former| former.part == *name);
        let was_so = was.is_some_and(|was| (was.is, &was.code) == (part.is, &part.code));
        let had_failed = was.is_some_and(|was| was.is == PartState::Failed);
        match part.is {
            PartState::Failed if !was_so => {
                let code = part.code.as_deref().unwrap_or_default();
                tracing::warn!(
                    session,
                    part = name,
                    code,
                    "a part of a session can't be used"
                );
            }
            PartState::Ready if had_failed => {
                tracing::info!(
                    session,
                    part = name,
                    "a part of a session can be used again"
                );
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> RecordId {
        RecordId {
            owner: "service web".into(),
            name: name.into(),
        }
    }

    fn part(name: &str, is: PartState) -> Part {
        Part {
            part: name.into(),
            is,
            since_ms: None,
            code: (is == PartState::Failed).then(|| "refused".into()),
            message: None,
        }
    }

    fn listed(parts: &Parts) -> Vec<String> {
        let page = parts.list(ContentPage::default());
        page.iter().map(|one| one.session.to_string()).collect()
    }

    #[test]
    fn parts_are_known_as_long_as_who_told_them_is_there() {
        let parts = Parts::default();
        let (one, other) = (parts.teller(), parts.teller());
        let failed = [
            part("mail", PartState::Failed),
            part("maps", PartState::Ready),
        ];
        parts.told(one, place("a"), &failed);
        parts.told(other, place("b"), &failed);
        assert_eq!(listed(&parts), ["a", "b"]);
        // In each session one has failed; the other name is of none.
        let expected = (("mail".to_owned(), "refused".to_owned()), 2);
        assert_eq!(parts.failed().into_iter().collect::<Vec<_>>(), [expected]);
        parts.withdraw(other, &place("a"));
        assert_eq!(listed(&parts), ["a", "b"], "it is another's");
        parts.forget(one);
        assert_eq!(listed(&parts), ["b"]);
        parts.told(other, place("b"), &[part("mail", PartState::Ready)]);
        assert!(
            listed(&parts).is_empty() && parts.failed().is_empty(),
            "all are ready"
        );
    }

    #[test]
    fn there_is_an_end_to_what_is_kept_and_a_page_goes_on_after_the_one_before() {
        let parts = Parts::default();
        let teller = parts.teller();
        for number in 0..SESSIONS_MAX + 1 {
            let failed = part(&format!("part {number}"), PartState::Failed);
            parts.told(teller, place(&format!("s{number:04}")), &[failed]);
        }
        assert_eq!(parts.failed().len(), NAMED_MAX);
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = parts.list(ContentPage { after });
            let Some(last) = page.last() else { break };
            after = Some((last.owner.clone(), last.session.clone()));
            all.extend(page.into_iter().map(|one| one.session.to_string()));
        }
        assert_eq!(all.len(), SESSIONS_MAX);
        assert!(all.is_sorted());
    }
}
