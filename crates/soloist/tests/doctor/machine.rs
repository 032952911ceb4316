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
}

#[test]
fn a_program_that_could_become_another_user_beyond_the_guards_reach_is_told() {
    if !is_root("a program with CAP_SETUID and without CAP_KILL") {
        return;
    }
    let line = "the guard can kill what runs as another user";
    let in_a_pod = [("KUBERNETES_SERVICE_HOST", "192.0.2.1")];
    let whole = ["setpriv", "--bounding-set", "+kill,+setuid"];
    doctor_below(&whole, &in_a_pod).assert_says(&format!("✓ {line}"), &["CAP_KILL"]);
    let without_kill = ["setpriv", "--bounding-set", "-kill"];
    let found = doctor_below(&without_kill, &[]);
    assert_eq!(found.code, 1, "{}", found.text);
    found.assert_says(
        &format!("× {line}"),
        &["CAP_SETUID is held here, but not CAP_KILL", "add: [KILL]"],
    );

    // An ordinary user, whom set-user-ID programs make another.
    let ordinary = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    doctor_below(&ordinary, &in_a_pod).assert_says(
        &format!("‼ {line}"),
        &["set-user-ID programs", "allowPrivilegeEscalation: false"],
    );
    doctor_below(&ordinary, &[]).assert_says(
        &format!("✓ {line}"),
        &["unless the program becomes another user"],
    );
    let restricted = [&ordinary[..], &["--no-new-privs"]].concat();
    doctor_below(&restricted, &in_a_pod).assert_says(
        &format!("✓ {line}"),
        &["nothing of the program can become another user"],
    );
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

/// What the kernel would say if an NTP client had it slew the clock by a tick of so many microseconds: it is asked in earnest, and this
/// machine's clock is left alone.
fn doctor_where_a_tick_has(microseconds: u64) -> Findings {
    // struct timex: modes, offset, freq, maxerror, esterror, status, constant, precision, tolerance, time, tick.
    let fields = [0, 0, 0, 0, 0, 0, 0, 1, 32_768_000, 0, 0, microseconds];
    let bytes = fields.iter().flat_map(|field: &u64| field.to_ne_bytes());
    let hex: String = bytes.map(|byte| format!("{byte:02x}")).collect();
    // The C library takes either call.
    let (one, other) = (
        format!("inject=adjtimex:poke_exit=@arg1={hex}"),
        format!("inject=clock_adjtime:poke_exit=@arg2={hex}"),
    );
    let strace = ["strace", "-f", "-o", "/dev/null", "-e", &one, "-e", &other];
    doctor_below(&strace, &[])
}

#[test]
#[cfg(target_pointer_width = "64")]
fn a_clock_that_an_ntp_client_slews_is_told() {
    let line = "its clock has the hardware's rate";
    // As far as chrony goes unless told otherwise.
    let found = doctor_where_a_tick_has(10_833);
    assert_eq!(found.code, 1, "{}", found.text);
    found.assert_says(
        &format!("× {line}"),
        &[
            "told to let it run 8.33 % faster",
            "two replicas' clocks may differ by 0.5 %",
            "maxslewrate",
        ],
    );
    doctor_where_a_tick_has(9_990).assert_says(&format!("‼ {line}"), &["0.10 % slower"]);
    let found = doctor_where_a_tick_has(10_000);
    assert_eq!(found.code, 0, "{}", found.text);
    found.assert_says(&format!("✓ {line}"), &["ppm apart"]);
}

#[test]
fn a_sandbox_that_does_not_tell_what_the_clock_was_told_leaves_the_measurement() {
    let inject = "inject=adjtimex,clock_adjtime:error=EPERM";
    let found = doctor_below(&["strace", "-f", "-o", "/dev/null", "-e", inject], &[]);
    found.assert_says("✓ its clock has the hardware's rate", &["ppm apart"]);
}

/// `soloist doctor` where version 2 is mounted, with our group in a Pod's that has these limits.
fn doctor_in_version_2(pod: &[(&str, &str)]) -> Option<Findings> {
    if !is_root("a mount namespace") {
        return None;
    }
    let made = tempfile::tempdir().unwrap();
    let mount = made.path().join("cgroup");
    let own = mount.join("kubepods/pod/container");
    fs::create_dir_all(&own).unwrap();
    fs::write(mount.join("cgroup.controllers"), "cpu memory pids\n").unwrap();
    for (folder, files) in [
        (own.parent().unwrap(), pod),
        (&own, &[("memory.max", "max")]),
    ] {
        for (file, text) in files {
            fs::write(folder.join(file), format!("{text}\n")).unwrap();
        }
    }
    let line = made.path().join("line");
    fs::write(&line, "0::/kubepods/pod/container\n").unwrap();
    let script = format!(
        "mount --bind {} /sys/fs/cgroup && mount --bind {} /proc/$$/cgroup && exec \"$@\"",
        mount.display(),
        line.display()
    );
    let namespace = ["unshare", "--mount", "sh", "-c", &script, "sh"];
    Some(doctor_below(&namespace, &[]))
}

/// On a machine with version 1, too, and with the limits of a Pod above its container, which no container can make.
#[test]
fn the_limits_of_the_pod_around_a_container_are_told_in_version_2() {
    let tight = [
        ("memory.max", "67108864"),
        ("memory.current", "62914560"),
        ("pids.max", "100"),
        ("pids.current", "90"),
        ("cpu.max", "5000 100000"),
    ];
    let Some(found) = doctor_in_version_2(&tight) else {
        return;
    };
    for (line, part) in [
        ("‼ there is memory left", "4 MiB of 64 MiB are left"),
        ("‼ processes can be started", "10 of 100 processes"),
        ("‼ its CPU is not throttled", "the limit is 0.05 CPU"),
    ] {
        found.assert_says(line, &[part]);
    }
    let found = doctor_in_version_2(&[("memory.max", "max"), ("pids.max", "max")]).unwrap();
    for line in ["there is memory left", "processes can be started"] {
        found.assert_says(&format!("✓ {line}"), &["no limit"]);
    }
    found.assert_says("✓ its CPU is not throttled", &["no limit"]);
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
