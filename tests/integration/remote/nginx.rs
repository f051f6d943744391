//! nginx, as Debian has it, in front of `serve`, and between `serve` or `wrap` and servers of two nodes:
//! with what it does by itself, compressing, by a session's cookie, and by turns.

use std::fs;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use mcp_sessiond_tests::{Client, OwnPort, World, until};
use serde_json::json;

use super::express;
use crate::world;
use crate::wrap::{counter, gate, open};

/// What a server behind it does not do by itself.
const COMPRESSING: &str = "gzip on; gzip_proxied any; gzip_types *; gzip_min_length 1;";

/// nginx, which is killed when this is dropped.
struct Nginx {
    child: Child,
    url: String,
    _port: OwnPort,
}

impl Nginx {
    /// `http` stands beside the server, and `location` says where requests go.
    fn start(world: &World, http: &str, location: &str) -> Self {
        let (port, root) = (OwnPort::take(), world.root().join("nginx"));
        fs::create_dir(&root).expect("a directory");
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {}/{kind};", root.display()))
            .concat();
        let user = nix::unistd::geteuid().is_root();
        let configuration = format!(
            "{} daemon off; master_process off; pid {root}/pid; error_log stderr; events {{}}
             http {{ access_log off; {temporary} {http}
             server {{ listen 127.0.0.1:{port}; location / {{ {location} }} }} }}",
            if user { "user root;" } else { "" },
            root = root.display(),
            port = port.number,
        );
        let file = root.join("nginx.conf");
        fs::write(&file, configuration).expect("a file");
        let child = Command::new("/usr/sbin/nginx")
            .args(["-p", root.to_str().expect("UTF-8"), "-c"])
            .arg(&file)
            .stdin(Stdio::null())
            .spawn()
            .expect("nginx");
        let at = ("127.0.0.1", port.number);
        until("nginx listens", || TcpStream::connect(at).ok());
        Self {
            child,
            url: format!("http://127.0.0.1:{}/mcp", port.number),
            _port: port,
        }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "needs node and nginx"]
fn five_calls_of_five_behind_nginx() {
    let world = world("");
    let _daemon = world.daemon();
    let nodes = [express(&world, &["events"]), express(&world, &[])];
    let [one, other] = nodes.each_ref().map(|node| {
        let at = node.url.strip_prefix("http://").expect("a URL");
        at.strip_suffix("/mcp").expect("its path").to_owned()
    });
    let to_one = format!("proxy_pass http://{one};");
    let by_cookie = (
        format!(
            "split_clients $request_id $chosen {{ 50% {one}; * {other}; }}
             map $cookie_node $node {{ {one} {one}; {other} {other}; default $chosen; }}"
        ),
        "add_header Set-Cookie \"node=$node; Path=/; HttpOnly\" always; proxy_pass http://$node;",
    );
    for (mode, http, location) in [
        ("plain", "", &*to_one),
        ("compressing", COMPRESSING, &to_one),
        ("by cookie", &by_cookie.0, by_cookie.1),
    ] {
        let nginx = Nginx::start(&world, http, location);
        let serve = world.serve(&["--name", "test", "--upstream", &nginx.url], &[]);
        let mut served = serve.connected("2025-11-25");
        // The host has a session of each.
        let options = ["--instance", mode];
        let words = world.wrapping(&options, std::slice::from_ref(&nginx.url));
        let mut wrapped = Client::connected(world.front(&words));
        for count in 1..=5 {
            let text = served.text("increment", &json!({}));
            assert_eq!(text, count.to_string(), "{mode}");
            assert_eq!(wrapped.count(), count, "{mode}");
        }
        drop(nginx);
        fs::remove_dir_all(world.root().join("nginx")).expect("it was there");
    }
    // What goes by turns without a cookie has a session half of the time.
    let turns = format!("upstream nodes {{ server {one}; server {other}; }}");
    let nginx = Nginx::start(&world, &turns, "proxy_pass http://nodes;");
    let serve = world.serve(&["--name", "turns", "--upstream", &nginx.url], &[]);
    let mut client = serve.connected("2025-11-25");
    for _ in 0..5 {
        let answer = client.call("increment", &json!({})).answer();
        let why = answer["error"]["message"].as_str().unwrap_or_default();
        let is_named = why.starts_with("some nodes of the server");
        assert!(is_named || answer["result"].is_object(), "{answer}");
    }
}

#[test]
#[ignore = "needs node and nginx"]
fn five_calls_of_five_in_front_of_which_is_nginx() {
    let world = world("");
    let _daemon = world.daemon();
    let serve = world.serve(&["--name", "test"], &counter(&world));
    let mut node = world.node_host();
    for (name, http) in [("plain", ""), ("compressed", COMPRESSING)] {
        let nginx = Nginx::start(&world, http, &format!("proxy_pass http://{};", serve.at));
        node.order(json!({"do": "connect", "as": name, "url": nginx.url}));
        for count in 1..=5 {
            assert_eq!(node.count(name), count, "{name}");
        }
        // What is said while a call is open comes while it is open.
        let gate = gate(&world, name);
        let call = node.begin_slow(name, &gate);
        open(&gate);
        assert_eq!(node.text(call).expect("an answer"), "6");
        node.close(name);
        drop(nginx);
        fs::remove_dir_all(world.root().join("nginx")).expect("it was there");
    }
}
