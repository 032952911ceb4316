//! What the guard may do here, what the program may do to the guard, and what dies by itself with soloist.

use std::fs;

use crate::report::{Verdict, read};

const CAP_KILL: u32 = 5;
const CAP_SYS_PTRACE: u32 = 19;
/// The number of the namespace that the kernel starts with.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

pub(super) fn check() -> [(&'static str, Verdict); 3] {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let held = held(&status);
    [
        (
            "the guard can kill what runs as another user",
            kill_right(held),
        ),
        (
            "the program cannot trace soloist and its guard",
            tracing(held),
        ),
        (
            "what soloist starts dies with it",
            FirstProcess::find().verdict(),
        ),
    ]
}

/// The effective capabilities.
fn held(status: &str) -> Option<u64> {
    let field = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    field.and_then(|field| u64::from_str_radix(field.trim(), 16).ok())
}

fn unknown() -> Verdict {
    Verdict::Unknown("/proc/self/status does not say".into())
}

fn kill_right(held: Option<u64>) -> Verdict {
    match held {
        Some(held) if held >> CAP_KILL & 1 == 1 => Verdict::good("CAP_KILL"),
        Some(_) => Verdict::good(
            "no, and it need not: without CAP_SETUID nothing of the program can become another user",
        ),
        None => unknown(),
    }
}

/// soloist and its guard are not dumpable, so their own user cannot trace them without the capability, which the program inherits.
fn tracing(held: Option<u64>) -> Verdict {
    match held {
        Some(held) if held >> CAP_SYS_PTRACE & 1 == 1 => Verdict::warning(
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
            in_a_pod: std::env::var_os("KUBERNETES_SERVICE_HOST").is_some(),
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

    #[test]
    fn capabilities_are_read_as_the_kernel_writes_them() {
        assert_eq!(
            held("Name:\tx\nCapEff:\t0000000000080020\n"),
            Some(0x8_0020)
        );
        assert!(matches!(tracing(Some(0x8_0020)), Verdict::Warning(_)));
        assert!(matches!(tracing(Some(0x20)), Verdict::Good(_)));
        assert_eq!(held("Name:\tx\n"), None);
        assert!(matches!(tracing(None), Verdict::Unknown(_)));
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
