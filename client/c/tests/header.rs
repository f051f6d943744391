//! `include/mcp_sessiond.h` is what cbindgen makes of the code. `make header` writes it.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// Set to 1, the header is written anew.
const WRITE: &str = "MCP_SESSIOND_WRITE_HEADER";

#[test]
fn the_header_is_what_the_code_says() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let settings =
        cbindgen::Config::from_file(package.join("cbindgen.toml")).expect("cbindgen.toml");
    let made = cbindgen::Builder::new()
        .with_config(settings)
        .with_src(package.join("src/values.rs"))
        .with_src(package.join("src/ffi.rs"))
        .generate()
        .expect("a header");
    let mut text = Vec::new();
    made.write(&mut text);
    let made = String::from_utf8(text).expect("UTF-8");
    let header: PathBuf = package.join("include/mcp_sessiond.h");
    if env::var_os(WRITE).is_some_and(|value| value == "1") {
        fs::write(&header, &made).expect("it can be written");
    }
    let there = fs::read_to_string(&header).expect("include/mcp_sessiond.h");
    assert!(
        there == made,
        "include/mcp_sessiond.h is not what the code says; run `make header` in client/c"
    );
}
