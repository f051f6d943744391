//! The lists of a session's server that its client knows, as digests: what another version of the
//! server lists otherwise, the client is told. The libraries of other languages store the same.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use mcp_sessiond_proto::Json;
use rmcp::model::{ClientRequest, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::handshake::key;
use crate::error::SessionError;
use crate::session::Session;

/// The key of the state that has the digests, by the method that asks for the list.
const STATE: &str = "mcp.lists";
/// How many pages of a list are read.
const PAGES_MAX: usize = 100;

/// A list of a server's.
pub(super) struct List {
    /// The method that asks for it.
    pub(super) method: &'static str,
    /// Its member of the result.
    items: &'static str,
    /// Whose `list_changed` tells of it.
    of: &'static str,
}

const LISTS: [List; 4] = [
    List {
        method: "tools/list",
        items: "tools",
        of: "tools",
    },
    List {
        method: "prompts/list",
        items: "prompts",
        of: "prompts",
    },
    List {
        method: "resources/list",
        items: "resources",
        of: "resources",
    },
    List {
        method: "resources/templates/list",
        items: "resourceTemplates",
        of: "resources",
    },
];

/// A list that is read page by page.
pub(super) struct Reading {
    list: &'static List,
    items: Vec<String>,
    pages: usize,
    /// What the next page is asked for with. None: there is none.
    next: Option<Value>,
}

impl Reading {
    pub(super) fn of(list: &'static List) -> Self {
        Self {
            list,
            items: Vec::new(),
            pages: 0,
            next: Some(json!({})),
        }
    }

    /// The parameters with which the next page is asked for. None: it is the whole list.
    pub(super) fn next(&self) -> Option<Value> {
        self.next.clone().filter(|_| self.pages < PAGES_MAX)
    }

    /// The page that the server has answered.
    pub(super) fn page(&mut self, page: &Value) {
        self.items.extend(items_of(self.list, page));
        self.pages += 1;
        let cursor = page["nextCursor"].as_str();
        self.next = cursor.map(|cursor| json!({"cursor": cursor}));
    }

    /// The digest of the list. None: it is not whole.
    pub(super) fn digest(self) -> Option<String> {
        self.next.is_none().then(|| digest(self.items))
    }
}

/// A list that a client asks for.
struct Asked {
    list: &'static List,
    /// What was read of it on earlier pages.
    items: Vec<String>,
    /// Its digest, if the client is to be told that it has changed: it need not be once it has read it.
    untold: Option<String>,
}

/// What a client knows of the lists that its server says it tells the changes of.
#[derive(Default)]
pub(super) struct Lists {
    capabilities: Value,
    /// By the methods of the lists.
    digests: BTreeMap<String, String>,
    /// By the requests that are open.
    asked: HashMap<RequestId, Asked>,
    /// By the methods of the lists whose next page the client may ask for: the cursor of that page.
    pages: HashMap<&'static str, (String, Asked)>,
    /// By the methods of the lists that have changed: their digests now.
    changed: BTreeMap<&'static str, String>,
}

impl Lists {
    /// What the server has answered to `initialize`.
    pub(super) fn declare(&mut self, result: &Value) {
        self.capabilities = result["capabilities"].clone();
    }

    /// The client sends a request, which the server knows by this name.
    pub(super) fn asked(&mut self, name: &RequestId, request: &ClientRequest) {
        let Some(list) = self.declared(request.method()) else {
            return;
        };
        let (next, read) = self.pages.remove(list.method).unzip();
        let (items, untold) = read.map(|read| (read.items, read.untold)).unzip();
        let untold = self.changed.remove(list.method).or(untold.flatten());
        let items = match cursor_of(request) {
            None => Some(Vec::new()),
            cursor if cursor == next.as_deref() => items,
            Some(_) => None,
        };
        match items {
            Some(items) => {
                let asked = Asked {
                    list,
                    items,
                    untold,
                };
                self.asked.insert(name.clone(), asked);
            }
            None => self
                .changed
                .extend(untold.map(|digest| (list.method, digest))),
        }
    }

    /// The server answers a request. Returns whether the client knows a list otherwise than it is
    /// recorded: [`Self::record`] is to be stored before it gets the answer.
    pub(super) fn answered(&mut self, name: &RequestId, answer: &ServerJsonRpcMessage) -> bool {
        let Some(Asked {
            list,
            mut items,
            untold,
        }) = self.asked.remove(name)
        else {
            return false;
        };
        let JsonRpcMessage::Response(response) = answer else {
            if let Some(digest) = untold {
                self.changed.entry(list.method).or_insert(digest);
            }
            return false;
        };
        let page = serde_json::to_value(&response.result).unwrap_or_default();
        items.extend(items_of(list, &page));
        match page["nextCursor"].as_str() {
            Some(next) => {
                let read = Asked {
                    list,
                    items,
                    untold,
                };
                self.pages.insert(list.method, (next.to_owned(), read));
                false
            }
            None => self.note(list.method, &digest(items)),
        }
    }

    /// What the client is to be told of changed lists. It counts as told: [`Self::record`] is to be
    /// stored then.
    pub(super) fn changes(&mut self) -> Vec<String> {
        let changed = std::mem::take(&mut self.changed);
        let of = LISTS
            .iter()
            .filter(|list| changed.contains_key(list.method));
        let kinds: BTreeSet<&str> = of.map(|list| list.of).collect();
        for (method, digest) in changed {
            self.note(method, &digest);
        }
        let told = kinds.into_iter().map(|kind| {
            let method = format!("notifications/{kind}/list_changed");
            json!({"jsonrpc": "2.0", "method": method}).to_string()
        });
        told.collect()
    }

    /// What the client knows.
    pub(super) fn record(&self) -> Record {
        Record(Json::from(&json!(self.digests)))
    }

    /// The lists that the client knows, by their methods, with `recorded` of another process.
    pub(super) fn known(
        &mut self,
        recorded: BTreeMap<String, String>,
    ) -> Vec<(&'static List, String)> {
        for (method, digest) in recorded {
            self.digests.entry(method).or_insert(digest);
        }
        let known = LISTS.iter().filter_map(|list| {
            let digest = self.digests.get(self.declared(list.method)?.method)?;
            Some((list, digest.clone()))
        });
        known.collect()
    }

    /// The server lists this now. The client may have asked for it itself in the meantime.
    pub(super) fn compared(&mut self, list: &'static List, known: &str, now: String) {
        let is_known = self
            .digests
            .get(list.method)
            .is_some_and(|digest| digest == known);
        if is_known && now != known {
            self.changed.insert(list.method, now);
        }
    }

    fn note(&mut self, method: &str, digest: &str) -> bool {
        let former = self.digests.insert(method.to_owned(), digest.to_owned());
        former.as_deref() != Some(digest)
    }

    fn declared(&self, method: &str) -> Option<&'static List> {
        let list = LISTS.iter().find(|list| list.method == method)?;
        (self.capabilities[list.of]["listChanged"] == true).then_some(list)
    }
}

/// What a client knows of lists, to be stored.
#[derive(Debug)]
pub(super) struct Record(Json);

impl Record {
    pub(super) async fn store(&self, session: &Session) -> Result<(), SessionError> {
        session.set(&key(STATE), &self.0).await.map(drop)
    }
}

/// What is recorded of a session's lists.
pub(super) async fn recorded(session: &Session) -> Result<BTreeMap<String, String>, SessionError> {
    let stored = session.get(&key(STATE)).await?;
    let read = |json: &Json| serde_json::from_str(json.as_str()).ok();
    Ok(stored.as_ref().and_then(read).unwrap_or_default())
}

fn cursor_of(request: &ClientRequest) -> Option<&str> {
    let params = match request {
        ClientRequest::ListToolsRequest(request) => request.params.as_ref(),
        ClientRequest::ListPromptsRequest(request) => request.params.as_ref(),
        ClientRequest::ListResourcesRequest(request) => request.params.as_ref(),
        ClientRequest::ListResourceTemplatesRequest(request) => request.params.as_ref(),
        _ => None,
    };
    params?.cursor.as_deref()
}

fn items_of(list: &List, page: &Value) -> Vec<String> {
    let items = page[list.items].as_array().into_iter().flatten();
    items.map(|item| sorted(item).to_string()).collect()
}

/// The same for every order of the items.
fn digest(mut items: Vec<String>) -> String {
    items.sort_unstable();
    let hash = Sha256::digest(items.join("\n"));
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The same value, whose members are in order.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(sorted).collect(),
        Value::Object(members) => {
            let members: BTreeMap<&String, &Value> = members.iter().collect();
            let sorted = members
                .into_iter()
                .map(|(name, value)| (name.clone(), sorted(value)));
            Value::Object(sorted.collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests;
