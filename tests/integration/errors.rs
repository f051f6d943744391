//! `docs/messages.md`: every row of its tables of messages is provoked, here or in a test that
//! is named here.

mod messages;
mod refusals;

use std::collections::BTreeSet;
use std::fs::read_to_string;

use crate::fixture;
use crate::pages::named;

/// A row that another test provokes: the beginning of the row, the file, the test, and what that
/// test looks for, of the row's text.
type Elsewhere = (&'static str, &'static str, &'static str, &'static str);

const ELSEWHERE: &[Elsewhere] = &[
    (
        "the host does not speak JSON-RPC",
        "wrap/other_protocols.rs",
        "bytes_of_another_protocol_are_passed_on_as_they_are",
        "the host does not speak JSON-RPC in lines of text, so its bytes are passed on as they are; ",
    ),
    (
        "the server is started now",
        "lazy/alone.rs",
        "a_variable_of_the_launch_does_not_count_and_whatever_does_is_said",
        "the server is started now, and the host waits: ",
    ),
    (
        "the server has ended (",
        "wrap/deaths.rs",
        "a_server_that_exits_is_started_again_and_its_calls_are_said_to_be_unknown",
        "the server has ended (",
    ),
    (
        "this server begins afresh, and what",
        "wrap/deaths.rs",
        "the_end_of_a_server_is_told_until_somebody_has_read_it",
        "this server begins afresh",
    ),
    (
        "this server begins afresh: the records",
        "wrap/deaths.rs",
        "a_host_hears_that_the_records_were_lost",
        "the records of an earlier daemon were lost",
    ),
    (
        "not sent: this server begins afresh",
        "told_to_models.rs",
        "the_first_call_after_a_loss_is_refused_with_the_reason_where_that_is_wanted",
        "repeat the call",
    ),
    (
        "this host has sent nothing but",
        "probes.rs",
        "a_host_that_never_goes_further_gets_a_server_of_its_own",
        "three times in a row",
    ),
    (
        "the process that keeps this server (pid",
        "wrap/slow.rs",
        "a_keeper_that_is_stopped_is_waited_for",
        ") is stopped; waiting for it; ",
    ),
    (
        "a fresh server: the host closed",
        "wrap/resume.rs",
        "a_close_ends_the_server_and_the_next_one_is_told_so_once",
        "a fresh server: the host closed the previous server",
    ),
    (
        "a fresh server: mcp-sessiond does not know this host",
        "wrap/resume.rs",
        "an_unknown_host_gets_no_used_server_again_and_is_told_once_how_to_keep_it",
        "a fresh server: mcp-sessiond does not know this host",
    ),
    (
        "a fresh server: the host had closed",
        "orderings/leaves.rs",
        "the_server_of_a_subagent_is_not_the_next_one_s",
        "did not start the next one at once",
    ),
    (
        "a fresh server: this host runs many",
        "wrap/resume.rs",
        "a_client_that_says_mcp_never_gets_another_one_s_server",
        "a fresh server: this host runs many conversations",
    ),
    (
        "the daemon does not answer, so mcp-sessiond",
        "wrap/slow.rs",
        "a_name_has_one_server_while_the_daemon_hangs",
        "the daemon does not answer",
    ),
    (
        "the daemon does not answer, and a server",
        "wrap/slow.rs",
        "no_server_is_started_beside_the_kept_one_while_the_daemon_hangs",
        "is kept for this host",
    ),
    (
        "NAME is in use by another wrapper",
        "wrap/slow.rs",
        "a_name_has_one_server_also_without_a_daemon",
        "), which runs it without a daemon",
    ),
    (
        "the daemon has not answered for 2 s",
        "wrap/slow.rs",
        "a_daemon_that_hangs_keeps_no_command_waiting",
        "the daemon has not answered for 2 s",
    ),
    (
        "Token file not found",
        "cli.rs",
        "a_shell_script_needs_no_library",
        "Token file not found (first run or clean slate)",
    ),
    (
        "Token file corrupted",
        "tokens.rs",
        "what_can_not_be_trusted_is_deleted_and_never_offered",
        "Token file corrupted, treating as stale",
    ),
    (
        "Could not verify",
        "refusals.rs",
        "an_instance_without_a_host_goes_on_without_resuming",
        "Could not verify parent process start time, session resume disabled for this instance",
    ),
    (
        "Broker rejected",
        "cli.rs",
        "a_shell_script_needs_no_library",
        "Broker rejected resume token, starting fresh session",
    ),
    (
        "Session resumed",
        "cli.rs",
        "a_shell_script_needs_no_library",
        "Session resumed successfully",
    ),
    (
        "Failed to write token file",
        "tokens.rs",
        "on_a_full_disk_the_former_token_stays",
        "Failed to write token file: ",
    ),
    (
        "Session resume disabled",
        "lifecycle.rs",
        "without_any_daemon_a_server_goes_on",
        "Session resume disabled",
    ),
    (
        "session_held",
        "sessions.rs",
        "a_host_makes_sessions_and_takes_them_up_by_their_ids",
        "session_held",
    ),
    (
        "write_failed",
        "tokens.rs",
        "a_token_directory_that_others_may_enter_is_not_used",
        "write_failed",
    ),
    (
        "unavailable",
        "broken/storage.rs",
        "a_database_where_there_is_no_directory_stops_nothing_else",
        "unavailable",
    ),
    (
        "outcome_unknown",
        "broken/locked.rs",
        "what_may_be_done_later_is_not_told_as_refused_and_is_done_once",
        "outcome_unknown",
    ),
    (
        "the daemon can't write its records (sessions.db): the disk of",
        "broken/full.rs",
        "claims_go_on_for_a_while_then_it_is_said_and_then_got_over",
        "the daemon can't write its records (sessions.db): the disk of ",
    ),
    (
        "the daemon can't write its records (sessions.db): the disk does",
        "broken/records.rs",
        "records_that_can_not_be_written_are_said_and_got_over",
        "the daemon can't write its records (sessions.db): the disk does not answer",
    ),
    (
        "the daemon can't look at processes",
        "refusals.rs",
        "a_daemon_without_descriptors_says_so_and_nothing_final",
        "the daemon can't look at processes: out of file descriptors",
    ),
    (
        "what sessions contain",
        "broken/storage.rs",
        "a_damaged_database_stops_nothing_else_and_comes_back_once_it_is_gone",
        "what sessions contain can't be read or written now: ",
    ),
    (
        "config.toml: line",
        "broken/storage.rs",
        "a_configuration_that_can_not_be_read_is_no_reason_to_keep_a_host_waiting",
        "; settings that can't be read have their defaults",
    ),
    (
        "sessions.db was not what",
        "broken/records.rs",
        "garbage",
        "sessions.db was not what an earlier daemon had left ",
    ),
    (
        "… has mode 0755",
        "keepers.rs",
        "a_directory_of_sockets_that_is_open_to_others_is_refused",
        " has mode 0755 instead of 0700",
    ),
    (
        "mcp-sessiond.socket has failed",
        "systemd.rs",
        "a_wrong_configuration_fails_fast_and_heals",
        "mcp-sessiond.socket has failed",
    ),
    (
        "…; COMMAND is run",
        "wrap/without.rs",
        "without_a_daemon_a_server_is_run_as_it_is",
        "is run without being kept",
    ),
    (
        "COMMAND can't be run: there is no program of this name",
        "wrap/without.rs",
        "a_command_line_in_one_word_is_told_where_its_arguments_belong",
        "there is no program of this name; if it is a whole command line, ",
    ),
    (
        "COMMAND can't be run: it was",
        "wrap/without.rs",
        "what_can_t_be_run_exits_as_a_shell_says_it",
        ": it was not found in PATH=",
    ),
    (
        "the server can't be started",
        "lazy/alone.rs",
        "a_server_that_can_not_be_started_is_told_at_the_call_and_tried_again_at_the_next",
        "; this call was not sent. The next call tries again",
    ),
    (
        "the keeper of the server",
        "wrap/asks.rs",
        "a_late_answer_to_what_a_lost_server_has_asked_reaches_no_other_one",
        "the keeper of the server had ended, and the server with it; a fresh one was started",
    ),
    (
        "…; so this host does not share",
        "shared/own.rs",
        "a_host_that_can_do_less_gets_a_server_of_its_own_and_keeps_it",
        "so this host does not share the server, and gets one of its own",
    ),
    (
        "the connection to the shared server",
        "shared.rs",
        "a_shared_server_is_stopped_and_restarted_by_its_name_and_ends_with_its_last_host",
        "the connection to the shared server had ended; there is a new one",
    ),
    (
        "N messages were on their way",
        "wrap/cuts.rs",
        "what_was_under_way_to_a_killed_front_is_counted",
        "messages were on their way",
    ),
    (
        "no daemon runs",
        "wrap/watching.rs",
        "a_daemon_that_goes_away_and_comes_back_is_told_of",
        "no daemon runs; what is kept goes",
    ),
];

/// A row of the page's tables: what stands in its first cell in backticks, and the number in the
/// second, where that is one.
#[derive(Debug)]
struct Row {
    texts: Vec<String>,
    second: String,
}

fn rows() -> Vec<Row> {
    let page = read_to_string(fixture("../docs/messages.md")).expect("the page");
    let (_, messages) = page
        .split_once("\n## What each message means\n")
        .expect("the section");
    let lines = messages
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| ---"));
    let row = |line: &str| {
        let mut cells = line.trim_matches(['|', ' ']).split(" | ");
        let code = cells
            .next()
            .unwrap_or_default()
            .split('`')
            .skip(1)
            .step_by(2);
        // The verb that says it stands behind the text.
        let texts = code
            .map(str::to_owned)
            .filter(|text| text != "doctor" && text != "status")
            .collect();
        Row {
            texts,
            second: cells.next().unwrap_or_default().to_owned(),
        }
    };
    lines.map(row).filter(|row| !row.texts.is_empty()).collect()
}

/// The one text of the page that begins so, and what is beside it: of the codes of a row, each has
/// its own.
#[track_caller]
fn row(beginning: &str) -> (String, String) {
    let rows = rows();
    let found: Vec<(String, String)> = rows
        .iter()
        .flat_map(|row| {
            let beside: Vec<&str> = row.second.split(", ").collect();
            let one = move |at: usize| {
                if beside.len() == row.texts.len() {
                    beside[at]
                } else {
                    &row.second
                }
            };
            row.texts
                .iter()
                .enumerate()
                .map(move |(at, text)| (text.clone(), one(at).to_owned()))
        })
        .filter(|(text, _)| text.starts_with(beginning))
        .collect();
    let [one] = &found[..] else {
        panic!("{beginning:?} is not one row of docs/messages.md: {found:?}")
    };
    one.clone()
}

/// The parts of a row's text that stand for themselves: the rest is `…`, `<why>`, a number, or a
/// word in capitals.
fn literal(text: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut is_open = false;
    for word in text.split_inclusive(' ') {
        let bare = word.trim();
        let is_capital = bare
            .trim_end_matches(['…', ':', ','])
            .chars()
            .all(|c| c.is_ascii_uppercase());
        if is_capital && !bare.is_empty() && bare != "PATH=…" {
            pieces.push(String::new());
            continue;
        }
        for letter in word.chars() {
            is_open = letter == '<' || is_open && letter != '>';
            if is_open || "…>0123456789".contains(letter) {
                pieces.push(String::new());
            } else if let Some(piece) = pieces.last_mut() {
                piece.push(letter);
            }
        }
    }
    pieces
        .iter()
        .map(|piece| piece.trim().to_owned())
        .filter(|piece| !piece.is_empty())
        .collect()
}

/// Asserts that this is what the row of the page that begins so says.
#[track_caller]
fn assert_row(beginning: &str, said: &str) {
    let (text, _) = row(beginning);
    let mut rest = said;
    for piece in literal(&text) {
        let found = rest.find(&piece);
        let at =
            found.unwrap_or_else(|| panic!("{piece:?} of the page's {text:?} is not in {said:?}"));
        rest = &rest[at + piece.len()..];
    }
}

#[test]
fn every_row_is_provoked() {
    let here = messages::ROWS.iter().chain(refusals::CODES).copied();
    let beginnings: Vec<&str> = here.chain(ELSEWHERE.iter().map(|one| one.0)).collect();
    let texts: Vec<String> = rows().into_iter().flat_map(|row| row.texts).collect();
    assert!(
        texts.len() > 50,
        "the tables are not found any more: {texts:?}"
    );
    let missing: Vec<&String> = texts
        .iter()
        .filter(|text| !beginnings.iter().any(|one| text.starts_with(one)))
        .collect();
    assert!(
        missing.is_empty(),
        "provoke these, or name the test that does: {missing:#?}"
    );
    for beginning in beginnings {
        row(beginning);
    }
}

#[test]
fn the_tests_that_are_named_look_for_what_the_page_says() {
    let mut wrong = Vec::new();
    for (beginning, file, test, fragment) in ELSEWHERE {
        let text = read_to_string(fixture(&format!("integration/{file}"))).unwrap_or_default();
        let names: BTreeSet<String> = named(&text).into_iter().collect();
        let shown = row(beginning).0;
        let is_of_the_page = literal(&shown)
            .iter()
            .any(|piece| piece.contains(fragment.trim()) || fragment.contains(piece.as_str()));
        if !names.contains(*test) {
            wrong.push(format!("{file} has no test {test}: {names:?}"));
        } else if !text.contains(fragment) {
            wrong.push(format!("{file} does not look for {fragment:?}"));
        } else if !is_of_the_page {
            wrong.push(format!("the page's {shown:?} has no {fragment:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_stands_for_something_else_is_told_from_the_text() {
    assert_eq!(literal("line N: …; what"), ["line", "; what"]);
    assert_eq!(
        literal("COMMAND can't be run: in PATH=…"),
        ["can't be run: in PATH="]
    );
    assert_eq!(literal("Failed: <error>"), ["Failed:"]);
    assert_eq!(
        literal("(exit status 1: …) before"),
        ["(exit status", ":", ") before"]
    );
}
