//! What is told of losses, and until when.

use super::unreachable::of_two;
use mcp_sessiond_proto::{KeeperName, LossId};

use super::*;

/// The claim of a process that says when it has told what was lost.
fn confirming(bench: &mut Bench, pid: u32) -> Lease {
    let claim = Claim {
        confirms_loss: true,
        ..bench.claim_of(HOST, pid)
    };
    let (_, lease) = bench.tell(claim).pop().expect("an answer");
    lease.expect("a lease")
}

/// Another keeper for the session, once the one before it is gone.
fn keep(bench: &mut Bench, lease: &Lease, keeper: u32) {
    bench.registry.swept(&process(keeper - 1));
    let (process, name) = (process(keeper), KeeperName(keeper));
    let record = KeeperRecord::new(process, name, "server".into());
    bench
        .registry
        .keep_backend(&(&lease.session).into(), lease.epoch, record)
        .expect("the newest lease");
}

/// Whoever says later that it has told a loss may be killed before, or have a host that does not read.
#[test]
fn a_loss_is_told_until_somebody_has_said_so() {
    let mut bench = Bench::new();
    bench.kept(1, 50, KEY);
    bench.exit(&[50]);
    // The same process, which has seen its keeper go.
    let again = confirming(&mut bench, 1);
    assert_eq!(
        (again.outcome, again.because),
        (Outcome::Held, Some(Loss::Killed))
    );
    for pid in 2..5 {
        bench.exit(&[pid - 1]);
        let next = confirming(&mut bench, pid);
        assert_eq!(next.because, Some(Loss::Killed), "{pid}");
    }
    let last = confirming(&mut bench, 4);
    let id = last.lost[0].id;
    let told = |bench: &mut Bench, epoch, id| bench.registry.loss_told(&last.session, epoch, &[id]);
    // What was told is something else.
    told(&mut bench, last.epoch, LossId(id.0 + 1)).expect("its lease");
    assert_eq!(confirming(&mut bench, 4).because, Some(Loss::Killed));
    let stale = told(&mut bench, Epoch(last.epoch.0 - 1), id);
    assert!(matches!(stale, Err(Error::StaleEpoch { .. })), "{stale:?}");
    told(&mut bench, last.epoch, id).expect("its lease");
    assert_eq!(confirming(&mut bench, 4).because, None);
    bench.exit(&[4]);
    assert_eq!(confirming(&mut bench, 5).because, None);
}

/// The next server has gone the same way before the daemon hears that the end of the one before it
/// was told.
#[test]
fn who_was_told_of_a_loss_was_not_told_of_the_next_one() {
    let mut bench = Bench::new();
    bench.registry.time_of_day(1_000_000);
    bench.kept(1, 50, KEY);
    bench.exit(&[50]);
    let first = confirming(&mut bench, 1);
    let at = |lease: &Lease| lease.lost[0].at_ms;
    assert_eq!((first.because, at(&first)), (Some(Loss::Killed), 1_000_000));
    bench.registry.time_of_day(1_002_000);
    keep(&mut bench, &first, 51);
    bench.exit(&[51]);
    bench
        .registry
        .loss_told(&first.session, first.epoch, &[first.lost[0].id])
        .expect("its lease");
    let second = confirming(&mut bench, 1);
    assert_eq!(
        (second.because, at(&second)),
        (Some(Loss::Killed), 1_002_000)
    );
    // Nor does a clock that goes back give a number twice.
    bench.registry.time_of_day(5);
    keep(&mut bench, &second, 52);
    bench.exit(&[52]);
    assert!(confirming(&mut bench, 1).lost[0].id > second.lost[0].id);
}

/// Each server of an older host is told once, by whichever daemon; and no younger host.
#[test]
fn that_records_were_lost_is_told_by_the_next_daemon_too() {
    let mut bench = Bench::new();
    let since = StartTime(HOST.start.0 + 1);
    bench.registry.records_lost(since);
    let mut bench = bench.restart();
    assert_eq!(bench.claim(1).because, Some(Loss::Records));
    bench.exit(&[1]);
    let mut bench = bench.restart();
    let other = Claim {
        key: Some(key(8)),
        ..bench.claim_of(HOST, 2)
    };
    assert_eq!(granted(bench.tell(other)).because, Some(Loss::Records));
    // It has a session again, so there is nothing to be told; nor when that has ended.
    let again = bench.claim(3);
    assert_eq!((again.outcome, again.because), (Outcome::Resumed, None));
    bench.registry.end(&again.session);
    assert_eq!(bench.claim(4).because, None);
    let younger = ProcessId {
        start: since,
        ..process(90)
    };
    let younger = bench.claim_of(younger, 5);
    assert_eq!(granted(bench.tell(younger)).because, None);
}

/// It stays on record until the claimer has said that it was told.
#[test]
fn so_it_is_until_somebody_has_said_so() {
    let mut bench = Bench::new();
    bench.registry.records_lost(StartTime(HOST.start.0 + 1));
    for pid in 1..4 {
        let next = confirming(&mut bench, pid);
        assert_eq!(next.because, Some(Loss::Records), "{pid}");
        bench.exit(&[pid]);
    }
}

/// A daemon that is killed between the two would find neither the keeper nor what was lost.
#[test]
fn a_loss_is_on_record_before_the_keeper_is_off_it() {
    let mut bench = Bench::new();
    bench.kept(1, 50, KEY);
    bench.registry.take_effects();
    bench.registry.exited(&[process(1), process(50)]);
    let effects = bench.registry.take_effects();
    let at =
        |such: &dyn Fn(&Effect) -> bool| effects.iter().position(such).expect("it is recorded");
    let loss = at(
        &|effect| matches!(effect, Effect::Save(Record::Owner(owner)) if owner.losses.iter().any(|(_, loss)| loss.because == Loss::Killed)),
    );
    let keeper = at(&|effect| matches!(effect, Effect::Save(Record::Keeper(None, _))));
    assert!(loss < keeper, "{effects:?}");
}

/// A front sees the end of a member itself; but it may be killed before it has said so.
#[test]
fn the_loss_of_a_member_is_told_by_its_name_until_somebody_has_said_so() {
    let mut bench = Bench::new();
    of_two(&mut bench, 1, [51, 52]);
    bench.exit(&[51]);
    bench.exit(&[1]);
    let names = |lease: &Lease| -> Vec<String> {
        let lost = lease.lost.iter().flat_map(|lost| &lost.of);
        lost.map(ToString::to_string).collect()
    };
    for pid in [2, 3] {
        let next = confirming(&mut bench, pid);
        assert_eq!(
            (next.because, names(&next)),
            (None, vec!["files".to_owned()])
        );
        assert_eq!(next.lost[0].because, Loss::Killed);
        // An answer that did not arrive is asked for again.
        assert_eq!(confirming(&mut bench, pid).lost, next.lost);
        bench.exit(&[pid]);
    }
    // Another one, which nobody could see.
    bench.exit(&[52]);
    let last = confirming(&mut bench, 4);
    assert_eq!(names(&last), ["files", "web"]);
    let told = bench
        .registry
        .loss_told(&last.session, last.epoch, &[last.lost[0].id]);
    told.expect("its lease");
    assert_eq!(names(&confirming(&mut bench, 4)), ["web"]);
    bench.exit(&[4]);
    // Whoever does not say so was told by the answer.
    assert_eq!(names(&bench.claim(5)), ["web"]);
    bench.exit(&[5]);
    assert_eq!(names(&bench.claim(6)), [""; 0]);
}

/// The entry of a list has got a name meanwhile.
#[test]
fn the_loss_of_a_member_is_confirmed_under_the_key_that_leads_to_its_session_now() {
    let mut bench = Bench::new();
    of_two(&mut bench, 1, [51, 52]);
    bench.exit(&[1]);
    bench.exit(&[51]);
    let renamed = |bench: &mut Bench, pid| {
        let claim = Claim {
            confirms_loss: true,
            key: Some(key(6)),
            unnamed: Some(KEY),
            ..bench.claim_of(HOST, pid)
        };
        let (_, lease) = bench.tell(claim).pop().expect("an answer");
        lease.expect("a lease")
    };
    let next = renamed(&mut bench, 2);
    assert_eq!(next.lost.len(), 1);
    bench
        .registry
        .loss_told(&next.session, next.epoch, &[next.lost[0].id])
        .expect("its lease");
    bench.exit(&[2]);
    assert_eq!(renamed(&mut bench, 3).lost, []);
}

/// The file of a list was edited while no front was there: the server that an entry had before ends
/// before the next one starts, and is told where it was used.
#[test]
fn what_an_edited_entry_had_before_ends_first_and_is_told() {
    for (used, told) in [(None, true), (Some(true), true), (Some(false), false)] {
        let mut bench = Bench::new();
        let lease = of_two(&mut bench, 1, [51, 52]);
        if let Some(used) = used {
            bench.left(&lease, 51, false, used);
        }
        bench.exit(&[1]);
        let next = confirming(&mut bench, 2);
        assert_eq!(next.session, lease.session);
        let edited: BackendName = "files#5f1d0a3b".parse().expect("a name");
        let free = |bench: &mut Bench| {
            bench
                .registry
                .free_backend(&(&next.session).into(), Some(&edited))
        };
        assert!(!free(&mut bench), "the former one lives");
        bench.exit(&[51]);
        assert!(!free(&mut bench), "{used:?}: it is being swept");
        bench.registry.swept(&process(51));
        assert!(free(&mut bench), "{used:?}");
        let lost = confirming(&mut bench, 2).lost.into_iter();
        let lost: Vec<_> = lost.map(|lost| (lost.of, lost.because)).collect();
        let expected = told.then_some((Some(edited), Loss::Edited));
        assert_eq!(lost, Vec::from_iter(expected), "{used:?}");
    }
}
