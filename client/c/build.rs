//! How the shared library is linked.

use std::env;

/// The number in the library's name: it changes when a program that was built with a former header
/// would break.
const ABI: u32 = 0;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_CAPI").is_some() {
        return;
    }
    match env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("macos") => {
            println!(
                "cargo:rustc-cdylib-link-arg=-Wl,-install_name,@rpath/libmcp_sessiond.{ABI}.dylib"
            );
        }
        _ => {
            println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmcp_sessiond.so.{ABI}");
            // dlclose leaves it where it is: our thread may still be about to return, into code of
            // ours.
            println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
        }
    }
}
