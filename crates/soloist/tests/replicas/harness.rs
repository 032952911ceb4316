//! A stage for one test: replicas of the real program on one lease, and what their children tell.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use testbed::dispositions;
use testbed::programs::{end_all, stat_field};
pub(crate) use testbed::programs::{is_alive, send, wait_for};

use crate::place::{LEASE, Place};

pub(crate) const SOLOIST: &str = env!("CARGO_BIN_EXE_soloist");
pub(crate) const CHILD: &str = env!("CARGO_BIN_EXE_soloist-test-child");

/// Long enough for a loaded machine; a test that waits this long has failed.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// How long the leases of the tests last.
pub(crate) fn lease() -> Duration {
    Place::wanted().lease
}

/// The folder of one lease, with all that was started on it.
pub(crate) struct Group {
    folder: TempDir,
    place: Place,
    replicas: Vec<Replica>,
    settings: Vec<String>,
}

impl Group {
    pub(crate) fn new() -> Self {
        dispositions::undo_ignored();
        let folder = tempfile::Builder::new()
            .prefix("soloist-test-")
            .tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        // As a runtime folder is that root's children can use, whoever they become.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
        Self {
            place: Place::new(folder.path()),
            folder,
            replicas: Vec::new(),
            settings: Vec::new(),
        }
    }

    /// A group whose replicas all have these flags.
    pub(crate) fn with(flags: &[&str]) -> Self {
        let mut group = Self::new();
        group.settings = flags.iter().map(|&flag| flag.to_owned()).collect();
        group
    }

    /// A group whose lease nobody can wait out within [`LIMIT`]: who takes over in time has not waited for it.
    pub(crate) fn with_long_lease() -> Self {
        Self::with_timings(["90s", "60s", "5s"])
    }

    /// A group with these timings: lease duration, renew deadline, retry period.
    pub(crate) fn with_timings(timings: [&str; 3]) -> Self {
        let mut group = Self::new();
        group.place = Place::with_timings(group.folder.path(), timings);
        group
    }

    /// A group without a lease: all its replicas run their children.
    pub(crate) fn everywhere(flags: &[&str]) -> Self {
        let mut group = Self::with(flags);
        group.place = Place::everywhere();
        group
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `soloist run` without any flag.
    pub(crate) fn bare(&self) -> Command {
        let mut command = self.program();
        command.arg("run");
        command
    }

    /// Another command about the group's lease.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.program();
        command
            .args(words)
            .args(["--name", LEASE])
            .args(&self.place.lease);
        command
    }

    fn program(&self) -> Command {
        let mut command = Command::new(SOLOIST);
        // What the machine says must not change the tests.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SOLOIST_") {
                command.env_remove(name);
            }
        }
        // Who is killed leaves things behind; they go with the folder.
        command
            .env("TMPDIR", self.folder.path())
            .env("XDG_RUNTIME_DIR", self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// With the group's lease, timings and flags; the program is still to come.
    pub(crate) fn soloist(&self, identity: &str, flags: &[&str]) -> Command {
        let mut command = self.bare();
        command
            .args(&self.place.flags)
            .args(["--name", LEASE, "--identity", identity])
            .args(&self.settings)
            .args(flags);
        command
    }

    /// The command of a replica whose child has this plan.
    pub(crate) fn child(&self, identity: &str, flags: &[&str], plan: &[&str]) -> Command {
        let mut command = self.soloist(identity, flags);
        command
            .arg("--")
            .arg(CHILD)
            .arg(self.folder.path())
            .args(plan);
        command
    }

    /// Starts a replica whose child has this plan.
    pub(crate) fn start(&mut self, identity: &str, flags: &[&str], plan: &[&str]) -> usize {
        let mut command = self.child(identity, flags, plan);
        self.spawn(identity, &mut command)
    }

    /// The same command, run by this program, which takes it as its last arguments.
    pub(crate) fn under(by: &[&str], command: &Command) -> Command {
        let mut wrapped = Command::new(by[0]);
        wrapped.args(&by[1..]).arg(command.get_program());
        wrapped.args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(name, value),
                None => wrapped.env_remove(name),
            };
        }
        wrapped.stdin(Stdio::null()).stdout(Stdio::null());
        wrapped
    }

    /// Starts a replica from a whole command.
    pub(crate) fn spawn(&mut self, identity: &str, command: &mut Command) -> usize {
        let log = self.log_path(identity);
        command.stderr(File::create(log).unwrap());
        self.spawn_as_it_is(identity, command)
    }

    /// Starts what is no replica; what it says is its log.
    pub(crate) fn spawn_command(&mut self, name: &str, command: &mut Command) -> usize {
        let log = File::create(self.log_path(name)).unwrap();
        command.stdout(log);
        self.spawn_as_it_is(name, command)
    }

    /// The log of the next replica.
    fn log_path(&self, identity: &str) -> PathBuf {
        self.path(&format!("{}-{identity}.log", self.replicas.len()))
    }

    /// Starts a replica whose log goes where the command says.
    pub(crate) fn spawn_as_it_is(&mut self, identity: &str, command: &mut Command) -> usize {
        let log = self.log_path(identity);
        self.replicas.push(Replica {
            identity: identity.to_owned(),
            process: command.spawn().unwrap(),
            log,
        });
        self.replicas.len() - 1
    }

    /// Starts a replica and waits until its child runs.
    pub(crate) fn lead(&mut self, identity: &str, flags: &[&str], plan: &[&str]) -> (usize, Event) {
        let replica = self.start(identity, flags, plan);
        let event = self.wait_start(identity);
        (replica, event)
    }

    /// Starts a replica and waits until it knows that another one leads.
    pub(crate) fn follow(&mut self, identity: &str, flags: &[&str], plan: &[&str]) -> usize {
        let replica = self.start(identity, flags, plan);
        self.replica(replica).wait_log("the leader is");
        replica
    }

    pub(crate) fn replica(&mut self, replica: usize) -> &mut Replica {
        &mut self.replicas[replica]
    }

    /// All that the children have told, in order. Two at once end the test, whatever it waits for.
    pub(crate) fn journal(&self) -> Vec<Event> {
        self.check_one();
        let text = fs::read_to_string(self.path("journal")).unwrap_or_default();
        // The last line may be half written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(Event::parse).collect()
    }

    /// The events of this kind so far.
    pub(crate) fn events(&self, what: &str) -> Vec<Event> {
        let mut events = self.journal();
        events.retain(|event| event.what == what);
        events
    }

    pub(crate) fn wait_journal(&self, what: &str, matches: impl Fn(&Event) -> bool) -> Event {
        wait_for(what, LIMIT, || self.journal().into_iter().find(&matches))
    }

    /// The first such event of this replica's children.
    pub(crate) fn wait_event(&self, what: &str, identity: &str) -> Event {
        let name = format!("{what:?} of {identity}");
        self.wait_journal(&name, |event| {
            event.what == what && event.identity == identity
        })
    }

    /// The first start of this replica's child.
    pub(crate) fn wait_start(&self, identity: &str) -> Event {
        self.wait_event("start", identity)
    }

    /// So many events of this kind.
    pub(crate) fn wait_many(&self, what: &str, many: usize) -> Vec<Event> {
        let name = format!("{many} times {what:?}");
        wait_for(&name, LIMIT, || {
            let events = self.events(what);
            (events.len() >= many).then_some(events)
        })
    }

    /// The child that runs now.
    pub(crate) fn running(&self) -> Option<Event> {
        let last = self.events("start").pop()?;
        is_alive(last.pid).then_some(last)
    }

    fn check_one(&self) {
        if let Ok(overlap) = fs::read_to_string(self.path("overlap")) {
            panic!("two ran at once: {overlap}");
        }
    }

    /// There were never two, and every term had a higher token than the one before.
    pub(crate) fn check(&self) {
        for pair in self.events("start").windows(2) {
            let [before, after] = pair else { continue };
            let same = before.term == after.term && before.identity == after.identity;
            assert!(
                after.token > before.token || same && after.token == before.token,
                "the token does not grow: {before:?}, {after:?}"
            );
        }
    }

    /// What the replicas have logged and the children told, for who must find out why a test failed.
    fn story(&self) -> String {
        let mut story = String::new();
        for replica in &self.replicas {
            let name = replica.log.file_name().unwrap_or_default().display();
            let pid = replica.process.id();
            let _ = writeln!(story, "--- {name}, process {pid}\n{}", replica.log());
        }
        let journal = fs::read_to_string(self.path("journal")).unwrap_or_default();
        let _ = writeln!(story, "--- journal\n{journal}");
        story
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for replica in &mut self.replicas {
            let _ = replica.process.kill();
            let _ = replica.process.wait();
        }
        end_all(self.folder.path(), LIMIT);
        if thread::panicking() {
            eprintln!("{}", self.story());
        } else {
            self.check();
        }
    }
}

/// One `soloist run`.
pub(crate) struct Replica {
    pub(crate) identity: String,
    process: Child,
    log: PathBuf,
}

impl Replica {
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The first line of the log with this text.
    pub(crate) fn wait_log(&self, text: &str) -> String {
        let what = format!("{text:?} in the log of {}", self.identity);
        wait_for(&what, LIMIT, || {
            let log = self.log();
            log.lines()
                .find(|line| line.contains(text))
                .map(str::to_owned)
        })
    }

    /// The first line of the log has come.
    pub(crate) fn wait_listening(&self) {
        self.wait_log("a lost lease leaves");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(self.process.id(), signal);
    }

    /// The first child of its process.
    pub(crate) fn child(&self) -> u32 {
        let pid = self.process.id();
        wait_for("a process below it", LIMIT, || {
            let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            list.ok()?.split_whitespace().next()?.parse().ok()
        })
    }

    /// What was piped to it.
    pub(crate) fn stdin(&mut self) -> ChildStdin {
        self.process.stdin.take().unwrap()
    }

    /// Waits for its end.
    pub(crate) fn exit(&mut self) -> ExitStatus {
        let what = format!("the end of {}", self.identity);
        let process = &mut self.process;
        wait_for(&what, LIMIT, || process.try_wait().unwrap())
    }

    /// Waits for its end by itself.
    pub(crate) fn exit_code(&mut self) -> i32 {
        let status = self.exit();
        let code = status.code();
        code.unwrap_or_else(|| panic!("{} ended by {status}", self.identity))
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }
}

/// Without an election there is none.
fn number_if_any(text: &str) -> u64 {
    match text {
        "" => 0,
        number => number.parse().unwrap(),
    }
}

/// A line of the journal.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// Milliseconds since 1970.
    pub(crate) at: u64,
    pub(crate) what: String,
    pub(crate) pid: u32,
    pub(crate) identity: String,
    pub(crate) term: u64,
    pub(crate) token: u64,
    pub(crate) rest: Vec<String>,
}

impl Event {
    fn parse(line: &str) -> Self {
        let mut words = line.split(' ');
        let mut word = |key: &str| {
            let word = words.next().unwrap_or_default();
            word.strip_prefix(key)
                .unwrap_or_else(|| panic!("no {key} in {line:?}"))
        };
        Self {
            at: word("").parse().unwrap(),
            what: word("").to_owned(),
            pid: word("pid=").parse().unwrap(),
            identity: word("identity=").to_owned(),
            term: number_if_any(word("term=")),
            token: number_if_any(word("token=")),
            rest: words.map(str::to_owned).collect(),
        }
    }

    /// The guard of the child that says this.
    pub(crate) fn guard(&self) -> Option<u32> {
        let guard = stat_field(self.pid, 1)?.parse().ok()?;
        let name = fs::read_to_string(format!("/proc/{guard}/comm")).ok()?;
        (name.trim() == "soloist-guard").then_some(guard)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(self.pid, signal);
    }

    /// Waits until the process that says this is dead.
    pub(crate) fn wait_dead(&self) {
        let what = format!("the end of process {}", self.pid);
        wait_for(&what, LIMIT, || (!is_alive(self.pid)).then_some(()));
    }
}
