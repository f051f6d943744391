//! Whatever both sides say, and whatever becomes of servers and processes, the session does not
//! panic, and keeps its rules. `tests/fuzz` runs this with coverage.

use super::model::{Step, World};

#[test]
fn http_session_sequences() {
    bolero::check!().for_each(|input: &[u8]| {
        let mut world = World::default();
        for bytes in input.chunks(2) {
            let which = bytes.get(1).copied().unwrap_or_default();
            world.take(Step::of(bytes[0], which));
        }
        world.settle();
    });
}
