//! A broker: it has sessions, and resumes each with a token that is good for one time.
//!
//! | question | answer |
//! | --- | --- |
//! | `{"op":"issue"}` | `{"session":…,"token":…}`: a new session |
//! | `{"op":"resume","token":…}` | `{"session":…,"token":…}`: the same session, a new token; the old one is used up |
//! | | `{"refused":"used"}`, `"unknown"`, `"expired"` |
//! | `{"op":"expire","session":…}` | `{"expired":…}`: how many tokens; all of the session's, or of everybody's without one |
//! | `{"op":"tally"}` | `{"issued":…,"resumed":…,"refused":…}` |

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};

use serde_json::{Value, json};

/// The broker's books.
#[derive(Debug)]
pub struct Broker {
    random: File,
    tokens: HashMap<String, Issued>,
    issued: u64,
    resumed: u64,
    refused: u64,
}

/// A token that was given out.
#[derive(Debug)]
struct Issued {
    session: String,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Good,
    Used,
    Expired,
}

impl Broker {
    /// A broker that has issued nothing.
    ///
    /// # Errors
    /// When there is no /dev/urandom.
    pub fn new() -> io::Result<Self> {
        let random = File::open("/dev/urandom")?;
        Ok(Self {
            random,
            tokens: HashMap::new(),
            issued: 0,
            resumed: 0,
            refused: 0,
        })
    }

    /// Answers one line.
    pub fn answer(&mut self, line: &str) -> Value {
        let question: Value = serde_json::from_str(line).unwrap_or_default();
        let answer = match question["op"].as_str() {
            Some("issue") => self.issue(),
            Some("resume") => self.resume(question["token"].as_str().unwrap_or_default()),
            Some("expire") => Ok(self.expire(question["session"].as_str())),
            Some("tally") => {
                Ok(json!({"issued": self.issued, "resumed": self.resumed, "refused": self.refused}))
            }
            _ => Ok(json!({"error": "the operations are issue, resume, expire and tally"})),
        };
        answer.unwrap_or_else(|error| json!({"error": error.to_string()}))
    }

    fn issue(&mut self) -> io::Result<Value> {
        self.issued += 1;
        let session = format!("session-{}", self.issued);
        self.grant(session)
    }

    fn resume(&mut self, token: &str) -> io::Result<Value> {
        let why = match self.tokens.get_mut(token) {
            Some(issued) if issued.state == State::Good => {
                issued.state = State::Used;
                let session = issued.session.clone();
                self.resumed += 1;
                return self.grant(session);
            }
            Some(issued) if issued.state == State::Used => "used",
            Some(_) => "expired",
            None => "unknown",
        };
        self.refused += 1;
        Ok(json!({"refused": why}))
    }

    fn expire(&mut self, session: Option<&str>) -> Value {
        let due = self.tokens.values_mut().filter(|issued| {
            issued.state == State::Good && session.is_none_or(|session| issued.session == session)
        });
        let expired = due.map(|issued| issued.state = State::Expired).count();
        json!({"expired": expired})
    }

    fn grant(&mut self, session: String) -> io::Result<Value> {
        let mut bytes = [0; 32];
        self.random.read_exact(&mut bytes)?;
        let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let answer = json!({"session": session, "token": token});
        self.tokens.insert(
            token,
            Issued {
                session,
                state: State::Good,
            },
        );
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(broker: &mut Broker, question: &Value) -> Value {
        broker.answer(&question.to_string())
    }

    #[test]
    fn a_token_is_good_for_one_time() {
        let mut broker = Broker::new().expect("random bytes");
        let first = ask(&mut broker, &json!({"op": "issue"}));
        let second = ask(
            &mut broker,
            &json!({"op": "resume", "token": first["token"]}),
        );
        assert_eq!(first["session"], second["session"]);
        assert_ne!(first["token"], second["token"]);
        let again = ask(
            &mut broker,
            &json!({"op": "resume", "token": first["token"]}),
        );
        assert_eq!(again, json!({"refused": "used"}));
        let third = ask(
            &mut broker,
            &json!({"op": "resume", "token": second["token"]}),
        );
        assert_eq!(third["session"], first["session"]);
        assert_eq!(
            ask(&mut broker, &json!({"op": "tally"})),
            json!({"issued": 1, "resumed": 2, "refused": 1})
        );
    }

    #[test]
    fn unknown_and_expired_tokens_are_refused() {
        let mut broker = Broker::new().expect("random bytes");
        let (one, other) = (
            ask(&mut broker, &json!({"op": "issue"})),
            ask(&mut broker, &json!({"op": "issue"})),
        );
        let made_up = ask(&mut broker, &json!({"op": "resume", "token": "00"}));
        assert_eq!(made_up, json!({"refused": "unknown"}));
        let expired = ask(
            &mut broker,
            &json!({"op": "expire", "session": one["session"]}),
        );
        assert_eq!(expired, json!({"expired": 1}));
        let late = ask(&mut broker, &json!({"op": "resume", "token": one["token"]}));
        assert_eq!(late, json!({"refused": "expired"}));
        let good = ask(
            &mut broker,
            &json!({"op": "resume", "token": other["token"]}),
        );
        assert_eq!(good["session"], other["session"]);
    }

    #[test]
    fn sessions_and_tokens_are_never_the_same_twice() {
        let mut broker = Broker::new().expect("random bytes");
        let issued: Vec<Value> = (0..100)
            .map(|_| ask(&mut broker, &json!({"op": "issue"})))
            .collect();
        for member in ["session", "token"] {
            let distinct: std::collections::HashSet<&str> = issued
                .iter()
                .filter_map(|answer| answer[member].as_str())
                .collect();
            assert_eq!(distinct.len(), issued.len(), "{member}");
        }
        assert!(issued.iter().all(|answer| {
            answer["token"]
                .as_str()
                .is_some_and(|token| token.len() == 64)
        }));
    }
}
