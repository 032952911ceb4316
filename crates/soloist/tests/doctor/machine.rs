//! The machine: each check fails on a real kernel, in a real control group or a real namespace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::patient::{Findings, findings};

/// `soloist doctor` below another program, which sees to its surroundings.
fn doctor_below(wrapper: &[&str], variables: &[(&str, &str)]) -> Findings {
    let variables = variables
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    let mut command = Command::new("env");
    command.args(variables).args(wrapper);
    findings(command.args([env!("CARGO_BIN_EXE_soloist"), "doctor", "--store", "none"]))
}

/// Says so where only root can do it.
fn is_root(what: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    let is_required = std::env::var("SOLOIST_TESTBED").is_ok_and(|wish| wish == "required");
    assert!(is_root || !is_required, "{what} needs root");
    is_root
}

#[test]
fn an_old_kernel_is_told() {
    let found = doctor_below(&["setarch", "--uname-2.6"], &[]);
    assert_eq!(found.code, 1, "{}", found.text);
    found.assert_says(
        "× its kernel is new enough",
        &["it is 2.6.", "5.4 or newer"],
    );
}

#[test]
fn a_sandbox_that_refuses_pidfds_is_told() {
    let inject = "inject=pidfd_open:error=ENOSYS";
    let found = doctor_below(&["strace", "-f", "-o", "/dev/null", "-e", inject], &[]);
    assert_eq!(found.code, 1, "{}", found.text);
    found.assert_says(
        "× processes can be held",
        &["pidfd_open is refused", "seccomp"],
    );
    doctor_below(&["env"], &[]).assert_says("✓ processes can be held", &["pidfds"]);
}

#[test]
fn a_machine_without_proc_is_told() {
    if !is_root("a machine without /proc") {
        return;
    }
    let script = "mount -t tmpfs none /proc && exec \"$@\"";
    let found = doctor_below(&["unshare", "--mount", "sh", "-c", script, "sh"], &[]);
    assert_eq!(found.code, 1, "{}", found.text);
    found.assert_says("× processes can be seen", &["Mount /proc"]);
    found.assert_says("? the guard can kill what runs as another user", &[]);
}

#[test]
fn a_program_that_could_trace_its_guard_is_told() {
    if !is_root("a program with CAP_SYS_PTRACE") {
        return;
    }
    let line = "the program cannot trace soloist and its guard";
    let with = ["setpriv", "--bounding-set", "+sys_ptrace"];
    doctor_below(&with, &[]).assert_says(&format!("‼ {line}"), &["CAP_SYS_PTRACE", "drop: [ALL]"]);
    let without = ["setpriv", "--bounding-set", "-sys_ptrace"];
    doctor_below(&without, &[]).assert_says(&format!("✓ {line}"), &["no CAP_SYS_PTRACE"]);
    let without = ["setpriv", "--bounding-set", "-kill"];
    let kill = "✓ the guard can kill what runs as another user";
    doctor_below(&without, &[]).assert_says(kill, &["no, and it need not"]);
}

#[test]
fn a_container_whose_first_process_is_another_is_told() {
    if !is_root("a PID namespace") {
        return;
    }
    let line = "what soloist starts dies with it";
    let in_a_pod = [("KUBERNETES_SERVICE_HOST", "192.0.2.1")];
    let namespace = ["unshare", "--pid", "--fork", "--mount-proc"];
    let shell = [&namespace[..], &["sh", "-c", "\"$@\"; exit $?", "sh"]].concat();
    doctor_below(&shell, &in_a_pod).assert_says(
        &format!("‼ {line}"),
        &[
            "process 1 here is \"sh\", not soloist",
            "shareProcessNamespace",
        ],
    );
    doctor_below(&namespace, &in_a_pod).assert_says(
        &format!("✓ {line}"),
        &["process 1 of a PID namespace of its own"],
    );
}

#[test]
fn a_clock_that_nobody_slews_is_good() {
    doctor_below(&["env"], &[]).assert_says("✓ its clock has the hardware's rate", &["ppm apart"]);
}

/// A control group below our own, removed at the end.
struct Group(PathBuf);

impl Group {
    /// `None` where none can be made, which is said.
    fn new(controller: &str, name: &str, limits: &[(&str, &str)]) -> Option<Self> {
        if !is_root("a control group") {
            return None;
        }
        let unified = Path::new("/sys/fs/cgroup/cgroup.controllers");
        let parent = match unified.is_file() {
            false => Path::new("/sys/fs/cgroup").join(controller),
            true => {
                let all = Path::new("/sys/fs/cgroup");
                // Fails where it is on already below a systemd, which is well.
                let _ = fs::write(all.join("cgroup.subtree_control"), format!("+{controller}"));
                all.to_owned()
            }
        };
        let folder = parent.join(format!("soloist-doctor-{name}-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let group = Self(folder);
        for (file, limit) in limits {
            let file = group.0.join(file);
            // The two versions have different files.
            if file.exists() {
                fs::write(file, limit).unwrap();
            }
        }
        Some(group)
    }

    /// After a shell has done this in it.
    fn doctor(&self, before: &str) -> Findings {
        let procs = self.0.join("cgroup.procs");
        let script = format!("echo $$ > {} && {before} exec \"$@\"", procs.display());
        doctor_below(&["sh", "-c", &script, "sh"], &[])
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What was in it is gone, though the kernel may not have noticed yet.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[test]
fn little_memory_is_told() {
    let limits = [
        ("memory.limit_in_bytes", "16777216"),
        ("memory.max", "16777216"),
    ];
    let Some(group) = Group::new("memory", "memory", &limits) else {
        return;
    };
    let found = group.doctor("");
    found.assert_says(
        "‼ there is memory left",
        &["of 16 MiB are left", "Raise the memory limit"],
    );
}

#[test]
fn processes_that_were_killed_for_memory_are_told() {
    let limits = [
        ("memory.limit_in_bytes", "67108864"),
        ("memory.max", "67108864"),
    ];
    let Some(group) = Group::new("memory", "killed", &limits) else {
        return;
    };
    // 300 MB in a variable.
    let found = group.doctor("(x=$(head -c 300000000 /dev/zero | tr '\\0' x)) 2>/dev/null;");
    found.assert_says("‼ there is memory left", &["has killed", "memory limit"]);
}

#[test]
fn a_limit_of_processes_is_told() {
    let Some(group) = Group::new("pids", "pids", &[("pids.max", "20")]) else {
        return;
    };
    let found = group.doctor("");
    found.assert_says(
        "‼ processes can be started",
        &["of 20 processes and threads are left"],
    );
}

#[test]
fn a_cpu_limit_that_throttles_is_told() {
    let limits = [
        ("cpu.cfs_period_us", "100000"),
        ("cpu.cfs_quota_us", "20000"),
        ("cpu.max", "20000 100000"),
    ];
    let Some(group) = Group::new("cpu", "cpu", &limits) else {
        return;
    };
    // Until it was throttled a few times.
    let work = "n=0; while [ $n -lt 200000 ]; do n=$((n+1)); done;";
    let found = group.doctor(work);
    found.assert_says(
        "‼ its CPU is not throttled",
        &[
            "the limit is 0.20 CPU, and it was throttled in",
            "Remove the CPU limit",
        ],
    );
}
