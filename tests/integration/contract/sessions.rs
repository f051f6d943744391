//! The rules over a backend: what sessions, their state and their streams promise to whoever uses
//! them.
//!
//! Time passes only where a case says so. A case that is about several daemons has a second one
//! beside the first, on the same data.

mod bench;
mod binding;
mod by_hand;
mod errors;
mod events;
mod expiring;
mod expiry;
mod failing;
mod fleet;
mod handles;
mod lives;
mod orphans;
mod pruning;
mod relay;
mod replay;
mod secrets;
mod signs;
mod state;
mod tasks;
mod visit;
mod waits;
mod wills;

use mcp_sessiond_daemon::config::Limits;

pub(crate) use binding::*;
pub(crate) use by_hand::*;
pub(crate) use errors::*;
pub(crate) use events::*;
pub(crate) use expiring::*;
pub(crate) use expiry::*;
pub(crate) use failing::*;
pub(crate) use fleet::*;
pub(crate) use handles::*;
pub(crate) use lives::*;
pub(crate) use orphans::*;
pub(crate) use pruning::*;
pub(crate) use replay::*;
pub(crate) use secrets::*;
pub(crate) use signs::*;
pub(crate) use state::*;
pub(crate) use tasks::*;
pub(crate) use waits::*;
pub(crate) use wills::*;

/// The cases of this layer.
macro_rules! cases {
    ($needs:ident $backend:ty) => {
        crate::contract::tests! { $needs $backend, crate::contract::sessions,
            created_and_found_again
            created_twice
            a_creation_that_is_repeated
            as_many_as_there_may_be
            ids_of_every_kind
            listed_in_pages
            what_is_updated_is_kept
            reset_empties
            a_tombstone_refuses_everything
            a_tombstone_is_forgotten
            whoever_waits_is_told_of_the_end

            written_and_read
            versions_are_never_had_again
            conditions_hold_or_refuse
            all_of_them_or_none
            keys_are_named_once_and_not_too_many
            limits_of_state
            the_largest_values
            listed_with_keys_of_every_kind
            two_hundred_writes_at_once
            one_of_sixteen_wins
            a_value_that_has_expired_is_not_there
            the_sweep_deletes_what_has_expired
            what_has_expired_makes_room
            pages_are_full_although_some_have_expired
            a_time_of_nought_or_without_a_value_is_refused

            numbered_under_concurrency
            numbered_by_two_daemons
            as_many_at_once_as_there_may_be
            a_request_that_is_repeated
            a_request_to_an_orphan_that_is_repeated
            answers_of_an_orphan_stay
            priming_events_are_cursors
            streams_open_and_close
            ids_mean_nothing_elsewhere
            counters_go_on_after_a_crash

            pages_of_every_size_join
            from_every_event_on
            a_number_after_many_single_events
            a_number_in_the_middle_of_a_batch
            large_messages_fill_a_page
            a_number_behind_large_messages
            several_streams_in_one_wait
            a_silent_stream_holds_nobody_up
            cursors_that_go_together
            another_stream_of_that_name

            a_will_is_carried_out_once_and_closes_its_stream
            a_will_ends_with_its_session
            an_answer_that_closes_its_stream
            an_answer_and_its_closing_are_one_commit

            a_task_goes_from_its_creation_to_its_result
            a_task_that_is_created_again_is_the_same
            a_task_asks_its_client_and_gets_answers
            a_task_whose_writer_has_exited_has_failed
            a_task_goes_when_its_time_is_over
            as_many_tasks_as_there_may_be
            tasks_are_listed_in_pages
            whoever_waits_for_a_task_is_told_of_its_changes

            nothing_to_wait_for
            woken_by_an_append
            woken_through_another_daemon
            woken_by_the_end
            woken_by_the_end_of_a_stream
            woken_by_the_exit
            dropped_half_way
            whoever_waits_uses_the_session
            followed_without_loss_or_repetition

            a_stream_over_its_count
            a_stream_over_its_bytes
            a_session_over_its_count
            a_session_over_its_bytes
            limits_that_become_narrower
            aged_events_go
            a_request_is_forgotten_with_its_events
            closed_streams_retire
            a_long_stream_retires_too
            several_short_streams_retire_at_once

            what_nobody_has_used_ends_by_hand
            events_are_pruned_by_hand
            an_orphan_whose_reader_is_back
            an_event_leads_to_its_stream

            idle
            absolute
            grace
            nought_is_never
            as_configured
            many_at_once
            those_that_stay_hold_nobody_up
            whoever_waits_keeps_it
            a_held_lease_keeps_it
            of_a_host_that_is_gone
            of_another_machine
            time_does_not_step_back

            what_one_writes_another_reads
            a_late_write_brings_nothing_back
            a_client_of_another_daemon_keeps_it
            a_client_of_a_dead_daemon_does_not

            a_sign_is_renewed_and_removed
            a_sign_is_no_session
            one_machine_has_a_session_s_server

            all_daemons_tell_the_same_secret
            a_key_that_was_rotated_out_counts_for_a_day

            to_an_identity
            to_a_credential_that_is_rotated
            to_nobody
            ended_by_a_mismatch
            ended_while_others_write

            minted_and_opened
            good_for_its_life
            as_many_as_are_good
            of_sessions_that_have_ended

            another_owners_is_not_there
            mistakes
            what_debug_is_told

            at_any_moment
            answers_that_are_lost
            writes_whose_answers_are_lost
            what_is_forgotten_late

        }
    };
}
pub(super) use cases;
