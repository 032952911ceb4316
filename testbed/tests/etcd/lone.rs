//! An etcd of one member with settings of its own.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub(crate) struct Lone {
    process: Child,
    pub(crate) endpoint: String,
    peer: String,
    _folder: TempDir,
}

impl Lone {
    pub(crate) fn start() -> Self {
        Self::start_with("http", &[])
    }

    /// Serves clients by this scheme; with TLS it is not waited for.
    pub(crate) fn start_with(scheme: &str, settings: &[&str]) -> Self {
        let [endpoint, peer] = addresses();
        let cluster = format!("--initial-cluster=lone=http://{peer}");
        let settings = [&[cluster.as_str()][..], settings].concat();
        let lone = Self::spawn("lone", scheme, endpoint, peer, &settings);
        match scheme {
            "http" => lone.wait(),
            _ => lone.wait_for_its_port(),
        }
        lone
    }

    /// A new member of this one's cluster, which does not vote.
    pub(crate) fn learner(&self) -> Self {
        let [endpoint, peer] = addresses();
        let url = format!("--peer-urls=http://{peer}");
        self.etcdctl(&["member", "add", "learner", &url, "--learner"]);
        let cluster = format!(
            "--initial-cluster=lone=http://{},learner=http://{peer}",
            self.peer
        );
        let settings = [cluster.as_str(), "--initial-cluster-state=existing"];
        Self::spawn("learner", "http", endpoint, peer, &settings)
    }

    fn spawn(name: &str, scheme: &str, endpoint: String, peer: String, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let process = Command::new("etcd")
            .arg(format!("--name={name}"))
            .arg(format!(
                "--data-dir={}",
                folder.path().join("data").display()
            ))
            .arg(format!("--listen-client-urls={scheme}://{endpoint}"))
            .arg(format!("--advertise-client-urls={scheme}://{endpoint}"))
            .arg(format!("--listen-peer-urls=http://{peer}"))
            .arg(format!("--initial-advertise-peer-urls=http://{peer}"))
            .arg("--unsafe-no-fsync")
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            process,
            endpoint,
            peer,
            _folder: folder,
        }
    }

    fn wait(&self) {
        let begun = Instant::now();
        while !self
            .command(&["endpoint", "health"])
            .status()
            .unwrap()
            .success()
        {
            assert!(begun.elapsed() < Duration::from_secs(30), "no etcd");
        }
    }

    fn wait_for_its_port(&self) {
        let begun = Instant::now();
        while std::net::TcpStream::connect(&self.endpoint).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(30), "no etcd");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Writes until it takes no more.
    pub(crate) fn fill(&self) {
        let much = "x".repeat(50_000);
        for n in 0..100 {
            let key = format!("much-{n}");
            if !self
                .command(&["put", &key, &much])
                .status()
                .unwrap()
                .success()
            {
                return;
            }
        }
        panic!("it takes more and more");
    }

    pub(crate) fn etcdctl(&self, words: &[&str]) {
        assert!(self.command(words).status().unwrap().success(), "{words:?}");
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("etcdctl");
        command
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints={}", self.endpoint))
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }
}

/// That nobody has.
fn addresses() -> [String; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().to_string())
}

impl Drop for Lone {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
