//! stub
use clap::Args;
use std::process::ExitCode;
#[derive(Debug, Args)]
pub(super) struct Arguments {}
pub(super) fn run(_: &Arguments) -> ExitCode { ExitCode::FAILURE }
