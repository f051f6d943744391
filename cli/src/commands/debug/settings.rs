//! `mcp-sessiond debug config`: the settings in force.

use std::process::ExitCode;

use mcp_sessiond_daemon::config;
use mcp_sessiond_proto::debug::Setting;

use crate::exit_code::USAGE;
use crate::ui::output::{json_or, print, warn};
use crate::ui::table::listing_or;

pub(super) const HELP: &str = "\
The values are those in force. The daemon reads its file again at SIGHUP; a setting that applies only at its start then has a second column, with the new value. Servers that run keep the `backends.*` with which they were started; each `wrap` and `serve` reads `wrap.*`, `bundle.*` and \
`http.*` when it starts.

If no daemon runs, they are those that the next one will start with, and a line on standard error says so.

Example:
  mcp-sessiond debug config --json | jq '.[] | select(.source != \"default\")'";

/// The settings that a daemon would have which is started now.
pub(super) fn of_file(json: bool) -> ExitCode {
    let path = config::usual_path();
    match config::load(path.as_deref(), &[]) {
        Ok(loaded) => {
            warn(
                "no daemon runs, which is normal while no server is kept; these are the settings that the next one starts with",
            );
            print(&json_or(json, &loaded.settings(), |rows| text(rows)))
        }
        Err(error) => {
            warn(error);
            ExitCode::from(USAGE)
        }
    }
}

pub(super) fn text(settings: &[Setting]) -> String {
    // Nearly always there is nothing that waits for a restart.
    let waits = settings.iter().any(|setting| setting.pending.is_some());
    let row = |setting: &Setting| {
        let pending = setting.pending.clone().unwrap_or_default();
        let cells = [
            setting.name.clone(),
            setting.value.clone(),
            setting.source.clone(),
        ];
        cells.into_iter().chain(waits.then_some(pending)).collect()
    };
    let titles = [
        "setting",
        "value",
        "source",
        "after a restart of the daemon",
    ];
    let shown = if waits { &titles[..] } else { &titles[..3] };
    listing_or(shown, settings.iter().map(row), "No settings.")
}
