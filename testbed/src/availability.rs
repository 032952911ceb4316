use std::{
    collections::BTreeSet,
    env,
    io::{self, Write},
    path::PathBuf,
    sync::Mutex,
};

use crate::{Binaries, Kind};

/// A program that is not installed, and how to get it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// No Go, and the binaries are not in the cache.
    #[error("Go is not installed (1.26 or newer, https://go.dev/dl), and {0} is not built yet")]
    Go(&'static str),
    /// No etcd.
    #[error("etcd is not installed: `apt-get install etcd-server`")]
    Etcd,
    /// No setpriv.
    #[error("setpriv is not installed: `apt-get install util-linux`")]
    Setpriv,
    /// Not root.
    #[error("nodes need root: namespaces, mounts and cgroups are made for them")]
    Root,
    /// A program that nodes need.
    #[error("{0} is not installed: `apt-get install {1}`")]
    Package(&'static str, &'static str),
    /// No cgroups.
    #[error("no cgroup file system is mounted that can be written: nodes need one")]
    Cgroups,
}

/// What nodes need, and Debian's package with it. The bridge plugin is no program of the path.
const FOR_NODES: [(&str, &str); 8] = [
    ("runc", "runc"),
    ("/usr/lib/cni/bridge", "containernetworking-plugins"),
    ("iptables", "iptables"),
    ("nft", "nftables"),
    ("conntrack", "conntrack"),
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
    ("flock", "util-linux"),
];

/// What this machine lacks for a cluster with nodes.
pub fn missing_for_nodes() -> Vec<Missing> {
    let mut missing = missing();
    if !rustix::process::geteuid().is_root() {
        missing.push(Missing::Root);
    }
    let absent = |name: &str| match name.starts_with('/') {
        true => !std::path::Path::new(name).is_file(),
        false => program(name).is_none(),
    };
    let packages = FOR_NODES.into_iter().filter(|(name, _)| absent(name));
    missing.extend(packages.map(|(name, package)| Missing::Package(name, package)));
    if !std::path::Path::new("/sys/fs/cgroup").is_dir() {
        missing.push(Missing::Cgroups);
    }
    if program("go").is_none() {
        let unbuilt = Kind::OF_NODES
            .into_iter()
            .find(|&kind| !Binaries::path(kind).is_file());
        missing.extend(unbuilt.map(|kind| Missing::Go(kind.name())));
    }
    missing
}

/// What this machine lacks for a control plane.
pub fn missing() -> Vec<Missing> {
    let mut missing = Vec::new();
    if program("etcd").is_none() {
        missing.push(Missing::Etcd);
    }
    if program("setpriv").is_none() {
        missing.push(Missing::Setpriv);
    }
    if program("go").is_none() {
        let unbuilt = [Kind::Apiserver, Kind::Peer]
            .into_iter()
            .find(|&kind| !Binaries::path(kind).is_file());
        missing.extend(unbuilt.map(|kind| Missing::Go(kind.name())));
    }
    missing
}

/// Whether the tests of `suite` must be skipped here. Says so once per suite, past the test harness's capture.
///
/// `SOLOIST_TESTBED=off` skips always.
///
/// # Panics
///
/// With `SOLOIST_TESTBED=required`, when something is missing.
pub fn skip(suite: &str) -> bool {
    skip_without(suite, missing)
}

/// As [`skip`], for tests that need nodes.
///
/// # Panics
///
/// With `SOLOIST_TESTBED=required`, when something is missing.
pub fn skip_nodes(suite: &str) -> bool {
    skip_without(suite, missing_for_nodes)
}

fn skip_without(suite: &str, missing: fn() -> Vec<Missing>) -> bool {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let wish = env::var("SOLOIST_TESTBED").unwrap_or_default();
    let reasons = match wish.as_str() {
        "off" => vec!["SOLOIST_TESTBED=off".to_owned()],
        _ => missing().iter().map(ToString::to_string).collect(),
    };
    if reasons.is_empty() {
        return false;
    }
    let reasons = reasons.join("; ");
    assert!(
        wish != "required",
        "SOLOIST_TESTBED=required, but {suite} cannot run: {reasons}"
    );
    if SAID
        .lock()
        .expect("no panic while saying")
        .insert(suite.to_owned())
    {
        let how = "`cargo run -p testbed -- build && SOLOIST_TESTBED=required cargo test`";
        let _ = writeln!(io::stderr(), "SKIPPED {suite}: {reasons}. To run it: {how}");
    }
    true
}

pub(crate) fn program(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
}
