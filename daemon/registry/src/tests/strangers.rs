//! Which of a host's instances may know of a session.

use mcp_sessiond_identity::{KeyDoubt, Traits};
use mcp_sessiond_proto::Label;

use super::*;

#[test]
fn a_claimed_session_is_for_its_holder_and_for_instances_of_its_key() {
    let traits = |base, place| Traits {
        program: "server".into(),
        base: Some([base; 32]),
        place: Some([place; 32]),
        doubt: None,
    };
    let claimant = |host, base, place| Claimant { host, traits: traits(base, place) };
    let mut bench = Bench::new();
    for label in [None, Some("one".parse::<Label>().expect("a label"))] {
        let key = traits(1, 1).key(label.as_ref()).ok();
        let claim = Claim { key, label: label.clone(), ..bench.claim_of(HOST, 1) };
        let id = granted(bench.tell(claim)).session;
        let session = bench.registry.session(&id).expect("opened");
        assert!(session.is_for(process(2), &claimant(HOST, 1, 1)), "the same key");
        assert_eq!(session.is_for(process(2), &claimant(HOST, 1, 2)), label.is_some(), "another place");
        assert!(!session.is_for(process(2), &claimant(HOST, 2, 1)), "another program");
        assert!(!session.is_for(process(2), &claimant(process(11), 1, 1)), "another host");
        let unknown = Traits { base: None, doubt: Some(KeyDoubt::Executable), ..traits(1, 1) };
        let doubtful = Claimant { host: HOST, traits: unknown };
        assert!(session.is_for(process(1), &doubtful), "its holder");
        assert!(!session.is_for(process(2), &doubtful));
    }
    // Nobody but its holder comes to a session whose key is doubtful, and every instance of the host to one that has a name.
    let claim = Claim { key: None, ..bench.claim_of(HOST, 3) };
    let id = granted(bench.tell(claim)).session;
    let doubtful = bench.registry.session(&id).expect("opened");
    assert!(
        doubtful.is_for(process(3), &claimant(HOST, 1, 1))
            && !doubtful.is_for(process(2), &claimant(HOST, 1, 1))
    );
    bench.registry.end(&id);
    let id = bench.claim_that(HOST, 4, Wants::New(None, None)).expect("made").session;
    let named = bench.registry.session(&id).expect("opened");
    assert!(
        named.is_for(process(2), &claimant(HOST, 2, 2))
            && !named.is_for(process(2), &claimant(process(11), 2, 2))
    );
}
