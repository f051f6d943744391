//! Any interleaving of fronts, calls, answers, asks and deaths.

use proptest::prelude::*;

use super::world::World;
use super::*;

#[derive(Debug, Clone, Copy)]
pub(super) enum Input {
    Attach {
        sampling: bool,
        orderly: bool,
        changed: bool,
        discover: bool,
        /// Which roots its host has; 0: it has none to give.
        roots: u8,
    },
    Detach {
        orderly: bool,
    },
    Restart,
    Initialized,
    Call {
        id: u8,
        text: bool,
        token: bool,
    },
    Cancel(usize),
    AnswerAsk(usize),
    Answer(usize, bool),
    Progress(usize),
    Notify,
    Ask {
        sampling: bool,
    },
    AskRoots,
    CancelAsk(usize),
    PullFront(usize),
    PullBackend(usize),
    Die {
        after: u64,
    },
    Pass(u64),
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        2 => (any::<[bool; 4]>(), 0..3u8).prop_map(|([sampling, orderly, changed, discover], roots)| {
            Input::Attach { sampling, orderly, changed, discover, roots }
        }),
        1 => any::<bool>().prop_map(|orderly| Input::Detach { orderly }),
        3 => Just(Input::Initialized),
        6 => (0..6u8, any::<bool>(), any::<bool>()).prop_map(|(id, text, token)| Input::Call { id, text, token }),
        1 => any::<usize>().prop_map(Input::Cancel),
        3 => any::<usize>().prop_map(Input::AnswerAsk),
        6 => (any::<usize>(), any::<bool>()).prop_map(|(at, failed)| Input::Answer(at, failed)),
        2 => any::<usize>().prop_map(Input::Progress),
        4 => Just(Input::Notify),
        3 => any::<bool>().prop_map(|sampling| Input::Ask { sampling }),
        3 => Just(Input::AskRoots),
        1 => any::<usize>().prop_map(Input::CancelAsk),
        5 => (0..4usize).prop_map(Input::PullFront),
        5 => (0..4usize).prop_map(Input::PullBackend),
        1 => (0..12_000u64).prop_map(|after| Input::Die { after }),
        1 => Just(Input::Restart),
        1 => (0..70_000u64).prop_map(Input::Pass),
    ]
}

impl Input {
    pub(super) fn is_hosts(self) -> bool {
        matches!(
            self,
            Self::Initialized | Self::Call { .. } | Self::Cancel(_) | Self::AnswerAsk(_)
        )
    }

    pub(super) fn is_backends(self) -> bool {
        matches!(
            self,
            Self::Answer(..)
                | Self::Progress(_)
                | Self::Notify
                | Self::Ask { .. }
                | Self::AskRoots
                | Self::CancelAsk(_)
        )
    }
}

/// What a host does that has folders, and a server that works in them.
fn in_folders() -> impl Strategy<Value = Input> {
    let attach = (any::<bool>(), 0..3u8).prop_map(|(orderly, roots)| Input::Attach {
        sampling: false,
        orderly,
        changed: false,
        discover: false,
        roots,
    });
    prop_oneof![
        1 => attach,
        3 => Just(Input::Initialized),
        3 => (0..6u8).prop_map(|id| Input::Call { id, text: false, token: false }),
        2 => any::<usize>().prop_map(Input::AnswerAsk),
        3 => any::<usize>().prop_map(|at| Input::Answer(at, false)),
        2 => Just(Input::AskRoots),
        4 => (1..4usize).prop_map(Input::PullFront),
        4 => (1..4usize).prop_map(Input::PullBackend),
        1 => (0..3_000u64).prop_map(Input::Pass),
    ]
}

proptest! {
    #[test]
    fn no_call_is_made_in_another_hosts_folders(steps in prop::collection::vec(in_folders(), 50..200)) {
        let mut bench = Bench { relay: Relay::new(LIMITS), now: 1000 };
        let mut world = World::default();
        world.starts(&mut bench);
        for step in steps {
            world.take(&mut bench, step);
        }
        world.settle(&mut bench);
    }

    #[test]
    fn everyone_gets_what_is_theirs(steps in prop::collection::vec(input(), 0..150), is_users: bool) {
        let limits = Limits { is_users, ..LIMITS };
        let mut bench = Bench { relay: Relay::new(limits), now: 1000 };
        let mut world = World::default();
        world.starts(&mut bench);
        for step in steps {
            world.take(&mut bench, step);
        }
        world.settle(&mut bench);
    }
}
