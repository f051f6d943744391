//! Chromium with a page that runs the official TypeScript client: `tests/node/chromium.mjs` and
//! `page.mjs`.

use std::io::Write as _;
use std::process::{Child, ChildStdin, Stdio};

use serde_json::{Value, json};

use crate::{Log, World};

/// The browser, with one page.
#[derive(Debug)]
pub struct Page {
    child: Child,
    orders: ChildStdin,
    /// Orders that were given.
    last: u64,
    /// The origin that the page comes from.
    pub origin: String,
    /// What the page writes to its console, and its requests.
    pub told: Log,
}

impl World {
    /// A browser whose page is not open yet.
    ///
    /// # Panics
    /// When there can be none, as without Chromium.
    #[must_use]
    pub fn page(&self) -> Page {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/node/chromium.mjs");
        let mut command = self.command("node");
        // Chromium keeps its profile and its sockets there.
        command
            .arg(script)
            .env("TMPDIR", self.root())
            .env("HOME", self.root());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node");
        let told = Log::default();
        Log::follow(
            child.stdout.take().expect("piped"),
            "-- end of the browser --",
            vec![told.clone()],
        );
        let orders = child.stdin.take().expect("piped");
        let line = told.wait_from(0, &["{\"origin\":", "-- end of the browser --"]);
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|_| {
            panic!("no browser; tests/run installs Chromium:\n{}", told.text())
        });
        let origin = said["origin"].as_str().expect("an origin").to_owned();
        Page {
            child,
            orders,
            last: 0,
            origin,
            told,
        }
    }
}

impl Page {
    /// Opens the page with this query.
    pub fn open(&mut self, query: &Value) {
        self.order(json!({"do": "open", "query": query}));
    }

    /// Reloads the page, and returns where in `told` the lines of the new one begin.
    pub fn reload(&mut self) -> usize {
        let from = self.told.len();
        self.order(json!({"do": "reload"}));
        from
    }

    /// Replaces the cookie of a server, and returns the former one.
    pub fn forge(&mut self, url: &str, value: &str) -> Value {
        self.order(json!({"do": "cookie", "url": url, "value": value}))
    }

    /// Opens a page of somebody else's.
    pub fn visit(&mut self, url: &str) {
        self.order(json!({"do": "visit", "url": url}));
    }

    /// Presses what this selector names, and says yes to what the page asks.
    pub fn press(&mut self, what: &str) {
        self.order(json!({"do": "press", "what": what}));
    }

    /// Writes into a field.
    pub fn fill(&mut self, what: &str, text: &str) {
        self.order(json!({"do": "fill", "what": what, "text": text}));
    }

    /// Chooses from a list.
    pub fn choose(&mut self, what: &str, text: &str) {
        self.order(json!({"do": "choose", "what": what, "text": text}));
    }

    /// Waits until the page has so many of these elements, and returns their texts.
    pub fn wait(&mut self, what: &str, count: usize) -> Vec<String> {
        let texts = self.order(json!({"do": "wait", "what": what, "count": count}));
        let texts = texts.as_array().into_iter().flatten();
        texts
            .map(|text| text.as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// Waits until none of these elements can be seen.
    pub fn wait_for_none(&mut self, what: &str) {
        self.order(json!({"do": "none", "what": what}));
    }

    /// All that the page has said of this, in order.
    ///
    /// # Panics
    /// When it was not JSON.
    #[must_use]
    pub fn said(&self, of: &str) -> Vec<Value> {
        let lines = self.told.lines(&format!("{{\"{of}\":"));
        lines
            .iter()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON")[of].take())
            .collect()
    }

    fn order(&mut self, mut order: Value) -> Value {
        self.last += 1;
        order["id"] = self.last.into();
        self.orders
            .write_all(format!("{order}\n").as_bytes())
            .expect("the browser takes orders");
        let line = self.told.wait(&format!("{{\"id\":{},", self.last));
        serde_json::from_str::<Value>(&line).expect("JSON")["done"].take()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // Chromium ends once nobody holds its pipe.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
