//! What is remembered of servers.

use mcp_sessiond_proto::facts::{Discover, FACTS_MS, Facts, Learned, ServerDigest};

use super::*;

fn server(of: u8) -> ServerDigest {
    ServerDigest::of(&[of; 32])
}

fn knows(discover: Option<Discover>, probed: u32) -> Facts {
    Facts { discover, probed }
}

#[test]
fn a_week_after_it_was_last_asked_for_a_fact_is_gone() {
    let mut registry = Bench::new().registry;
    let mut records = Records::default();
    registry.learn(&server(1), Learned::Discover(Discover::Exits {}), 0);
    let mut now = 0;
    for _ in 0..5 {
        now += FACTS_MS - 1;
        let facts = registry.facts(&server(1), now);
        assert_eq!(facts, knows(Some(Discover::Exits {}), 0));
    }
    registry
        .take_effects()
        .into_iter()
        .for_each(|effect| records.apply(effect));
    // The next daemon knows it, too.
    let mut registry = Registry::restore(registry.policy, records);
    let facts = registry.facts(&server(1), now);
    assert_eq!(facts, knows(Some(Discover::Exits {}), 0));
    now += FACTS_MS;
    assert_eq!(registry.facts(&server(1), now), knows(None, 0));
    assert_eq!(
        registry.take_effects(),
        [Effect::Drop(RecordKey::Server(server(1)))],
        "it is off the record"
    );
}

#[test]
fn connections_that_only_probe_are_counted_until_one_goes_on() {
    let mut registry = Bench::new().registry;
    for before in 0..3 {
        assert_eq!(registry.facts(&server(1), 0), knows(None, before));
        registry.learn(&server(1), Learned::Probed {}, 0);
    }
    registry.learn(&server(2), Learned::Probed {}, 0);
    registry.learn(&server(1), Learned::Initialized {}, 0);
    assert_eq!(registry.facts(&server(1), 0), knows(None, 0));
    assert_eq!(registry.facts(&server(2), 0), knows(None, 1));
}

/// A package was upgraded under the same command: `npx` and `uvx` do.
#[test]
fn what_another_version_has_shown_is_forgotten() {
    let mut registry = Bench::new().registry;
    let version = |text: &str| Learned::Version(text.into());
    // Nothing is known of it yet.
    registry.learn(&server(1), version("1.0"), 0);
    registry.learn(&server(1), Learned::Discover(Discover::Exits {}), 0);
    for same in ["1.1", "1.1", &"9".repeat(129)] {
        registry.learn(&server(1), version(same), 0);
        let facts = registry.facts(&server(1), 0);
        assert_eq!(facts, knows(Some(Discover::Exits {}), 0), "{same}");
    }
    registry.learn(&server(1), version("2.0"), 0);
    assert_eq!(registry.facts(&server(1), 0), knows(None, 0));
}

#[test]
fn servers_do_not_pile_up() {
    let mut registry = Bench::new().registry;
    let mut records = Records::default();
    for number in 0..3000_u32 {
        let digest: [u8; 4] = number.to_be_bytes();
        let server = ServerDigest::of(&digest.repeat(8));
        registry.learn(
            &server,
            Learned::Discover(Discover::Mute {}),
            u64::from(number),
        );
        registry.learn(&server, Learned::Probed {}, u64::from(number));
    }
    registry
        .take_effects()
        .into_iter()
        .for_each(|effect| records.apply(effect));
    assert_eq!(records.servers.len(), 1024);
    let latest = ServerDigest::of(&2999_u32.to_be_bytes().repeat(8));
    assert!(records.servers.contains_key(&latest));
}
