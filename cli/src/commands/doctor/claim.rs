//! A claim and a write for real, in a session that nobody else can get and that is gone afterwards;
//! and which host is found from here.

use mcp_sessiond_client::{
    ClaimRequest, Connection, Error, Json, Options, Reason, SessionError, Sessiond, Siblings,
    Start, StateKey, Status,
};
use mcp_sessiond_proto::debug::WhoAmI;

use super::{CallerArgs, Finding, Findings, page};
use crate::calls::ANSWER_TIMEOUT;

pub(super) async fn check(connection: &Connection, asked: &CallerArgs, findings: &mut Findings) {
    let request = ClaimRequest {
        instance: asked.instance,
        label: asked.label.clone(),
        ..ClaimRequest::default()
    };
    let is_host_found = match connection.who_am_i(ANSWER_TIMEOUT, request).await {
        Ok(Ok(who)) => {
            findings.add(host(&who, asked));
            if asked.instance.is_some() || asked.label.is_some() {
                findings.add(key(&who));
            }
            who.host_doubt.is_none()
        }
        Ok(Err(error)) => {
            let fix = "`mcp-sessiond doctor --for $$` in a shell script names the script itself";
            findings.add(Finding::problem("host", error.to_string(), fix));
            false
        }
        Err(error) => {
            let fix = "`mcp-sessiond logs` shows its log";
            findings.add(Finding::problem(
                "daemon",
                format!("the daemon does not answer: {error}"),
                fix,
            ));
            return;
        }
    };
    // What is known to be wrong with records would only be said a second time.
    if is_host_found && !findings.has_problem("records") {
        let with_state = !findings.has_problem("storage");
        if let Some(finding) = claim(with_state).await {
            findings.add(finding);
        }
    }
}

/// Claims, writes, reads, removes, and gives up. None: no host is found for this very process,
/// which was said.
async fn claim(with_state: bool) -> Option<Finding> {
    let label = format!("mcp-sessiond-doctor-{}", std::process::id())
        .parse()
        .ok()?;
    // It ends when it is given up, or with this process.
    let options = Options::default()
        .label(label)
        .siblings(Siblings::Never)
        .start(Start::Never);
    let sessiond = Sessiond::init(options);
    let Some(session) = sessiond.session().await else {
        let why = match sessiond.status() {
            Status::Disabled { reason }
                if matches!(&*reason, Reason::Refused(Error::NoVerifiedHost { .. })) =>
            {
                return None;
            }
            Status::Disabled { reason } => reason.to_string(),
            status => status.to_string(),
        };
        return Some(Finding::problem(
            "claim",
            format!("no session could be claimed: {why}"),
            "`mcp-sessiond logs` shows the daemon's log; servers run without being kept meanwhile",
        ));
    };
    let outcome = if with_state {
        Some(write(&session).await)
    } else {
        None
    };
    sessiond.release().await;
    Some(match outcome {
        None => Finding::ok("claim", "a session was claimed and given up again"),
        Some(Ok(true)) => Finding::ok(
            "claim",
            "a session was claimed, a value written, read and removed, and the session given up",
        ),
        Some(Ok(false)) => Finding::problem(
            "claim",
            "a value that was written to a session was not there when it was read",
            "`mcp-sessiond debug about` says where the storage is; please report this, with what `mcp-sessiond doctor --json` prints",
        ),
        Some(Err(error)) => Finding::problem(
            "claim",
            format!("a session was claimed, but nothing could be written to it: {error}"),
            "look at the storage: `mcp-sessiond debug about` says where it is",
        ),
    })
}

/// Whether what was written is read.
async fn write(session: &mcp_sessiond_client::Session) -> Result<bool, SessionError> {
    const KEY: &str = "doctor";
    let (Ok(key), Ok(value)) = (KEY.parse::<StateKey>(), Json::new("{\"tried\":true}")) else {
        return Ok(false);
    };
    session.set(&key, &value).await?;
    let read = session.get(&key).await?;
    session.remove(&key).await?;
    let is_gone = session.get(&key).await?.is_none();
    Ok(read.is_some_and(|read| read.as_str() == value.as_str()) && is_gone)
}

fn host(who: &WhoAmI, asked: &CallerArgs) -> Finding {
    let step = |step: &mcp_sessiond_proto::debug::Step| {
        format!("{} {} ({})", step.name, step.pid, step.role)
    };
    let walk: Vec<String> = who.walk.iter().map(step).collect();
    let walk = walk.join(" < ");
    let Some(doubt) = &who.host_doubt else {
        return Finding::ok("host", format!("found from here: {walk}"));
    };
    let what =
        format!("no host can be verified from here ({doubt}), so nothing was claimed: {walk}");
    if asked.instance.is_some() {
        return Finding::problem(
            "host",
            what,
            format!(
                "start the server from its host, or see the settings `launchers`, `adopters` and `pid1_is_host`; {}",
                page("settings")
            ),
        );
    }
    Finding::note(
        "host",
        what,
        "nothing, if no host started this command; to try for real, run `mcp-sessiond doctor` in a terminal",
    )
}

fn key(who: &WhoAmI) -> Finding {
    match (&who.key, &who.key_doubt) {
        (Some(key), _) => Finding::ok("key", format!("{key} for process {}", who.instance)),
        (None, doubt) => Finding::note(
            "key",
            format!(
                "what distinguishes this server from others can't be read: {}",
                doubt.as_deref().unwrap_or("unknown")
            ),
            "give the instance a label (`--instance NAME`), so that its session can be resumed",
        ),
    }
}
