//! What a process is doing, by the kernel's word: whether one that does not answer can't answer, or
//! could and does not.
//!
//! A process that is stopped, frozen, waits for its memory or its disk, or gets no processor time is
//! *stalled*: it goes on where it was once that is over. One that has the processor and does not
//! answer hangs. A single look can't tell the two apart in every state, so two looks are compared:
//! the processor time that the process has used is the measure.

use super::os;
use super::pinned::PinnedProcess;

/// What a process is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It has exited.
    Gone,
    /// It can't do anything: it is stopped, traced, or frozen with its cgroup; or it was in
    /// uninterruptible sleep, or runnable, at two looks and has used no processor time in between.
    Stalled,
    /// It waits for something, and has used no processor time since the former look.
    Idle,
    /// It has used processor time since the former look; or the system does not tell.
    Working,
}

/// What the system says of a process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Activity {
    /// The state of its first thread, as a letter of proc_pid_stat(5).
    pub(super) state: u8,
    /// The processor time that all its threads have used, user and system time, in clock ticks.
    pub(super) ticks: u64,
    /// Whether its cgroup is frozen.
    pub(super) is_frozen: bool,
}

/// Looks at one process again and again. Looks should be a tenth of a second apart, or more: the
/// kernel counts processor time in ticks, of 10 ms as a rule.
#[derive(Debug, Clone)]
pub struct HealthWatch {
    process: PinnedProcess,
    former: Option<Activity>,
}

impl HealthWatch {
    /// Will look at this process. The first look is taken now.
    #[must_use]
    pub fn new(process: PinnedProcess) -> Self {
        let former = os::activity(process.pid()).ok();
        Self { process, former }
    }

    /// The process.
    #[must_use]
    pub fn process(&self) -> &PinnedProcess {
        &self.process
    }

    /// Looks again.
    pub fn look(&mut self) -> Health {
        let now = os::activity(self.process.pid()).ok();
        // Until then nobody else could have its pid, so what was read is its own.
        if !self.process.is_alive() {
            return Health::Gone;
        }
        let former = std::mem::replace(&mut self.former, now);
        now.map_or(Health::Working, |now| now.since(former))
    }
}

/// Whether a process is stopped, traced, or frozen with its cgroup, so that it will not act on a
/// request until somebody has it go on. One look is enough for that.
#[must_use]
pub fn is_stopped(process: &PinnedProcess) -> bool {
    let seen = os::activity(process.pid());
    seen.is_ok_and(|seen| seen.is_stopped()) && process.is_alive()
}

impl Activity {
    fn is_stopped(&self) -> bool {
        self.is_frozen || matches!(self.state, b'T' | b't')
    }

    fn since(self, former: Option<Self>) -> Health {
        let has_run = former.is_none_or(|former| former.ticks != self.ticks);
        let was_so = former.is_some_and(|former| former.state == self.state);
        match self.state {
            b'Z' | b'X' | b'x' => Health::Gone,
            _ if self.is_stopped() => Health::Stalled,
            b'D' | b'R' if was_so && !has_run => Health::Stalled,
            b'D' | b'R' => Health::Working,
            _ if has_run => Health::Working,
            _ => Health::Idle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(state: u8, ticks: u64) -> Activity {
        Activity {
            state,
            ticks,
            is_frozen: false,
        }
    }

    #[test]
    fn two_looks_tell_whether_a_process_could_do_anything() {
        let cases = [
            (b'T', 5, 5, Health::Stalled),
            (b't', 5, 6, Health::Stalled),
            (b'D', 5, 5, Health::Stalled),
            (b'D', 5, 6, Health::Working),
            (b'R', 5, 5, Health::Stalled),
            (b'R', 5, 6, Health::Working),
            (b'S', 5, 5, Health::Idle),
            (b'S', 5, 6, Health::Working),
            (b'I', 5, 5, Health::Idle),
            (b'Z', 5, 5, Health::Gone),
        ];
        for (state, before, after, health) in cases {
            let former = Some(seen(state, before));
            assert_eq!(
                seen(state, after).since(former),
                health,
                "{} {before} {after}",
                char::from(state)
            );
        }
    }

    #[test]
    fn one_look_does_not_tell_whether_a_process_waits_for_the_processor() {
        for state in [b'D', b'R'] {
            assert_eq!(seen(state, 5).since(None), Health::Working);
            // It was doing something else before.
            assert_eq!(seen(state, 5).since(Some(seen(b'S', 5))), Health::Working);
        }
    }

    #[test]
    fn what_is_frozen_is_stalled_whatever_else_it_seems_to_do() {
        for state in [b'S', b'R', b'D'] {
            let frozen = Activity {
                is_frozen: true,
                ..seen(state, 6)
            };
            assert_eq!(frozen.since(Some(seen(state, 5))), Health::Stalled);
        }
    }
}
