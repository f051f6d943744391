//! The unit of `serve` under a name.

use super::{fill, place, quoted};
use crate::service_manager::Service;
use crate::service_manager::serve_unit::{Name, ServeCommand};

const UNIT: &str = include_str!("../../../../systemd/mcp-sessiond-serve@.service");

/// The unit's name.
pub(super) fn called(name: &Name) -> String {
    format!("mcp-sessiond-serve@{}.service", name.as_str())
}

/// The name of the service whose unit is called so.
pub(super) fn named(unit: &str) -> Option<Name> {
    unit.strip_prefix("mcp-sessiond-serve@")?
        .strip_suffix(".service")?
        .parse()
        .ok()
}

pub(super) fn unit(service: &Service, served: &ServeCommand) -> String {
    let words = served
        .arguments
        .iter()
        .map(|word| argument(word))
        .collect::<Vec<_>>()
        .join(" ");
    let command = format!("ExecStart={} serve {words}", quoted(&service.binary));
    let filled = [
        ("ExecStart=", command),
        (
            "WorkingDirectory=",
            format!("WorkingDirectory={}", served.directory.replace('%', "%%")),
        ),
        (
            "Environment=",
            format!("Environment={}", quoted(&format!("PATH={}", served.path))),
        ),
    ];
    let unit = filled
        .iter()
        .fold(UNIT.to_owned(), |unit, (key, line)| fill(&unit, key, line));
    place(unit, service)
}

/// A word of a command line, in which systemd would put variables.
fn argument(word: &str) -> String {
    quoted(&word.replace('$', "$$"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_arrives_as_it_was_given() {
        let service = Service {
            binary: "/opt/mcp-sessiond".into(),
            directory: "/tmp/m".into(),
            named: true,
        };
        let arguments =
            ["--name", "x", "--", "sh", "-c", "echo $A \"b\"\n%h", ""].map(String::from);
        let served = ServeCommand {
            arguments: arguments.into(),
            directory: "/home/100% me".into(),
            path: "/a b:/c".into(),
            at: String::new(),
        };
        let unit = unit(&service, &served);
        let lines: Vec<&str> = unit.lines().collect();
        for line in [
            r#"ExecStart=/opt/mcp-sessiond serve --name x -- sh -c "echo $$A \"b\"\n%%h" """#,
            "WorkingDirectory=/home/100%% me",
            r#"Environment="PATH=/a b:/c""#,
            "Environment=MCP_SESSIOND_DIR=/tmp/m",
        ] {
            assert!(lines.contains(&line), "{line}\n{unit}");
        }
    }

    #[test]
    fn a_unit_is_called_by_its_service() {
        let name: Name = "my-notes.v2".parse().expect("a name");
        assert_eq!(called(&name), "mcp-sessiond-serve@my-notes.v2.service");
        assert_eq!(named(&called(&name)), Some(name));
        assert_eq!(named("mcp-sessiond-serve@.service"), None);
    }
}
