//! What is refused, and with which words.

use mcp_sessiond_proto::Siblings;

use super::*;

fn from(text: &str, flags: &[&str]) -> Result<Loaded, ConfigError> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("config.toml");
    std::fs::write(&path, text).expect("written");
    let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    load(Some(&path), &flags)
}

#[test]
fn an_unknown_key_is_refused_with_its_line() {
    let error = from("siblings = \"fresh\"\nclaim_wait = 5\n", &[])
        .expect_err("refused")
        .to_string();
    assert!(
        error.contains("line 2") && error.contains("claim_wait"),
        "{error}"
    );
}

#[test]
fn a_flag_beats_the_file_and_says_so() {
    let text = "claim_wait_ms = 5\n[limits]\nconnections = 7\n";
    let loaded = from(
        text,
        &[
            "claim_wait_ms=9",
            "siblings=oldest",
            "limits.connections_per_process=3",
        ],
    );
    let loaded = loaded.expect("fits");
    assert_eq!(
        (loaded.config.claim_wait_ms, loaded.config.siblings),
        (9, Siblings::Oldest)
    );
    assert_eq!(
        (
            loaded.config.limits.connections,
            loaded.config.limits.connections_per_process
        ),
        (7, 3)
    );
    let source = |name: &str| {
        loaded
            .settings()
            .into_iter()
            .find(|setting| setting.name == name)
            .expect("there")
            .source
    };
    assert_eq!(source("claim_wait_ms"), "flag");
    assert_eq!(source("limits.connections"), "file");
    assert_eq!(source("drain_ms"), "default");
}

#[test]
fn a_value_out_of_range_is_refused() {
    for (flag, needle) in [
        ("limits.connections=0", "at least 1"),
        ("claim_wait_ms=5001", "at most 5000"),
        ("siblings=newest", "siblings"),
        ("sessions.sweep_ms=1", "from 100 to 60000"),
        ("limits.message_bytes=4000000", " to "),
        ("backends.stop_wait_ms=0", "from 1 to 60000"),
        ("backends.stop_wait_ms=60001", "from 1 to 60000"),
        ("backends.queue_bytes=0", "at least 1"),
        ("backends.stderr_bytes=1048577", "at most 1048576"),
        ("storage.url=mysql://x", "storage.url"),
        ("storage.durability=paper", "durability"),
        ("adopt_version_1=tokens", "absolute"),
        ("colour=blue", "no such setting"),
    ] {
        let error = from("", &[flag]).expect_err(flag).to_string();
        assert!(error.contains(needle), "{flag}: {error}");
    }
}

#[test]
fn a_password_in_the_url_is_not_shown() {
    let loaded = from(
        "",
        &["storage.url=\"postgres://me:hunter2@db/x?password=hunter2\""],
    )
    .expect("fits");
    let shown = format!("{:?}", loaded.settings());
    assert!(
        shown.contains("postgres://") && !shown.contains("hunter2"),
        "{shown}"
    );
    let other = from("", &["storage.url=\"postgres://me:hunter3@db/x\""]).expect("fits");
    assert!(!format!("{:?}", loaded.changes(&other)).contains("hunter"));
}

#[test]
fn a_line_with_a_password_is_not_quoted() {
    for wrong in [
        "url = \"postgres://me:hunter2@db/x",
        "ulr = \"postgres://me:hunter2@db/x\"",
    ] {
        let text = format!("log = \"info\"\n[storage]\n{wrong}\n");
        let error = from(&text, &[]).expect_err("refused").to_string();
        assert!(
            error.contains("line 3") && !error.contains("hunter2"),
            "{error}"
        );
    }
    // Nor is a value of the wrong type, in which it may stand.
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    std::io::Write::write_all(&mut file, b"storage = \"postgres://me:hunter2@db/x\"\n")
        .expect("written");
    let refused = load(Some(file.path()), &[]).expect_err("refused");
    let shown = refused.to_string();
    assert!(
        shown.contains("line 1") && !shown.contains("hunter2"),
        "{shown}"
    );
    let fault = load_readable(Some(file.path()), &[], refused)
        .expect("readable")
        .fault
        .expect("a fault")
        .sentence;
    assert!(
        fault.contains("line 1: invalid type") && !fault.contains("hunter2"),
        "{fault}"
    );
}

#[test]
fn a_reload_says_what_changed() {
    let old = from("claim_wait_ms = 5\n", &[]).expect("fits");
    let new = from("claim_wait_ms = 6\nadopt_version_1 = \"/x\"\n", &[]).expect("fits");
    assert_eq!(
        old.changes(&new),
        ["adopt_version_1: unset -> \"/x\"", "claim_wait_ms: 5 -> 6"]
    );
}

/// What a daemon does whose client waits: it takes what it understands.
#[test]
fn of_a_file_that_is_wrong_somewhere_the_rest_counts() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("config.toml");
    let read = |text: &str| {
        std::fs::write(&path, text).expect("written");
        let error = load(Some(&path), &[]).expect_err("it is wrong somewhere");
        let loaded = load_readable(Some(&path), &[], error).expect("it is the file");
        let fault = loaded.fault.expect("it is told");
        (loaded.config, fault)
    };
    let (config, fault) = read(
        "log = \"warn\"\nno_such = 1\n[storage]\nurl = \"memory:\"\n[backends]\nlinger_ms = 5\n",
    );
    assert_eq!(
        (config.storage.url.as_str(), config.backends.linger_ms),
        ("memory:", 5)
    );
    assert!(
        !fault.hides_storage && fault.sentence.contains("line 2: unknown field"),
        "{fault:?}"
    );
    let (config, fault) = read("idle_exit_ms = 5\nclaim_wait_ms = 1000000\n");
    assert_eq!(
        (config.idle_exit_ms, config.claim_wait_ms),
        (5, Config::default().claim_wait_ms)
    );
    assert!(
        !fault.hides_storage && fault.sentence.contains("claim_wait_ms must be at most"),
        "{fault:?}"
    );
    for hidden in [
        "storage = 5\n",
        "[storage]\nurl = \"mysql://x\"\n",
        "[storage]\ndurability = 1\n",
        "no line of TOML\n",
    ] {
        let (config, fault) = read(hidden);
        assert!(
            fault.hides_storage && !fault.sentence.contains('\n'),
            "{hidden}: {fault:?}"
        );
        assert_eq!(config, Config::default(), "{hidden}");
    }
    // It is not the file that is wrong.
    let error = load(Some(&path), &["no_such=1".into()]).expect_err("there is no such setting");
    assert!(load_readable(Some(&path), &["no_such=1".into()], error).is_err());
}

#[test]
fn a_wrong_number_is_refused_with_its_range() {
    for (flag, expected) in [
        (
            "claim_wait_ms=soon",
            "--set claim_wait_ms=soon: it must be a whole number, at most 5000",
        ),
        (
            "claim_wait_ms=6000",
            "--set claim_wait_ms=6000: it must be a whole number, at most 5000",
        ),
        (
            "limits.state_value_bytes=0",
            "--set limits.state_value_bytes=0: it must be a whole number, from 1 to ",
        ),
        (
            "backends.linger_ms=-1",
            "--set backends.linger_ms=-1: it must be a whole number, at least 1",
        ),
        (
            "pid1_is_host=perhaps",
            "--set pid1_is_host=perhaps: it must be true or false",
        ),
        ("claim_wait=1", "; did you mean claim_wait_ms?"),
        (
            "first_line_wait=1",
            "; did you mean wrap.first_line_wait_ms?",
        ),
    ] {
        let error = from("", &[flag]).expect_err("refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
    // What is wrong in the file is not said of the flag.
    let error = from("claim_wait_ms = 6000\n", &["backends.linger_ms=5"]);
    let error = error.expect_err("refused").to_string();
    assert!(!error.contains("--set"), "{error}");
}

#[test]
fn an_unknown_key_of_the_file_is_refused_with_the_one_that_may_be_meant() {
    for (text, expected) in [
        ("claim_wait = 5\n", "; did you mean claim_wait_ms?"),
        (
            "linger_ms = 5\n",
            "; did you mean backends.linger_ms or http.linger_ms?",
        ),
        (
            "[wrap]\nfirst_line_wait = 5\n",
            "; did you mean wrap.first_line_wait_ms?",
        ),
    ] {
        let error = from(text, &[]).expect_err("refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
    let error = from("nothing_like_it = 5\n", &[]).expect_err("refused");
    assert!(!error.to_string().contains("did you mean"), "{error}");
}

#[test]
fn a_password_is_not_quoted() {
    let flag = "storage.url=nonsense://me:s3cret@x";
    let error = from("", &[flag]).expect_err("refused").to_string();
    assert!(!error.contains("s3cret"), "{error}");
}
