//! The example, by the command that its page names.

use crate::{BINARIES, example};

#[test]
#[ignore = "needs curl"]
fn the_example_tells_of_a_server_that_was_killed() {
    let lines = "a report of 1 pages\npage 2 of 600\nkilled while it works\n\"status\":\"failed\"\noutcome is unknown\n\"status\":\"completed\"\n";
    assert_eq!(example("tasks_server.sh", BINARIES.tasks_example), lines);
}
