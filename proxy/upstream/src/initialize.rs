//! The handshake with a server, and how it is repeated to one that has forgotten it.

use std::cell::OnceCell;
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::answers;
use mcp_sessiond_jsonrpc::id::normal;
use mcp_sessiond_jsonrpc::message::{Kind, Line};
use mcp_sessiond_jsonrpc::one_line;
use mcp_sessiond_jsonrpc::readable::Readable;
use mcp_sessiond_proto::Loss;
use mcp_sessiond_relay::verdict::names_session;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::timeout;

use crate::http::{HttpReply, HttpRequest, PING, PING_ID, Reply};
use crate::ledger::SessionRecord;
use crate::link::{Link, NewSession};
use crate::messages::{CallFailure, answered, messages};
use crate::news::News;
use crate::session_headers::SessionHeaders;

/// How long a repeated handshake may take.
const WAIT: Duration = Duration::from_secs(30);

/// How long a server may take to show that it knows a session, before another one is begun.
const PING_WAIT: Duration = Duration::from_secs(5);

/// The id of `initialize` where it is repeated.
const ID: &str = r#""mcp-sessiond-initialize""#;

/// What tells hosts that a server has other things than before.
const LISTS: [&str; 3] = ["tools", "resources", "prompts"];

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chosen {
    protocol_version: Option<String>,
    #[serde(default)]
    capabilities: Value,
}

/// What came of `initialize`.
struct Initialized {
    /// All that the server has said up to its answer, and that.
    said: Vec<Bytes>,
    /// None: the server has refused.
    session: Option<NewSession>,
}

/// Why a handshake could not be repeated.
enum InitializeError {
    /// It may be taken later, and why not now.
    ForNow(String),
    /// It is refused, with this error.
    Refused,
}

impl Link {
    /// Says the host's `initialize`, and passes on what comes back.
    pub(super) async fn begin(&self, id: &str, line: Bytes) {
        let mut numbers = self.numbers();
        match self.send_initialize(id, line).await {
            Ok(Initialized { said, session }) => {
                if let Some(session) = session
                    && !self.has_session(session, false).await
                {
                    let why =
                        "what the next process needs of the session could not be stored".to_owned();
                    return self
                        .deliver(numbers.ours(), None, CallFailure::Unknown(why).answer(id))
                        .await;
                }
                for line in said {
                    self.deliver(numbers.next(), None, line).await;
                }
            }
            Err(why) => self.deliver(numbers.ours(), None, why.answer(id)).await,
        }
    }

    /// Answers a host's `initialize` in the session of a former process, if the server shows that
    /// it knows it. False: another one has to be begun, and the user is told why.
    ///
    /// # Errors
    /// Why the server can't be asked.
    pub(super) async fn resume(
        &self,
        former: &SessionRecord,
        id: &str,
        params: &str,
    ) -> Result<bool, CallFailure> {
        let stamp = former.stamp();
        let value = |text: &str| serde_json::from_str::<Value>(text).ok();
        let is_same = former
            .initialize
            .as_ref()
            .is_some_and(|known| value(known.get()) == value(params));
        let news = if is_same {
            match timeout(PING_WAIT, self.ping(&stamp)).await {
                Ok(news) => news?,
                Err(_) => News::Lost(Loss::Silent),
            }
        } else {
            News::Lost(Loss::OtherHost)
        };
        self.tell(news).await;
        match former.result.as_ref().filter(|_| news == News::Resumed) {
            Some(result) => {
                self.takes_up(former.clone());
                self.deliver(
                    self.numbers().ours(),
                    None,
                    answers::result(id, result.get()),
                )
                .await;
                Ok(true)
            }
            None => {
                if matches!(news, News::Lost(Loss::OtherHost | Loss::Silent)) {
                    // Nobody comes back to it. It may be gone, or hang.
                    drop(
                        timeout(PING_WAIT, self.wire.try_once(&HttpRequest::Delete, &stamp)).await,
                    );
                }
                Ok(false)
            }
        }
    }

    /// Whether the server shows that it knows a session: only by the result of a `ping` in it.
    ///
    /// # Errors
    /// Why it can't be asked.
    async fn ping(&self, stamp: &SessionHeaders) -> Result<News, CallFailure> {
        let reply = match self.wire.ask(&HttpRequest::Post(PING.into()), stamp).await {
            Ok(replied) => replied.reply,
            // The connection broke.
            Err(CallFailure::Unknown(_)) => return Ok(News::Lost(Loss::Silent)),
            Err(why) => return Err(why),
        };
        let text = match reply {
            Reply::Lost(loss, _) => return Ok(News::Lost(loss)),
            Reply::Message(text) => Some(text),
            Reply::Events(mut events) => loop {
                match events.next().await {
                    Some(event) if event.is_message && !event.data.is_empty() => {
                        let text = Bytes::from(event.data);
                        // What is none belongs to no call, or asks for something that the former
                        // host can't answer any more.
                        if messages(&text).iter().any(|line| answered(line).is_some()) {
                            break Some(text);
                        }
                    }
                    Some(_) => {}
                    None => break None,
                }
            },
            Reply::Taken(_) | Reply::Refused(..) | Reply::Denied(_) => None,
        };
        Ok(text.map_or(News::Lost(Loss::Silent), |text| pong(&text)))
    }

    /// The server has forgotten this session of its: repeats the handshake that is on record, and
    /// tells the host that lists may have changed.
    ///
    /// # Errors
    /// One sentence, where the server does not take it. Then the former session stays on record, and
    /// the next request asks again.
    pub(super) async fn renew(&self, session: u32, loss: Loss) -> Result<(), String> {
        let _one = self.initializing.lock().await;
        if self.stamp().1 != session {
            return Ok(());
        }
        // What is still said in it is not for the host, whether or not there will be another one.
        self.losses.send_replace(());
        let name = self.wire.name();
        let forgotten = match loss {
            Loss::Scattered => {
                format!("some nodes of the server {name:?} know the session, and others don't")
            }
            Loss::OtherLogin => {
                format!("the session with the server {name:?} belongs to another login")
            }
            _ => format!("the server {name:?} has forgotten the session"),
        };
        let capabilities = match timeout(WAIT, self.repeat(loss)).await {
            Ok(Ok(capabilities)) => capabilities,
            Ok(Err(InitializeError::ForNow(why))) => return Err(format!("{forgotten}: {why}")),
            Ok(Err(InitializeError::Refused)) => {
                return Err(format!(
                    "{forgotten}, and refuses the handshake that is on record; the next request asks it again"
                ));
            }
            Err(_) => return Err(format!("{forgotten}, and does not answer `initialize`")),
        };
        let mut numbers = self.numbers();
        for list in LISTS
            .into_iter()
            .filter(|list| capabilities[list]["listChanged"] == true)
        {
            self.deliver(
                numbers.ours(),
                None,
                answers::notification(&format!("notifications/{list}/list_changed")),
            )
            .await;
        }
        Ok(())
    }

    /// Repeats the handshake, since the former session is lost. Returns what the server can do.
    async fn repeat(&self, loss: Loss) -> Result<Value, InitializeError> {
        let passing = |why: CallFailure| match why {
            CallFailure::Unknown(why) | CallFailure::NotSent(why) => InitializeError::ForNow(why),
        };
        let params = self
            .initialize()
            .ok_or_else(|| InitializeError::ForNow("no handshake is on record".to_owned()))?;
        let shaken = self
            .send_initialize(ID, answers::request(ID, "initialize", params.get()))
            .await
            .map_err(passing)?;
        let session = shaken.session.ok_or(InitializeError::Refused)?;
        let initialized = HttpRequest::Post(answers::notification("notifications/initialized"));
        let replied = self
            .wire
            .ask(&initialized, &session.stamp())
            .await
            .map_err(passing)?;
        match replied.reply {
            Reply::Refused(_, why) | Reply::Denied(why) => return Err(passing(why)),
            Reply::Lost(..) => return Err(passing(CallFailure::lost(self.wire.name()))),
            Reply::Taken(_) | Reply::Message(_) | Reply::Events(_) => {}
        }
        let capabilities = session.capabilities.clone();
        self.tell(News::Lost(loss)).await;
        // Only now: a server may refuse what comes before `notifications/initialized`.
        self.has_session(session, true).await;
        Ok(capabilities)
    }

    /// Says `initialize`.
    async fn send_initialize(&self, id: &str, line: Bytes) -> Result<Initialized, CallFailure> {
        let stamp = SessionHeaders::default();
        let HttpReply {
            reply,
            session,
            login,
        } = self.wire.ask(&HttpRequest::Post(line), &stamp).await?;
        let (mut said, mut numbers) = (Vec::new(), false);
        match reply {
            Reply::Message(text) => {
                said.push(Bytes::from(one_line(&String::from_utf8_lossy(&text))));
            }
            Reply::Events(mut events) => {
                while let Some(event) = events.next().await {
                    numbers |= event.id.is_some();
                    if !event.is_message {
                        continue;
                    }
                    said.extend(messages(&Bytes::from(one_line(&event.data))));
                    if said.last().is_some_and(|line| is_answer(line, id)) {
                        break;
                    }
                }
            }
            Reply::Refused(_, why) => return Err(why),
            Reply::Denied(why) => {
                return Ok(Initialized {
                    said: vec![why.answer(id)],
                    session: None,
                });
            }
            Reply::Taken(taken) => {
                return Err(CallFailure::Unknown(taken.sentence(self.wire.name())));
            }
            Reply::Lost(..) => {}
        }
        let answer = said
            .last()
            .filter(|line| is_answer(line, id))
            .ok_or_else(|| CallFailure::lost(self.wire.name()))?;
        let copy = OnceCell::new();
        let result = Line::of(answer, &copy)
            .message()
            .and_then(|answer| answer.result());
        let text = result.and_then(|result| RawValue::from_string(result.sent()?.into()).ok());
        let session = result.zip(text).map(|(read, result)| {
            let Chosen {
                protocol_version,
                capabilities,
            } = read.object().unwrap_or_default();
            NewSession {
                id: session,
                version: protocol_version,
                login,
                cookies: stamp.cookies,
                numbers,
                capabilities,
                result,
            }
        });
        Ok(Initialized { said, session })
    }
}

/// What the answer to a `ping` shows of the session that it was said in.
fn pong(text: &Bytes) -> News {
    let copy = OnceCell::new();
    let read = Line::of(text, &copy);
    let mut messages = read.messages();
    let (Some(message), None) = (messages.next(), messages.next()) else {
        return News::Lost(Loss::Silent);
    };
    let names_it = |error: &str| names_session(error.as_bytes());
    match message.kind {
        Kind::Answer { id, failed: false } if normal(id) == normal(PING_ID) => News::Resumed,
        Kind::Answer { .. }
            if message
                .error()
                .and_then(Readable::sent)
                .is_some_and(names_it) =>
        {
            News::Lost(Loss::Forgotten)
        }
        _ => News::Lost(Loss::Silent),
    }
}

fn is_answer(line: &Bytes, to: &str) -> bool {
    answered(line).is_some_and(|id| id == normal(to))
}
