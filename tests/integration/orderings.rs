//! The orderings that fronts and keepers rely on: which step comes first, why, where that is kept, and
//! the test that fails if the two steps are exchanged. Tests without a path are in `orderings/`.
//!
//! A claim (`orderings/claims.rs`)
//!
//! - The host's first line is read before the claim: the client's name is a part of the key.
//!   `front/first_line.rs`; `wrap/twins.rs`, two_that_say_who_they_are_find_their_own_in_every_order.
//! - A probe whose answer is known is answered before the claim: a host that throws the connection away
//!   takes no lease, and is told nothing. `front/probe.rs`; `probes.rs`, and `wrap/deaths.rs`,
//!   the_end_of_a_server_is_told_until_somebody_has_read_it.
//! - What was read before the claim is handed on whole, before what comes while the claim waits.
//!   `front/client.rs`;
//!   what_is_sent_before_and_while_a_claim_waits_arrives_whole_once_and_in_order. To a command that is
//!   run as it is: `wrap/other_protocols.rs`, bytes_of_another_protocol_are_passed_on_as_they_are.
//! - A front is dumpable until its claim has an answer, and again during each later claim: the daemon reads
//!   the front's environment then. `memory.rs`, `server/keeper_connector.rs` (`claiming`);
//!   a_session_is_claimed_before_the_front_hides_what_it_was_started_with, and, as a user who is not root,
//!   `wrap/slow.rs`, no_server_is_started_beside_the_kept_one_while_the_daemon_hangs.
//! - The claim comes before the question for the keeper, and a second claim after it if there is none: the
//!   keeper may have ended in between, and only a claim carries losses. `server/keeper_connector.rs` (`find`);
//!   a_keeper_that_ends_between_the_claim_and_the_question_for_it_is_told.
//! - A claim is over before its front gives up and runs its command as it is: a claim that is granted later
//!   would be a lease of nobody's. `server/keeper_connector.rs` (`wait_ms`);
//!   a_claim_waits_for_another_holder_and_not_longer_than_its_front_for_the_daemon.
//! - `--take` and `--fresh` hold for the first claim and not for those after it: what was taken is not
//!   taken back. `server/keeper_connector.rs` (`set_claimed`); a_name_is_taken_once_and_not_taken_back.
//! - Where there is no such program, the lease is given up before the host is told: the front stays, and
//!   another one of this host would wait for it. `front.rs`;
//!   the_lease_is_given_up_before_the_host_hears_that_there_is_no_such_program.
//! - A name is locked before its first server is started without a daemon, and looked up in the keepers
//!   after that. `server/without_daemon.rs`; a_name_is_locked_before_its_server_is_started.
//! - A name is claimed, and looked up in the locks and the keepers, before a command is run under it as it
//!   is. `front/pass_through.rs`; `wrap/other_protocols.rs`,
//!   another_protocol_gets_no_second_server_of_a_name, and …_without_a_daemon_either.
//! - The front of a shared server wakes the daemon before it starts the keeper, which does not.
//!   `server/shared/connector.rs`; `shared/kills.rs`, where_no_daemon_runs_one_is_started.
//! - A keeper that is being started has registered before it is ended, and has been told to end before the
//!   lease is given up: else it would stay without a front, or be the next process's.
//!   `server/keeper_connector.rs` (`release`); `orderings/connect.rs`,
//!   a_connect_that_is_dropped_anywhere_leaves_nothing_once_it_is_given_up.
//!
//! Lines (`orderings/lines.rs`)
//!
//! - A fresh keeper gets an `initialize` without an answer before the lines that were held.
//!   `relay/link.rs` (`connected`);
//!   a_fresh_keeper_gets_an_initialize_without_an_answer_before_what_was_held. To the keeper of a service:
//!   `serving/lines.rs`, an_initialize_that_is_cut_off_reaches_the_backend_once.
//! - A call is noted before it is written: a write that fails leaves nobody without an answer.
//!   `relay/link.rs` (`pass_on`);
//!   a_call_is_noted_before_it_is_written_so_it_is_answered_if_the_keeper_is_lost.
//! - A line is written to the host before it is confirmed to the keeper: what was under way to a front
//!   that is killed is counted. `front/client.rs` (`sent`);
//!   an_answer_is_confirmed_to_the_keeper_only_after_the_host_was_given_it.
//! - A kept server has ended before its command is run as it is: it may hold a port or a lock.
//!   `front/pass_through.rs`, `server/daemon_calls.rs` (`stop`);
//!   a_kept_server_is_gone_before_its_command_is_run_as_it_is.
//!
//! Leaving (`orderings/leaves.rs`)
//!
//! - The keeper is told that the host leaves before the front ends, at a close and at a signal: else the
//!   next front would get the server of another conversation. `front/leave.rs`, `front/drive.rs`,
//!   `front/pending_leaves.rs`; a_keeper_is_told_that_the_host_leaves_before_the_front_ends.
//! - A session of remote servers is marked as closed before its front ends, since there is no keeper.
//!   `front/stdio.rs` (`signals`, `close`); `remote/front.rs`,
//!   an_unknown_host_s_close_ends_the_session_and_a_cut_does_not.
//! - What was answered is passed on and confirmed before the front ends. `front/drive.rs` (`say_the_rest`);
//!   `wrap/cuts.rs`, no_message_that_has_arrived_counts_as_lost_at_an_orderly_close, and
//!   `wrap/input_end.rs`, what_is_answered_after_the_end_of_the_input_arrives.
//! - What a server has answered is remembered before the front of `--lazy` or `--all` ends.
//!   `front/lazy.rs`, `front/bundle.rs` (`flush`); `lazy/alone.rs`,
//!   it_is_started_at_its_first_call_and_what_was_told_is_what_it_says.
//!
//! Losses (`orderings/losses.rs`)
//!
//! - What a claim was told is printed only after the host has sent more than a probe. `relay/link.rs`
//!   (`Out::Used`), `front/drive.rs` (`Untold`); `wrap/deaths.rs`,
//!   the_end_of_a_server_is_told_until_somebody_has_read_it.
//! - A loss is confirmed only after its line was written. `stderr.rs`;
//!   a_loss_counts_as_told_only_after_its_line_was_written. Of a shared server: `shared/kills.rs`,
//!   a_host_whose_front_was_killed_with_the_server_or_its_keeper_is_told_by_the_next_front.
//! - The first call after a loss is refused before it is made. `proxy/relay/src/relay/losses.rs`;
//!   `told_to_models.rs`.
//! - That there is no program is told to the daemon before the keeper exits: else that is a loss.
//!   `keeper.rs`; `several/parts.rs`, a_program_that_is_not_there_is_no_loss.
//!
//! Keepers (`orderings/keepers.rs`)
//!
//! - What a front has sent is read before its exit counts. `keeper/hold.rs`;
//!   what_a_front_has_sent_is_read_before_its_exit_counts.
//! - That a keeper ends on purpose is said before its connection ends: else another server is started at
//!   once. `keeper/hold/restarts.rs` (`end`);
//!   a_keeper_says_that_it_ends_on_purpose_before_its_connection_ends.
//! - What a server has said, on both outputs, is passed on before its end counts: else its last answer
//!   would be an unknown outcome. `keeper/hold/restarts.rs` (`backend_ended`);
//!   what_a_server_has_said_is_passed_on_before_its_end.
//! - A former server is gone before the next one is started. `keeper/hold.rs`;
//!   a_server_that_is_replaced_is_gone_before_the_next_one_is_started.
//! - A keeper registers, which may start a daemon, before it adopts orphans. `keeper.rs`;
//!   a_daemon_that_a_keeper_has_started_is_not_its_child.
//! - A server's orphans are looked for before its input is closed. `keeper/backend.rs` (`take_down`);
//!   `wrap/strays.rs`, a_server_that_exits_by_itself_leaves_its_orphans_behind.
//! - A line of a service's front is acknowledged after it was taken, and before the keeper says that it
//!   ends. `keeper/hold/continuing.rs`; `serving/lines.rs`, what_waits_when_a_backend_is_ended_still_arrives,
//!   and the_next_front_learns_which_calls_the_keeper_has_taken.
//! - A process is held before it is looked at, and looked at again after that: its pid may be another's.
//!   `process/src/walk.rs`, `process/src/challenge.rs`, `process/src/health.rs`; `process/src/tests`, and
//!   `kernels.rs`, who_is_gone_by_the_kernel_s_word_is_not_asked.
//!
//! Steps whose exchange no test sees, since both are done at once or the second makes up for the first
//!
//! - What a former front has sent is read once more before the next one is let in, also where both come at
//!   the same moment. `keeper/hold/attach.rs` (`forbids`).
//! - Signals are blocked before there is a thread that one could interrupt. `front.rs`, `signals.rs`.
//! - The timer of the end of the input begins before the keepers are told. `front/input_end.rs`.
//! - The socket of a keeper that has exited is deleted before its session may have another one, which
//!   has the same name where hosts share the server. `daemon/src/engine/backends.rs` (`swept`).
//! - The filters of an edited list hold before its servers are started. `front/bundle.rs`.

mod claims;
mod connect;
mod keepers;
mod leaves;
mod lines;
mod losses;

use crate::told_to_models::{DOORS, Door};

/// Does this for each way to a server, all at once: most of it is waiting.
fn by_every_door(act: impl Fn(Door) + Sync) {
    let act = &act;
    std::thread::scope(|scope| {
        for door in DOORS {
            let named = std::thread::Builder::new().name(format!("{door:?}"));
            let run = named.spawn_scoped(scope, move || act(door));
            run.expect("a thread");
        }
    });
}
