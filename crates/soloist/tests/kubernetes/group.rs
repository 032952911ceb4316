//! Three replicas of one program, each with its own way to the API server, and a journal of what their children did.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::rbac::v1::{PolicyRule, RoleBinding};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use testbed::{Account, ControlPlane, Link, shared};
use tokio::time::{Instant, sleep};

pub(crate) const QUICK: [&str; 3] = ["4s", "3s", "300ms"];
pub(crate) const STANDARD: [&str; 3] = ["15s", "10s", "2s"];

pub(crate) const LEASE: &str = "demo";
pub(crate) const USER: &str = "replica-0";
const LOOK: Duration = Duration::from_millis(10);

/// Takes the lock for as long as any process of its tree lives; whoever finds it taken says so.
const CHILD: &str = r#"
say() { echo "$1 $$ $SOLOIST_TOKEN $(date +%s%N) $SOLOIST_IDENTITY" >>"$JOURNAL"; }
exec 9>>"$LOCK"
flock -n 9 || { say OVERLAP; exit 99; }
say start
case "$KIND" in
  ignores) trap '' TERM ;;
  daemonises) (setsid sh -c 'trap "" TERM; while :; do sleep 0.05; done' &) ;;
esac
[ "$KIND" = ignores ] || trap 'say stop; sleep "$DRAIN"; say end; exit 0' TERM
while :; do sleep 0.05; done
"#;

/// How the children are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Drains when asked, and ends.
    Obeys,
    /// Does not care about the stop signal.
    Ignores,
    /// Leaves a process behind, in a session of its own, that does not care.
    Daemonises,
}

/// What a child wrote into the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    what: String,
    pub(crate) pid: u32,
    pub(crate) token: u64,
    /// Since the epoch.
    pub(crate) at: Duration,
    /// Whose child.
    pub(crate) who: String,
}

impl Event {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        Some(Self {
            what: words.next()?.to_owned(),
            pid: words.next()?.parse().ok()?,
            token: words.next()?.parse().ok()?,
            at: Duration::from_nanos(words.next()?.parse().ok()?),
            who: words.next()?.to_owned(),
        })
    }

    pub(crate) fn is_start(&self) -> bool {
        self.what == "start"
    }

    /// A start in a later term.
    pub(crate) fn is_start_after(&self, first: &Self) -> bool {
        self.is_start() && self.token > first.token
    }

    pub(crate) fn is_stop_of(&self, first: &Self) -> bool {
        self.what == "stop" && self.pid == first.pid
    }

    pub(crate) fn is_end_of(&self, first: &Self) -> bool {
        self.what == "end" && self.pid == first.pid
    }
}

/// The time as the journal has it.
pub(crate) fn now() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().unwrap()
}

pub(crate) struct Group {
    plane: &'static ControlPlane,
    namespace: String,
    user: &'static str,
    folder: tempfile::TempDir,
    timings: [&'static str; 3],
    pub(crate) drain_seconds: u32,
    pub(crate) kind: Kind,
    /// The token comes from a command that takes so long, and is good for 10 s.
    pub(crate) plugin_seconds: Option<u32>,
    /// More for `soloist run`.
    pub(crate) flags: Vec<&'static str>,
    /// The replicas believe that they are in Pods of their own names.
    pub(crate) in_pods: bool,
    pub(crate) links: Vec<Link>,
    replicas: Vec<Child>,
}

impl Group {
    /// `None` where the suite is skipped.
    pub(crate) async fn of_three(name: &str, timings: [&'static str; 3]) -> Option<Self> {
        Self::of_user(USER, name, timings).await
    }

    /// The replicas are this user, who may only lead.
    pub(crate) async fn of_user(
        user: &'static str,
        name: &str,
        timings: [&'static str; 3],
    ) -> Option<Self> {
        let plane = shared("soloist run on a real API server").await?;
        let namespace = plane.namespace(name).await.unwrap();
        plane
            .allow_lease(&namespace, LEASE, Account::User(user))
            .await
            .unwrap();
        Some(Self {
            plane,
            namespace,
            user,
            folder: tempfile::tempdir().unwrap(),
            timings,
            drain_seconds: 0,
            kind: Kind::Obeys,
            plugin_seconds: None,
            flags: Vec::new(),
            in_pods: false,
            links: (0..3).map(|_| plane.link().unwrap()).collect(),
            replicas: Vec::new(),
        })
    }

    /// Takes all rights away.
    pub(crate) async fn forbid(&self) {
        let client = self.plane.admin_client().await.unwrap();
        let bindings: Api<RoleBinding> = Api::namespaced(client, &self.namespace);
        let (how, all) = (DeleteParams::default(), ListParams::default());
        bindings.delete_collection(&how, &all).await.unwrap();
    }

    /// Gives the least rights that work.
    pub(crate) async fn allow(&self) {
        let allowed = self
            .plane
            .allow_lease(&self.namespace, LEASE, Account::User(self.user));
        allowed.await.unwrap();
    }

    pub(crate) async fn allow_without_watch(&self) {
        let verbs = ["create", "get", "list", "update"];
        self.allow_also("coordination.k8s.io", "leases", &verbs)
            .await;
    }

    pub(crate) async fn allow_also(&self, group: &str, resource: &str, verbs: &[&str]) {
        let rule = PolicyRule {
            api_groups: Some(vec![group.into()]),
            resources: Some(vec![resource.into()]),
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            ..PolicyRule::default()
        };
        let allowed = self
            .plane
            .allow(&self.namespace, Account::User(self.user), vec![rule]);
        allowed.await.unwrap();
    }

    pub(crate) const fn plane(&self) -> &'static ControlPlane {
        self.plane
    }

    /// For an administrator, in the group's namespace.
    pub(crate) async fn api<T>(&self) -> Api<T>
    where
        T: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        T::DynamicType: Default,
    {
        let client = self.plane.admin_client().await.unwrap();
        Api::namespaced(client, &self.namespace)
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(crate) fn has_exited(&mut self, replica: usize) -> bool {
        self.replicas[replica].try_wait().unwrap().is_some()
    }

    /// Another command about the lease, by the replicas' user or by an administrator.
    pub(crate) fn command(&self, program: &Path, words: &[&str], admin: bool) -> (i32, String) {
        let kubeconfig = match admin {
            true => self.plane.admin_kubeconfig(),
            false => self.plane.kubeconfig(self.user, None),
        };
        let ended = Command::new(program)
            .args(words)
            .args(["--name", LEASE, "--namespace", &self.namespace])
            .env("KUBECONFIG", kubeconfig.unwrap())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = [ended.stdout, ended.stderr].concat();
        (
            ended.status.code().unwrap(),
            String::from_utf8(text).unwrap(),
        )
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// As `kubectl annotate lease demo NAME=VALUE --overwrite`.
    pub(crate) async fn annotate(&self, name: &str, value: &str) {
        let client = self.plane.admin_client().await.unwrap();
        let leases: Api<Lease> = Api::namespaced(client, &self.namespace);
        let patch = serde_json::json!({"metadata": {"annotations": {name: value}}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        leases.patch(LEASE, &params, &patch).await.unwrap();
    }

    /// The lease's annotations.
    pub(crate) async fn annotations(&self) -> BTreeMap<String, String> {
        let client = self.plane.admin_client().await.unwrap();
        let leases: Api<Lease> = Api::namespaced(client, &self.namespace);
        let lease = leases.get(LEASE).await.unwrap();
        lease.metadata.annotations.unwrap_or_default()
    }

    /// Starts one more replica.
    pub(crate) fn start_next(&mut self) -> usize {
        let replica = self.replicas.len();
        let process = self.start(replica);
        self.replicas.push(process);
        replica
    }

    /// Starts all three; who leads, and its child's start.
    pub(crate) async fn start_all(&mut self) -> (usize, Event) {
        for _ in 0..3 {
            self.start_next();
        }
        let patience = Duration::from_secs(30);
        let first = self.await_event(patience, Event::is_start).await;
        let mut leader = None;
        for replica in 0..3 {
            if self.log(replica).contains("elected term=") {
                leader = Some(replica);
            }
        }
        let leader = leader.expect("somebody was elected");
        for replica in (0..3).filter(|r| *r != leader) {
            let seen = format!("leader=r{leader}");
            self.await_log(replica, &seen, patience).await;
        }
        (leader, first)
    }

    fn start(&self, replica: usize) -> Child {
        let identity = format!("r{replica}");
        let kubeconfig = self
            .plane
            .kubeconfig(self.user, Some(&self.links[replica]))
            .unwrap();
        let kubeconfig = match self.plugin_seconds {
            Some(seconds) => self.with_plugin(&kubeconfig, seconds),
            None => kubeconfig,
        };
        let mut command = self.soloist(&identity, "kubernetes", &kubeconfig);
        if self.in_pods {
            command
                .env("POD_NAME", &identity)
                .env("POD_NAMESPACE", &self.namespace);
        }
        command.spawn().unwrap()
    }

    /// `soloist run` with a child that writes into the journal.
    pub(crate) fn soloist(&self, identity: &str, store: &str, kubeconfig: &Path) -> Command {
        let [lease, renew, retry] = self.timings;
        let mut command = Command::new(env!("CARGO_BIN_EXE_soloist"));
        command
            .args(["run", "--store", store, "--name", LEASE])
            .args(["--namespace", &self.namespace])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--identity", identity])
            .args(["--lease-duration", lease, "--renew-deadline", renew])
            .args(["--retry-period", retry, "--grace-period", "40s"])
            .args(&self.flags)
            .args(["--", "sh", "-c", CHILD])
            .envs(self.childs_variables())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(self.folder.path().join(format!("{identity}.log"))).unwrap());
        command
    }

    /// The same child, for somebody who gives it neither an identity nor a token.
    pub(crate) fn childs_command(&self, identity: &str) -> Vec<String> {
        let variables = self.childs_variables();
        let given = [
            ("SOLOIST_IDENTITY", identity.to_owned()),
            ("SOLOIST_TOKEN", "0".to_owned()),
        ];
        let variables = variables.into_iter().chain(given);
        let variables = variables.map(|(name, value)| format!("{name}={value}"));
        let command = ["sh", "-c", CHILD].map(str::to_owned);
        ["env".to_owned()]
            .into_iter()
            .chain(variables)
            .chain(command)
            .collect()
    }

    fn childs_variables(&self) -> [(&'static str, String); 4] {
        let path = |path: PathBuf| path.display().to_string();
        [
            ("JOURNAL", path(self.journal())),
            ("LOCK", path(self.folder.path().join("lock"))),
            ("DRAIN", self.drain_seconds.to_string()),
            ("KIND", format!("{:?}", self.kind).to_lowercase()),
        ]
    }

    fn with_plugin(&self, kubeconfig: &Path, seconds: u32) -> PathBuf {
        let text = fs::read_to_string(kubeconfig).unwrap();
        let (rest, token) = text.rsplit_once("    token: ").unwrap();
        let plugin = self.folder.path().join("plugin");
        let runs = self.folder.path().join("plugin-runs");
        let script = format!(
            r#"#!/bin/sh
echo run >>{}
sleep {seconds}
printf '{{"kind":"ExecCredential","status":{{"token":"{}","expirationTimestamp":"%s"}}}}' $(date -u -d '+10 seconds' +%Y-%m-%dT%H:%M:%SZ)
"#,
            runs.display(),
            token.trim()
        );
        fs::write(&plugin, script).unwrap();
        fs::set_permissions(&plugin, fs::Permissions::from_mode(0o700)).unwrap();
        let exec = format!(
            "    exec: {{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: {}}}\n",
            plugin.display()
        );
        let path = self.folder.path().join("kubeconfig");
        fs::write(&path, format!("{rest}{exec}")).unwrap();
        path
    }

    pub(crate) fn plugin_runs(&self) -> usize {
        let runs = fs::read_to_string(self.folder.path().join("plugin-runs"));
        runs.unwrap_or_default().lines().count()
    }

    fn journal(&self) -> PathBuf {
        self.folder.path().join("journal")
    }

    fn log_path(&self, replica: usize) -> PathBuf {
        self.folder.path().join(format!("r{replica}.log"))
    }

    pub(crate) fn log(&self, replica: usize) -> String {
        fs::read_to_string(self.log_path(replica)).unwrap_or_default()
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        let journal = fs::read_to_string(self.journal()).unwrap_or_default();
        journal.lines().filter_map(Event::parse).collect()
    }

    pub(crate) async fn await_event(
        &self,
        patience: Duration,
        wanted: impl Fn(&Event) -> bool,
    ) -> Event {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(event) = self.events().into_iter().find(|e| wanted(e)) {
                return event;
            }
            assert!(
                Instant::now() < deadline,
                "it did not happen: {}",
                self.story()
            );
            sleep(LOOK).await;
        }
    }

    pub(crate) async fn await_log(&self, replica: usize, text: &str, patience: Duration) {
        self.await_log_of(&format!("r{replica}"), text, patience)
            .await;
    }

    pub(crate) async fn await_log_of(&self, identity: &str, text: &str, patience: Duration) {
        let path = self.folder.path().join(format!("{identity}.log"));
        let log = || fs::read_to_string(&path).unwrap_or_default();
        let deadline = Instant::now() + patience;
        while !log().contains(text) {
            assert!(Instant::now() < deadline, "no {text:?}: {}", self.story());
            sleep(LOOK).await;
        }
    }

    /// Waits until the lease has no holder; whoever released it may not know it yet.
    pub(crate) async fn await_free(&self, patience: Duration) {
        let client = self.plane.client(self.user, None).await.unwrap();
        let leases: Api<Lease> = Api::namespaced(client, &self.namespace);
        let deadline = Instant::now() + patience;
        loop {
            let lease = leases.get(LEASE).await.unwrap();
            let holder = lease.spec.and_then(|spec| spec.holder_identity);
            if holder.is_none_or(|holder| holder.is_empty()) {
                return;
            }
            assert!(Instant::now() < deadline, "it is held: {}", self.story());
        }
    }

    /// The processes that this replica has started and that are there now.
    pub(crate) fn processes_of(&self, replica: usize) -> Vec<u32> {
        let pid = self.replicas[replica].id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        let pids = children.split_whitespace().map(|pid| pid.parse().unwrap());
        pids.collect()
    }

    /// Waits until the replica has started a process; which.
    pub(crate) async fn await_process_of(&self, replica: usize, patience: Duration) -> u32 {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(pid) = self.processes_of(replica).first() {
                return *pid;
            }
            assert!(Instant::now() < deadline, "no process: {}", self.story());
            sleep(LOOK).await;
        }
    }

    pub(crate) async fn await_dead(&self, pid: u32, patience: Duration) {
        let deadline = Instant::now() + patience;
        while self.is_alive(pid) {
            assert!(Instant::now() < deadline, "{pid} lives: {}", self.story());
            sleep(LOOK).await;
        }
    }

    pub(crate) fn is_alive(&self, pid: u32) -> bool {
        let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }

    pub(crate) async fn exit_code(&mut self, replica: usize, patience: Duration) -> i32 {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.replicas[replica].try_wait().unwrap() {
                return status.code().expect("it exited by itself");
            }
            assert!(Instant::now() < deadline, "it runs on: {}", self.story());
            sleep(LOOK).await;
        }
    }

    /// The guard of the last child that this replica started.
    pub(crate) fn guard_of(&self, replica: usize) -> u32 {
        let log = self.log(replica);
        let (_, rest) = log.rsplit_once("guard=").expect("a child has started");
        let number = rest.split_whitespace().next();
        number.and_then(|n| n.parse().ok()).expect("a pid")
    }

    pub(crate) fn signal(&self, replica: usize, signal: &str) {
        self.signal_pid(self.replicas[replica].id(), signal);
    }

    pub(crate) fn signal_pid(&self, pid: u32, signal: &str) {
        let sent = Command::new("kill")
            .args([format!("-{signal}"), pid.to_string()])
            .status();
        assert!(sent.unwrap().success());
    }

    pub(crate) fn assert_never_two(&self) {
        let overlap = self.events().into_iter().find(|e| e.what == "OVERLAP");
        assert!(overlap.is_none(), "two at once: {}", self.story());
    }

    fn story(&self) -> String {
        let mut logs: Vec<_> = fs::read_dir(self.folder.path())
            .unwrap()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|e| e == "log"))
            .collect();
        logs.sort();
        let text = |path: &PathBuf| fs::read_to_string(path).unwrap_or_default();
        let logs = logs
            .iter()
            .map(|path| format!("--- {}\n{}", path.display(), text(path)));
        let journal = text(&self.journal());
        format!("--- journal\n{journal}{}", logs.collect::<String>())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for replica in &mut self.replicas {
            let _ = replica.kill();
            let _ = replica.wait();
        }
        // A guard that a test stopped cannot see that soloist is gone.
        for replica in 0..self.replicas.len() {
            for part in self.log(replica).split("guard=").skip(1) {
                let pid = part.split_whitespace().next().unwrap_or_default();
                let _ = Command::new("kill")
                    .args(["-CONT", pid])
                    .stderr(Stdio::null())
                    .status();
            }
        }
    }
}
