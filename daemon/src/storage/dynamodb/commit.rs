//! Commits: one conditional update of the head, with what it does to the items written down in it.

use std::time::Duration;

use aws_sdk_dynamodb::operation::put_item::PutItemError;
use bytes::Bytes;

use super::DynamoDb;
use super::call::Answer;
use super::head::{Facts, Generation, Head};
use super::pending::{PartId, Pending};
use super::row::number;
use crate::storage::{Change, Key, RecordId, StorageError, Version};

/// How often a record is created over a dead head that is gone by then, or the other way round.
const ATTEMPTS: usize = 6;

/// For how long a commit cleans up before it leaves the rest to a later one.
const CLEANING: Duration = Duration::from_secs(2);

/// When a pass over what is due finds a dead head whose items were not all purged at once.
const BURIAL: Duration = Duration::from_secs(60);

/// What a commit finds in place.
struct Base {
    /// None: no head.
    facts: Option<Facts>,
    /// Its pending change, unless this daemon has applied it.
    pending: Option<Pending>,
}

/// What a commit is about to install.
struct Plan<'a> {
    place: &'a RecordId,
    expected: Option<Version>,
    next: Version,
    change: &'a Change,
    generation: Generation,
    pending: Pending,
}

/// How the installation went.
enum Installed {
    /// Over these facts, if there were any.
    Over(Option<Facts>),
    /// Long ago: others have built upon it already.
    Overtaken,
    Conflict {
        /// It may be in place nevertheless, and out of sight.
        doubtful: bool,
    },
}

impl DynamoDb {
    pub(super) async fn commit_change(
        &self,
        place: &RecordId,
        expected: Option<Version>,
        next: Version,
        change: &Change,
    ) -> Result<(), StorageError> {
        let changing = self.changing(place).lock().await;
        let mut base = self.base(place, expected).await?;
        let is_delete = change.head.is_none();
        let is_anew = base.facts.is_none() || change.clear;
        // Who wrote that pending change may be applying it still, and leave rows behind what is
        // purged now.
        let is_quiet = base.pending.as_ref().is_none_or(Pending::is_empty);
        if let (Some(facts), Some(pending)) = (&base.facts, base.pending.take())
            && !is_anew
            && !is_delete
        {
            let partition = facts.generation.partition(place);
            let replaced = self
                .apply(&partition, facts.count, pending)
                .await
                .map_err(StorageError::known)?;
            self.best_effort(self.delete_parts(&partition, replaced))
                .await;
        }
        let generation = match &base.facts {
            Some(facts) if !is_anew => facts.generation,
            _ => Generation::random(),
        };
        let (pending, parts) = if is_delete {
            (Pending::default(), Vec::new())
        } else {
            Pending::new(change)
        };
        let partition = generation.partition(place);
        let ids: Vec<PartId> = parts.iter().map(|part| part.id.clone()).collect();
        if let Err(error) = self.write_parts(&partition, &parts).await {
            self.best_effort(self.delete_parts(&partition, ids)).await;
            return Err(error);
        }
        let plan = Plan {
            place,
            expected,
            next,
            change,
            generation,
            pending,
        };
        match self.install(&plan, base.facts).await? {
            Installed::Overtaken => Ok(()),
            Installed::Conflict { doubtful } => {
                if !doubtful {
                    self.best_effort(self.delete_parts(&partition, ids)).await;
                }
                Err(StorageError::Conflict)
            }
            Installed::Over(former) => {
                let Some(replaced) = self.applied(&plan, former.as_ref()).await else {
                    return Ok(());
                };
                drop(changing);
                self.clean_up(&plan, former.as_ref(), replaced, is_quiet)
                    .await;
                Ok(())
            }
        }
    }

    /// What the commit is to be made upon.
    async fn base(
        &self,
        place: &RecordId,
        expected: Option<Version>,
    ) -> Result<Base, StorageError> {
        let Some(expected) = expected else {
            // Most that are created are not there; the condition tells.
            return Ok(Base {
                facts: None,
                pending: None,
            });
        };
        match self.known(place) {
            Some(facts) if facts.version == expected => {
                return Ok(Base {
                    facts: Some(facts),
                    pending: None,
                });
            }
            // A change that can't succeed is not worth the question.
            Some(facts) if facts.was.contains(&expected) => return Err(StorageError::Conflict),
            _ => {}
        }
        match self.head(place).await? {
            Some(head) if head.facts.version == expected && !head.facts.dead => Ok(Base {
                facts: Some(head.facts),
                pending: Some(head.pending),
            }),
            _ => Err(StorageError::Conflict),
        }
    }

    /// The commit point.
    async fn install(
        &self,
        plan: &Plan<'_>,
        facts: Option<Facts>,
    ) -> Result<Installed, StorageError> {
        let is_create = facts.is_none();
        let mut former = facts;
        for _ in 0..ATTEMPTS {
            let head = plan.head(former.as_ref());
            let doubtful = match self.put_head(plan.place, &head, former.as_ref()).await? {
                Answer::Done(()) => return Ok(Installed::Over(former)),
                Answer::Refused { doubtful } => doubtful,
            };
            let found = self.head(plan.place).await;
            let found = found.map_err(|error| if doubtful { error.unknown() } else { error })?;
            match found {
                Some(head) if head.facts.version == plan.next => {
                    return Ok(Installed::Over(former));
                }
                Some(head) if head.facts.knows(plan.next) => return Ok(Installed::Overtaken),
                // Not if this record may have been made before and deleted by others: it must not
                // be made twice.
                Some(head)
                    if is_create
                        && head.facts.dead
                        && !(doubtful && head.facts.may_have_followed(None)) =>
                {
                    former = Some(head.facts);
                }
                None if is_create && !doubtful => former = None,
                // A record that is doomed by this very change may have been buried by others
                // already.
                None if doubtful && plan.change.head.is_none() => return Ok(Installed::Overtaken),
                // It was in place, perhaps, and so many others since that nothing tells.
                Some(head) if doubtful && head.facts.may_have_followed(plan.expected) => {
                    return Err(StorageError::Conflict.unknown());
                }
                None if doubtful => return Err(StorageError::Conflict.unknown()),
                _ => return Ok(Installed::Conflict { doubtful }),
            }
        }
        Err(StorageError::Unavailable(
            "a record in DynamoDB changes faster than it can be created".into(),
        ))
    }

    async fn put_head(
        &self,
        place: &RecordId,
        head: &Head,
        over: Option<&Facts>,
    ) -> Result<Answer<()>, StorageError> {
        let request = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(head.to_row(place)));
        // A version is drawn once: with it, all that was read is as it was.
        let request = match over {
            None => request.condition_expression("attribute_not_exists(pk)"),
            Some(facts) => request
                .condition_expression("v = :v")
                .expression_attribute_values(":v", number(facts.version.0)),
        };
        Ok(
            match self
                .ask_if::<_, PutItemError, _>(|| request.clone().send())
                .await?
            {
                Answer::Done(_) => Answer::Done(()),
                Answer::Refused { doubtful } => Answer::Refused { doubtful },
            },
        )
    }

    /// Applies what was installed. None: whoever commits next does it.
    async fn applied(&self, plan: &Plan<'_>, former: Option<&Facts>) -> Option<Vec<PartId>> {
        #[cfg(feature = "fault-points")]
        if self.is_abandoned() {
            return None;
        }
        let facts = plan.facts(former);
        let partition = facts.generation.partition(plan.place);
        let replaced = self
            .apply(&partition, facts.count, plan.pending.clone())
            .await
            .ok()?;
        self.know(plan.place, facts);
        Some(replaced)
    }

    /// Does what may fail without anybody noticing: what is left undone is done by a later commit,
    /// or a look at what is due.
    async fn clean_up(
        &self,
        plan: &Plan<'_>,
        former: Option<&Facts>,
        replaced: Vec<PartId>,
        is_quiet: bool,
    ) {
        let facts = plan.facts(former);
        let cleaning = self.clean(plan.place, &facts, replaced, &plan.change.forget);
        let is_clean = matches!(tokio::time::timeout(CLEANING, cleaning).await, Ok(Ok(())));
        // Whoever deleted the record that was here may be purging it still.
        if !is_clean || !is_quiet || former.is_some_and(|former| former.dead) {
            return;
        }
        if facts.dead {
            self.best_effort(self.bury(plan.place, facts.version)).await;
        } else {
            self.know_clean(plan.place, facts.version);
        }
    }

    /// Deletes what no record has any more.
    async fn clean(
        &self,
        place: &RecordId,
        facts: &Facts,
        replaced: Vec<PartId>,
        forget: &[std::ops::Range<Key>],
    ) -> Result<(), StorageError> {
        let partition = facts.generation.partition(place);
        self.delete_parts(&partition, replaced).await?;
        for range in forget
            .iter()
            .filter(|range| range.start < range.end && !facts.dead)
        {
            self.forget(&partition, range, facts.count).await?;
        }
        self.purge_all(place, &facts.old).await
    }

    async fn best_effort(&self, work: impl Future<Output = Result<(), StorageError>>) {
        // What failed is on record for `check`.
        let _ = work.await;
    }
}

impl Plan<'_> {
    /// What is to be known of the head that replaces the former one.
    fn facts(&self, former: Option<&Facts>) -> Facts {
        let mut old = former.map_or(Vec::new(), |former| former.old.clone());
        let dead = self.change.head.is_none();
        if let Some(former) = former
            && (dead || former.generation != self.generation)
            && !old.contains(&former.generation)
        {
            old.push(former.generation);
        }
        Facts {
            version: self.next,
            count: former.map_or(1, |former| former.count + 1),
            generation: self.generation,
            dead,
            old,
            was: former.map_or(Vec::new(), Facts::remembered),
        }
    }

    /// The head to install over the former one.
    fn head(&self, former: Option<&Facts>) -> Head {
        let (bytes, due_ms) = match &self.change.head {
            Some(head) => (head.bytes.clone(), head.due_ms),
            None => (Bytes::new(), super::now_ms() + BURIAL.as_millis() as u64),
        };
        Head {
            facts: self.facts(former),
            bytes,
            due_ms,
            pending: self.pending.clone(),
        }
    }
}
