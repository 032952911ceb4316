//! The program with its lease in a real etcd: users and certificates by flags, `status`, `handover`, `pause` and `doctor`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use testbed::programs::{end_all, wait_for};
use testbed::{EtcdCluster, EtcdTransport};

const SOLOIST: &str = env!("CARGO_BIN_EXE_soloist");
const LIMIT: Duration = Duration::from_secs(30);
const PREFIX: &str = "services";

fn start(members: usize, transport: EtcdTransport) -> Option<EtcdCluster> {
    let missing = EtcdCluster::is_missing();
    let wish = std::env::var("SOLOIST_TESTBED").unwrap_or_default();
    assert!(
        !missing || wish != "required",
        "install etcd-server and etcd-client"
    );
    (!missing && wish != "off").then(|| EtcdCluster::start(members, transport).unwrap())
}

/// Replicas of a program that does nothing, and orders to them.
struct Group {
    folder: TempDir,
    flags: Vec<String>,
    replicas: Vec<Child>,
}

impl Group {
    fn new(endpoints: &str, flags: &[String]) -> Self {
        let mut all = vec![
            format!("--store=etcd:{endpoints}/{PREFIX}"),
            "--name=demo".to_owned(),
        ];
        all.extend(flags.iter().cloned());
        Self {
            folder: tempfile::tempdir().unwrap(),
            flags: all,
            replicas: Vec::new(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&mut self, identity: &str) {
        let log = fs::File::create(self.path(identity)).unwrap();
        let folder = self.folder.path().display();
        let child = Command::new(SOLOIST)
            .arg("run")
            .args(&self.flags)
            .args(["--identity", identity, "--", "sh", "-c"])
            .arg(format!(
                "echo {identity} >> {folder}/journal; exec sleep 600"
            ))
            .env("TMPDIR", self.folder.path())
            .stdin(Stdio::null())
            .stderr(log)
            .spawn();
        self.replicas.push(child.unwrap());
    }

    fn order(&self, words: &[&str]) -> Output {
        let mut command = Command::new(SOLOIST);
        command.args(words).args(&self.flags);
        command.output().unwrap()
    }

    fn status(&self) -> Value {
        let output = self.order(&["status", "--output=json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    fn wait_leader(&self, identity: &str) -> Value {
        wait_for(&format!("{identity} to lead"), LIMIT, || {
            let status = self.status();
            (status["leader"] == identity).then_some(status)
        })
    }

    fn wait_log(&self, identity: &str, text: &str) {
        wait_for(&format!("{text:?} of {identity}"), LIMIT, || {
            let log = fs::read_to_string(self.path(identity)).unwrap_or_default();
            log.contains(text).then_some(())
        });
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for replica in &mut self.replicas {
            let _ = replica.kill();
            let _ = replica.wait();
        }
        end_all(self.folder.path(), LIMIT);
        if std::thread::panicking() {
            for entry in fs::read_dir(self.folder.path()).unwrap().flatten() {
                let text = fs::read_to_string(entry.path()).unwrap_or_default();
                eprintln!("--- {}\n{text}", entry.path().display());
            }
        }
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_group_by_tls_and_password_is_shown_handed_over_paused_and_resumed() {
    let Some(mut etcd) = start(3, EtcdTransport::Tls) else {
        return;
    };
    let password = tempfile::NamedTempFile::new().unwrap();
    fs::write(password.path(), "secret\n").unwrap();
    for order in [
        &["role", "add", "demo"][..],
        &[
            "role",
            "grant-permission",
            "demo",
            "readwrite",
            "services/demo",
        ],
        &["user", "add", "demo:secret"],
        &["user", "grant-role", "demo", "demo"],
    ] {
        etcd.etcdctl(order).unwrap();
    }
    etcd.enable_users("first").unwrap();
    let flags = [
        format!("--etcd-ca={}", etcd.ca().display()),
        "--etcd-user=demo".to_owned(),
        format!("--etcd-password-file={}", password.path().display()),
    ];
    let mut group = Group::new(&etcd.endpoints(), &flags);
    group.run("one");
    let status = group.wait_leader("one");
    assert_eq!(status["term"], 0, "{status}");
    group.run("two");
    group.wait_log("two", "the leader is");

    let done = group.order(&["handover", "--to=two", "--wait"]);
    assert!(done.status.success(), "{}", text(&done));
    let status = group.wait_leader("two");
    assert_eq!(status["term"], 1, "{status}");
    let done = group.order(&["pause", "--stop"]);
    assert!(done.status.success(), "{}", text(&done));
    wait_for("nobody to lead", LIMIT, || {
        group.status()["leader"].is_null().then_some(())
    });
    let done = group.order(&["resume"]);
    assert!(done.status.success(), "{}", text(&done));
    wait_for("somebody to lead", LIMIT, || {
        group.status()["leader"].is_string().then_some(())
    });
    let well = group.order(&["doctor"]);
    assert!(well.status.success(), "{}", text(&well));

    let nobody = Group::new(&etcd.endpoints(), &flags[..1]);
    let refused = nobody.order(&["status"]);
    assert_eq!(refused.status.code(), Some(3), "{}", text(&refused));
    assert!(text(&refused).contains("--etcd-user"), "{}", text(&refused));
}

#[test]
fn the_doctor_tells_of_members_that_are_gone_or_of_another_etcd() {
    let Some(mut etcd) = start(3, EtcdTransport::Plain) else {
        return;
    };
    let group = Group::new(&etcd.endpoints(), &[]);
    let examine = || group.order(&["doctor"]);
    let well = examine();
    assert!(well.status.success(), "{}", text(&well));
    assert!(
        text(&well).contains("✓ the lease may be written"),
        "{}",
        text(&well)
    );

    // Without its leader an etcd is for a while without any, and says so.
    let leader = etcd.leader().unwrap();
    let [one, another] = [(leader + 1) % 3, (leader + 2) % 3];
    etcd.kill(one);
    let weak = examine();
    assert!(weak.status.success(), "{}", text(&weak));
    let dead = format!("‼ {} answers", etcd.endpoint(one));
    for part in [&dead, "The others are used without it"] {
        assert!(text(&weak).contains(part), "{}", text(&weak));
    }
    etcd.kill(another);
    let broken = examine();
    assert_eq!(broken.status.code(), Some(1), "{}", text(&broken));
    for line in ["× the lease can be read", "× the lease may be written"] {
        assert!(text(&broken).contains(line), "{line}: {}", text(&broken));
    }
    // The last one has noticed that it is alone.
    wait_for("no majority", LIMIT, || {
        let broken = text(&examine());
        broken.contains("× a majority can be used").then_some(())
    });

    let other = start(1, EtcdTransport::Plain).unwrap();
    etcd.start_again(another).unwrap();
    let both = format!("{},{}", etcd.endpoint(leader), other.endpoint(0));
    let mixed = Group::new(&both, &[]).order(&["doctor"]);
    assert_eq!(mixed.status.code(), Some(1), "{}", text(&mixed));
    for part in ["× its members are of one cluster", "they are of 2"] {
        assert!(text(&mixed).contains(part), "{}", text(&mixed));
    }
}

#[test]
fn who_may_not_write_ends_with_the_code_for_it_and_the_order_that_helps() {
    let Some(mut etcd) = start(1, EtcdTransport::Plain) else {
        return;
    };
    etcd.enable_users("first").unwrap();
    let group = Group::new(&etcd.endpoints(), &[]);
    let told = group.order(&["doctor"]);
    assert_eq!(told.status.code(), Some(1), "{}", text(&told));
    assert!(text(&told).contains("--etcd-user"), "{}", text(&told));
}
