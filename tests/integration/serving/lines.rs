//! Lines between a backend and the fronts that serve its session one after the other.

use mcp_sessiond_tests::{gone, signal};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{Bench, answer, initialize, progress, request};

/// When a backend dies, its keeper answers the open calls, also to the next front, and initialises
/// the next backend like the former one.
#[test]
fn calls_of_a_backend_that_died_have_an_unknown_outcome() {
    let mut bench = Bench::new("");
    bench.serving.send("s", &initialize());
    let (number, _) = bench.serving.line();
    bench
        .serving
        .tell(json!({"confirm": "s", "number": number}));
    bench.serving.send("s", &request(1, "hold"));
    bench.raw.wait_heard("hold");
    let former = bench.world.backend().status().pid.expect("it runs");
    signal(former, Signal::SIGKILL);
    gone(former);
    assert_eq!(bench.serve_again()["is_initialized"], true);
    let (number, line) = bench.serving.line();
    assert_eq!(number, 2);
    assert!(
        line.contains(r#""id":1"#) && line.contains(r#""outcome":"unknown""#),
        "{line}"
    );
    bench.serving.send("s", &request(2, "tools/list"));
    let heard = || {
        bench
            .raw
            .heard()
            .iter()
            .filter(|line| String::from_utf8_lossy(line).contains("\"initialize\""))
            .count()
    };
    bench.raw.until("the next backend is initialised", || {
        (heard() == 2).then_some(())
    });
}

/// A front that is killed before the backend has answered `initialize` leaves the next one to send
/// it again. The backend gets it once.
#[test]
fn an_initialize_that_is_cut_off_reaches_the_backend_once() {
    let mut bench = Bench::new("");
    let hold = initialize().replace("\"params\":{", "\"params\":{\"say\":\"\",");
    bench.serving.send("s", &hold);
    let heard: Value = serde_json::from_str(&bench.raw.wait_heard("\"initialize\"")).expect("JSON");
    assert_eq!(bench.serve_again()["is_initialized"], false);
    bench.serving.send("s", &hold);
    bench.serving.calls("s");
    let result = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
    bench
        .raw
        .say(&json!({"jsonrpc": "2.0", "id": heard["id"], "result": result}).to_string());
    assert!(bench.serving.line().1.contains("2025-06-18"));
    assert_eq!(bench.serve_again()["is_initialized"], true);
    let heard = bench.raw.heard();
    let initializes = heard
        .iter()
        .filter(|line| String::from_utf8_lossy(line).contains("\"initialize\""));
    assert_eq!(initializes.count(), 1);
}

/// The keeper knows a call that it has taken until a front confirms the answer.
#[test]
fn the_next_front_learns_which_calls_the_keeper_has_taken() {
    let mut bench = Bench::new("");
    bench.serving.send("s", &request(1, "hold"));
    bench.serving.send("s", &request(2, "x"));
    assert_eq!(bench.serving.line(), (1, answer(2)));
    bench.serve_again();
    assert_eq!(bench.serving.calls("s"), json!([1, 2]));
    assert_eq!(bench.serving.line(), (1, answer(2)));
    bench.serving.tell(json!({"confirm": "s", "number": 1}));
    assert_eq!(bench.serving.calls("s"), json!([1]));
}

/// A keeper that ends hands out what waits, as the front confirms what it has got.
#[test]
fn what_waits_when_a_backend_is_ended_still_arrives() {
    const LINES: u64 = 600;
    let mut bench = Bench::new("");
    let flood = r#"{"jsonrpc":"2.0","id":1,"method":"flood","params":{"lines":600,"bytes":10}}"#;
    bench.serving.send("s", flood);
    bench
        .world
        .backend()
        .wait("all of it waits", |status| status.waiting as u64 > LINES);
    bench.serving.tell(json!({"end": "s"}));
    for number in 1..=LINES + 1 {
        assert_eq!(bench.serving.line().0, number);
        bench
            .serving
            .tell(json!({"confirm": "s", "number": number}));
    }
    bench.serving.wait("ended");
}

/// While the front confirms nothing, the keeper stops reading from the backend; no line is lost.
#[test]
fn a_full_queue_stops_the_backend_and_loses_nothing() {
    const LINES: u64 = 20_000;
    let mut bench = Bench::new("[backends]\nqueue_messages = 8\n");
    let flood = r#"{"jsonrpc":"2.0","id":1,"method":"flood","params":{"lines":20000,"bytes":100}}"#;
    bench.serving.send("s", flood);
    // Nor does the way to the backend depend on the way back.
    bench.serving.send("s", &request(2, "hold"));
    for number in 1..=LINES + 1 {
        if number % 5_000 == 0 {
            bench.serve_again();
        }
        let (got, line) = bench.serving.line();
        assert_eq!(got, number, "{line}");
        let is_last = number == LINES + 1;
        assert!(if is_last {
            line.contains("result")
        } else {
            line.contains(&format!("\"n\":{},", number - 1))
        });
        bench
            .serving
            .tell(json!({"confirm": "s", "number": number}));
        if number % 5_000 == 4_999 {
            bench.serving.calls("s");
        }
    }
    bench.raw.wait_heard("hold");
}

const CALLS: u64 = 20;

/// During twenty calls with progress the test kills the front, the daemon, and both at once.
#[test]
fn nothing_is_lost_when_the_front_and_the_daemon_are_killed() {
    let mut bench = Bench::new("");
    for id in 1..=CALLS {
        bench.serving.send("s", &request(id, "hold"));
    }
    bench.raw.wait_heard(&format!("\"id\":{CALLS},"));
    let mut said = Vec::new();
    let mut got: Vec<(u64, String)> = Vec::new();
    for step in 0..9_u64 {
        for id in 1..=CALLS {
            let line = progress(id, step);
            bench.raw.say(&line);
            said.push(line);
        }
        // The front reads some lines, and confirms some of these.
        for _ in 0..CALLS {
            got.push(bench.serving.line());
        }
        let last = got.iter().map(|(number, _)| *number).max().expect("some");
        bench
            .serving
            .tell(json!({"confirm": "s", "number": last - 7}));
        bench.serving.calls("s");
        match step % 3 {
            0 => {
                let found = bench.serve_again();
                assert_eq!(found["incarnation"], bench.incarnation, "{found}");
            }
            1 => bench.daemon.restart(),
            _ => {
                bench.daemon.kill();
                bench.serving.process.kill();
                bench.daemon.start_again();
                let found = bench.serve_again();
                assert_eq!(found["incarnation"], bench.incarnation, "{found}");
            }
        }
        if step % 3 != 1 {
            // The next front gets the seven unconfirmed lines again.
            for _ in 0..7 {
                got.push(bench.serving.line());
            }
        }
    }
    for id in 1..=CALLS {
        bench.raw.say(&answer(id));
        said.push(answer(id));
    }
    while got
        .last()
        .is_none_or(|(number, _)| *number < said.len() as u64)
    {
        got.push(bench.serving.line());
    }
    // A line that came twice had the same number, and no two lines shared one.
    let mut once = Vec::new();
    for (number, line) in got {
        match once.get(usize::try_from(number).expect("small") - 1) {
            Some(before) => assert_eq!(*before, line),
            None => {
                assert_eq!(number, once.len() as u64 + 1, "a line is missing");
                once.push(line);
            }
        }
    }
    assert_eq!(once, said);
}
