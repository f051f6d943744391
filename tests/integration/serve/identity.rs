//! Sessions that are bound to somebody: whom a trusted proxy names, or whom a verified token names.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use mcp_sessiond_tests::{HttpClient, OwnPort, Serve, World};
use serde_json::{Value, json};

use crate::several::{small, write_down};
use crate::wrap::tiny;
use crate::{fixture, world};

const PING: &str = r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#;
const USER: &str = "X-Forwarded-User";
const ISSUER: &str = "https://id.example";

/// Who makes tokens.
struct Issuer {
    child: Child,
    orders: ChildStdin,
    made: BufReader<ChildStdout>,
}

impl Issuer {
    /// With keys of its own, of which it writes the public ones to the file `keys`.
    fn new(world: &World) -> Self {
        let mut command = world.command("node");
        command
            .arg(fixture("node/jwt.mjs"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("node");
        let orders = child.stdin.take().expect("piped");
        let made = BufReader::new(child.stdout.take().expect("piped"));
        let mut issuer = Self {
            child,
            orders,
            made,
        };
        let keys = issuer.line();
        std::fs::write(world.root().join("keys.new"), keys).expect("written");
        std::fs::rename(world.root().join("keys.new"), world.root().join("keys")).expect("moved");
        issuer
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.made.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// A token by this key, with these headers and claims in place of the usual ones.
    fn token(&mut self, key: &str, header: &Value, other: &Value) -> String {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970")
            .as_secs();
        let mut claims =
            json!({"iss": ISSUER, "aud": "mcp", "sub": "ann", "exp": now + 600, "nonce": now});
        for (name, value) in other.as_object().into_iter().flatten() {
            claims[name] = value.clone();
        }
        let order = json!({"key": key, "header": header, "claims": claims});
        writeln!(self.orders, "{order}").expect("told");
        self.line()
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Options for tokens of this issuer and audience, signed by a key in the file `keys`.
fn options(world: &World, issuer: &str, audience: &str) -> Vec<String> {
    let keys = world.root().join("keys");
    let keys = keys.to_str().expect("UTF-8");
    [
        "--name",
        "test",
        "--jwt-issuer",
        issuer,
        "--jwt-audience",
        audience,
        "--jwt-keys",
        keys,
    ]
    .map(String::from)
    .to_vec()
}

/// `serve` with these options, and more, before this server.
fn serving(world: &World, options: &[String], more: &[&str], server: &[String]) -> Serve {
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    world.serve(&[&options[..], more].concat(), server)
}

fn behind_issuer(world: &World) -> Serve {
    serving(world, &options(world, ISSUER, "mcp"), &[], &tiny(world))
}

fn bearer(client: &mut HttpClient, token: &str) {
    client.headers.retain(|(name, _)| name != "Authorization");
    client
        .headers
        .push(("Authorization".into(), format!("Bearer {token}")));
}

fn as_user(client: &mut HttpClient, user: &str) {
    client.headers.retain(|(name, _)| name != USER);
    client.headers.push((USER.into(), user.into()));
}

/// As in toolhive (`pkg/vmcp`): `session/identity_binding_test.go`, `session/binding`,
/// `session/internal/security`, `session/types` `AcceptsRefreshedTokenWithSameIdentity`,
/// `ConcurrentRefreshRace`.
#[test]
#[ignore = "needs node"]
fn a_token_of_each_kind_of_key_is_taken_and_a_refreshed_one_keeps_the_session() {
    let world = world("");
    let _daemon = world.daemon();
    let mut issuer = Issuer::new(&world);
    let mut serve = behind_issuer(&world);
    let mut client = serve.client();
    bearer(&mut client, &issuer.token("rs", &json!({}), &json!({})));
    client.initialize("2025-11-25");
    assert_eq!(client.text("increment", &json!({})), "1");
    for (key, count) in [("es", "2"), ("ed", "3"), ("rs", "4")] {
        bearer(
            &mut client,
            &issuer.token(key, &json!({}), &json!({"jti": count})),
        );
        assert_eq!(client.text("increment", &json!({})), count, "{key}");
    }
    let listed = world
        .peer()
        .call("list_own_sessions", json!({"service": "serve.test"}))
        .expect("a list");
    assert_eq!(listed[0]["session"], client.session());
    // Also in the next process, which knows it by what the daemon keeps.
    serve.kill();
    serve.start_again();
    let token = issuer.token("ed", &json!({}), &json!({}));
    bearer(&mut client, &token);
    assert_eq!(client.text("increment", &json!({})), "5");
    for other in [json!({"sub": "eve"}), json!({"sub": "Ann"})] {
        let mut other_client = client.clone();
        bearer(&mut other_client, &issuer.token("ed", &json!({}), &other));
        assert_eq!(other_client.ask("POST", &[], PING).status, 404, "{other}");
        assert_eq!(other_client.ask("DELETE", &[], "").status, 404);
    }
    assert!(!serve.errors.text().contains(&token) && !world.log.text().contains(&token));
}

#[test]
#[ignore = "needs node"]
fn a_token_that_is_not_valid_is_refused_with_the_words_of_rfc_6750() {
    let world = world("");
    let _daemon = world.daemon();
    let mut issuer = Issuer::new(&world);
    let serve = behind_issuer(&world);
    let mut client = serve.client();
    let bare = client.begin("2025-11-25", &[]);
    let metadata = format!(
        "http://{}/.well-known/oauth-protected-resource/mcp",
        client.at
    );
    assert_eq!(
        (bare.status, bare.header("www-authenticate")),
        (
            401,
            Some(&*format!(r#"Bearer resource_metadata="{metadata}""#))
        )
    );
    let confused = json!({"alg": "HS256", "kid": "rs"});
    let nobody = json!({"kid": null});
    let (usual, past) = (json!({}), json!({"exp": 1_000_000_000}));
    let late = json!({"nbf": 9_000_000_000_u64});
    let forged = {
        let valid = issuer.token("es", &usual, &usual);
        let (said, signature) = valid.rsplit_once('.').expect("three parts");
        let other = issuer.token("es", &usual, &json!({"sub": "eve"}));
        let (other, _) = other.rsplit_once('.').expect("three parts");
        assert_ne!(other, said);
        format!("{other}.{signature}")
    };
    for (token, says) in [
        (issuer.token("rs", &usual, &past), "expired"),
        (issuer.token("rs", &usual, &late), "not valid yet"),
        (
            issuer.token("rs", &usual, &json!({"aud": "other"})),
            "audience",
        ),
        (
            issuer.token("rs", &usual, &json!({"iss": "https://other.example"})),
            "issuer",
        ),
        (issuer.token("rs", &usual, &json!({"sub": null})), "lacks"),
        (
            issuer.token("none", &json!({"alg": "none", "kid": "rs"}), &usual),
            "as a JWT",
        ),
        (issuer.token("hmac", &confused, &usual), "algorithm"),
        (
            issuer.token("ed", &json!({"alg": "RS256", "kid": "rs"}), &usual),
            "signature",
        ),
        (issuer.token("es", &nobody, &usual), "kid"),
        (forged, "signature"),
        ("nonsense".into(), "as a JWT"),
    ] {
        bearer(&mut client, &token);
        let refused = client.begin("2025-11-25", &[]);
        let said = refused
            .header("www-authenticate")
            .unwrap_or_default()
            .to_owned();
        assert_eq!(refused.status, 401, "{says}");
        assert!(
            said.starts_with(r#"Bearer error="invalid_token", error_description=""#),
            "{said}"
        );
        assert!(said.contains(says) && !said.contains(&token), "{said}");
    }
    bearer(&mut client, &issuer.token("es", &usual, &usual));
    client.initialize("2025-11-25");
    // The issuer has other keys now.
    let mut next = Issuer::new(&world);
    assert_eq!(client.ask("POST", &[], PING).status, 401);
    bearer(&mut client, &next.token("es", &usual, &usual));
    assert_eq!(client.ask("POST", &[], PING).status, 200);
}

/// RFC 9728. The audience is what a token is asked for, where it is a URL; otherwise the URL that the client has.
#[test]
fn who_needs_a_token_reads_where_to_get_one() {
    let world = world("");
    let _daemon = world.daemon();
    let keys = world.root().join("keys");
    // RFC 8037, appendix A.2.
    let key = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
    std::fs::write(&keys, key).expect("written");
    const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
    for audience in ["mcp", "https://notes.example/mcp"] {
        let more = ["--host", "notes.example"];
        let serve = serving(
            &world,
            &options(&world, ISSUER, audience),
            &more,
            &tiny(&world),
        );
        let client = serve.client();
        let read = |path: &str, headers: &[(&str, &str)]| {
            let mut reply = client.ask_at("GET", path, headers, "");
            (reply.status, reply.message())
        };
        let expected = |url: &str| {
            let resource = if audience == "mcp" { url } else { audience };
            json!({"resource": resource, "authorization_servers": [ISSUER], "bearer_methods_supported": ["header"]})
        };
        let own = format!("http://{}/mcp", client.at);
        for path in [WELL_KNOWN, &format!("{WELL_KNOWN}/mcp")] {
            assert_eq!(read(path, &[]), (200, expected(&own)), "{path}");
        }
        // Behind a proxy that speaks TLS.
        let tls = [
            ("Host", "notes.example"),
            ("X-Forwarded-Proto", "https, http"),
        ];
        let public = expected("https://notes.example/mcp");
        assert_eq!(read(WELL_KNOWN, &tls), (200, public));
        let refused = client.ask("POST", &tls, PING);
        let challenge =
            format!(r#"Bearer resource_metadata="https://notes.example{WELL_KNOWN}/mcp""#);
        let said = refused.header("www-authenticate");
        assert_eq!((refused.status, said), (401, Some(&*challenge)));
        for other in ["/other", "/servers/a"] {
            assert_eq!(read(&format!("{WELL_KNOWN}{other}"), &[]).0, 404);
        }
        assert_eq!(read(WELL_KNOWN, &[("Host", "evil.example")]).0, 403);
        assert_eq!(
            read(WELL_KNOWN, &[("Origin", "https://evil.example")]).0,
            403
        );
    }
    // Each of several servers is a resource of its own.
    write_down(&world, &["a", "b"].map(|name| (name, small(&world))));
    let serve = serving(&world, &options(&world, ISSUER, "mcp"), &["--all"], &[]);
    let client = serve.client();
    let single = format!("http://{}{WELL_KNOWN}/servers/a", client.at);
    let refused = client.ask_at("POST", "/servers/a", &[], PING);
    assert_eq!(
        (refused.status, refused.header("www-authenticate")),
        (
            401,
            Some(&*format!(r#"Bearer resource_metadata="{single}""#))
        )
    );
    let path = format!("{WELL_KNOWN}/servers/a");
    let told = client.ask_at("GET", &path, &[], "").message();
    assert_eq!(told["resource"], format!("http://{}/servers/a", client.at));
    // Where nobody needs a token there is none to be had.
    let serve = world.serve(&["--name", "open"], &tiny(&world));
    assert_eq!(
        serve.client().ask_at("GET", WELL_KNOWN, &[], "").status,
        404
    );
}

/// The official client knows nothing but the URL, and what it signs in with.
#[test]
#[ignore = "needs node"]
fn the_official_client_signs_in_by_itself() {
    let world = world("");
    let _daemon = world.daemon();
    let mut command = world.command("node");
    command
        .arg(fixture("node/signs_in.mjs"))
        .arg(world.root().join("keys"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("node");
    let mut said = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut line = || said.next().expect("a line").expect("text");
    let issuer = line();
    let port = OwnPort::take();
    let at = format!("127.0.0.1:{}", port.number);
    let url = format!("http://{at}/mcp");
    let options = options(&world, &issuer, &url);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let _serve = world.serve_at(&at, &options, &tiny(&world));
    writeln!(child.stdin.as_mut().expect("piped"), "{url}").expect("told");
    let told: Value = serde_json::from_str(&line()).expect("JSON");
    assert_eq!(told["asked"], json!([url]));
    assert!(told["tools"].as_u64() > Some(0), "{told}");
    assert!(child.wait().expect("waited for").success());
}

#[test]
#[ignore = "needs node"]
fn the_callers_of_mcp_2026_07_28_are_who_their_tokens_say() {
    let world = world("");
    let _daemon = world.daemon();
    let mut issuer = Issuer::new(&world);
    let options = options(&world, ISSUER, "mcp");
    let eras = ["node".into(), fixture("node/eras.mjs")];
    let mut serve = serving(&world, &options, &[], &eras);
    let mut client = serve.client();
    for (sub, count) in [("ann", "1"), ("bob", "1"), ("ann", "2")] {
        bearer(
            &mut client,
            &issuer.token("ed", &json!({}), &json!({"sub": sub})),
        );
        assert_eq!(client.modern_text("increment"), count, "{sub}");
    }
    serve.kill();
    serve.start_again();
    for (sub, count) in [("bob", "2"), ("ann", "3")] {
        bearer(
            &mut client,
            &issuer.token("rs", &json!({}), &json!({"sub": sub})),
        );
        assert_eq!(client.modern_text("increment"), count, "{sub}");
    }
}

#[test]
fn a_proxy_at_a_unix_socket_says_whose_a_session_is() {
    let world = world("");
    let _daemon = world.daemon();
    let at = format!("unix:{}", world.root().join("s").display());
    let options = [
        "--name",
        "test",
        "--identity-header",
        USER,
        "--issuer-header",
        "X-Issuer",
    ];
    let mut serve = world.serve_at(&at, &options, &tiny(&world));
    let mut client = serve.client();
    client.headers.push(("X-Issuer".into(), ISSUER.into()));
    for user in [None, Some("")] {
        let headers: Vec<_> = user.map(|user| (USER, user)).into_iter().collect();
        let refused = client.begin("2025-11-25", &headers);
        assert_eq!(
            (refused.status, refused.header("www-authenticate")),
            (401, Some("Bearer"))
        );
    }
    as_user(&mut client, "ann");
    client.initialize("2025-11-25");
    assert_eq!(client.text("increment", &json!({})), "1");
    serve.kill();
    serve.start_again();
    assert_eq!(client.text("increment", &json!({})), "2");
    let mut own = client.clone();
    own.headers.push(("X-Issuer".into(), "uid".into()));
    assert_eq!(own.ask("POST", &[("X-Issuer", "uid")], PING).status, 401);
    assert_eq!(
        client
            .ask("POST", &[("X-Issuer", "https://other.example")], PING)
            .status,
        404
    );
    as_user(&mut client, "bob");
    assert_eq!(client.ask("POST", &[], PING).status, 404);
}

#[test]
fn a_proxy_with_the_token_says_whose_a_session_is_and_nobody_else_does() {
    let world = world("");
    let _daemon = world.daemon();
    let mut serve = world.serve(
        &["--name", "test", "--token", "--identity-header", USER],
        &tiny(&world),
    );
    let path = world.root().join("serve.token");
    let token = std::fs::read_to_string(&path).expect("a token");
    let mut client = serve.client();
    as_user(&mut client, "ann");
    assert_eq!(
        client.begin("2025-11-25", &[]).status,
        401,
        "the header alone proves nothing"
    );
    bearer(&mut client, token.trim_end());
    client.initialize("2025-11-25");
    assert_eq!(client.text("increment", &json!({})), "1");
    // The session is bound to the user, not to the token.
    std::fs::write(&path, "x".repeat(40)).expect("written");
    serve.kill();
    serve.start_again();
    assert_eq!(client.ask("POST", &[], PING).status, 401);
    bearer(&mut client, &"x".repeat(40));
    assert_eq!(client.text("increment", &json!({})), "2");
}

#[test]
fn options_that_would_let_anybody_name_a_user_are_refused() {
    let world = world("");
    let serve = |options: &[&str]| {
        let words = [
            &["serve", "--listen", "127.0.0.1:0"],
            options,
            &["--", "true"],
        ]
        .concat();
        let ended = world.sessiond(&words).output().expect("serve");
        (
            ended.status.code(),
            String::from_utf8_lossy(&ended.stderr).into_owned(),
        )
    };
    let (code, said) = serve(&["--identity-header", USER]);
    assert!(code == Some(64) && said.contains("--token"), "{said}");
    let (code, said) = serve(&[
        "--jwt-issuer",
        ISSUER,
        "--jwt-audience",
        "mcp",
        "--jwt-keys",
        "/nowhere",
    ]);
    assert!(code == Some(64) && said.contains("/nowhere"), "{said}");
    assert_eq!(serve(&["--jwt-issuer", ISSUER]).0, Some(64));
    let keys = world.root().join("keys");
    std::fs::write(&keys, r#"{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}"#).expect("written");
    let keys = keys.to_str().expect("UTF-8");
    let (code, said) = serve(&[
        "--jwt-issuer",
        ISSUER,
        "--jwt-audience",
        "mcp",
        "--jwt-keys",
        keys,
    ]);
    assert!(code == Some(64) && said.contains("no public key"), "{said}");
}
