//! Any effect that the registry may have.

use mcp_sessiond_proto::facts::{Discover, ServerDigest};
use mcp_sessiond_proto::{BackendName, Json, LossId, LossRecord};
use mcp_sessiond_registry::{BackendOf, ServerRecord, ServiceSession};

use super::*;

fn process() -> impl Strategy<Value = ProcessId> {
    let inode = option::of(select(vec![0, 1, u64::MAX]));
    (1..3_u32, select(vec![0, 1, u64::MAX]), inode).prop_map(|(pid, start, inode)| ProcessId {
        pid,
        start: StartTime(start),
        inode,
    })
}

fn id() -> impl Strategy<Value = SessionId> {
    select(vec!["a", "b", "~!'\""]).prop_map(|id| id.parse().expect("an id"))
}

fn label() -> impl Strategy<Value = Label> {
    select(vec!["prod", "naïve 'label' \u{1f980}"])
        .prop_map(|label| label.parse().expect("a label"))
}

fn key() -> impl Strategy<Value = Key> {
    let client = any::<Option<[u8; 32]>>();
    (any::<[u8; 32]>(), conversation(), client).prop_map(|(what, conversation, client)| Key {
        what,
        conversation,
        client,
    })
}

fn conversation() -> impl Strategy<Value = Conversation> {
    prop_oneof![
        Just(Conversation::None),
        Just(Conversation::Hidden),
        any::<[u8; 32]>().prop_map(Conversation::Of),
    ]
}

fn siblings() -> impl Strategy<Value = Option<Siblings>> {
    option::of(select(Siblings::ALL.to_vec()))
}

fn resume() -> impl Strategy<Value = Resume> {
    select(Resume::ALL.to_vec())
}

fn rule() -> impl Strategy<Value = Rule> {
    let sources = [RuleSource::Library, RuleSource::Table, RuleSource::Asked];
    (resume(), select(sources.to_vec())).prop_map(|(resume, source)| Rule { resume, source })
}

fn member() -> impl Strategy<Value = BackendName> {
    "[a-zé]{1,60}".prop_map(|name| name.parse().expect("a name"))
}

fn loss() -> impl Strategy<Value = LossRecord> {
    let because = select(Loss::ALL.to_vec());
    (any::<u64>(), any::<u64>(), option::of(member()), because).prop_map(
        |(id, at_ms, of, because)| LossRecord {
            id: LossId(id),
            at_ms,
            of,
            because,
        },
    )
}

fn owner() -> impl Strategy<Value = OwnerRecord> {
    let ambiguous = proptest::collection::btree_set(any::<[u8; 32]>(), 0..4);
    let losses = proptest::collection::vec((key(), loss()), 0..4);
    let rule = option::of(select(vec![
        Loss::Closed,
        Loss::Conversations,
        Loss::UnknownHost,
    ]));
    let rules = proptest::collection::btree_map(key(), rule, 0..4);
    (
        process(),
        ".*",
        siblings(),
        (proptest::collection::btree_set(key(), 0..3), any::<bool>()),
        ambiguous,
        losses,
        rules,
        proptest::collection::btree_set(key(), 0..4),
    )
        .prop_map(
            |(
                host,
                name,
                host_rule,
                (multiplexed_keys, conversations_at_once),
                ambiguous,
                losses,
                rules,
                names,
            )| OwnerRecord {
                host,
                name,
                host_rule,
                multiplexed_keys,
                conversations_at_once,
                ambiguous,
                losses,
                rules,
                names,
            },
        )
}

fn claimant() -> impl Strategy<Value = Claimant> {
    let doubt = select(vec![KeyDoubt::Executable, KeyDoubt::Gone]);
    let digests = any::<[Option<[u8; 32]>; 3]>();
    let keys = proptest::collection::vec(key(), 0..3);
    (
        process(),
        ".*",
        digests,
        conversation(),
        option::of(doubt),
        keys,
        (resume(), any::<bool>(), any::<Option<u64>>()),
    )
        .prop_map(
            |(
                host,
                program,
                [core, place, directory],
                conversation,
                doubt,
                keys,
                (resume, is_users, started_ms),
            )| Claimant {
                host,
                rule: HostRule { resume, is_users },
                started_ms,
                traits: Traits {
                    program,
                    core,
                    place,
                    directory,
                    conversation,
                    doubt,
                },
                keys,
            },
        )
}

fn description() -> impl Strategy<Value = SelfDescription> {
    let client = option::of(select(vec!["", "claude-ai", " naïve \u{1f980}"]));
    (option::of(label()), option::of(label()), client).prop_map(|(label, entry, client)| {
        SelfDescription {
            label,
            entry,
            client: client.map(|client| client.parse().expect("a name")),
        }
    })
}

fn any_session() -> impl Strategy<Value = SessionRecord> {
    let digest = || any::<Option<[u8; 32]>>();
    let names = (
        id(),
        process(),
        option::of(key()),
        ".*",
        description(),
        (siblings(), rule()),
    );
    let rest = (
        any::<[u64; 4]>(),
        option::of(process()),
        any::<u32>(),
        digest(),
        digest(),
        digest(),
        any::<bool>(),
    );
    (names, rest).prop_map(
        |((id, owner, key, program, description, (asked, rule)), rest)| {
            let (
                [opened, opened_ms, epoch, freed],
                holder,
                number,
                digest,
                former,
                program_dir,
                offered,
            ) = rest;
            SessionRecord {
                id,
                owner,
                key,
                program,
                description,
                program_dir,
                asked,
                rule,
                opened,
                freed,
                opened_ms,
                epoch: Epoch(epoch),
                closed_ms: holder.map(|holder| holder.start.0),
                holder,
                file: TokenFile {
                    host: owner,
                    number,
                },
                digest,
                former,
                offered,
                name: offered.then(SessionId::mint),
                made_by: offered.then(RequestId::mint),
            }
        },
    )
}

/// One for each backend of some sessions, or of none.
fn keeper() -> impl Strategy<Value = (Option<BackendOf>, KeeperRecord)> {
    let sessions = select(vec!["a", "b", "~!'\""])
        .prop_map(|id| (id.len() as u32 + id.as_bytes()[0] as u32, id));
    let service = option::of(service().prop_map(|service| service.name));
    let of = option::of(select(vec!["files", "the web"]));
    let whose = (sessions, of, any::<bool>());
    (
        whose,
        any::<u32>(),
        ".*",
        option::of(process()),
        any::<bool>(),
        service,
    )
        .prop_map(
            |(((pid, id), of, is_held), name, program, backend, ending, service)| {
                // Each has a process of its own, as keepers have.
                let pid = pid + of.map_or(0, |of| 1_000 * of.len() as u32);
                let process = ProcessId {
                    pid,
                    start: StartTime(u64::MAX),
                    inode: Some(u64::MAX),
                };
                let session: SessionId = id.parse().expect("an id");
                let whose = match service {
                    Some(service) => BackendOf::Service((service, session)),
                    None => BackendOf::Session(session),
                };
                let whose = is_held.then_some(whose);
                let (name, of) = (KeeperName(name), of.map(|of| of.parse().expect("a name")));
                (
                    whose,
                    KeeperRecord {
                        process,
                        name,
                        of,
                        program,
                        backend,
                        ending,
                    },
                )
            },
        )
}

fn service() -> impl Strategy<Value = ServiceRecord> {
    (
        select(vec!["web", "~!'\""]),
        any::<u64>(),
        option::of(process()),
        any::<u64>(),
    )
        .prop_map(|(name, epoch, holder, since_ms)| ServiceRecord {
            name: name.parse().expect("a name"),
            epoch: Epoch(epoch),
            holder,
            since_ms,
        })
}

fn service_loss() -> impl Strategy<Value = (ServiceSession, LossRecord)> {
    let of = option::of(select(vec!["files", "the web"]));
    (
        service(),
        id(),
        0..4_u64,
        any::<u64>(),
        of,
        select(Loss::ALL.to_vec()),
    )
        .prop_map(|(service, session, id, at_ms, of, because)| {
            let of = of.map(|of| of.parse().expect("a name"));
            let loss = LossRecord {
                id: LossId(id),
                at_ms,
                of,
                because,
            };
            ((service.name, session), loss)
        })
}

fn server() -> impl Strategy<Value = ServerRecord> {
    let error = Json::new(r#"{"code":-32601,"message":"no 'such'"}"#).expect("JSON");
    let discover = vec![
        Discover::Answers {},
        Discover::Refuses { error },
        Discover::Exits {},
        Discover::Mute {},
    ];
    let version = option::of("[0-9.]{1,9}");
    (0..3_u8, select(discover), any::<u64>(), version).prop_map(
        |(server, discover, used_ms, version)| ServerRecord {
            server: ServerDigest::of(&[server; 32]),
            discover,
            version,
            used_ms,
        },
    )
}

fn lost_records() -> impl Strategy<Value = LostRecords> {
    let told = proptest::collection::btree_set((process(), key()), 0..3);
    (any::<u64>(), told).prop_map(|(since, told)| LostRecords {
        since: StartTime(since),
        told,
    })
}

fn record() -> impl Strategy<Value = Record> {
    prop_oneof![
        owner().prop_map(Record::Owner),
        (process(), claimant()).prop_map(|(process, claimant)| Record::Claimant(process, claimant)),
        any_session().prop_map(|session| Record::Session(Box::new(session))),
        keeper().prop_map(|(of, keeper)| Record::Keeper(of, keeper)),
        service().prop_map(Record::Service),
        service_loss().prop_map(|(of, loss)| Record::ServiceLoss(of, loss)),
        server().prop_map(Record::Server),
        lost_records().prop_map(Record::LostRecords),
    ]
}

pub(super) fn effect() -> impl Strategy<Value = Effect> {
    prop_oneof![
        record().prop_map(Effect::Save),
        record().prop_map(|record| Effect::Drop(record.key())),
    ]
}
