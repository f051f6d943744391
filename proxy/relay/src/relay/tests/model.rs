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
        2 => any::<[bool; 4]>().prop_map(|[sampling, orderly, changed, discover]| {
            Input::Attach { sampling, orderly, changed, discover }
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
                | Self::CancelAsk(_)
        )
    }
}

proptest! {
    #[test]
    fn everyone_gets_what_is_theirs(steps in prop::collection::vec(input(), 0..150)) {
        let mut bench = Bench { relay: Relay::new(LIMITS), now: 1000 };
        let mut world = World::default();
        world.starts(&mut bench);
        for step in steps {
            world.take(&mut bench, step);
        }
        world.settle(&mut bench);
    }
}
