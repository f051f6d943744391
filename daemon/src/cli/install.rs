//! stub
use clap::Args;
use std::process::ExitCode;
#[derive(Debug, Args)]
pub(super) struct Arguments {}
#[derive(Debug, Args)]
pub(super) struct UninstallArguments {}
pub(super) fn install(_: &Arguments) -> ExitCode {
    ExitCode::FAILURE
}
pub(super) fn installed() -> Option<std::path::PathBuf> {
    None
}
pub(super) fn uninstall(_: &UninstallArguments) -> ExitCode {
    ExitCode::FAILURE
}
