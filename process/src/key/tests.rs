//! The key over made-up facts: what is in it, what is not, and what makes it doubtful.

use mcp_sessiond_identity::{Key, SelfDescription};

use super::*;
use crate::variables::ignored;

fn bytes(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn facts() -> Facts {
    let image = Image {
        executable: Some("/usr/bin/server".into()),
        arguments: Ok(bytes(&["server", "--db", "prod"])),
    };
    Facts {
        image,
        environment: Some(bytes(&["A=1", "B=2"])),
        directory: Some("/srv".into()),
    }
}

/// The traits of a server that differs from the usual one in what `change` changes.
fn traits(change: impl FnOnce(&mut Facts)) -> Traits {
    let mut changed = facts();
    change(&mut changed);
    changed.into_traits(|| "name".to_owned(), &Table::default())
}

fn key(change: impl FnOnce(&mut Facts)) -> Result<Key, KeyDoubt> {
    traits(change).key(&SelfDescription::default())
}

fn labelled(change: impl FnOnce(&mut Facts)) -> Result<Key, KeyDoubt> {
    traits(change).key(&label("one"))
}

fn label(label: &str) -> SelfDescription {
    SelfDescription {
        label: Some(label.parse().expect("a label")),
        ..SelfDescription::default()
    }
}

#[test]
fn servers_that_differ_in_anything_differ_in_their_keys() {
    let changes: [fn(&mut Facts); 9] = [
        |_| {},
        |facts| facts.image.executable = Some("/opt/bin/server".into()),
        |facts| facts.image.arguments = Ok(bytes(&["server", "--db", "staging"])),
        |facts| facts.image.arguments = Ok(bytes(&["server", "--dbprod"])),
        |facts| facts.image.arguments = Ok(bytes(&["server", "--db", "prod", ""])),
        |facts| facts.directory = Some("/srv/2".into()),
        |facts| facts.environment = Some(bytes(&["A=1", "B=3"])),
        |facts| facts.environment = Some(bytes(&["A=1"])),
        |facts| facts.environment = Some(bytes(&["A=1", "B=2", "CLAUDE_CODE_SESSION_ID=1"])),
    ];
    let keys: Vec<Key> = changes
        .into_iter()
        .map(|change| key(change).expect("certain"))
        .collect();
    for (at, one) in keys.iter().enumerate() {
        assert!(!keys[..at].contains(one), "change {at} makes no difference");
    }
}

#[test]
fn the_order_of_variables_and_those_of_one_start_make_no_difference() {
    let usual = key(|_| {});
    assert_eq!(
        usual,
        key(|facts| facts.environment = Some(bytes(&["B=2", "A=1"])))
    );
    for name in ignored() {
        let with = format!("{name}=17");
        assert_eq!(
            usual,
            key(|facts| facts.environment = Some(bytes(&["A=1", &with, "B=2"]))),
            "{name}"
        );
    }
    assert_ne!(
        usual,
        key(|facts| facts.environment = Some(bytes(&["A=1", "B=2", "SHLVL2=1"])))
    );
}

#[test]
fn the_configuration_adds_variables() {
    let table = Table {
        ignored_variables: vec!["TRACE_*".into()],
        conversation_variables: vec!["THREAD".into()],
        ..Table::default()
    };
    let with = |variables: &[&str]| {
        let mut facts = facts();
        facts.environment = Some(bytes(variables));
        facts.into_traits(String::new, &table)
    };
    assert_eq!(with(&["A=1"]), with(&["A=1", "TRACE_ID=7"]));
    assert_ne!(with(&["A=1"]), with(&["A=1", "TRAC=7"]));
    assert_ne!(
        with(&["THREAD=1"]).conversation,
        with(&["THREAD=2"]).conversation
    );
    assert_eq!(with(&["THREAD=1"]).place, with(&["THREAD=2"]).place);
}

#[test]
fn a_program_is_called_by_its_file_name_alone() {
    let called = |argv0: &'static str| {
        key(move |facts| facts.image.arguments = Ok(bytes(&[argv0, "--db", "prod"])))
    };
    assert_eq!(
        called("/opt/uv/builds-v0/.tmpAb12/bin/server"),
        called("server")
    );
    assert_ne!(called("server-2"), called("server"));
}

#[test]
fn directories_that_are_made_anew_at_each_start_make_no_difference() {
    let start = |name: &str| {
        let root = format!("/home/u/.cache/uv/builds-v0/.tmp{name}");
        let (path, script) = (
            format!("PATH={root}/bin:/usr/bin"),
            format!("{root}/bin/x.py"),
        );
        key(move |facts| {
            facts.environment = Some(bytes(&[&path]));
            facts.image.arguments = Ok(bytes(&["python", &script]));
            facts.image.executable = Some(format!("{root}/bin/python").into());
        })
    };
    assert_eq!(start("aZ2fC0"), start("bY3gD1"));
    assert_ne!(start("aZ2fC0"), start("something-else"));
}

#[test]
fn a_label_takes_the_place_of_directory_environment_and_path() {
    let usual = labelled(|_| {}).expect("certain");
    assert_ne!(Ok(usual), key(|_| {}));
    assert_eq!(labelled(|facts| facts.directory = None), Ok(usual));
    assert_eq!(
        labelled(|facts| facts.environment = Some(bytes(&["A=2"]))),
        Ok(usual)
    );
    assert_eq!(
        labelled(|facts| facts.image.executable = Some("/opt/2/server".into())),
        Ok(usual)
    );
    assert_ne!(
        labelled(|facts| facts.image.executable = Some("/usr/bin/other".into())),
        Ok(usual)
    );
    assert_ne!(
        labelled(|facts| facts.image.arguments = Ok(bytes(&["server"]))),
        Ok(usual)
    );
    let conversation =
        |id: &'static str| labelled(move |facts| facts.environment = Some(bytes(&[id])));
    assert_ne!(
        conversation("CLAUDE_CODE_SESSION_ID=1"),
        conversation("CLAUDE_CODE_SESSION_ID=2")
    );
    assert_ne!(traits(|_| {}).key(&label("two")), Ok(usual));
}

#[test]
fn what_an_instance_says_of_itself_narrows() {
    let says = |entry: Option<&str>, client: Option<&str>| {
        let parsed = |text: &str| text.parse().expect("a label");
        let client = client.map(|client| client.parse().expect("a name"));
        traits(|_| {})
            .key(&SelfDescription {
                label: None,
                entry: entry.map(parsed),
                client,
            })
            .expect("certain")
    };
    let all = [
        says(None, None),
        says(None, Some("")),
        says(None, Some("claude-ai")),
        says(Some("a"), Some("claude-ai")),
        says(Some("b"), Some("claude-ai")),
        labelled(|_| {}).expect("certain"),
    ];
    for (at, one) in all.iter().enumerate() {
        assert!(!all[..at].contains(one), "{at}");
    }
    assert!(all[4].is_another_program_for(&all[3]));
    let conversation = |id: &'static str| {
        key(move |facts| facts.environment = Some(bytes(&[id]))).expect("certain")
    };
    let (one, two) = (
        conversation("CLAUDE_CODE_SESSION_ID=1"),
        conversation("CLAUDE_CODE_SESSION_ID=2"),
    );
    assert!(one.is_another_conversation_of(&two));
}

#[test]
fn what_can_not_be_read_makes_the_key_doubtful() {
    assert_eq!(
        key(|facts| facts.environment = None),
        Err(KeyDoubt::Environment)
    );
    assert_eq!(
        key(|facts| facts.directory = None),
        Err(KeyDoubt::Directory)
    );
    assert!(labelled(|facts| facts.environment = None).is_ok());
    for said in [SelfDescription::default(), label("one")] {
        let hidden = traits(|facts| facts.image.executable = None);
        assert_eq!(hidden.key(&said), Err(KeyDoubt::Executable));
        for doubt in [KeyDoubt::Arguments, KeyDoubt::Rewritten] {
            assert_eq!(
                traits(|facts| facts.image.arguments = Err(doubt)).key(&said),
                Err(doubt)
            );
        }
    }
}

#[test]
fn a_hidden_conversation_is_not_the_absence_of_one() {
    assert_ne!(labelled(|facts| facts.environment = None), labelled(|_| {}));
}

#[test]
fn a_title_is_not_taken_for_arguments() {
    let title = |arguments: &[&str]| is_title(Path::new("/usr/bin/node"), &bytes(arguments));
    assert!(title(&["my-server", "", "", ""]));
    assert!(title(&["my-server", ""]));
    assert!(title(&["my server: prod"]));
    assert!(!title(&["node"]));
    assert!(!title(&["/opt/my tools/node"]));
    assert!(!title(&["node", "server.js", "", ""]));
    assert!(!title(&["my server", "-x"]));
}

#[test]
fn digests_are_what_they_were() {
    // They are on record: with another encoding no server would find its session after an upgrade
    // of the daemon. Computed with Python's hashlib.
    let begins = |key: Result<Key, KeyDoubt>| key.expect("certain").what[..4].to_vec();
    assert_eq!(begins(key(|_| {})), [0xbb, 0x97, 0x7e, 0xc4]);
    assert_eq!(begins(labelled(|_| {})), [0xae, 0x9b, 0x6c, 0x93]);
}

#[test]
fn the_option_that_names_the_entry_is_no_argument() {
    let without = |words: &[&str]| {
        let mut words = bytes(words);
        remove_entry(&mut words, "one");
        words
    };
    let plain = bytes(&[
        "mcp-sessiond",
        "wrap",
        "--lazy",
        "--",
        "npx",
        "--entry",
        "one",
    ]);
    for words in [
        &[
            "mcp-sessiond",
            "wrap",
            "--entry",
            "one",
            "--lazy",
            "--",
            "npx",
            "--entry",
            "one",
        ][..],
        &[
            "mcp-sessiond",
            "wrap",
            "--lazy",
            "--entry=one",
            "--",
            "npx",
            "--entry",
            "one",
        ],
    ] {
        assert_eq!(without(words), plain, "{words:?}");
    }
    let other = ["mcp-sessiond", "wrap", "--entry", "two", "--", "npx"];
    assert_eq!(without(&other), bytes(&other));
}

#[test]
fn the_name_of_an_entry_alone_makes_no_other_server() {
    let of = |entry: Option<&str>| SelfDescription {
        entry: entry.map(|entry| entry.parse().expect("a label")),
        ..SelfDescription::default()
    };
    let read = traits(|_| {});
    let unnamed = read.key(&of(None)).expect("certain");
    assert_eq!(read.unnamed_key(&of(Some("one"))), Some(unnamed));
    // Two entries with the same command are two servers all the same.
    assert_ne!(read.key(&of(Some("one"))), read.key(&of(Some("two"))));
    assert_eq!(read.unnamed_key(&of(None)), None);
}
