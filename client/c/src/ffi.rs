//! The functions that C calls: the one file with `unsafe` code. Each reads what it was pointed to,
//! does the rest in safe code, and gives back a number. Nothing panics across.
//!
//! What a pointer points to can't be checked, other than that it is not NULL: that it is valid is
//! the caller's part, which the header states. "By the header" below means this.
#![allow(unsafe_code, reason = "C calls this, and hands over pointers")]
#![allow(
    clippy::not_unsafe_ptr_arg_deref,
    reason = "nothing in Rust calls them, and `unsafe` means nothing to C"
)]
#![allow(non_camel_case_types, reason = "these are the names in the header")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{self, MaybeUninit};
use std::{ptr, slice};

use mcp_sessiond_client::{Options, Status, Token};

use crate::failure::{self, Failure};
use crate::panics;
use crate::settings::Settings;
use crate::status::to_c;
use crate::values::mcp_sessiond_result::{self, *};
use crate::values::{
    MCP_SESSIOND_TEXT_SIZE, MCP_SESSIOND_VERSION_MAJOR, MCP_SESSIOND_VERSION_MINOR,
    MCP_SESSIOND_VERSION_PATCH, mcp_sessiond_log, mcp_sessiond_options, mcp_sessiond_status,
};
use crate::worker::{Done, Worker};

/// The longest struct that a later version may hand over. A longer one has no size that was set.
const STRUCT_MAX: usize = 4096;

/// The bytes that these structs had at first: up to the end of what was their last field then. A
/// shorter one was never handed over.
const OPTIONS_FIRST: usize = mem::offset_of!(mcp_sessiond_options, instance) + size_of::<u32>();
const STATUS_FIRST: usize = mem::offset_of!(mcp_sessiond_status, text) + MCP_SESSIOND_TEXT_SIZE;

const _: () = {
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    let [major, minor, patch] = [
        MCP_SESSIOND_VERSION_MAJOR,
        MCP_SESSIOND_VERSION_MINOR,
        MCP_SESSIOND_VERSION_PATCH,
    ];
    assert!(
        major < 10 && minor < 10 && patch < 10 && version.len() == 5,
        "write this check anew"
    );
    assert!(
        version[0] as u32 == b'0' as u32 + major,
        "values.rs has another version than Cargo.toml"
    );
    assert!(
        version[2] as u32 == b'0' as u32 + minor,
        "values.rs has another version than Cargo.toml"
    );
    assert!(
        version[4] as u32 == b'0' as u32 + patch,
        "values.rs has another version than Cargo.toml"
    );
};

/// A server's session with the daemon, and the thread that speaks for it. Threads may share it:
/// their calls are carried out one after the other. One for a process is enough.
///
/// It has a thread of its own, in which all signals are blocked; no signal handler is installed. A
/// process that was forked has a copy that every function but `mcp_sessiond_free` refuses
/// (`MCP_SESSIOND_FORKED`), and may make its own.
pub struct mcp_sessiond {
    worker: Worker,
    log: Log,
}

/// A token that was loaded. It is yours: give it to `mcp_sessiond_token_free`.
pub struct mcp_sessiond_token {
    token: Token,
}

struct Log {
    write: mcp_sessiond_log,
    context: *mut c_void,
}

// SAFETY: the pointer is not followed, but handed to the caller's own function, in the caller's own
// thread.
unsafe impl Send for Log {}
// SAFETY: the same.
unsafe impl Sync for Log {}

impl mcp_sessiond {
    /// Gives the caller the lines that were logged for it.
    fn write_lines(&self) {
        while let Some(line) = self.worker.lines().next() {
            if let Some(write) = self.log.write {
                write(
                    self.log.context,
                    line.level,
                    failure::text(&line.text).as_ptr(),
                );
            }
        }
    }
}

/// The version of the library, as `0.1.0`. It may be another one than that of the header. Static;
/// never free it.
#[unsafe(no_mangle)]
pub extern "C" fn mcp_sessiond_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// What a `mcp_sessiond_result` means in general, in English. Static; never free it. Any number is
/// allowed.
#[unsafe(no_mangle)]
pub extern "C" fn mcp_sessiond_strerror(result: c_int) -> *const c_char {
    failure::in_general(result).as_ptr()
}

/// What was wrong with the last call of this thread that returned neither `MCP_SESSIOND_OK` nor
/// `MCP_SESSIOND_NOTHING`, and what would be right: UTF-8, empty where there was none. It has no
/// token in it. Valid until this thread's next call; never free it.
#[unsafe(no_mangle)]
pub extern "C" fn mcp_sessiond_last_error() -> *const c_char {
    panics::caught(failure::last).unwrap_or(c"".as_ptr())
}

/// Makes a handle, and starts its thread. Nothing is read, opened or asked of the daemon before the
/// first call.
///
/// `options` may be NULL: the defaults. `*sessiond` gets the handle, for `mcp_sessiond_free`, or
/// NULL where this fails: `MCP_SESSIOND_INVALID_ARGUMENT`, `MCP_SESSIOND_RESOURCES`. A server may
/// go on with NULL: the calls then return `MCP_SESSIOND_INVALID_ARGUMENT`, and do nothing.
#[unsafe(no_mangle)]
pub extern "C" fn mcp_sessiond_init(
    options: *const mcp_sessiond_options,
    sessiond: *mut *mut mcp_sessiond,
) -> mcp_sessiond_result {
    across(|| {
        // SAFETY: by the header.
        let sessiond = unsafe { written(sessiond, "sessiond") }?;
        sessiond.write(ptr::null_mut());
        // SAFETY: all of its fields may be 0: that is NULL for pointers, and None for the function.
        let mut given: mcp_sessiond_options = unsafe { mem::zeroed() };
        if !options.is_null() {
            // SAFETY: by the header.
            unsafe { take(options, &mut given, OPTIONS_FIRST) }?;
        }
        let options = given;
        // SAFETY: by the header, each is NULL or a text that ends with a NUL.
        let text = |text: *const c_char| (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
        let settings = Settings {
            label: text(options.label),
            entry: text(options.entry),
            client: text(options.client),
            directory: text(options.directory),
            executable: text(options.executable),
            timeout_ms: options.timeout_ms,
            start: options.start,
            siblings: options.siblings,
            instance: options.instance,
        };
        let (read, timeout): (Options, _) = settings.read()?;
        let log = Log {
            write: options.log,
            context: options.log_context,
        };
        let worker = Worker::start(read, timeout)?;
        sessiond.write(Box::into_raw(Box::new(mcp_sessiond { worker, log })));
        Ok(MCP_SESSIOND_OK)
    })
}

/// Gets the token that a former instance of this server has stored, to be offered to the broker.
///
/// `MCP_SESSIOND_OK`: `*token` is the token, for `mcp_sessiond_token_free`. Everything else:
/// `*token` is NULL; start afresh.
#[unsafe(no_mangle)]
pub extern "C" fn mcp_sessiond_load(
    sessiond: *mut mcp_sessiond,
    token: *mut *mut mcp_sessiond_token,
) -> mcp_sessiond_result {
    across(|| {
        // SAFETY: by the header.
        let token = unsafe { written(token, "token") }?;
        token.write(ptr::null_mut());
        // SAFETY: by the header.
        let handle = unsafe { handle(sessiond) }?;
        let done = handle
            .worker
            .call(|sessiond| async move { sessiond.load().await });
        handle.write_lines();
        let Done { value, status, .. } = done?;
        match (value, status) {
            (Some(loaded), _) => {
                token.write(Box::into_raw(Box::new(mcp_sessiond_token {
                    token: loaded,
                })));
                Ok(MCP_SESSIOND_OK)
            }
            (None, Status::Disabled { reason }) => Err(disabled(reason)),
            (None, _) => Ok(MCP_SESSIOND_NOTHING),
        }
    })
}

/// Keeps a token that the broker has issued, in place of the former one: `size` bytes, 1 to
/// `MCP_SESSIOND_TOKEN_MAX`, of any value. They are copied, and the copy is wiped.
///
/// `MCP_SESSIOND_OK`: the daemon has it for good. After `mcp_sessiond_load`, without
/// `mcp_sessiond_reject`, it tells the daemon that the broker accepted what was loaded. The same
/// token twice is the same as once.
#[unsafe(no_mangle)]
pub extern "C" fn mcp_sessiond_store(
    sessiond: *mut mcp_sessiond,
    token: *const c_void,
    size: usize,
) -> mcp_sessiond_result {
    across(|| {
        // SAFETY: by the header.
        let handle = unsafe { handle(sessiond) }?;
        if token.is_null() {
            return Err(Failure::argument(
                "`token` is NULL; it must point to the bytes of the token",
            ));
        }
        if size > isize::MAX as usize {
            return Err(Failure::argument(
                "`size` is larger than anything in memory",
            ));
        }
        // SAFETY: by the header, there are so many bytes, which nobody changes during this call.
        let bytes = unsafe { slice::from_raw_parts(token.cast::<u8>(), size) };
        let token = Token::new(bytes).map_err(|error| Failure::argument(error.to_string()))?;
        let done = handle
            .worker
            .call(|sessiond| async move { sessiond.store(token.expose()).await });
        handle.write_lines();
        settled(done?)
    })
}

/// Deletes the token that was loaded: the broker has refused it. The session stays.
///
/// `MCP_SESSIOND_OK`: no later `mcp_sessiond_load` gives that token.
#[unsafe(no_mangle)]
pub extern "C" fn mcp_sessiond_reject(sessiond: *mut mcp_sessiond) -> mcp_sessiond_result {
    across(|| {
        // SAFETY: by the header.
        let handle = unsafe { handle(sessiond) }?;
        let done = handle
            .worker
            .call(|sessiond| async move { sessiond.reject().await });
        handle.write_lines();
        settled(done?)
    })
}

/// Gives the session up, for the next instance with the same key. A process that exits need not:
/// its exit is noticed.
#[unsafe(no_mangle)]
pub extern "C" fn mcp_sessiond_release(sessiond: *mut mcp_sessiond) -> mcp_sessiond_result {
    across(|| {
        // SAFETY: by the header.
        let handle = unsafe { handle(sessiond) }?;
        let done = handle
            .worker
            .call(|sessiond| async move { sessiond.release().await });
        handle.write_lines();
        done.map(|_| MCP_SESSIOND_OK)
    })
}

/// Tells whether resume works, as of the last call. It asks nobody, and returns at once.
///
/// `status->size` must be set. The fields that this version of the library does not know become 0.
#[unsafe(no_mangle)]
pub extern "C" fn mcp_sessiond_get_status(
    sessiond: *const mcp_sessiond,
    status: *mut mcp_sessiond_status,
) -> mcp_sessiond_result {
    across(|| {
        if status.is_null() {
            return Err(Failure::argument(
                "`status` is NULL; it must point to a mcp_sessiond_status",
            ));
        }
        // SAFETY: by the header, this field at least is there.
        let size = unsafe { (&raw const (*status).size).read() };
        if !(STATUS_FIRST..=STRUCT_MAX).contains(&size) {
            return Err(wrong_size("status", "mcp_sessiond_status", size));
        }
        // SAFETY: by the header.
        let handle = unsafe { handle(sessiond) }?;
        let status_now = to_c(&handle.worker.status()?, size);
        // SAFETY: by the header, `size` bytes may be written.
        unsafe { give(&status_now, status, size) };
        Ok(MCP_SESSIOND_OK)
    })
}

/// Ends the thread and frees the handle. NULL is allowed. No other call may be under way with it,
/// nor come later. What was stored stays with the daemon, and the session with this process.
///
/// In a process that was forked it only marks the handle as gone: the copy's memory stays until
/// that process exits or execs.
#[unsafe(no_mangle)]
pub extern "C" fn mcp_sessiond_free(sessiond: *mut mcp_sessiond) {
    panics::caught(|| {
        if !sessiond.is_null() {
            // SAFETY: by the header, it is `mcp_sessiond_init`'s, and nobody uses it any more.
            let handle = unsafe { Box::from_raw(sessiond) };
            handle.worker.end();
        }
    });
}

/// The bytes of a token, `mcp_sessiond_token_size` of them. Any value may be among them, and no NUL
/// follows. Valid until `mcp_sessiond_token_free`. NULL for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn mcp_sessiond_token_bytes(token: *const mcp_sessiond_token) -> *const u8 {
    // SAFETY: by the header, it is NULL or a token that was not freed.
    unsafe { token.as_ref() }.map_or(ptr::null(), |token| token.token.expose().as_ptr())
}

/// How many bytes a token has: 1 to `MCP_SESSIOND_TOKEN_MAX`. 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn mcp_sessiond_token_size(token: *const mcp_sessiond_token) -> usize {
    // SAFETY: by the header, it is NULL or a token that was not freed.
    unsafe { token.as_ref() }.map_or(0, |token| token.token.expose().len())
}

/// Overwrites a token with zeros and frees it. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn mcp_sessiond_token_free(token: *mut mcp_sessiond_token) {
    panics::caught(|| {
        if !token.is_null() {
            // SAFETY: by the header, it is `mcp_sessiond_load`'s, and nobody uses it any more. A
            // `Token` wipes itself.
            drop(unsafe { Box::from_raw(token) });
        }
    });
}

/// Does what a function does, and tells what became of it by a number; by a sentence, too, where it
/// failed.
fn across(work: impl FnOnce() -> Result<mcp_sessiond_result, Failure>) -> mcp_sessiond_result {
    let done = panics::caught(|| {
        let failure = match work() {
            Ok(result) => return result,
            Err(failure) => failure,
        };
        failure::note(&failure.sentence);
        failure.result
    });
    done.unwrap_or_else(|| {
        panics::caught(|| failure::note(&Failure::fault().sentence));
        MCP_SESSIOND_FAULT
    })
}

/// The handle that was handed over.
///
/// # Safety
/// It is NULL or one of `mcp_sessiond_init`'s that was not freed.
unsafe fn handle<'a>(sessiond: *const mcp_sessiond) -> Result<&'a mcp_sessiond, Failure> {
    let missing = || {
        Failure::argument("`sessiond` is NULL; it must be a handle that mcp_sessiond_init has made")
    };
    // SAFETY: as above.
    unsafe { sessiond.as_ref() }.ok_or_else(missing)
}

/// Where something is to be written.
///
/// # Safety
/// It is NULL or may be written to.
unsafe fn written<'a, T>(place: *mut T, name: &str) -> Result<&'a mut MaybeUninit<T>, Failure> {
    // SAFETY: as above; what is there need not be anything yet.
    let place = unsafe { place.cast::<MaybeUninit<T>>().as_mut() };
    place.ok_or_else(|| {
        Failure::argument(format!(
            "`{name}` is NULL; it must point to where the result goes"
        ))
    })
}

/// Takes the options of whoever was built with this header, a former or a later one. Of a former
/// one's the fields stay as they are that it has not.
///
/// # Safety
/// `T` begins with a `size`, and is made of numbers and pointers. `options` points to as many bytes
/// as its `size` says.
unsafe fn take<T>(options: *const T, into: &mut T, first: usize) -> Result<(), Failure> {
    // SAFETY: as above, this field at least is there.
    let size = unsafe { options.cast::<usize>().read() };
    if !(first..=STRUCT_MAX).contains(&size) {
        return Err(wrong_size("options", "mcp_sessiond_options", size));
    }
    // SAFETY: as above.
    let bytes = unsafe { slice::from_raw_parts(options.cast::<u8>(), size) };
    let (known, later) = bytes.split_at(size.min(size_of::<T>()));
    if later.iter().any(|byte| *byte != 0) {
        let sentence =
            "`options` has a field set that this version of the library does not know; upgrade it";
        return Err(Failure::argument(sentence));
    }
    // SAFETY: as above; no more is copied than either has.
    unsafe {
        ptr::from_mut(into)
            .cast::<u8>()
            .copy_from_nonoverlapping(known.as_ptr(), known.len());
    };
    Ok(())
}

/// Gives a struct to whoever was built with this header, a former or a later one, of whose fields
/// those become 0 of which nothing is known.
///
/// # Safety
/// `size` bytes may be written at `place`.
unsafe fn give<T>(told: &T, place: *mut T, size: usize) {
    let known = size.min(size_of::<T>());
    let (told, place) = (ptr::from_ref(told).cast::<u8>(), place.cast::<u8>());
    // SAFETY: as above; no more is copied than either has.
    unsafe {
        place.copy_from_nonoverlapping(told, known);
        place.add(known).write_bytes(0, size - known);
    }
}

fn wrong_size(name: &str, of: &str, size: usize) -> Failure {
    Failure::argument(format!("{name}.size is {size}; set it to sizeof({of})"))
}

fn disabled(why: impl std::fmt::Display) -> Failure {
    Failure::new(
        MCP_SESSIOND_DISABLED,
        format!("session resume is disabled: {why}"),
    )
}

/// What became of a call that says whether it did what it should.
fn settled(done: Done<bool>) -> Result<mcp_sessiond_result, Failure> {
    match (done.value, done.status) {
        (true, _) => Ok(MCP_SESSIOND_OK),
        (false, Status::Disabled { reason }) => Err(disabled(reason)),
        (false, _) => {
            let general = || {
                failure::in_general(MCP_SESSIOND_REFUSED as i32)
                    .to_string_lossy()
                    .into_owned()
            };
            Err(Failure::new(
                MCP_SESSIOND_REFUSED,
                done.message.unwrap_or_else(general),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A struct as a later version may have it: with one field more.
    #[repr(C)]
    #[derive(Debug, Clone, Copy, PartialEq)]
    struct Later {
        first: [usize; 3],
        added: usize,
    }

    const FIRST: usize = mem::offset_of!(Later, added);

    fn taken(given: Later) -> Option<Later> {
        let mut into = Later {
            first: [0; 3],
            added: 0,
        };
        // SAFETY: it begins with its size, which is no more than it has.
        unsafe { take(&raw const given, &mut into, FIRST) }
            .is_ok()
            .then_some(into)
    }

    #[test]
    fn a_program_that_was_built_with_a_former_header_goes_on() {
        // What comes after its struct is none of it.
        let given = |size| Later {
            first: [size, 1, 2],
            added: 7,
        };
        assert_eq!(
            taken(given(FIRST)),
            Some(Later {
                added: 0,
                ..given(FIRST)
            })
        );
        assert_eq!(
            taken(given(size_of::<Later>())),
            Some(given(size_of::<Later>()))
        );
        assert_eq!((taken(given(FIRST - 1)), taken(given(0))), (None, None));
        let mut place = given(0);
        // SAFETY: it has so many bytes.
        unsafe {
            give(
                &Later {
                    first: [FIRST, 3, 4],
                    added: 5,
                },
                &raw mut place,
                FIRST,
            );
        };
        assert_eq!(
            place,
            Later {
                first: [FIRST, 3, 4],
                added: 7
            }
        );
    }

    #[cfg(target_pointer_width = "64")]
    #[test]
    fn the_first_structs_are_these() {
        assert_eq!((OPTIONS_FIRST, STATUS_FIRST), (80, 669));
    }
}
