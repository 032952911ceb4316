//! kubectl and Helm.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use testbed::{Binaries, Cluster, Kind, progress_on_stderr};

#[derive(Clone, Copy)]
pub(crate) enum Tool {
    Kubectl,
    Helm,
}

impl Tool {
    /// As the cluster's administrator; built first if the cache lacks it.
    pub(crate) fn for_cluster(self, cluster: &Cluster) -> Command {
        let kind = match self {
            Self::Kubectl => Kind::Kubectl,
            Self::Helm => Kind::Helm,
        };
        let mut command = Command::new(Binaries::build(kind, &mut progress_on_stderr()).unwrap());
        command
            .env("KUBECONFIG", cluster.plane().admin_kubeconfig().unwrap())
            .env("HOME", cluster.plane().folder())
            .current_dir(crate::images::checkout());
        command
    }
}

/// Runs it to its end, which must be a good one, and returns what it printed.
pub(crate) fn run(mut command: Command, arguments: &[&str], input: &str) -> String {
    let mut child = command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stdout);
    assert!(
        output.status.success(),
        "{arguments:?}: {said}{}",
        text(&output.stderr)
    );
    said
}
