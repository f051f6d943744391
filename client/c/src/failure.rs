//! Why a call came to nothing: a number that never changes its meaning, and a sentence for people.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

use crate::values::mcp_sessiond_result::{self, *};

/// A number other than that of success, and what was the matter.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) result: mcp_sessiond_result,
    pub(crate) sentence: String,
}

impl Failure {
    pub(crate) fn new(result: mcp_sessiond_result, sentence: impl Into<String>) -> Self {
        Self {
            result,
            sentence: sentence.into(),
        }
    }

    /// An argument that can't be meant as it is: what it is called, and what is wrong with it.
    pub(crate) fn argument(what: impl Into<String>) -> Self {
        Self::new(MCP_SESSIOND_INVALID_ARGUMENT, what)
    }

    pub(crate) fn forked() -> Self {
        Self::new(
            MCP_SESSIOND_FORKED,
            in_general(MCP_SESSIOND_FORKED as i32).to_string_lossy(),
        )
    }

    pub(crate) fn fault() -> Self {
        Self::new(
            MCP_SESSIOND_FAULT,
            in_general(MCP_SESSIOND_FAULT as i32).to_string_lossy(),
        )
    }
}

thread_local! {
    /// The sentence of this thread's last failure.
    static LAST: RefCell<CString> = RefCell::default();
}

/// Notes what became of this thread's call.
pub(crate) fn note(sentence: &str) {
    LAST.with_borrow_mut(|last| *last = text(sentence));
}

/// What [`note`] has noted, until the next one.
pub(crate) fn last() -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}

/// A text for C, which ends at the first NUL.
pub(crate) fn text(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

/// What a number means in general.
pub(crate) fn in_general(result: i32) -> &'static CStr {
    const NUMBERS: [(mcp_sessiond_result, &CStr); 9] = [
        (MCP_SESSIOND_OK, c"it was done"),
        (MCP_SESSIOND_NOTHING, c"there is no token: start afresh"),
        (MCP_SESSIOND_DISABLED, c"session resume is disabled"),
        (MCP_SESSIOND_REFUSED, c"the daemon did not do it; the previous token is still kept"),
        (MCP_SESSIOND_TIMEOUT, c"it timed out, and whether it was done is not known"),
        (
            MCP_SESSIOND_FORKED,
            c"the handle is the parent process's: after fork, call mcp_sessiond_init for one of this process",
        ),
        (MCP_SESSIOND_INVALID_ARGUMENT, c"an argument is not valid"),
        (MCP_SESSIOND_RESOURCES, c"there is no thread or descriptor left"),
        (MCP_SESSIOND_FAULT, c"a fault of the mcp-sessiond library; please report it"),
    ];
    let found = NUMBERS.iter().find(|(number, _)| *number as i32 == result);
    found.map_or(
        c"a result that this version of the mcp-sessiond library does not know",
        |(_, text)| text,
    )
}
