//! What the user is told on standard error, in words that all fronts share.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::sync::Arc;

use mcp_sessiond_client::{Loss, Outcome};
use mcp_sessiond_process::PinnedProcess;
use mcp_sessiond_proto::paths;
use mcp_sessiond_proto::{LossId, LossRecord, begins_afresh};

use crate::frames::FrameSender;
use crate::stderr::{NamedStderr, Stderr, sentence};
pub(crate) use crate::unkept::FailedNote;
use crate::unkept::{self, Unkept};

/// Prints a sentence to standard error, as long as nothing would have to wait for that.
pub(crate) fn print(what: &dyn Display) {
    let _ = io::stderr().write_all(sentence(what).as_bytes());
}

/// A loss that a claim has carried, and what says that it was told.
pub(crate) struct CarriedLoss {
    /// Why.
    pub(crate) because: Loss,
    /// Its number, where it is on record.
    pub(crate) id: Option<LossId>,
    confirm: Box<dyn FnOnce() + Send + Sync>,
}

impl CarriedLoss {
    /// Once it was told, `confirm` is called.
    pub(crate) fn new(
        because: Loss,
        id: Option<LossId>,
        confirm: impl FnOnce() + Send + Sync + 'static,
    ) -> Self {
        let confirm = Box::new(confirm);
        Self {
            because,
            id,
            confirm,
        }
    }

    /// Says that it was told.
    pub(crate) fn told(self) {
        (self.confirm)();
    }
}

/// What the host's user should know of how the session was got. False: nothing.
pub(crate) fn print_claim(
    stderr: &NamedStderr,
    loss: Option<CarriedLoss>,
    outcome: Option<Outcome>,
) -> bool {
    match (loss, outcome) {
        (Some(loss), _) => {
            stderr.print_then(&loss.because.notice(), move || loss.told());
        }
        (None, Some(Outcome::FreshDoubtful)) => stderr.print(
            &"this server will not survive a reconnect: what it was started with can't be read; \
              `mcp-sessiond doctor` says which part, and `--instance NAME` may help",
        ),
        (None, _) => return false,
    }
    true
}

/// Says that a loss was told.
pub(crate) type ConfirmLoss = Arc<dyn Fn(LossId) + Send + Sync>;

/// Tells what was lost of the members of a list, each by its name.
pub(crate) fn print_lost_members(
    stderr: &Stderr,
    lost: Vec<LossRecord>,
    confirm: Option<&ConfirmLoss>,
) {
    for loss in lost.into_iter().filter(|loss| loss.of.is_some()) {
        let confirm = confirm.cloned();
        stderr.print_then(&loss.notice(), move || {
            confirm.into_iter().for_each(|confirm| confirm(loss.id));
        });
    }
}

/// Tells of servers that have ended without anybody telling their host so far. The keeper hears of
/// it by `sender`.
pub(crate) fn print_ended(stderr: &NamedStderr, ended: &[String], sender: Arc<FrameSender>) {
    let [.., last] = ended else { return };
    let former = match ended.len() {
        1 => "the previous one has ended".to_owned(),
        all => format!("the {all} previous ones have ended"),
    };
    let what = begins_afresh(&format!("{former} ({last})"));
    let ends = ended.len() as u64;
    stderr.print_then(&what, move || sender.heard(ends));
}

/// A time for people: its largest unit.
pub(crate) fn duration(ms: u64) -> String {
    let units = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "min"),
        (1_000, "s"),
    ];
    let unit = units.into_iter().find(|(of, _)| ms >= *of);
    unit.map_or_else(
        || format!("{ms} ms"),
        |(of, name)| format!("{} {name}", ms / of),
    )
}

/// Notes that the command runs unkept, where `status` finds it.
pub(crate) fn note_unkept(program: String, why: &dyn Display) {
    if let (Ok(directory), Ok(own)) = (paths::directory(), PinnedProcess::own()) {
        unkept::note(&directory, &Unkept::now(&own, program, why));
    }
}

/// Notes that the server could not be started, in the same place, for as long as what it returns
/// lives.
pub(crate) fn note_failed(server: String, why: &dyn Display) -> Option<FailedNote> {
    let (directory, own) = (paths::directory().ok()?, PinnedProcess::own().ok()?);
    unkept::note_failed(&directory, Unkept::now(&own, server, why))
}
