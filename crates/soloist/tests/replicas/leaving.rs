//! Leaving while something is under way that takes long: a look-up of a name, a credential plugin.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{CHILD, Group, LIMIT, SOLOIST, wait_for};
use crate::namespaces;

/// Far less than what is under way takes, on a machine with other things to do.
const SOON: Duration = Duration::from_secs(4);

const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: "SERVER"}}]
users: [{name: test, user: USER}]
"#;

fn kubeconfig(group: &Group, server: &str, user: &str) -> String {
    let text = KUBECONFIG.replace("SERVER", server).replace("USER", user);
    fs::write(group.path("kubeconfig"), text).unwrap();
    group.path("kubeconfig").display().to_string()
}

fn on_kubernetes(command: &mut Command, kubeconfig: &str) {
    command
        .args([
            "--store",
            "kubernetes",
            "--name",
            "test",
            "--namespace",
            "test",
        ])
        .args(["--kubeconfig", kubeconfig, "--", "true"]);
}

fn wait_for_file(group: &Group, name: &str) {
    let path = group.path(name);
    wait_for(name, LIMIT, || path.exists().then_some(()));
}

/// A replica whose credential plugin runs for a minute, as soon as it does.
fn with_slow_plugin(group: &mut Group, flags: &[&str]) -> usize {
    let plugin = format!(
        "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: [-c, 'echo > {}; exec sleep 60'], \
         interactiveMode: Never}}}}",
        group.path("plugin").display()
    );
    let kubeconfig = kubeconfig(group, "https://127.0.0.1:1", &plugin);
    let mut command = group.bare();
    command.args(flags);
    on_kubernetes(&mut command, &kubeconfig);
    let replica = group.spawn("r0", &mut command);
    wait_for_file(group, "plugin");
    replica
}

#[test]
fn a_credential_plugin_that_hangs_holds_nobody_up() {
    for (flags, code) in [(&[][..], 0), (&["--once"], 5)] {
        let mut group = Group::new();
        let replica = with_slow_plugin(&mut group, flags);
        let asked = Instant::now();
        group.replica(replica).signal(Signal::TERM);
        assert_eq!(group.replica(replica).exit_code(), code);
        assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
    }
}

#[test]
fn a_credential_plugin_that_hangs_does_not_outlast_the_time_to_wait() {
    let mut group = Group::new();
    let begun = Instant::now();
    let replica = with_slow_plugin(&mut group, &["--wait", "1s"]);
    assert_eq!(group.replica(replica).exit_code(), 4);
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
}

#[test]
fn a_look_up_that_hangs_holds_nobody_up() {
    let mut group = Group::new();
    let flags = ["--user", "--map-root-user", "--mount", "--net"];
    if !namespaces::are_there(&flags) {
        return;
    }
    let resolver = "nameserver 127.0.0.1\noptions timeout:30 attempts:3\n";
    fs::write(group.path("resolv.conf"), resolver).unwrap();
    let kubeconfig = kubeconfig(&group, "https://api.example.com", "{token: x}");
    let script = "ip link set lo up; mount --bind \"$1/resolv.conf\" /etc/resolv.conf; \
                  \"$2\" \"$1\" nameserver & shift 2; exec \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(flags)
        .args(["sh", "-ec", script, "sh"])
        .arg(group.path(""))
        .args([CHILD, SOLOIST, "run"]);
    on_kubernetes(&mut command, &kubeconfig);
    let replica = group.spawn("r0", &mut command);
    wait_for_file(&group, "nameserver");
    group.replica(replica).wait_log("no answer within");
    let asked = Instant::now();
    group.replica(replica).signal(Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 0);
    assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
}
