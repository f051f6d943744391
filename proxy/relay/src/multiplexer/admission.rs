//! Who may share the server. It is initialised once, as the first host asks for, and tells every
//! host the same of itself.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use core::cell::OnceCell;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::Edits;
use mcp_sessiond_jsonrpc::answers;
use mcp_sessiond_jsonrpc::message::{self, Line, Message};
use mcp_sessiond_jsonrpc::readable::Readable;

use super::fields::{self, HostInfo};
use super::{Call, Client, Effect, Kind, Multiplexer, SharedBy};
use crate::version::{Told, Version};

/// How far the server is with its first host.
#[derive(Default)]
pub(super) enum Initialization {
    /// No client has come.
    #[default]
    NotStarted,
    /// It was sent the first client's `initialize`.
    Requested { first: u64, info: HostInfo },
    /// It has answered.
    Done {
        info: HostInfo,
        /// The version that it speaks.
        version: Version,
        /// The result, for every host.
        result: Box<str>,
    },
}

/// The error that a host gets whose server refuses it in an error that can't be read as it stands.
const ODD_REFUSAL: &str = r#"{"code":-32603,"message":"the server refuses `initialize`; its error can't be read as JSON"}"#;

/// The `initialize` in a line, if it is clear which progress token it has.
fn initialize<'a>(line: &'a Bytes, copy: &'a OnceCell<String>) -> Option<Message<'a>> {
    let message = Line::of(line, copy).message()?;
    let is_one =
        matches!(&message.kind, message::Kind::Request { method, .. } if method == "initialize");
    (is_one && message.has_clear_token()).then_some(message)
}

impl Multiplexer {
    /// A host comes with its first line. `again`: it has had the answer to that, from a server that
    /// is gone.
    pub fn arrive(&mut self, client: u64, line: Bytes, again: bool) {
        let copy = OnceCell::new();
        let Some(message) = initialize(&line, &copy) else {
            let why = "its host does not begin with `initialize`";
            self.effects.push(Effect::Own(client, why.to_string()));
            return;
        };
        let info = HostInfo::of(&message);
        match &self.initialization {
            Initialization::NotStarted => {
                self.send_initialize(client, &message, info);
                self.arriving.push((client, line, again));
            }
            Initialization::Requested { .. } => self.arriving.push((client, line, again)),
            Initialization::Done { .. } => self.admit(client, &info, again),
        }
    }

    /// The server is initialised for its first host.
    fn send_initialize(&mut self, first: u64, message: &Message<'_>, info: HostInfo) {
        let message::Kind::Request { id, .. } = &message.kind else {
            return;
        };
        let number = self.numbers.ours();
        let mut edits = Edits::default();
        edits.replace(message, id, number.to_string());
        if let Some(token) = message.asked_progress() {
            edits.replace(message, token, number.to_string());
        }
        fields::strip_unshared(message, message.params(), &mut edits);
        self.tell_server(edits.spliced(message));
        let call = Call {
            client: None,
            id: "null".into(),
            token: None,
            kind: Kind::Initialize,
            cancelled: false,
        };
        self.calls.insert(number, call);
        self.initialization = Initialization::Requested { first, info };
    }

    fn admit(&mut self, client: u64, info: &HostInfo, again: bool) {
        let Initialization::Done {
            info: first,
            version,
            ..
        } = &self.initialization
        else {
            return;
        };
        let why = if !info.can_all_of(first) {
            "its host can do less than the one that the server was started for".to_string()
        } else if !info.version.can_use(version, &first.version) {
            format!(
                "its host does not speak version {version} of the protocol, which the server does"
            )
        } else {
            self.add_client(client, Client::default());
            if again {
                self.tell_lists(client);
            }
            return;
        };
        self.effects.push(Effect::Own(client, why));
    }

    fn add_client(&mut self, number: u64, client: Client) {
        self.shared_by = if self.shared_by == SharedBy::Nobody {
            SharedBy::One(number)
        } else {
            SharedBy::Several
        };
        self.clients.insert(number, client);
        self.effects.push(Effect::Admit(number));
    }

    /// A host that comes again is told to list again: this may be another server.
    fn tell_lists(&mut self, client: u64) {
        let Initialization::Done { result, .. } = &self.initialization else {
            return;
        };
        for method in Told::of(Some(Readable::of_sent(result))).lists {
            self.tell_client(client, answers::notification(method));
        }
    }

    /// The server has answered the first `initialize`.
    pub(super) fn on_initialized(&mut self, message: &Message<'_>, failed: bool) {
        let Initialization::Requested { first, info } = core::mem::take(&mut self.initialization)
        else {
            return;
        };
        let arriving = core::mem::take(&mut self.arriving);
        if failed && fields::is_outcome_unknown(message) {
            // This comes from the keeper, not from the server: the keeper was told
            // to stop, and ends.
            self.effects.push(Effect::End);
            return;
        }
        if failed {
            // The first host gets the error. The next one may be accepted.
            for (client, line, again) in arriving {
                if client != first {
                    self.arrive(client, line, again);
                } else if again {
                    // It was answered before, so the error can't be passed
                    // on. It tries again.
                    let why = "the shared server refuses to be initialised again";
                    self.effects.push(Effect::Later(client, why.to_string()));
                } else {
                    let error = message.error();
                    let refused = error.map(|error| error.sent().unwrap_or(ODD_REFUSAL).into());
                    self.add_client(
                        client,
                        Client {
                            refused,
                            ..Client::default()
                        },
                    );
                }
            }
            return;
        }
        let mut edits = Edits::default();
        fields::strip_unshared(message, message.result(), &mut edits);
        let spliced = edits.spliced(message);
        let text = Bytes::from(String::from_utf8_lossy(&spliced).into_owned());
        let copy = OnceCell::new();
        let whole = Line::of(&text, &copy).message();
        let result = whole.and_then(|message| message.result());
        let version = Told::of(result).version;
        let result = result.and_then(Readable::sent).unwrap_or("{}");
        self.initialization = Initialization::Done {
            info,
            version,
            result: result.into(),
        };
        self.tell_server(answers::notification("notifications/initialized"));
        for (client, line, again) in arriving {
            self.arrive(client, line, again);
        }
    }

    /// A client that was admitted sends its `initialize`.
    pub(super) fn client_initializes(&mut self, client: u64, id: &str) {
        let refused = self
            .clients
            .get(&client)
            .and_then(|client| client.refused.as_ref());
        let line = match (refused, &self.initialization) {
            (Some(error), _) => answers::failure(id, error),
            (None, Initialization::Done { result, .. }) => answers::result(id, result),
            (None, _) => return,
        };
        self.tell_client(client, line);
    }
}
