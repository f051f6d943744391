//! What is told of losses, and until when.

use mcp_sessiond_proto::types::LostMember;

use super::unreachable::of_two;
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
    let told =
        |bench: &mut Bench, epoch, loss| bench.registry.loss_told(&last.session, epoch, None, loss);
    // What was told is something else.
    told(&mut bench, last.epoch, Loss::Lingered).expect("its lease");
    assert_eq!(confirming(&mut bench, 4).because, Some(Loss::Killed));
    let stale = told(&mut bench, Epoch(last.epoch.0 - 1), Loss::Killed);
    assert!(matches!(stale, Err(Error::StaleEpoch { .. })), "{stale:?}");
    told(&mut bench, last.epoch, Loss::Killed).expect("its lease");
    assert_eq!(confirming(&mut bench, 4).because, None);
    bench.exit(&[4]);
    assert_eq!(confirming(&mut bench, 5).because, None);
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
        &|effect| matches!(effect, Effect::SaveOwner(owner) if owner.losses.values().any(|loss| *loss == Loss::Killed)),
    );
    let keeper = at(&|effect| matches!(effect, Effect::SaveKeeper(None, _)));
    assert!(loss < keeper, "{effects:?}");
}

/// A front sees the end of a member itself; but it may be killed before it has said so.
#[test]
fn the_loss_of_a_member_is_told_by_its_name_until_somebody_has_said_so() {
    let mut bench = Bench::new();
    of_two(&mut bench, 1, [51, 52]);
    bench.exit(&[51]);
    bench.exit(&[1]);
    let lost = LostMember {
        of: "files".parse().expect("a name"),
        because: Loss::Killed,
    };
    for pid in [2, 3] {
        let next = confirming(&mut bench, pid);
        assert_eq!(
            (next.because, &next.lost[..]),
            (None, std::slice::from_ref(&lost))
        );
        // An answer that did not arrive is asked for again.
        assert_eq!(
            confirming(&mut bench, pid).lost,
            std::slice::from_ref(&lost)
        );
        bench.exit(&[pid]);
    }
    // Another one, which nobody could see.
    bench.exit(&[52]);
    let last = confirming(&mut bench, 4);
    let names = |lease: &Lease| -> Vec<String> {
        lease.lost.iter().map(|lost| lost.of.to_string()).collect()
    };
    assert_eq!(names(&last), ["files", "web"]);
    let mut told = |of: &LostMember, because| {
        let told = bench
            .registry
            .loss_told(&last.session, last.epoch, Some(&of.of), because);
        told.expect("its lease");
        names(&confirming(&mut bench, 4))
    };
    assert_eq!(
        told(&lost, Loss::Lingered).len(),
        2,
        "that was another loss"
    );
    assert_eq!(told(&lost, Loss::Killed), ["web"]);
    bench.exit(&[4]);
    // Whoever does not say so was told by the answer.
    assert_eq!(names(&bench.claim(5)), ["web"]);
    bench.exit(&[5]);
    assert_eq!(names(&bench.claim(6)), [""; 0]);
}

/// The entry of a list has got a name meanwhile, or the daemon another recipe of keys.
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
            former: Some(KEY),
            ..bench.claim_of(HOST, pid)
        };
        let (_, lease) = bench.tell(claim).pop().expect("an answer");
        lease.expect("a lease")
    };
    let next = renamed(&mut bench, 2);
    let of = next.lost.first().map(|lost| lost.of.clone());
    assert_eq!(next.lost.len(), 1);
    bench
        .registry
        .loss_told(&next.session, next.epoch, of.as_ref(), Loss::Killed)
        .expect("its lease");
    bench.exit(&[2]);
    assert_eq!(renamed(&mut bench, 3).lost, []);
}
