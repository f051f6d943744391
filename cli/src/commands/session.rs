//! `mcp-sessiond session`: the sessions of a service, for what has no library.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use mcp_sessiond_client::{Directory, ServiceName, Start, connect};
use mcp_sessiond_proto::debug::SweepRequest;

use crate::calls::{ANSWER_TIMEOUT, Failure};
use crate::exit_code::{DATA_ERROR, RESUME_DISABLED};
use crate::runtime::block_on;
use crate::ui::output::{print, warn};
use crate::ui::time::{as_ms, parse_duration};

#[derive(Debug, Args)]
#[command(after_help = "Example: mcp-sessiond session expire --older-than 1h --service web")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// End the sessions of a service that nobody uses now, or has used for some time; print their
    /// ids, one on each line
    #[command(after_help = "\
What the sessions hold goes with them. Sessions of other services, and of hosts, stay.

Exit codes: 0; 4 no daemon answers; 65 refused.

Example, in a crontab: mcp-sessiond session expire --older-than 1h --service web")]
    Expire {
        /// Only those that nobody has used for this long: a number with ms, s, m, h or d
        #[arg(long, value_name = "TIME", value_parser = parse_duration)]
        older_than: Duration,
        /// The service whose sessions are meant
        #[arg(long, value_name = "NAME")]
        service: ServiceName,
    },
}

pub(crate) fn run(arguments: Arguments) -> ExitCode {
    let Verb::Expire {
        older_than,
        service,
    } = arguments.verb;
    match block_on(expire(service, older_than)) {
        Ok(Ok(ended)) => print(&ended),
        Ok(Err(failure)) => {
            warn(&failure);
            ExitCode::from(if matches!(failure, Failure::Refused(_)) {
                DATA_ERROR
            } else {
                RESUME_DISABLED
            })
        }
        Err(error) => {
            warn(error);
            ExitCode::from(RESUME_DISABLED)
        }
    }
}

async fn expire(service: ServiceName, older_than: Duration) -> Result<String, Failure> {
    let connection = connect(&Directory::of_user()?, &Start::Never).await?;
    let request = SweepRequest {
        service: Some(service),
        older_than_ms: Some(as_ms(older_than)),
    };
    let ended = connection.sweep(ANSWER_TIMEOUT, request).await??;
    Ok(ended
        .iter()
        .map(|one| format!("{}\n", one.session))
        .collect())
}
