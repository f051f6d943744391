//! Tasks: created, asked for, changed, ended, lost, and gone when their time is over.

use std::time::{Duration, Instant};

use mcp_sessiond_daemon::config::Limits;
use mcp_sessiond_daemon::contents::{Of, Recorded};
use mcp_sessiond_proto::sessions::{CreateRequest, Lifetimes};
use mcp_sessiond_proto::tasks::{
    CreateTaskRequest, TASK_INPUTS_MAX, TASK_LOST, TASK_MESSAGE_MAX, Task, TaskAnswer, TaskAsk,
    TaskEnd, TaskInput, TaskStatus, UpdateTaskRequest,
};
use mcp_sessiond_proto::{Error, InputKey, Json, RequestId, TaskId};

use super::bench::{Bench, json, sweep};
use super::visit::Visit;
use crate::contract::backends::Backend;

/// The process that writes the tasks of a case, as it is on record.
const WRITER: &str = "writer";
const RESULT: &str = r#"{"content":[{"type":"text","text":"42"}]}"#;
const ASK: &str = r#"{"method":"elicitation/create","params":{"message":"Who?"}}"#;

fn input(key: &str) -> InputKey {
    key.parse().expect("a key")
}

fn ask(key: &str, text: &str) -> TaskAsk {
    TaskAsk {
        key: input(key),
        request: json(text),
    }
}

fn answer(key: &str, text: &str) -> TaskAnswer {
    TaskAnswer {
        key: input(key),
        response: json(text),
    }
}

fn completed(text: &str) -> Option<TaskEnd> {
    Some(TaskEnd::Completed(json(text)))
}

impl Visit {
    async fn create_task_by(&self, request: CreateTaskRequest) -> Result<(Task, bool), Error> {
        self.contents
            .create_task(&self.access, &request, WRITER)
            .await
    }

    async fn task(&self, ttl_ms: Option<u64>) -> Result<TaskId, Error> {
        let request = CreateTaskRequest {
            of: self.of(),
            request: None,
            ttl_ms,
            poll_ms: None,
            message: None,
        };
        self.create_task_by(request)
            .await
            .map(|(task, _)| task.task)
    }

    /// A change that changes nothing yet.
    fn change(&self, task: &TaskId) -> UpdateTaskRequest {
        UpdateTaskRequest {
            of: self.of(),
            task: task.clone(),
            message: None,
            ttl_ms: None,
            poll_ms: None,
            ask: Vec::new(),
            answer: Vec::new(),
            end: None,
            take: false,
        }
    }

    async fn update_task(&self, request: UpdateTaskRequest) -> Result<Task, Error> {
        self.contents
            .update_task(&self.access, &request, WRITER)
            .await
    }

    async fn end_task(&self, task: &TaskId, end: Option<TaskEnd>) -> Result<Task, Error> {
        self.update_task(UpdateTaskRequest {
            end,
            ..self.change(task)
        })
        .await
    }

    async fn get_task(&self, task: &TaskId) -> Result<Task, Error> {
        self.contents
            .get_task(&self.access, &self.task_ref(task))
            .await
    }

    async fn list_tasks(&self, after: Option<TaskId>) -> Vec<Task> {
        self.contents
            .list_tasks(&self.access, &self.tasks_after(after))
            .await
            .expect("a list")
    }
}

pub(crate) async fn a_task_goes_from_its_creation_to_its_result<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let request = CreateTaskRequest {
        of: session.of(),
        request: None,
        ttl_ms: Some(60_000),
        poll_ms: Some(500),
        message: Some("begun".into()),
    };
    let (created, is_writer) = session.create_task_by(request).await.expect("created");
    let id = created.task.as_str();
    assert!(
        is_writer && id.starts_with('t') && id.len() == 44,
        "256 random bits, in base64url"
    );
    assert_eq!((created.status, created.version), (TaskStatus::Working, 1));
    assert_eq!(
        (created.ttl_ms, created.poll_ms, created.message.as_deref()),
        (60_000, Some(500), Some("begun"))
    );
    let other = session.through(&bench.beside().await);
    assert_eq!(
        other.get_task(&created.task).await,
        Ok(created.clone()),
        "it is kept before its id is told"
    );
    bench.clock.advance(10);
    let message = Some("half".to_owned());
    let half = session
        .update_task(UpdateTaskRequest {
            message,
            ..session.change(&created.task)
        })
        .await;
    let half = half.expect("changed");
    assert_eq!(
        (half.version, half.created_ms, half.updated_ms),
        (2, created.created_ms, created.created_ms + 10)
    );
    let nothing = session.update_task(session.change(&created.task)).await;
    assert_eq!(nothing, Ok(half.clone()), "that changes nothing");
    let ended = session
        .end_task(&created.task, completed(RESULT))
        .await
        .expect("ended");
    assert_eq!((ended.status, ended.version), (TaskStatus::Completed, 3));
    assert_eq!(
        (ended.result.as_ref().map(Json::as_str), &ended.error),
        (Some(RESULT), &None)
    );
    assert_eq!(other.get_task(&created.task).await, Ok(ended.clone()));
    // An answer may get lost: the same end is the same; any other change comes too late.
    assert_eq!(
        other.end_task(&created.task, completed(RESULT)).await,
        Ok(ended)
    );
    for late in [
        completed("{}"),
        Some(TaskEnd::Cancelled),
        Some(TaskEnd::Failed(json("{}"))),
        None,
    ] {
        assert_eq!(
            session.end_task(&created.task, late).await,
            Err(Error::TaskEnded)
        );
    }
}

pub(crate) async fn a_task_that_is_created_again_is_the_same<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let (session, stranger) = (bench.session("s").await, bench.session("t").await);
    let by = |session: &Visit, request: &str| CreateTaskRequest {
        of: session.of(),
        request: Some(request.parse::<RequestId>().expect("an id")),
        ttl_ms: None,
        poll_ms: None,
        message: None,
    };
    let (first, _) = session
        .create_task_by(by(&session, "one"))
        .await
        .expect("created");
    assert_eq!(
        first.ttl_ms, bench.bounds.sessions.task_life_ms,
        "as long as may be"
    );
    let other = session.through(&bench.beside().await);
    assert_eq!(
        other.create_task_by(by(&session, "one")).await,
        Ok((first.clone(), true))
    );
    let elsewhere = other
        .contents
        .create_task(&other.access, &by(&session, "one"), "another process")
        .await;
    assert_eq!(elsewhere, Ok((first.clone(), false)));
    assert_eq!(session.list_tasks(None).await.len(), 1);
    let (second, _) = session
        .create_task_by(by(&session, "two"))
        .await
        .expect("created");
    let (foreign, _) = stranger
        .create_task_by(by(&stranger, "one"))
        .await
        .expect("created");
    assert!(second.task != first.task && foreign.task != first.task);
    // An id means nothing in another session.
    assert_eq!(
        stranger.get_task(&first.task).await,
        Err(Error::UnknownTask)
    );
    session
        .end_task(&first.task, completed(RESULT))
        .await
        .expect("ended");
    let (again, _) = session
        .create_task_by(by(&session, "one"))
        .await
        .expect("it is there");
    assert_eq!(again.result, Some(json(RESULT)));
}

pub(crate) async fn a_task_asks_its_client_and_gets_answers<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let task = session.task(None).await.expect("created");
    let asking = UpdateTaskRequest {
        ask: vec![ask("name", ASK), ask("age", "{}")],
        ..session.change(&task)
    };
    let asked = session.update_task(asking.clone()).await.expect("asked");
    assert_eq!(asked.status, TaskStatus::InputRequired);
    assert_eq!(
        session.update_task(asking).await,
        Ok(asked),
        "repeating it has no further effect"
    );
    let reused = UpdateTaskRequest {
        ask: vec![ask("name", "{}")],
        ..session.change(&task)
    };
    let refused = session
        .update_task(reused.clone())
        .await
        .expect_err("another request, by a key that is used");
    assert!(
        matches!(refused, Error::InvalidArgument { .. }),
        "{refused}"
    );
    let answering = |answers| UpdateTaskRequest {
        answer: answers,
        ..session.change(&task)
    };
    let other = session.through(&bench.beside().await);
    let part = other
        .update_task(answering(vec![
            answer("name", "1"),
            answer("never asked", "2"),
        ]))
        .await;
    let part = part.expect("answered in part");
    assert_eq!(part.status, TaskStatus::InputRequired);
    let had = |key, request, response: Option<&str>| TaskInput {
        key: input(key),
        request: json(request),
        response: response.map(json),
    };
    assert_eq!(
        part.inputs,
        [had("name", ASK, Some("1")), had("age", "{}", None)]
    );
    // What is answered stays so.
    let rest = other
        .update_task(answering(vec![answer("name", "3"), answer("age", "4")]))
        .await;
    let rest = rest.expect("answered");
    assert_eq!(rest.status, TaskStatus::Working);
    assert_eq!(
        rest.inputs,
        [had("name", ASK, Some("1")), had("age", "{}", Some("4"))]
    );
    assert!(
        session.update_task(reused).await.is_err(),
        "a key counts for the life of the task"
    );
    let ended = session
        .end_task(&task, Some(TaskEnd::Failed(json(ASK))))
        .await
        .expect("ended");
    assert_eq!(
        (ended.status, ended.error, ended.inputs),
        (TaskStatus::Failed, Some(json(ASK)), vec![])
    );
}

pub(crate) async fn a_task_whose_writer_has_exited_has_failed<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let of = |task: &TaskId, author: &str| Recorded {
        place: session.access.place.clone(),
        of: Of::Task(task.clone()),
        author: author.into(),
    };
    let (lost, taken, ended) = (
        session.task(None).await.expect("created"),
        session.task(None).await.expect("created"),
        session.task(None).await.expect("created"),
    );
    session
        .end_task(&ended, completed(RESULT))
        .await
        .expect("ended");
    let take = UpdateTaskRequest {
        take: true,
        ..session.change(&taken)
    };
    session
        .contents
        .update_task(&session.access, &take, "the next one")
        .await
        .expect("taken");
    let other = bench.beside().await;
    let mut wills = other.wills().await.expect("wills");
    wills.sort_by_key(|will| will.author.clone());
    assert_eq!(wills, [of(&taken, "the next one"), of(&lost, WRITER)]);
    for (task, is_done) in [
        (&lost, true),
        (&lost, false),
        (&taken, false),
        (&ended, false),
    ] {
        assert_eq!(other.apply_will(&of(task, WRITER)).await, Ok(is_done));
    }
    let failed = session.get_task(&lost).await.expect("it is there");
    assert_eq!(
        (failed.status, failed.error.as_ref().map(Json::as_str)),
        (TaskStatus::Failed, Some(TASK_LOST))
    );
    assert_eq!(
        session.end_task(&lost, completed(RESULT)).await,
        Err(Error::TaskEnded),
        "it comes too late"
    );
    assert_eq!(
        session.get_task(&taken).await.expect("it is there").status,
        TaskStatus::Working
    );
    session.reset().await.expect("emptied");
    assert_eq!(other.wills().await, Ok(vec![]));
    assert_eq!(session.get_task(&lost).await, Err(Error::UnknownTask));
}

pub(crate) async fn a_task_goes_when_its_time_is_over<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.visit("s");
    let lifetimes = Lifetimes {
        idle_ms: Some(1_000),
        ..Lifetimes::default()
    };
    session
        .create_with(CreateRequest {
            lifetimes,
            ..CreateRequest::default()
        })
        .await
        .expect("created");
    let many = 120;
    for _ in 0..many {
        session.task(Some(2_000)).await.expect("created");
    }
    let (short, long) = (
        session.task(Some(2_000)).await.expect("created"),
        session.task(Some(3_000)).await.expect("created"),
    );
    bench.clock.advance(1_999);
    assert_eq!(
        sweep(&bench.contents).await,
        [],
        "its tasks keep the session, which nobody uses"
    );
    let other = session.through(&bench.beside().await);
    assert!(other.get_task(&short).await.is_ok());
    bench.clock.advance(1);
    assert_eq!(other.get_task(&short).await, Err(Error::UnknownTask));
    assert_eq!(
        other.end_task(&short, completed(RESULT)).await,
        Err(Error::UnknownTask)
    );
    assert_eq!(other.list_tasks(None).await.len(), 1);
    assert_eq!(bench.contents.wills().await.expect("wills").len(), many + 2);
    sweep(&bench.contents).await;
    assert_eq!(
        bench.contents.wills().await.expect("wills").len(),
        1,
        "the others are gone"
    );
    assert!(session.get_task(&long).await.is_ok());
    bench.clock.advance(1_000);
    assert_eq!(sweep(&bench.contents).await.len(), 1);
    assert_eq!(session.get_task(&long).await, Err(Error::UnknownSession));
}

pub(crate) async fn as_many_tasks_as_there_may_be<B: Backend>(backend: B) {
    let bench = Bench::with(
        backend,
        Limits {
            tasks: 3,
            message_bytes: 100,
            ..Limits::default()
        },
    );
    let session = bench.session("s").await;
    let mut tasks = Vec::new();
    for _ in 0..3 {
        tasks.push(session.task(None).await.expect("created"));
        bench.clock.advance(1);
    }
    let refused = session.task(None).await.expect_err("all are under way");
    assert!(
        matches!(refused, Error::QuotaExceeded { limit: 3, .. }),
        "{refused}"
    );
    for task in [&tasks[2], &tasks[1]] {
        session
            .end_task(task, completed("{}"))
            .await
            .expect("ended");
        bench.clock.advance(1);
    }
    session
        .task(None)
        .await
        .expect("the one goes that ended first");
    assert_eq!(session.get_task(&tasks[2]).await, Err(Error::UnknownTask));
    assert!(session.get_task(&tasks[1]).await.is_ok());
    let text = format!(r#""{}""#, "x".repeat(99));
    let large = session
        .end_task(&tasks[0], completed(&text))
        .await
        .expect_err("too large");
    assert!(
        matches!(large, Error::QuotaExceeded { limit: 100, .. }),
        "{large}"
    );
    for key in 0..TASK_INPUTS_MAX {
        let ask = vec![ask(&key.to_string(), "{}")];
        session
            .update_task(UpdateTaskRequest {
                ask,
                ..session.change(&tasks[0])
            })
            .await
            .expect("asked");
    }
    let many = UpdateTaskRequest {
        ask: vec![ask("more", "{}")],
        ..session.change(&tasks[0])
    };
    assert!(matches!(
        session.update_task(many).await,
        Err(Error::QuotaExceeded { .. })
    ));
    let long = "x".repeat(TASK_MESSAGE_MAX + 1);
    let wordy = UpdateTaskRequest {
        message: Some(long),
        ..session.change(&tasks[0])
    };
    assert!(matches!(
        session.update_task(wordy).await,
        Err(Error::InvalidArgument { .. })
    ));
    let asked = vec![ask("at its end", "{}")];
    let both = UpdateTaskRequest {
        ask: asked,
        end: Some(TaskEnd::Cancelled),
        ..session.change(&tasks[0])
    };
    assert!(matches!(
        session.update_task(both).await,
        Err(Error::InvalidArgument { .. })
    ));
    assert!(matches!(
        session.task(Some(0)).await,
        Err(Error::InvalidArgument { .. })
    ));
    assert_eq!(
        session
            .end_task(&tasks[0], Some(TaskEnd::Cancelled))
            .await
            .expect("ended")
            .status,
        TaskStatus::Cancelled
    );
}

pub(crate) async fn tasks_are_listed_in_pages<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let mut tasks = Vec::new();
    for _ in 0..130 {
        tasks.push(session.task(None).await.expect("created"));
    }
    session
        .end_task(&tasks[0], completed(RESULT))
        .await
        .expect("ended");
    tasks.sort();
    let first = session.list_tasks(None).await;
    let second = session
        .list_tasks(first.last().map(|task| task.task.clone()))
        .await;
    assert_eq!((first.len(), second.len()), (100, 30));
    assert!(
        first
            .iter()
            .chain(&second)
            .map(|task| &task.task)
            .eq(&tasks)
    );
    assert!(
        first
            .iter()
            .chain(&second)
            .all(|task| task.result.is_none()),
        "lists have no results"
    );
}

pub(crate) async fn whoever_waits_for_a_task_is_told_of_its_changes<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let task = session.task(None).await.expect("created");
    let wait = |session: &Visit, version| {
        let (session, request) = (session.clone(), session.wait_for_task(&task, version));
        async move { session.contents.wait_task(&session.access, &request).await }
    };
    assert_eq!(
        wait(&session, 0)
            .await
            .expect("it has another version")
            .version,
        1
    );
    let mut through = vec![session.clone()];
    if bench.store().is_shared() {
        through.push(session.through(&bench.beside().await));
    }
    let waiting: Vec<_> = through
        .iter()
        .map(|session| tokio::spawn(wait(session, 1)))
        .collect();
    let ended = session
        .end_task(&task, completed(RESULT))
        .await
        .expect("ended");
    for waiting in waiting {
        assert_eq!(waiting.await.expect("no panic"), Ok(ended.clone()));
    }
    assert_eq!(
        wait(&session, ended.version).await,
        Ok(ended),
        "nothing will change any more"
    );
    let brief = session.task(Some(100)).await.expect("created");
    let request = session.wait_for_task(&brief, 1);
    let (waiter, began) = (session.clone(), Instant::now());
    let waiting =
        tokio::spawn(async move { waiter.contents.wait_task(&waiter.access, &request).await });
    tokio::task::yield_now().await;
    bench.clock.advance(100);
    assert_eq!(waiting.await.expect("no panic"), Err(Error::UnknownTask));
    assert!(
        began.elapsed() < Duration::from_secs(12),
        "it was not for want of time"
    );
}
