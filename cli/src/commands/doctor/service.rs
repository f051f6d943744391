//! The user service, where it is installed: whether what it starts is there, and which version that
//! is.

use super::{Finding, Findings, Outcome};
use crate::service_manager;
use crate::version::{self, OWN};

pub(super) async fn check(findings: &mut Findings) {
    findings.add(daemon().await);
    for (name, fault) in service_manager::serve_services() {
        let name = name.as_str();
        findings.add(match fault {
            Some(fault) => broken("serve", fault),
            None => Finding::ok("serve", format!("the service of {name} runs")),
        });
    }
}

async fn daemon() -> Finding {
    let Some(unit) = service_manager::installed() else {
        return Finding::ok(
            "service",
            "not installed, which is fine: the first program that needs a daemon starts one",
        );
    };
    let again = "`mcp-sessiond install`";
    let binary = service_manager::executable();
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
        && version != OWN
    {
        return Finding::note(
            "service",
            format!(
                "the service starts {}, which is version {version}; this executable is {OWN}",
                binary.display()
            ),
            format!("{again} with the one that you want"),
        );
    }
    if let Some(fault) = service_manager::fault() {
        return broken("service", fault);
    }
    match binary {
        Some(binary) => Finding::ok(
            "service",
            format!("installed, and starts {}", binary.display()),
        ),
        None => Finding::ok("service", format!("installed as {}", unit.display())),
    }
}

fn broken(check: &'static str, fault: service_manager::Fault) -> Finding {
    let service_manager::Fault {
        finding,
        advice,
        is_grave,
    } = fault;
    let outcome = if is_grave {
        Outcome::Problem
    } else {
        Outcome::Note
    };
    Finding {
        check,
        outcome,
        what: finding,
        fix: Some(advice),
    }
}
