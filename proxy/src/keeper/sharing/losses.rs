//! What became of former backends, and which of the hosts that share one were told.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use mcp_sessiond_proto::LossId;
use mcp_sessiond_proto::backends::ENDED_MAX as ENDS;
use tokio::time::Instant;

/// For how long a host that comes is told of an end: as long as its front is waited for by default
/// (`backends.linger_ms`). Whoever comes later expects no former server.
const TOLD_WITHIN: Duration = Duration::from_secs(600);

/// Hosts of which it is remembered what they were told. More are told once more.
const HOSTS: usize = 1024;

/// A host, by the process that has started its front: its pid. If another host has it later, that one
/// is told of what happens from then on.
pub(super) type Host = u32;

struct End {
    why: String,
    at: Instant,
    /// By which number the daemon has it on record, until a host was told.
    record: Option<LossId>,
}

/// The ends of backends. They are counted from 0 on.
#[derive(Default)]
pub(super) struct Losses {
    ends: VecDeque<End>,
    /// How many were forgotten.
    forgotten: usize,
    /// How many backends somebody has ended on purpose, and why and when the last one.
    renewals: u64,
    renewed: Option<(String, Instant)>,
    told: BTreeMap<Host, Told>,
}

/// What a host was told.
#[derive(Default)]
struct Told {
    /// How many ends, or came too late for.
    count: usize,
    /// Whether it has had several fronts at once. What one was told, the others' readers don't know,
    /// so each front that comes is told.
    has_several: bool,
    /// How many of the backends that were ended on purpose.
    renewals: u64,
}

impl Losses {
    /// A backend has ended. `record`: by which number the daemon has that on record.
    pub(super) fn note(&mut self, why: String, record: Option<LossId>, now: Instant) {
        if self.ends.len() == ENDS {
            self.ends.pop_front();
            self.forgotten += 1;
        }
        self.ends.push_back(End {
            why,
            at: now,
            record,
        });
    }

    /// A host has a front beside another one.
    pub(super) fn note_several(&mut self, host: Host) {
        self.told_of(host).has_several = true;
    }

    /// Somebody has ended a backend on purpose: `why`, in words that follow "this is a fresh server: ".
    /// These hosts are there and see it.
    pub(super) fn note_renewal(
        &mut self,
        why: String,
        now: Instant,
        there: impl IntoIterator<Item = Host>,
    ) {
        self.renewals += 1;
        self.renewed = Some((why, now));
        for host in there {
            self.told_of(host).renewals = self.renewals;
        }
    }

    /// What a host that comes is told of that, once.
    pub(super) fn renewal(&mut self, host: Host, now: Instant) -> Option<String> {
        let renewals = self.renewals;
        let told = std::mem::replace(&mut self.told_of(host).renewals, renewals);
        let (why, at) = self.renewed.as_ref().filter(|_| told < renewals)?;
        (now.duration_since(*at) <= TOLD_WITHIN).then(|| why.clone())
    }

    fn told_of(&mut self, host: Host) -> &mut Told {
        if self.told.len() >= HOSTS && !self.told.contains_key(&host) {
            self.told.pop_first();
        }
        self.told.entry(host).or_default()
    }

    /// How many there were.
    pub(super) fn count(&self) -> usize {
        self.forgotten + self.ends.len()
    }

    /// Why the servers ended that this host has to be told of: the latest ones.
    pub(super) fn untold(&self, host: Host, now: Instant) -> Vec<String> {
        let told = self.told.get(&host).filter(|told| !told.has_several);
        let told = told.map_or(0, |told| told.count);
        let skipped = told.saturating_sub(self.forgotten);
        let ends = self.ends.iter().skip(skipped);
        let late = ends.skip_while(|end| now.duration_since(end.at) > TOLD_WITHIN);
        late.map(|end| end.why.clone()).collect()
    }

    /// Why the servers have ended from this one on, for a host that is attached.
    pub(super) fn from(&self, first: usize) -> impl Iterator<Item = &str> {
        let skipped = first.saturating_sub(self.forgotten);
        let ends = self.ends.iter().skip(skipped);
        ends.map(|End { why, .. }| &**why)
    }

    /// This host was told of the first so many. Returns those that the daemon need not remember from
    /// now on.
    pub(super) fn tell(&mut self, host: Host, count: usize) -> Vec<LossId> {
        let told = self.told_of(host);
        told.count = count.max(told.count);
        let known = count.saturating_sub(self.forgotten);
        let ends = self.ends.iter_mut().take(known);
        ends.filter_map(|end| end.record.take()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_is_told_of_each_end_once() {
        let (mut losses, now) = (Losses::default(), Instant::now());
        losses.note("one".into(), Some(LossId(3)), now);
        assert_eq!(losses.untold(7, now), ["one"]);
        assert_eq!(losses.tell(7, 1), [LossId(3)]);
        assert_eq!(losses.untold(7, now), Vec::<String>::new());
        losses.note("two".into(), None, now);
        assert_eq!(losses.untold(7, now), ["two"]);
        assert_eq!(losses.untold(8, now), ["one", "two"]);
        assert_eq!(losses.tell(8, 2), [], "the daemon knows of the first one");
        assert_eq!(losses.untold(7, now), ["two"]);
        assert_eq!(losses.from(1).count(), 1);
        losses.tell(7, 2);
        losses.note_several(7);
        assert_eq!(losses.untold(7, now), ["one", "two"], "each of its fronts");
    }

    #[test]
    fn a_host_that_was_away_is_told_that_it_was_ended_on_purpose() {
        let (mut losses, now) = (Losses::default(), Instant::now());
        assert_eq!(losses.renewal(7, now), None);
        losses.note_renewal("restarted".into(), now, [8]);
        assert_eq!(losses.renewal(8, now), None, "it was there");
        assert_eq!(losses.renewal(7, now).as_deref(), Some("restarted"));
        assert_eq!(losses.renewal(7, now), None, "once");
        let late = now + TOLD_WITHIN + Duration::from_secs(1);
        assert_eq!(losses.renewal(9, late), None);
    }

    #[test]
    fn who_comes_late_is_told_of_nothing_and_what_is_forgotten_counts() {
        let (mut losses, now) = (Losses::default(), Instant::now());
        for number in 0..=ENDS {
            losses.note(number.to_string(), None, now);
        }
        assert_eq!(losses.count(), ENDS + 1);
        assert_eq!(losses.untold(7, now).len(), ENDS);
        losses.tell(7, ENDS);
        assert_eq!(losses.untold(7, now), [ENDS.to_string()]);
        let late = now + TOLD_WITHIN + Duration::from_secs(1);
        assert_eq!(losses.untold(8, late), Vec::<String>::new());
    }
}
