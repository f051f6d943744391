//! What a message costs. Run by hand: `cargo test --release -p mcp-sessiond --lib relay::tests::cost -- --ignored --nocapture`.

use std::time::Instant;

use super::*;

fn timed(what: &str, times: u32, mut work: impl FnMut()) {
    let start = Instant::now();
    (0..times).for_each(|_| work());
    #[expect(clippy::print_stdout, reason = "it is what this is run for")]
    {
        println!("{what}: {:?}", start.elapsed() / times);
    }
}

#[test]
#[ignore = "it measures, and asserts nothing of time"]
fn of_small_and_of_large_messages() {
    let mut bench = Bench::initialized();
    let mut round = |what: &str, first: bool, times: u32, result: String| {
        if !first {
            bench.reconnect("{}");
        }
        let mut id = bench.relay.calls.numbers.ours();
        timed(what, times, || {
            id += 1;
            let host = if first { id.to_string() } else { format!("\"{id}\"") };
            bench.front(&format!(
                r#"{{"jsonrpc":"2.0","id":{host},"method":"tools/call","params":{{"name":"x","arguments":{{"a":"bbbbbbbb"}}}}}}"#
            ));
            let sent = bench.backend_gets().pop().expect("sent");
            assert!(sent.len() > 80);
            bench.backend(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
            assert_eq!(bench.front_gets().len(), 1);
        });
    };
    let text = |length: usize| {
        format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, "abcdefg ".repeat(length / 8))
    };
    round("a call of 100 bytes and its answer, ids as they are", true, 100_000, text(16));
    round("the same, ids replaced", false, 100_000, text(16));
    round("the same, with an answer of 1 MiB", false, 200, text(1 << 20));
    round("the same, with an answer of 15 MiB", false, 20, text(15 << 20));
    let answer = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":900000000,"result":{}}}"#, text(1 << 20)));
    timed("to read an answer of 1 MiB", 200, || bench.relay.from_backend(answer.clone(), 0));
}
