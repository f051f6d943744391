//! Calls that are interrupted at random: the connection breaks, or `serve`, the daemon or both are
//! killed. Each call is answered once.

use mcp_sessiond_tests::{HttpClient, Reply, random};
use serde_json::{Value, json};

use super::serving;
use crate::wrap::{counter, tiny};

/// How many messages each call gets before its answer.
const NOTES: u64 = 20;

/// What the client has got of a call so far, and the event to resume after.
#[derive(Default)]
struct Heard {
    after: String,
    notes: Vec<u64>,
    answers: Vec<Value>,
}

impl Heard {
    /// Reads at most this many events. False: the stream ended, or its connection broke.
    fn read(&mut self, reply: &mut Reply, most: usize) -> bool {
        for _ in 0..most {
            let Some(event) = reply.event() else {
                return false;
            };
            self.after = event.id.clone().expect("an id");
            if event.data.is_empty() {
                continue;
            }
            let message = event.message();
            match message["params"]["data"].as_u64() {
                Some(note) => self.notes.push(note),
                None => self.answers.push(message),
            }
        }
        true
    }

    /// Resumes the stream until it is complete. Returns whether the outcome of the call is known.
    fn finish(mut self, client: &HttpClient, first: u64) -> bool {
        loop {
            let mut back = client.resume(&self.after);
            if back.status == 204 {
                break;
            }
            back.must_be(200);
            while self.read(&mut back, 1) {}
        }
        let expected: Vec<u64> = (first..).take(self.notes.len()).collect();
        assert_eq!(self.notes, expected, "each once, and in order");
        assert_eq!(self.answers.len(), 1, "{:?}", self.answers);
        let answer = &self.answers[0];
        assert_eq!(answer["id"], client.last, "{answer}");
        let is_known = answer["result"].is_object();
        assert!(
            is_known || answer["error"]["data"]["outcome"] == "unknown",
            "{answer}"
        );
        assert!(
            !is_known || self.notes.len() as u64 == NOTES,
            "the answer comes after all messages: {:?}",
            self.notes
        );
        is_known
    }
}

#[test]
fn a_connection_that_is_cut_at_random_loses_nothing() {
    let (_world, _daemon, serve) = serving("", counter);
    let mut client = serve.connected("2025-11-25");
    let mut random = random();
    for round in 0..20 {
        let mut heard = Heard::default();
        let mut reply = client.call("notify", &json!({"n": NOTES}));
        heard.read(&mut reply, random.usize(1..=NOTES as usize + 1));
        reply.hang_up();
        for _ in 0..random.usize(0..3) {
            let mut back = client.resume(&heard.after);
            if back.status == 200 {
                heard.read(&mut back, random.usize(0..5));
                back.hang_up();
            }
        }
        assert!(
            heard.finish(&client, round * NOTES + 1),
            "nothing was killed"
        );
    }
}

#[test]
fn each_call_is_answered_once_when_serve_and_the_daemon_are_killed_at_random() {
    let (_world, mut daemon, mut serve) = serving("http.hold_ms = 30000", counter);
    let mut client = serve.connected("2025-11-25");
    let mut random = random();
    let mut first = 1;
    for _ in 0..12 {
        let mut heard = Heard::default();
        let mut reply = client.call("notify", &json!({"n": NOTES}));
        heard.read(&mut reply, random.usize(1..=NOTES as usize + 1));
        let (kills_serve, kills_daemon) = (random.bool(), random.bool());
        if kills_serve {
            serve.kill();
        }
        if kills_daemon {
            daemon.restart();
        }
        if kills_serve {
            serve.start_again();
        }
        assert!(heard.finish(&client, first), "its server was not killed");
        first += NOTES;
    }
    assert!(client.text("get", &json!({})).parse::<u64>().is_ok());
}

#[test]
fn many_sessions_call_at_once_and_each_gets_its_own_answers() {
    let (_world, _daemon, serve) = serving("", tiny);
    let clients: Vec<_> = (1..=8)
        .map(|by| (by, serve.connected("2025-11-25")))
        .collect();
    let calling = clients.into_iter().map(|(by, mut client)| {
        std::thread::spawn(move || {
            for round in 1..=20_u64 {
                assert_eq!(
                    client.text("increment", &json!({"by": by})),
                    (by * round).to_string()
                );
            }
        })
    });
    let calling: Vec<_> = calling.collect();
    calling
        .into_iter()
        .for_each(|calling| calling.join().expect("answered"));
}
