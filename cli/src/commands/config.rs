//! `mcp-sessiond config`: the settings in force.

use std::process::ExitCode;

use clap::Args;
use mcp_sessiond_proto::debug::Setting;

use crate::calls::{ANSWER_TIMEOUT, print_answer};
use crate::ui::output::json_or;
use crate::ui::table::listing_or;

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0; 69 no daemon. Which settings there are: docs/settings.md.

Example: mcp-sessiond config --json | jq '.[] | select(.source != \"default\")'")]
pub(crate) struct Arguments {
    /// Print JSON: name, value, source
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    print_answer(async |connection, _| {
        let settings = connection.settings(ANSWER_TIMEOUT).await?;
        Ok(json_or(arguments.json, &settings, |rows| text(rows)))
    })
}

fn text(settings: &[Setting]) -> String {
    let row = |setting: &Setting| {
        vec![
            setting.name.clone(),
            setting.value.clone(),
            setting.source.clone(),
        ]
    };
    listing_or(
        &["setting", "value", "source"],
        settings.iter().map(row),
        "No settings.",
    )
}
