//! Which of a host's instances may know of a session.

use super::*;

fn traits(core: u8, place: u8) -> Traits {
    Traits {
        program: "server".into(),
        core: Some([core; 32]),
        place: Some([place; 32]),
        directory: None,
        conversation: Conversation::None,
        doubt: None,
    }
}

fn claimant(host: ProcessId, core: u8, place: u8) -> Claimant {
    Claimant::new(host, traits(core, place))
}

#[test]
fn a_claimed_session_is_for_its_holder_and_for_instances_of_its_key() {
    let labelled = SelfDescription {
        label: Some("one".parse().expect("a label")),
        ..SelfDescription::default()
    };
    let client = SelfDescription {
        client: Some("claude-ai".parse().expect("a name")),
        ..SelfDescription::default()
    };
    let mut bench = Bench::new();
    for description in [SelfDescription::default(), labelled, client] {
        let key = traits(1, 1).key(&description).ok();
        let claim = Claim {
            key,
            description: description.clone(),
            ..bench.claim_of(HOST, 1)
        };
        let id = granted(bench.tell(claim)).session;
        let session = bench.registry.session(&id).expect("opened");
        let plain = description == SelfDescription::default();
        assert_eq!(
            session.is_for(process(2), &claimant(HOST, 1, 1)),
            plain,
            "it has not said so"
        );
        let says_so = Claimant {
            keys: key.into_iter().collect(),
            ..claimant(HOST, 1, 1)
        };
        assert!(session.is_for(process(2), &says_so), "the same key");
        assert!(
            !session.is_for(process(2), &claimant(HOST, 1, 2)),
            "another place"
        );
        assert!(
            !session.is_for(process(2), &claimant(HOST, 2, 1)),
            "another program"
        );
        assert!(
            !session.is_for(process(2), &claimant(process(11), 1, 1)),
            "another host"
        );
        let doubtful = Claimant::new(HOST, Traits::unknown("server".into(), KeyDoubt::Executable));
        assert!(session.is_for(process(1), &doubtful), "its holder");
        assert!(!session.is_for(process(2), &doubtful));
        bench.registry.end(&id);
    }
    // Nobody but its holder comes to a session whose key is doubtful.
    let claim = Claim {
        key: None,
        ..bench.claim_of(HOST, 3)
    };
    let id = granted(bench.tell(claim)).session;
    let doubtful = bench.registry.session(&id).expect("opened");
    assert!(doubtful.is_for(process(3), &claimant(HOST, 1, 1)));
    assert!(!doubtful.is_for(process(2), &claimant(HOST, 1, 1)));
}

/// One that was made, and is found by its id, has the key of its maker.
#[test]
fn a_session_that_is_found_by_its_id_is_for_instances_of_its_maker_s_key() {
    let mut bench = Bench::new();
    let wants = Wants::New(None, None);
    let claim = Claim {
        key: traits(1, 1).key(&SelfDescription::default()).ok(),
        wants,
        ..bench.claim_of(HOST, 4)
    };
    let id = granted(bench.tell(claim)).session;
    bench.exit(&[4]);
    let made = bench.registry.session(&id).expect("it stays");
    assert!(made.is_for(process(2), &claimant(HOST, 1, 1)));
    assert!(
        !made.is_for(process(2), &claimant(HOST, 2, 2))
            && !made.is_for(process(2), &claimant(process(11), 1, 1))
    );
}
