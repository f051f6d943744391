//! Tokens with real keys, which are made here. RSA's are in the integration tests.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
};
use serde_json::{Value, json};

use super::*;

const ISSUER: &str = "https://id.example";
const AUDIENCE: &str = "mcp";

struct World {
    directory: tempfile::TempDir,
    ed: Ed25519KeyPair,
    ec: EcdsaKeyPair,
    random: SystemRandom,
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970")
        .as_secs()
}

fn claims() -> Value {
    json!({"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": now() + 600, "nbf": now() - 600})
}

/// The claims, with one of them as it is here; null: without it.
fn with(name: &str, value: impl Into<Value>) -> Value {
    let mut claims = claims();
    claims[name] = value.into();
    claims
        .as_object_mut()
        .expect("an object")
        .retain(|_, value| !value.is_null());
    claims
}

fn encoded(value: &Value) -> String {
    BASE64.encode(value.to_string())
}

impl World {
    fn new() -> Self {
        let random = SystemRandom::new();
        let ed = Ed25519KeyPair::generate_pkcs8(&random).expect("a key");
        let ec =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
        let ed = Ed25519KeyPair::from_pkcs8(ed.as_ref()).expect("a key");
        let ec = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, ec.as_ref(), &random);
        let directory = tempfile::tempdir().expect("a directory");
        Self {
            directory,
            ed,
            ec: ec.expect("a key"),
            random,
        }
    }

    fn jwks(&self) -> [Value; 2] {
        let point = self.ec.public_key().as_ref();
        let (x, y) = (BASE64.encode(&point[1..33]), BASE64.encode(&point[33..]));
        [
            json!({"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": BASE64.encode(self.ed.public_key())}),
            json!({"kty": "EC", "crv": "P-256", "kid": "ec", "use": "sig", "x": x, "y": y}),
        ]
    }

    fn write(&self, keys: &[Value]) -> PathBuf {
        let (path, new) = (
            self.directory.path().join("keys"),
            self.directory.path().join("new"),
        );
        std::fs::write(&new, json!({"keys": keys}).to_string()).expect("written");
        std::fs::rename(new, &path).expect("moved");
        path
    }

    fn jwt(&self, keys: &[Value]) -> Jwt {
        Jwt::new(ISSUER.into(), AUDIENCE.into(), self.write(keys)).expect("keys")
    }

    fn ed(&self, header: &Value, claims: &Value) -> String {
        let said = format!("{}.{}", encoded(header), encoded(claims));
        format!("{said}.{}", BASE64.encode(self.ed.sign(said.as_bytes())))
    }

    fn ec(&self, header: &Value, claims: &Value) -> String {
        let said = format!("{}.{}", encoded(header), encoded(claims));
        format!(
            "{said}.{}",
            BASE64.encode(self.ec.sign(&self.random, said.as_bytes()).expect("signed"))
        )
    }
}

fn ed_header() -> Value {
    json!({"alg": "EdDSA", "kid": "ed", "typ": "JWT"})
}

#[test]
fn a_token_of_the_issuers_says_who_the_caller_is() {
    let world = World::new();
    let jwt = world.jwt(&world.jwks());
    let ann = Ok(Caller::Identity {
        iss: ISSUER.into(),
        sub: "ann".into(),
    });
    assert_eq!(
        jwt.caller(world.ed(&ed_header(), &claims()).as_bytes()),
        ann
    );
    assert_eq!(
        jwt.caller(
            world
                .ec(&json!({"alg": "ES256", "kid": "ec"}), &claims())
                .as_bytes()
        ),
        ann
    );
    assert_eq!(
        jwt.caller(
            world
                .ed(&ed_header(), &with("aud", json!(["x", AUDIENCE])))
                .as_bytes()
        ),
        ann
    );
    // The clocks may differ by a little.
    assert_eq!(
        jwt.caller(
            world
                .ed(&ed_header(), &with("exp", now() - LEEWAY_S / 2))
                .as_bytes()
        ),
        ann
    );
    assert_eq!(
        jwt.caller(
            world
                .ed(&ed_header(), &with("nbf", now() + LEEWAY_S / 2))
                .as_bytes()
        ),
        ann
    );
}

#[test]
fn a_token_that_says_anything_else_is_refused() {
    let world = World::new();
    let jwt = world.jwt(&world.jwks());
    let twice = json!([ISSUER, "https://other.example"]);
    for (claims, expected) in [
        (with("exp", now() - 2 * LEEWAY_S), Rejected::Expired),
        (with("nbf", now() + 2 * LEEWAY_S), Rejected::NotYet),
        (with("nbf", "soon"), Rejected::Claims),
        (with("iss", "https://id.example.evil"), Rejected::Issuer),
        (with("iss", twice), Rejected::Claims),
        (with("aud", "mcp2"), Rejected::Audience),
        (with("aud", json!([])), Rejected::Audience),
        (with("sub", ""), Rejected::Claims),
        (with("sub", 7), Rejected::Claims),
        (with("sub", "x".repeat(IDENTITY_MAX + 1)), Rejected::Claims),
        (with("exp", Value::Null), Rejected::Claims),
        (with("iss", Value::Null), Rejected::Claims),
        (with("aud", Value::Null), Rejected::Claims),
        (with("sub", Value::Null), Rejected::Claims),
    ] {
        assert_eq!(
            jwt.caller(world.ed(&ed_header(), &claims).as_bytes()),
            Err(expected),
            "{claims}"
        );
    }
}

#[test]
fn a_token_that_is_forged_is_refused() {
    let (world, other) = (World::new(), World::new());
    let jwt = world.jwt(&world.jwks());
    let rejected = |token: String| jwt.caller(token.as_bytes()).expect_err("refused");
    assert_eq!(
        rejected(other.ed(&ed_header(), &claims())),
        Rejected::Signature
    );
    let good = world.ed(&ed_header(), &claims());
    let (said, signature) = good.rsplit_once('.').expect("three parts");
    let (header, _) = said.split_once('.').expect("three parts");
    let changed = encoded(&with("sub", "eve"));
    assert_eq!(
        rejected(format!("{header}.{changed}.{signature}")),
        Rejected::Signature
    );
    assert_eq!(rejected(format!("{said}.")), Rejected::Signature);
    let none = encoded(&json!({"alg": "none", "kid": "ed"}));
    assert_eq!(
        rejected(format!("{none}.{}.", encoded(&claims()))),
        Rejected::Unreadable
    );
    // The public key, as if it were the secret of HMAC.
    let confused = format!(
        "{}.{}",
        encoded(&json!({"alg": "HS256", "kid": "ed"})),
        encoded(&claims())
    );
    let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, world.ed.public_key().as_ref());
    let tag = BASE64.encode(ring::hmac::sign(&secret, confused.as_bytes()));
    assert_eq!(rejected(format!("{confused}.{tag}")), Rejected::Algorithm);
    assert_eq!(
        rejected(world.ed(&json!({"alg": "ES256", "kid": "ed"}), &claims())),
        Rejected::Algorithm
    );
    let critical = json!({"alg": "EdDSA", "kid": "ed", "crit": ["b64"], "b64": false});
    assert_eq!(rejected(world.ed(&critical, &claims())), Rejected::Critical);
    for unreadable in ["", "x", "a.b", "a.b.c.d", "..", "é.é.é"] {
        assert_eq!(
            rejected(unreadable.into()),
            Rejected::Unreadable,
            "{unreadable}"
        );
    }
}

#[test]
fn a_token_without_a_kid_means_the_only_key() {
    let world = World::new();
    let bare = world.ed(&json!({"alg": "EdDSA"}), &claims());
    assert_eq!(
        world.jwt(&world.jwks()).caller(bare.as_bytes()),
        Err(Rejected::UnknownKey)
    );
    assert!(
        world
            .jwt(&world.jwks()[..1])
            .caller(bare.as_bytes())
            .is_ok()
    );
    let unknown = world.ed(&json!({"alg": "EdDSA", "kid": "other"}), &claims());
    assert_eq!(
        world.jwt(&world.jwks()[..1]).caller(unknown.as_bytes()),
        Err(Rejected::UnknownKey)
    );
}

#[test]
fn keys_of_other_kinds_are_not_used_and_a_file_of_them_alone_is_refused() {
    let world = World::new();
    let [ed, ec] = world.jwks();
    let mut others = vec![
        json!({"kty": "oct", "kid": "ed", "k": "c2VjcmV0"}),
        json!({"kty": "new"}),
        json!(7),
    ];
    for (name, value) in [
        ("use", json!("enc")),
        ("alg", json!("ES256")),
        ("key_ops", json!(["sign"])),
    ] {
        let mut other = ed.clone();
        other[name] = value;
        others.push(other);
    }
    let refused = Jwt::new(ISSUER.into(), AUDIENCE.into(), world.write(&others));
    assert!(matches!(refused, Err(NoKeys::None)), "{refused:?}");
    let jwt = world.jwt(&[others, vec![ec]].concat());
    assert_eq!(
        jwt.caller(world.ed(&ed_header(), &claims()).as_bytes()),
        Err(Rejected::UnknownKey)
    );
    let path = world.directory.path().join("none");
    assert!(matches!(
        Jwt::new(ISSUER.into(), AUDIENCE.into(), path),
        Err(NoKeys::Io(_))
    ));
}

#[test]
fn a_file_that_has_changed_is_read_again_and_one_that_can_not_be_read_changes_nothing() {
    let (world, next) = (World::new(), World::new());
    let jwt = world.jwt(&world.jwks());
    let (old, new) = (
        world.ed(&ed_header(), &claims()),
        next.ed(&ed_header(), &claims()),
    );
    assert!(jwt.caller(old.as_bytes()).is_ok() && jwt.caller(new.as_bytes()).is_err());
    world.write(&next.jwks());
    assert!(jwt.caller(old.as_bytes()).is_err() && jwt.caller(new.as_bytes()).is_ok());
    let path = world.directory.path().join("keys");
    std::fs::write(&path, "{\"keys\": [").expect("written");
    assert!(jwt.caller(new.as_bytes()).is_ok());
    std::fs::remove_file(&path).expect("there");
    assert!(jwt.caller(new.as_bytes()).is_ok());
    world.write(&[]);
    assert_eq!(
        jwt.caller(new.as_bytes()),
        Err(Rejected::UnknownKey),
        "all keys were taken back"
    );
    world.write(&world.jwks());
    assert!(jwt.caller(old.as_bytes()).is_ok() && jwt.caller(new.as_bytes()).is_err());
}
