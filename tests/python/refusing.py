#!/usr/bin/env python3
"""refusing.py CALL[:ARGUMENT=VALUE]=ERRNO … -- COMMAND …: runs a command for which the kernel refuses system calls, as an older one
does that does not have them, or a container's filter. What the command starts is refused the same.

    refusing.py close_range=ENOSYS -- mcp-sessiond run
    refusing.py getsockopt:2=77=ENOPROTOOPT -- mcp-sessiond run       where argument 2 (from 0) is 77

Linux, on x86-64 and AArch64: a filter of seccomp(2), which needs no privilege.
"""

import ctypes, errno, os, platform, struct, sys

# The names that tests use, by architecture: what the audit subsystem calls it, and the numbers of the calls.
ARCHITECTURES = {
    "x86_64": (0xC000003E, {"getsockopt": 55, "inotify_init1": 294, "madvise": 28}),
    "aarch64": (0xC00000B7, {"getsockopt": 209, "inotify_init1": 26, "madvise": 233}),
}
# Newer calls have one number everywhere.
EVERYWHERE = {"pidfd_send_signal": 424, "pidfd_open": 434, "close_range": 436}
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
# Instructions of BPF: load a word of the call's data, compare it, return.
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
# Where the data has the number of the call, the architecture, and the low half of argument 0.
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16


def instruction(code, value, if_true=0, if_false=0):
    return struct.pack("HBBI", code, if_true, if_false, value)


def program(rules):
    audit, numbers = ARCHITECTURES[platform.machine()]
    numbers = numbers | EVERYWHERE
    parts = [instruction(LOAD, ARCHITECTURE), instruction(EQUAL, audit, 1, 0), instruction(RETURN, ALLOW)]
    for rule in rules:
        what, _, error = rule.rpartition("=")
        call, _, condition = what.partition(":")
        refused = instruction(RETURN, ERRNO | getattr(errno, error))
        body = [refused]
        if condition:
            argument, _, value = condition.partition("=")
            body = [instruction(LOAD, ARGUMENTS + 8 * int(argument)), instruction(EQUAL, int(value), 0, 1), refused]
        # The next rule begins behind the body.
        parts += [instruction(LOAD, NUMBER), instruction(EQUAL, numbers[call], 0, len(body)), *body]
    return parts + [instruction(RETURN, ALLOW)]


def main():
    words = sys.argv[1:]
    if "--" not in words:
        sys.exit(__doc__)
    rules, command = words[: words.index("--")], words[words.index("--") + 1 :]
    parts = program(rules)
    code = ctypes.create_string_buffer(b"".join(parts))
    filter = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(parts), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in [(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter, 0, 0)]:
        if libc.prctl(*call):
            sys.exit(f"{sys.argv[0]}: prctl: {os.strerror(ctypes.get_errno())}")
    os.execvp(command[0], command)


main()
