//! What the guard may do here, what the program may do to the guard, and what dies by itself with soloist.

use std::fs;

use crate::report::{Verdict, read};

const CAP_KILL: u32 = 5;
const CAP_SETUID: u32 = 7;
const CAP_SYS_PTRACE: u32 = 19;
/// The number of the namespace that the kernel starts with.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

pub(super) fn check() -> [(&'static str, Verdict); 3] {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let privileges = Privileges::of(&status);
    [
        (
            "the guard can kill what runs as another user",
            kill_right(privileges, in_a_pod()),
        ),
        (
            "the program cannot trace soloist and its guard",
            tracing(privileges),
        ),
        (
            "what soloist starts dies with it",
            FirstProcess::find().verdict(),
        ),
    ]
}

fn in_a_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// What this process may do, and with it the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Privileges {
    /// The effective capabilities.
    held: u64,
    /// Whether it can get none by starting a program.
    no_new: bool,
}

impl Privileges {
    /// From `/proc/PID/status`.
    fn of(status: &str) -> Option<Self> {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let held = field("CapEff:").and_then(|field| u64::from_str_radix(field.trim(), 16).ok())?;
        let no_new = field("NoNewPrivs:").is_some_and(|field| field.trim() == "1");
        Some(Self { held, no_new })
    }

    const fn has(self, capability: u32) -> bool {
        self.held >> capability & 1 == 1
    }
}

fn unknown() -> Verdict {
    Verdict::Unknown("/proc/self/status does not say".into())
}

/// The program starts with our capabilities. Whoever becomes another user by them, or by a set-user-ID program, is out of reach.
fn kill_right(privileges: Option<Privileges>, in_a_pod: bool) -> Verdict {
    let Some(privileges) = privileges else {
        return unknown();
    };
    if privileges.has(CAP_KILL) {
        return Verdict::good("CAP_KILL");
    }
    let out_of_reach = "could neither be stopped nor killed, and while it lives the lease is kept and no other replica starts one";
    if privileges.has(CAP_SETUID) {
        return Verdict::bad(
            format!(
                "CAP_SETUID is held here, but not CAP_KILL: a program that becomes another user (gosu, su-exec, setpriv) {out_of_reach}"
            ),
            "Take CAP_SETUID away (securityContext.capabilities: {drop: [ALL]}), or add CAP_KILL (capabilities: {add: [KILL]})",
            read::OPERATIONS,
        );
    }
    match (privileges.no_new, in_a_pod) {
        (true, _) => Verdict::good(
            "no, and it need not: nothing of the program can become another user (no CAP_SETUID, no new privileges)",
        ),
        (false, false) => Verdict::good(
            "no, and it need not, unless the program becomes another user by a set-user-ID program (sudo, su)",
        ),
        (false, true) => Verdict::warning(
            format!(
                "CAP_KILL is not held, and set-user-ID programs of the image (sudo, su) work: what becomes another user by them {out_of_reach}"
            ),
            "Set securityContext.allowPrivilegeEscalation: false, as `soloist manifests` prints",
            read::POD,
        ),
    }
}

/// soloist and its guard are not dumpable, so their own user cannot trace them without the capability, which the program inherits.
fn tracing(privileges: Option<Privileges>) -> Verdict {
    match privileges {
        Some(privileges) if privileges.has(CAP_SYS_PTRACE) => Verdict::warning(
            "CAP_SYS_PTRACE is held here, and the program would inherit it: it could stop and change soloist and its guard",
            "Drop it (securityContext.capabilities: {drop: [ALL]}), or run the program as somebody else (--user)",
            read::OPERATIONS,
        ),
        Some(_) => {
            let yama = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
            Verdict::good(match yama {
                Ok(scope) => format!("no CAP_SYS_PTRACE, ptrace_scope {}", scope.trim()),
                Err(_) => "no CAP_SYS_PTRACE".to_owned(),
            })
        }
        None => unknown(),
    }
}

/// What is known of process 1.
struct FirstProcess {
    command: String,
    namespace: Option<String>,
    in_a_pod: bool,
}

impl FirstProcess {
    fn find() -> Self {
        let command = fs::read("/proc/1/cmdline").unwrap_or_default();
        let first = command.split(|byte| *byte == 0).next().unwrap_or_default();
        let namespace = fs::read_link("/proc/self/ns/pid").ok();
        Self {
            command: String::from_utf8_lossy(first).into_owned(),
            namespace: namespace.map(|link| link.to_string_lossy().into_owned()),
            in_a_pod: in_a_pod(),
        }
    }

    fn verdict(&self) -> Verdict {
        let name = self.command.rsplit('/').next().unwrap_or_default();
        let shared = self.namespace.as_deref() == Some(FIRST_PID_NAMESPACE);
        match name {
            "soloist" => Verdict::good("it is process 1 of a PID namespace of its own"),
            _ if !self.in_a_pod && shared => {
                Verdict::good("by its guard; in a container of its own the kernel would do it too")
            }
            _ if !self.in_a_pod => Verdict::good(format!(
                "by its guard; process 1 of this PID namespace is {name:?}"
            )),
            _ => Verdict::warning(
                match shared {
                    true => "this container is in the node's PID namespace (hostPID)".to_owned(),
                    false => format!("process 1 here is {name:?}, not soloist"),
                },
                "Let soloist be the container's command, without a shell or an init in front of it, without hostPID and without \
                 shareProcessNamespace: what it has started then dies with it, and a restarted container takes its lease back at once",
                read::POD,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn with(held: u64, no_new: bool) -> Option<Privileges> {
        Some(Privileges { held, no_new })
    }

    #[test]
    fn capabilities_are_read_as_the_kernel_writes_them() {
        let status = "Name:\tx\nCapEff:\t0000000000080020\nNoNewPrivs:\t1\n";
        assert_eq!(Privileges::of(status), with(0x8_0020, true));
        assert!(matches!(tracing(with(0x8_0020, true)), Verdict::Warning(_)));
        assert!(matches!(tracing(with(0x20, true)), Verdict::Good(_)));
        assert_eq!(Privileges::of("Name:\tx\n"), None);
        assert!(matches!(tracing(None), Verdict::Unknown(_)));
    }

    #[test]
    fn only_who_can_become_another_user_needs_to_be_killed_as_one() {
        let (kill, set_user) = (1 << CAP_KILL, 1 << CAP_SETUID);
        for (privileges, in_a_pod, expected) in [
            (with(kill | set_user, false), true, "good"),
            (with(set_user, true), false, "bad"),
            (with(0, true), true, "good"),
            (with(0, false), true, "warning"),
            (with(0, false), false, "good"),
            (None, true, "unknown"),
        ] {
            let verdict = kill_right(privileges, in_a_pod);
            let is = match verdict {
                Verdict::Good(_) => "good",
                Verdict::Warning(_) => "warning",
                Verdict::Bad(_) => "bad",
                Verdict::Unknown(_) => "unknown",
            };
            assert_eq!(is, expected, "{privileges:?} {in_a_pod}: {verdict:?}");
        }
    }

    #[test]
    fn in_a_pod_soloist_should_be_process_1_of_a_namespace_of_its_own() {
        let found = |command: &str, namespace: &str, in_a_pod| FirstProcess {
            command: command.into(),
            namespace: Some(namespace.into()),
            in_a_pod,
        };
        let own = "pid:[4026532000]";
        for (process, good) in [
            (found("/soloist-bin/soloist", own, true), true),
            (found("/pause", own, true), false),
            (found("/sbin/init", FIRST_PID_NAMESPACE, true), false),
            (found("/sbin/init", FIRST_PID_NAMESPACE, false), true),
            (found("bash", own, false), true),
        ] {
            let verdict = process.verdict();
            assert_eq!(matches!(verdict, Verdict::Good(_)), good, "{verdict:?}");
        }
    }
}
