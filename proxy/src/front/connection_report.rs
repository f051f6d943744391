//! What the host's user should know of a connection to a keeper: what was lost, and what the server
//! there is.

use std::sync::Arc;

use mcp_sessiond_client::{Loss, Outcome};
use mcp_sessiond_proto::LossId;
use mcp_sessiond_proto::backends::Attached;

use super::drive::Reports;
use crate::frames::FrameSender;
use crate::notices::{CarriedLoss, duration, print_claim, print_ended};
use crate::server::connector::Attachment;
use crate::stderr::NamedStderr;

/// Variables that are named when they differ. Another host may have dozens of its own.
const NAMES_SHOWN: usize = 8;

/// What a claim of the front's own has told, which none of its connections tells again.
#[derive(Debug, Clone, Default)]
pub(crate) struct ToldByClaim {
    /// What was lost of the session: of which of its servers, each of them shows.
    pub(crate) session_loss: Option<Loss>,
    /// Whether it was told that this server was lost.
    pub(crate) is_told: bool,
    pub(crate) losses: Vec<LossId>,
}

/// What a connection has to report on `to`, again and again. `told`: where the front has claimed its
/// session before it has connected.
pub(crate) fn reports(to: NamedStderr, mut told: Option<ToldByClaim>) -> Reports {
    Box::new(move |attachment, again| {
        let report = ConnectionReport::of(attachment, again, told.as_ref());
        // The first connection alone is the claim's.
        if let Some(ToldByClaim {
            session_loss,
            is_told,
            ..
        }) = &mut told
        {
            (*session_loss, *is_told) = (None, false);
        }
        let to = to.clone();
        Box::new(move || report.print(&to))
    })
}

/// What there is to be known of one connection.
struct ConnectionReport {
    /// What has happened if this front had a server before.
    again: Option<&'static str>,
    loss: Option<CarriedLoss>,
    outcome: Option<Outcome>,
    session_loss: Option<Loss>,
    is_told: bool,
    attached: Attached,
    /// How the keeper hears that its host was told.
    sender: Arc<FrameSender>,
    differing: Vec<String>,
    /// By which name `mcp-sessiond restart` finds the server.
    server: Option<String>,
}

impl ConnectionReport {
    fn of(
        attachment: &mut Attachment,
        again: Option<&'static str>,
        told: Option<&ToldByClaim>,
    ) -> Self {
        let is_new = |loss: &CarriedLoss| {
            let told = told.into_iter().flat_map(|told| &told.losses);
            loss.because.is_rule() || !told.copied().any(|told| loss.id == Some(told))
        };
        let attached = attachment.attached.clone();
        let is_told = told.is_some_and(|told| told.is_told);
        let is_lost = !is_told && !attached.resumed;
        Self {
            // This front has seen it, whoever was told.
            loss: attachment
                .loss
                .take()
                .filter(|loss| again.is_some() || is_new(loss)),
            again,
            outcome: told.is_none().then_some(attachment.outcome),
            session_loss: told.and_then(|told| told.session_loss).filter(|_| is_lost),
            is_told,
            attached,
            sender: attachment.sender.clone(),
            differing: std::mem::take(&mut attachment.differing),
            server: attachment.server.take(),
        }
    }

    fn print(self, to: &NamedStderr) {
        let Self {
            again,
            loss,
            outcome,
            session_loss,
            is_told,
            attached,
            sender,
            differing,
            server,
        } = self;
        let has_told = match (again, loss) {
            // This front has seen it.
            (Some(again), Some(loss)) if !loss.because.is_rule() => {
                to.print_then(&again, move || loss.told());
                true
            }
            (_, loss) => print_claim(to, loss, outcome),
        };
        // A former keeper's end is one loss, and that of a server of this keeper another one.
        if !attached.ended.is_empty() {
            print_ended(to, &attached.ended, sender);
        } else if has_told {
            // That says why it is a fresh one.
        } else if let Some(again) = again {
            to.print(&again);
        } else if let Some(loss) = session_loss {
            let why = loss.sentence();
            to.print(&format_args!("this server begins afresh: {why}"));
        } else if let Some(why) = attached.fresh {
            to.print(&format_args!("this is a fresh server: {why}"));
        } else if attached.resumed && !is_told {
            let age = duration(attached.age_ms);
            let server = server.as_deref().map_or_else(String::new, as_word);
            to.print(&format_args!(
                "resumed the server that has been running for {age}; `mcp-sessiond restart{server}` gives a fresh one"
            ));
        }
        if let Some(names) = listed(&differing) {
            to.print(&format_args!(
                "the server has the environment of its first start, in which these variables differ: {names}; `--fresh` gives one with \
                 yours"
            ));
        }
        match attached.lost {
            0 => {}
            1 => {
                to.print(&"a message was on its way when the previous connection ended, and may not have arrived");
            }
            lost => to.print(&format_args!(
                "{lost} messages were on their way when the previous connection ended, and may not have arrived"
            )),
        }
    }
}

/// A name as a word of a command line, with a space before it.
fn as_word(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./-_#".contains(c);
    match !name.is_empty() && name.chars().all(is_plain) && !name.starts_with('-') {
        true => format!(" {name}"),
        false => format!(" '{}'", name.replace('\'', r"'\''")),
    }
}

/// Names for people: the first of them. None where there are none.
fn listed(names: &[String]) -> Option<String> {
    let shown = names.get(..NAMES_SHOWN).unwrap_or(names).join(", ");
    match names.len() {
        0 => None,
        all if all <= NAMES_SHOWN => Some(shown),
        all => Some(format!("{shown} and {} more", all - NAMES_SHOWN)),
    }
}
