//! The user service, where it is installed: whether what it starts is there, and which version that
//! is.

use super::super::install;
use super::super::version::{self, OURS};
use super::{Finding, Findings, Outcome};

pub(super) async fn look(findings: &mut Findings) {
    findings.add(daemon().await);
    for (name, ailment) in install::served() {
        let name = name.as_str();
        findings.add(match ailment {
            Some(ailment) => ailed("serve", ailment),
            None => Finding::ok("serve", format!("the service of {name} runs")),
        });
    }
}

async fn daemon() -> Finding {
    let Some(unit) = install::installed() else {
        return Finding::ok(
            "service",
            "not installed, which is fine: the first program that needs a daemon starts one",
        );
    };
    let again = "`mcp-sessiond install`";
    let binary = install::executable();
    if let Some(binary) = binary
        .as_deref()
        .filter(|binary| !version::is_program(binary))
    {
        let what = format!(
            "the service that is installed starts {}, which is not there",
            binary.display()
        );
        return Finding::problem(
            "service",
            what,
            format!("{again} rewrites it for this executable"),
        );
    }
    let version = match &binary {
        Some(binary) => version::of(binary).await,
        None => None,
    };
    if let (Some(binary), Some(version)) = (&binary, &version)
        && version != OURS
    {
        return Finding::note(
            "service",
            format!(
                "the service starts {}, which is version {version}; this executable is {OURS}",
                binary.display()
            ),
            format!("{again} with the one that you want"),
        );
    }
    if let Some(ailment) = install::ailment() {
        return ailed("service", ailment);
    }
    match binary {
        Some(binary) => Finding::ok(
            "service",
            format!("installed, and starts {}", binary.display()),
        ),
        None => Finding::ok("service", format!("installed as {}", unit.display())),
    }
}

fn ailed(check: &'static str, ailment: install::Ailment) -> Finding {
    let install::Ailment {
        finding,
        advice,
        is_grave,
    } = ailment;
    let outcome = if is_grave {
        Outcome::Problem
    } else {
        Outcome::Note
    };
    Finding {
        check,
        outcome,
        what: finding,
        mend: Some(advice),
    }
}
