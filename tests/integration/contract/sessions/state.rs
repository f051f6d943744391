//! Values by key: all or none, each with a version that is never had again.

use std::collections::BTreeSet;
use std::sync::Arc;

use mcp_sessiond_daemon::config::Limits;
use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::state::{STATE_KEYS_MAX, StateVersion};
use tokio::sync::Barrier;

use super::bench::{Bench, key, large, set, set_at, unset};
use crate::contract::backends::Backend;

fn conflict(name: &str, current: u64) -> Error {
    Error::VersionConflict {
        key: key(name),
        current: StateVersion(current),
    }
}

pub(crate) async fn written_and_read<B: Backend>(backend: B) {
    let mut bench = Bench::new(backend);
    let session = bench.session("s").await;
    assert_eq!(session.value("k").await, (0, None));
    // As it was given, to the last blank.
    let text = "{ \"b\": 1.0,\n \"a\": 18446744073709551616, \"c\": \"\\u00e4ä\" }";
    assert_eq!(session.set("k", text).await, Ok(1));
    assert_eq!(session.set("größe der Fenster", "null").await, Ok(2));
    let entries = session
        .read(&["größe der Fenster", "missing", "k"])
        .await
        .expect("readable");
    let entries: Vec<_> = entries
        .iter()
        .map(|entry| {
            (
                entry.version.0,
                entry.value.as_ref().map(|value| value.as_str()),
            )
        })
        .collect();
    assert_eq!(entries, [(2, Some("null")), (0, None), (1, Some(text))]);
    let seen = session.get().await.expect("a session");
    let bytes = "größe der Fenster".len() + "null".len() + "k".len() + text.len();
    assert_eq!((seen.state_keys, seen.state_bytes), (2, bytes as u64));
    if B::DURABLE {
        bench.reopen().await;
        assert_eq!(bench.visit("s").value("k").await, (1, Some(text.into())));
        assert_eq!(bench.visit("s").set("k", "2").await, Ok(3));
    }
}

pub(crate) async fn versions_are_never_had_again<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let mut seen = BTreeSet::new();
    for _ in 0..5 {
        assert!(seen.insert(session.set("k", "1").await.expect("written")));
        assert!(
            seen.insert(session.set("k", "1").await.expect("written")),
            "of the same value too"
        );
        assert_eq!(session.write_one(unset("k")).await, Ok(0));
        assert_eq!(
            session.write_one(unset("k")).await,
            Ok(0),
            "which is not there"
        );
    }
    session.reset().await.expect("reset");
    assert!(seen.insert(session.set("k", "1").await.expect("written")));
    let found = session.get().await.expect("a session");
    assert_eq!((found.state_keys, found.state_bytes), (1, 2));
}

pub(crate) async fn conditions_hold_or_refuse<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    assert_eq!(
        session.write_one(set_at("k", "1", 7)).await,
        Err(conflict("k", 0))
    );
    assert_eq!(session.write_one(set_at("k", "1", 0)).await, Ok(1));
    assert_eq!(
        session.write_one(set_at("k", "2", 0)).await,
        Err(conflict("k", 1))
    );
    assert_eq!(session.write_one(set_at("k", "2", 1)).await, Ok(2));
    assert_eq!(
        session.write_one(set_at("k", "3", 1)).await,
        Err(conflict("k", 2))
    );
    let mut gone = unset("k");
    gone.expected = Some(StateVersion(1));
    assert_eq!(session.write_one(gone.clone()).await, Err(conflict("k", 2)));
    gone.expected = Some(StateVersion(2));
    assert_eq!(session.write_one(gone.clone()).await, Ok(0));
    assert_eq!(session.write_one(gone.clone()).await, Err(conflict("k", 0)));
    gone.expected = Some(StateVersion(0));
    assert_eq!(
        session.write_one(gone).await,
        Ok(0),
        "what is not there stays so"
    );
    assert_eq!(
        session.write_one(set_at("k", "1", 2)).await,
        Err(conflict("k", 0))
    );
}

pub(crate) async fn all_of_them_or_none<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    session
        .write(&[set("a", "1"), set("b", "1")])
        .await
        .expect("written");
    let before = session.get().await;
    for wrong in [
        set_at("c", "2", 9),
        set_at("b", "2", 1),
        set("c", large(2 << 20).as_str()),
    ] {
        let writes = [set("a", "2"), wrong, unset("b")];
        let writes = if writes[1].key == writes[2].key {
            &writes[..2]
        } else {
            &writes[..]
        };
        assert!(session.write(writes).await.is_err());
        assert_eq!(
            (session.value("a").await, session.value("b").await.0),
            ((1, Some("1".into())), 2)
        );
        assert_eq!(
            (session.value("c").await, session.get().await),
            ((0, None), before.clone())
        );
    }
    let written = session
        .write(&[set_at("a", "2", 1), unset("b"), set_at("c", "1", 0)])
        .await;
    let versions: Vec<_> = written
        .expect("written")
        .iter()
        .map(|entry| entry.version.0)
        .collect();
    assert_eq!(versions, [3, 0, 4]);
}

pub(crate) async fn keys_are_named_once_and_not_too_many<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let sentence = format!("one call is about 1 to {STATE_KEYS_MAX} keys, each of them once");
    let refused = Error::InvalidArgument { sentence };
    let names: Vec<String> = (0..=STATE_KEYS_MAX).map(|at| format!("k{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for names in [&[][..], &["a", "b", "a"], &names] {
        assert_eq!(session.read(names).await, Err(refused.clone()));
        let writes: Vec<_> = names.iter().map(|name| set(name, "1")).collect();
        assert_eq!(session.write(&writes).await, Err(refused.clone()));
    }
    let writes: Vec<_> = names[1..].iter().map(|name| set(name, "1")).collect();
    assert_eq!(
        session.write(&writes).await.map(|written| written.len()),
        Ok(STATE_KEYS_MAX)
    );
    assert_eq!(
        session.read(&names[1..]).await.map(|read| read.len()),
        Ok(STATE_KEYS_MAX)
    );
}

pub(crate) async fn limits_of_state<B: Backend>(backend: B) {
    let limits = Limits {
        state_keys: 3,
        state_value_bytes: 10,
        state_bytes: 30,
        ..Limits::default()
    };
    let mut bench = Bench::with(backend, limits);
    let session = bench.session("s").await;
    let quota = |what: &str, limit| {
        Err(Error::QuotaExceeded {
            what: what.into(),
            limit,
        })
    };
    let keys = |limit| quota("the number of state values of this session", limit);
    let bytes = |limit| quota("the bytes of this session's state", limit);
    assert_eq!(
        session.set("a", large(11).as_str()).await,
        quota("a state value of 11 bytes", 10)
    );
    session.set("a", large(10).as_str()).await.expect("written");
    session.set("b", large(10).as_str()).await.expect("written");
    assert_eq!(session.set("c", large(8).as_str()).await, bytes(30));
    session.set("c", large(7).as_str()).await.expect("written");
    assert_eq!(session.set("d", "1").await, keys(3));
    assert_eq!(session.set("c", large(8).as_str()).await, bytes(30));
    // One for another.
    session
        .write(&[unset("a"), set("d", large(10).as_str())])
        .await
        .expect("written");
    session
        .write(&[set("e", "1"), unset("d")])
        .await
        .expect("in any order");
    // Narrower limits: what makes it less is let through.
    bench.limit(Limits {
        state_keys: 1,
        state_bytes: 5,
        ..bench.bounds.limits.clone()
    });
    assert_eq!(session.set("f", "1").await, keys(1));
    assert_eq!(session.set("e", "12").await, bytes(5));
    session
        .set("b", large(9).as_str())
        .await
        .expect("less than before");
    for name in ["b", "c", "e"] {
        assert_eq!(session.write_one(unset(name)).await, Ok(0));
    }
    let found = session.get().await.expect("a session");
    assert_eq!((found.state_keys, found.state_bytes), (0, 0));
}

pub(crate) async fn the_largest_values<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let largest = large(bench.bounds.limits.state_value_bytes);
    for name in ["a", "b", "c"] {
        session.set(name, largest.as_str()).await.expect("written");
    }
    assert_eq!(
        session.value("b").await.1.as_deref(),
        Some(largest.as_str())
    );
    assert_eq!(
        session.read(&["a", "b", "c"]).await.map(|read| read.len()),
        Ok(3)
    );
    let nearly = large(bench.bounds.limits.state_value_bytes - 10);
    session.set("d", nearly.as_str()).await.expect("written");
    let refused = session
        .read(&["a", "b", "c", "d"])
        .await
        .expect_err("too much for an answer");
    assert_eq!(refused.code(), "invalid_argument");
    // As much as fits into a frame, in one change.
    let writes = ["a", "b", "c"].map(|name| set(name, largest.as_str()));
    session.write(&writes).await.expect("written");
    assert_eq!(
        session
            .set("e", "12345678")
            .await
            .expect_err("too much")
            .code(),
        "quota_exceeded"
    );
}

pub(crate) async fn listed_with_keys_of_every_kind<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let mut names: Vec<String> = (0..150).map(|at| format!("k{at:03}")).collect();
    let odd = [
        " ",
        "!",
        "%",
        "_",
        "A",
        "a",
        "z",
        "~",
        "ä",
        "é",
        "e\u{301}",
        "日本",
        "\u{10FFFF}",
        "k%",
        "'; --",
        "\\",
    ];
    names.extend(odd.map(String::from));
    names.push("ß".repeat(120));
    for part in names.chunks(STATE_KEYS_MAX) {
        let writes: Vec<_> = part
            .iter()
            .map(|name| set(name, &name.len().to_string()))
            .collect();
        session.write(&writes).await.expect("written");
    }
    names.sort();
    let (mut found, mut last) = (Vec::new(), None::<String>);
    loop {
        let page = session.list_state(last.as_deref()).await.expect("listed");
        assert!(page.len() <= 100);
        let Some(end) = page.last() else { break };
        last = Some(end.key.to_string());
        for info in page {
            assert_eq!(
                info.bytes as usize,
                info.key.as_str().len().to_string().len()
            );
            assert_eq!(session.value(info.key.as_str()).await.0, info.version.0);
            found.push(info.key.to_string());
        }
    }
    assert_eq!(found, names);
    let after = session.list_state(Some("k149x")).await.expect("listed");
    let next = names.iter().find(|name| name.as_str() > "k149x");
    assert_eq!(
        after.first().map(|info| info.key.to_string()).as_ref(),
        next
    );
}

pub(crate) async fn two_hundred_writes_at_once<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let beside = session.through(&bench.beside().await);
    let writers: Vec<_> = (0..200)
        .map(|at| {
            let visit = if at % 2 == 0 {
                session.clone()
            } else {
                beside.clone()
            };
            tokio::spawn(async move {
                visit
                    .set(&format!("k{at}"), &at.to_string())
                    .await
                    .expect("written")
            })
        })
        .collect();
    let mut versions = BTreeSet::new();
    for writer in writers {
        assert!(versions.insert(writer.await.expect("written")));
    }
    assert_eq!(versions, (1..=200).collect());
    for at in 0..200 {
        assert_eq!(
            beside.value(&format!("k{at}")).await.1,
            Some(at.to_string())
        );
    }
    assert_eq!(session.get().await.map(|found| found.state_keys), Ok(200));
}

pub(crate) async fn one_of_sixteen_wins<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let beside = session.through(&bench.beside().await);
    let mut version = 0;
    for round in 0..10 {
        let barrier = Arc::new(Barrier::new(16));
        let racers: Vec<_> = (0..16)
            .map(|at| {
                let visit = if at % 2 == 0 {
                    session.clone()
                } else {
                    beside.clone()
                };
                let barrier = barrier.clone();
                tokio::spawn(async move {
                    barrier.wait().await;
                    visit
                        .write_one(set_at("k", &format!("[{round},{at}]"), version))
                        .await
                })
            })
            .collect();
        let mut won = Vec::new();
        for (at, racer) in racers.into_iter().enumerate() {
            match racer.await.expect("a racer that ends well") {
                Ok(version) => won.push((version, Some(format!("[{round},{at}]")))),
                Err(error) => assert_eq!(error.code(), "version_conflict"),
            }
        }
        assert_eq!(
            won,
            [session.value("k").await],
            "exactly one, round {round}"
        );
        version = won[0].0;
    }
}
