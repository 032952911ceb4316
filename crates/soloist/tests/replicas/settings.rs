//! What is refused, and with which words and code; what a child is told and given.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{CHILD, Group};
use crate::namespaces;
use crate::place::is_a_file;

#[test]
fn flags_that_do_not_fit_together_give_2_and_the_reason() {
    for (flags, reason) in [
        (["--renew-deadline", "20s"], "too late"),
        (["--grace-period", "0s"], "grace"),
        (["--stop-timeout", "28s"], "stop 28s + margin 5s = 33s"),
        (["--nonsense", "1"], "--nonsense"),
        (["--identity", "a b"], "contains ' '"),
        (["--log-level", "inof"], "says not what is to be logged"),
        (["--store", "kubernetes"], "needs a name"),
        (
            ["--health-interval", "0s"],
            "the health interval and timeout must be longer than 0s",
        ),
        (
            ["--stop-signal", "NONSENSE"],
            "is not a signal: write it as TERM",
        ),
        (
            ["--user", "no body"],
            "there is no user \"no body\" in /etc/passwd",
        ),
        (
            ["--group", "no body"],
            "there is no group \"no body\" in /etc/group",
        ),
        (
            ["--user", "4242424"],
            "user 4242424 is not in /etc/passwd, so its group must be given as well",
        ),
    ] {
        let mut group = Group::new();
        let mut command = group.bare();
        let lease = format!("file:{}", group.path("lease").display());
        if flags[0] != "--store" {
            command.args(["--store", &lease]);
        }
        let replica = group.spawn("r0", command.args(flags).args(["--", "true"]));
        assert_eq!(group.replica(replica).exit_code(), 2, "{flags:?}");
        let log = group.replica(replica).log();
        assert!(log.contains(reason), "{flags:?}: {log}");
    }
}

#[test]
fn without_a_program_there_is_nothing_to_run() {
    let mut group = Group::new();
    let mut command = group.soloist("r0", &[]);
    let replica = group.spawn("r0", &mut command);
    assert_eq!(group.replica(replica).exit_code(), 2);
    assert!(group.replica(replica).log().contains("PROGRAM"));
}

#[test]
fn a_file_that_is_no_lease_gives_3_and_is_left_as_it_is() {
    if !is_a_file() {
        return;
    }
    let mut group = Group::new();
    fs::write(group.path("lease"), "somebody's diary").unwrap();
    let replica = group.start("r0", &[], &[]);
    assert_eq!(group.replica(replica).exit_code(), 3);
    let log = group.replica(replica).log();
    assert!(
        log.contains("the file ") && log.contains("It was left as it is"),
        "{log}"
    );
    let diary = fs::read_to_string(group.path("lease")).unwrap();
    assert_eq!(diary, "somebody's diary");
}

#[test]
fn a_lock_that_somebody_holds_does_not_keep_a_replica_from_stopping() {
    if !is_a_file() {
        return;
    }
    let mut group = Group::new();
    let lock = fs::File::create(group.path("lease.lock")).unwrap();
    lock.lock().unwrap();
    let replica = group.start("r0", &[], &[]);
    group.replica(replica).wait_listening();
    group.replica(replica).signal(Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 0);
}

#[test]
fn a_folder_is_no_lease_file() {
    let mut group = Group::new();
    let mut command = group.bare();
    let store = format!("file:{}", group.path("lease-folder").display());
    fs::create_dir(group.path("lease-folder")).unwrap();
    let replica = group.spawn("r0", command.args(["--store", &store, "--", "true"]));
    assert_eq!(group.replica(replica).exit_code(), 3);
    let log = group.replica(replica).log();
    assert!(log.contains("cannot be a lease file"), "{log}");
}

#[test]
fn a_place_where_no_folder_can_be_gives_3_and_says_which() {
    let mut group = Group::new();
    fs::write(group.path("file"), "").unwrap();
    let mut command = group.bare();
    let lease = format!("file:{}", group.path("file/lease").display());
    command.args(["--store", &lease, "--", "true"]);
    let replica = group.spawn("r0", &mut command);
    assert_eq!(group.replica(replica).exit_code(), 3);
    let log = group.replica(replica).log();
    assert!(log.contains("file/lease"), "{log}");
    assert!(log.contains("is not a folder"), "{log}");
}

#[test]
fn a_folder_that_cannot_be_written_gives_3_and_says_which() {
    let mut group = Group::new();
    let mut command = group.bare();
    // Not even root may make a folder here.
    command.args(["--store", "file:/sys/soloist/lease", "--", "true"]);
    let replica = group.spawn("r0", &mut command);
    assert_eq!(group.replica(replica).exit_code(), 3);
    let log = group.replica(replica).log();
    assert!(log.contains("cannot make the folder /sys/soloist"), "{log}");
}

const OWN_USERS: [&str; 4] = [
    "--user",
    "--map-root-user",
    "--mount",
    "--propagation=private",
];

/// `$1` is the list of users, `$2` becomes `/tmp`. What comes after them is run by user 1000.
const AS_USER: &str = r#"
mount --bind "$1" /etc/passwd
mount --bind "$2" /tmp
shift 2
exec unshare --user --map-user=1000 --map-group=1000 "$@"
"#;

/// Sessions of one ordinary user with this home.
struct Sessions {
    group: Group,
    home: PathBuf,
}

impl Sessions {
    /// `None` where there can be none.
    fn new(home: impl FnOnce(&Group) -> PathBuf) -> Option<Self> {
        if !is_a_file() || !namespaces::are_there(&OWN_USERS) {
            return None;
        }
        let group = Group::new();
        let home = home(&group);
        let entry = format!("app:x:1000:1000::{}:/bin/sh\n", home.display());
        fs::write(group.path("passwd"), entry).unwrap();
        for folder in ["tmp", "var-tmp", "elsewhere"] {
            fs::create_dir(group.path(folder)).unwrap();
        }
        Some(Self { group, home })
    }

    /// Starts one with these variables and no others; without any flag.
    fn start(&mut self, name: &str, variables: &[(&str, PathBuf)]) -> usize {
        let bare = self.group.bare();
        let mut command = Command::new("unshare");
        command
            .args(OWN_USERS)
            .args(["sh", "-ec", AS_USER, "sh"])
            .arg(self.group.path("passwd"))
            .arg(self.group.path("tmp"))
            .args(["env", "-i"]);
        for (name, value) in variables {
            command.arg(format!("{name}={}", value.display()));
        }
        command.arg(bare.get_program()).args(bare.get_args());
        command.arg("--").arg(CHILD).arg(self.group.path(""));
        self.group.spawn(name, &mut command)
    }

    /// One after the other, they all mean the lease at this path.
    fn share(&mut self, path: &Path) {
        let own = |name: &str| self.group.path(name);
        let login = [("HOME", own("elsewhere")), ("TMPDIR", own("var-tmp"))];
        let service = [("HOME", self.home.clone()), ("XDG_RUNTIME_DIR", own(""))];
        let first = self.start("login", &login);
        let start = &self.group.wait_many("start", 1)[0];
        assert!(!start.identity.is_empty());
        let said = format!("store=file:{}", path.display());
        // The log is written beside what it tells of.
        self.group.replica(first).wait_log("store=file:");
        let log = self.group.replica(first).log();
        let line = log.lines().next().unwrap_or_default();
        assert!(line.contains(&said), "{line}");
        for (name, variables) in [("cron", &[][..]), ("service", &service)] {
            let other = self.start(name, variables);
            self.group.replica(other).wait_log("the leader is");
        }
        self.group.replica(first).signal(Signal::TERM);
        assert_eq!(self.group.replica(first).exit_code(), 0);
        self.group.wait_many("start", 2);
    }
}

#[test]
fn without_any_flag_it_just_runs_and_all_sessions_of_a_user_share_the_lease() {
    let sessions = Sessions::new(|group| {
        let home = group.path("home");
        fs::create_dir(&home).unwrap();
        home
    });
    if let Some(mut sessions) = sessions {
        let path = sessions
            .home
            .join(".local/state/soloist/soloist-test-child");
        sessions.share(&path);
        assert!(path.exists());
    }
}

#[test]
fn all_sessions_of_a_user_without_a_home_share_the_lease() {
    if let Some(mut sessions) = Sessions::new(|_| PathBuf::from("/nonexistent")) {
        sessions.share(Path::new("/tmp/soloist-1000/soloist-test-child"));
        let tmp = sessions.group.path("tmp/soloist-1000");
        assert!(tmp.join("soloist-test-child").exists());
    }
}

#[test]
fn who_has_waited_long_enough_gives_4() {
    let mut group = Group::new();
    let (_, leads) = group.lead("r0", &[], &[]);
    let begun = Instant::now();
    let replica = group.start("r1", &["--wait", "700ms"], &[]);
    assert_eq!(group.replica(replica).exit_code(), 4);
    assert!(begun.elapsed() >= Duration::from_millis(700));
    let running = group.running();
    assert!(running.is_some_and(|child| child.pid == leads.pid));
}

#[test]
fn who_leads_in_time_need_not_wait() {
    let mut group = Group::new();
    let (replica, _) = group.lead("r0", &["--wait", "1s"], &["after=2500", "code=5"]);
    group.wait_event("end", "r0");
    assert!(!group.replica(replica).has_ended());
}

#[test]
fn a_child_is_told_who_and_when_it_is() {
    let mut group = Group::with(&["--grace-period", "20s"]);
    let (first, start) = group.lead("r0", &[], &[]);
    assert_eq!(start.identity, "r0");
    assert!(start.token > 0);
    let told = ["name=test", "stop_seconds=10", "drain_seconds=5"];
    assert_eq!(start.rest, told);
    group.replica(first).signal(Signal::TERM);
    assert_eq!(group.replica(first).exit_code(), 0);
    let (_, second) = group.lead("r1", &[], &[]);
    assert!(second.term > start.term);
    assert!(second.token > start.token);
}

#[test]
fn a_child_has_the_standard_streams() {
    let mut group = Group::new();
    let mut command = group.soloist("r0", &["--once"]);
    command
        .arg("--")
        .arg(CHILD)
        .arg(group.path(""))
        .args(["copy", "after=0"])
        .stdin(Stdio::piped())
        .stdout(fs::File::create(group.path("stdout")).unwrap());
    let replica = group.spawn("r0", &mut command);
    let stdin = group.replica(replica).stdin();
    writeln!({ stdin }, "as it is").unwrap();
    assert_eq!(group.replica(replica).exit_code(), 0);
    let copied = fs::read_to_string(group.path("stdout")).unwrap();
    assert_eq!(copied, "as it is\n");
}

#[test]
fn a_flags_variable_may_say_yes_in_the_usual_ways() {
    for (yes, code) in [("1", 7), ("true", 7), ("yes", 7), ("perhaps", 2)] {
        let mut group = Group::new();
        let mut command = group.soloist("r0", &[]);
        command.env("SOLOIST_ONCE", yes);
        let replica = group.spawn("r0", command.args(["--", "sh", "-c", "exit 7"]));
        assert_eq!(group.replica(replica).exit_code(), code, "{yes}");
    }
}

#[test]
fn a_proc_that_is_not_ours_is_an_internal_error_with_its_own_code() {
    let mut group = Group::new();
    let flags = ["--user", "--map-root-user", "--pid", "--fork"];
    if !namespaces::are_there(&flags) {
        return;
    }
    let bare = group.soloist("r0", &[]);
    let mut command = Command::new("unshare");
    command
        .args(flags)
        .arg(bare.get_program())
        .args(bare.get_args());
    let replica = group.spawn("r0", command.args(["--", "true"]));
    assert_eq!(group.replica(replica).exit_code(), 6);
    let log = group.replica(replica).log();
    assert!(
        log.contains("/proc is not mounted, or is that of another PID namespace"),
        "{log}"
    );
}
