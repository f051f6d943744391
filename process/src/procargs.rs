//! What macOS answers to `KERN_PROCARGS2`, taken apart. No system call is made here, so it is
//! tested everywhere.

/// The kernel's own strings for the dynamic linker and the C library, which follow the environment
/// and can't be told from it by their place (XNU, `exec_add_apple_strings`). Most are random
/// numbers.
const APPLE_STRINGS: [&[u8]; 16] = [
    b"arm64e_abi",
    b"dyld_file",
    b"dyld_flags",
    b"executable_boothash",
    b"executable_cdhash",
    b"executable_file",
    b"executable_path",
    b"has_vm_sticky_ptr",
    b"main_stack",
    b"malloc_entropy",
    b"pfz",
    b"ptr_munge",
    b"security_config",
    b"stack_guard",
    b"subsystem_root_path",
    b"th_port",
];

/// Arguments and environment of a process.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProcessStrings {
    /// From `argv[0]` on.
    pub(super) arguments: Vec<Vec<u8>>,
    /// Each `NAME=value`. Empty where macOS keeps it to itself, which it does without an error.
    pub(super) environment: Vec<Vec<u8>>,
}

/// Takes the answer apart: the number of arguments as a native `int`, the executable's path,
/// padding, the arguments, the environment. None: it ends too early.
pub(super) fn parse(answer: &[u8]) -> Option<ProcessStrings> {
    let (count, strings) = answer.split_first_chunk()?;
    let count = usize::try_from(i32::from_ne_bytes(*count)).ok()?;
    let path_end = strings.iter().position(|byte| *byte == 0)?;
    let padding = strings[path_end..]
        .iter()
        .position(|byte| *byte != 0)
        .unwrap_or(strings.len() - path_end);
    let mut rest = strings[path_end + padding..]
        .split(|byte| *byte == 0)
        .map(<[u8]>::to_vec);
    let arguments: Vec<Vec<u8>> = rest.by_ref().take(count).collect();
    if arguments.len() < count {
        return None;
    }
    let environment = rest
        .filter(|variable| !variable.is_empty() && !is_apple(variable))
        .collect();
    Some(ProcessStrings {
        arguments,
        environment,
    })
}

fn is_apple(variable: &[u8]) -> bool {
    let name = variable.split(|byte| *byte == b'=').next();
    name.is_some_and(|name| APPLE_STRINGS.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(count: i32, strings: &[u8]) -> Option<(Vec<String>, Vec<String>)> {
        let texts = |list: Vec<Vec<u8>>| {
            list.into_iter()
                .map(|text| String::from_utf8(text).expect("text"))
        };
        let found = parse(&[&count.to_ne_bytes(), strings].concat())?;
        Some((
            texts(found.arguments).collect(),
            texts(found.environment).collect(),
        ))
    }

    #[test]
    fn arguments_are_counted_and_the_kernels_own_strings_left_out() {
        let strings =
            b"/bin/server\0\0\0\0\0server\0\0-x\0A=1\0\0B=\0\0\0ptr_munge=\0stack_guard=0x1\0";
        let (arguments, environment) = parsed(3, strings).expect("well-formed");
        assert_eq!(arguments, ["server", "", "-x"]);
        assert_eq!(environment, ["A=1", "B="]);
    }

    #[test]
    fn a_hidden_environment_is_empty() {
        assert_eq!(parsed(1, b"/bin/sh\0sh\0").expect("well-formed").1, [""; 0]);
    }

    #[test]
    fn an_answer_that_ends_too_early_is_none() {
        assert_eq!(parse(&[1, 0]), None);
        assert_eq!(parsed(1, b"/bin/sh"), None);
        assert_eq!(parsed(9, b"/bin/sh\0sh\0-c\0"), None);
        assert_eq!(parsed(-1, b"/bin/sh\0sh\0"), None);
    }
}
