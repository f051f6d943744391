//! The agent of `serve` under a name.

use super::{escaped, fill};
use crate::service_manager::Service;
use crate::service_manager::serve_unit::{Name, ServeCommand};

const PLIST: &str = include_str!("../../../../launchd/io.github.mcp-sessiond.serve.plist");

/// What stands before the name in the agent's label.
const PREFIX: &str = "io.github.mcp-sessiond.serve.";

/// The agent's label.
pub(super) fn called(name: &Name) -> String {
    format!("{PREFIX}{}", name.as_str())
}

/// The name of the service whose file is called so.
pub(super) fn named(file: &str) -> Option<Name> {
    file.strip_prefix(PREFIX)?
        .strip_suffix(".plist")?
        .parse()
        .ok()
}

pub(super) fn plist(name: &Name, service: &Service, served: &ServeCommand, log: &str) -> String {
    let words = served
        .arguments
        .iter()
        .map(|word| format!("<string>{}</string>", escaped(word)));
    let words = words.collect::<Vec<_>>().join("\n\t\t");
    let plist = fill(
        PLIST,
        &[
            ("io.github.mcp-sessiond.serve.NAME", &called(name)),
            ("/Users/YOU/.cargo/bin/mcp-sessiond", &service.binary),
            (
                "/Users/YOU/Library/Application Support/mcp-sessiond",
                &service.directory,
            ),
            ("/usr/bin:/bin", &served.path),
            ("/Users/YOU", &served.directory),
            ("/Users/YOU/Library/Logs/mcp-sessiond.log", log),
        ],
    );
    plist.replace("<string>COMMAND</string>", &words)
}

#[cfg(test)]
mod tests {
    use super::super::tests::parsed;
    use super::*;

    #[test]
    #[ignore = "needs python3"]
    fn every_example_of_the_template_is_replaced() {
        let service = Service {
            binary: "/opt/mcp-sessiond".into(),
            directory: "/Users/me/d".into(),
            named: false,
        };
        let served = ServeCommand {
            arguments: ["--name", "x", "--", "a&b"].map(String::from).into(),
            directory: "/Users/me/w".into(),
            path: "/p:/q".into(),
            at: String::new(),
        };
        let plist = plist(
            &"x".parse().expect("a name"),
            &service,
            &served,
            "/Users/me/log",
        );
        let values = plist
            .lines()
            .map(str::trim)
            .filter(|line| line.starts_with("<string>"));
        let values: Vec<&str> = values
            .map(|value| &value["<string>".len()..value.len() - "</string>".len()])
            .collect();
        assert_eq!(
            values,
            [
                "io.github.mcp-sessiond.serve.x",
                "/opt/mcp-sessiond",
                "serve",
                "--name",
                "x",
                "--",
                "a&amp;b",
                "/Users/me/d",
                "/p:/q",
                "/Users/me/w",
                "/Users/me/log",
            ]
        );
        let read = parsed(&plist);
        let words = ["/opt/mcp-sessiond", "serve", "--name", "x", "--", "a&b"];
        assert_eq!(read["ProgramArguments"], serde_json::json!(words));
        assert_eq!(read["EnvironmentVariables"]["PATH"], "/p:/q");
    }
}
