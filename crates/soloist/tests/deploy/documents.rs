//! The commands of docs/kubernetes.md and docs/switches.md that are about a cluster, run as they stand there, by kubectl and Helm on
//! the real API server.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::cluster::plane;
use crate::inject::{piped, somebodys};
use crate::tools;

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap()
}

/// The lines of a page's blocks of commands.
fn commands(page: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let blocks = text.split("```console\n").skip(1);
    let blocks = blocks.map(|block| block.split_once("```").unwrap().0);
    blocks.flat_map(str::lines).map(str::to_owned).collect()
}

/// A terminal in a folder that has what the documents speak of: the programs, `deploy` and somebody's `deployment.yaml`.
struct Terminal {
    folder: tempfile::TempDir,
    kubeconfig: PathBuf,
}

impl Terminal {
    async fn open() -> Option<Self> {
        let plane = plane().await?;
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        fs::create_dir(&bin).unwrap();
        symlink(env!("CARGO_BIN_EXE_soloist"), bin.join("soloist")).unwrap();
        for program in ["kubectl", "helm"] {
            let found = tools::find(program, "the documents' commands")?;
            symlink(found, bin.join(program)).unwrap();
        }
        symlink(root().join("deploy"), folder.path().join("deploy")).unwrap();
        let somebodys = somebodys("Deployment", "somebodys");
        fs::write(folder.path().join("deployment.yaml"), somebodys).unwrap();
        let kubeconfig = plane.admin_kubeconfig().unwrap();
        Some(Self { folder, kubeconfig })
    }

    fn command(&self, line: &str) -> Command {
        let path = format!("{}/bin:/usr/bin:/bin", self.folder.path().display());
        let mut command = Command::new("bash");
        command
            .args(["-o", "pipefail", "-c", line])
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.folder.path())
            .env("KUBECONFIG", &self.kubeconfig);
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    fn works(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn deployment(&self, namespace: &str, name: &str) -> Value {
        let get = format!("kubectl get deployment {name} --namespace {namespace} --output json");
        serde_json::from_str(&self.works(&get)).unwrap()
    }
}

fn container(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["spec"]["containers"][0]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_guide_to_kubernetes_says_can_be_typed_in_as_it_stands() {
    let Some(terminal) = Terminal::open().await else {
        return;
    };
    let mut tested = 0;
    for line in commands("docs/kubernetes.md") {
        tested += 1;
        let (namespace, name) = match line.split_whitespace().take(2).collect::<Vec<_>>()[..] {
            ["soloist", "manifests"] if line.contains("--name web ") => ("web", "web"),
            ["soloist", "manifests"] => ("feed", "feed"),
            ["soloist", "inject"] => ("somebodys", "feed"),
            ["kubectl", "apply"] => ("my-program", "my-program"),
            ["helm", "install"] => ("shop", "feed"),
            // A Pod that runs to its end: the tests of the nodes do it.
            ["helm", "test"] => continue,
            ["soloist", "doctor"] => {
                let said = terminal.works(&line);
                // Of the workload that another command of the page has made.
                let right = "system:serviceaccount:feed:feed may update the lease feed";
                assert!(said.contains(right), "{said}");
                assert!(said.contains("Nothing is broken"), "{said}");
                continue;
            }
            _ => panic!("a command without a test: {line}"),
        };
        if line.contains("inject <") {
            // Its namespace stands before it in the same text.
            let text = fs::read(terminal.folder.path().join("deployment.yaml")).unwrap();
            assert!(
                piped(&mut terminal.command("kubectl apply -f -"), &text)
                    .status
                    .success()
            );
        }
        terminal.works(&line);
        let deployment = terminal.deployment(namespace, name);
        assert_eq!(deployment["spec"]["replicas"], 3, "{line}");
        let command = container(&deployment)["command"].to_string();
        assert!(command.contains("soloist\",\"run\""), "{line}: {command}");
    }
    assert_eq!(tested, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_by_hand_can_be_typed_in_as_they_stand_and_are_understood() {
    let Some(terminal) = Terminal::open().await else {
        return;
    };
    let lease = "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: demo}\nspec: {holderIdentity: web-1, leaseDurationSeconds: 15, leaseTransitions: 41}\n";
    let created = piped(
        &mut terminal.command("kubectl create -f -"),
        lease.as_bytes(),
    );
    assert!(created.status.success(), "{created:?}");
    let lines = commands("docs/switches.md");
    let lines: Vec<_> = lines
        .iter()
        .filter(|line| line.starts_with("kubectl "))
        .collect();
    assert_eq!(lines.len(), 5);
    for line in lines {
        terminal.works(line);
        let get = "kubectl get lease demo --output json";
        let lease: Value = serde_json::from_str(&terminal.works(get)).unwrap();
        let (_, order) = line.split_once("soloist.dev/").unwrap();
        let written = |name: &str| lease["metadata"]["annotations"][name].clone();
        match order.split_once('=') {
            Some((name, text)) => {
                let name = format!("soloist.dev/{name}");
                assert_eq!(written(&name), text.trim_matches('\''), "{line}");
            }
            None => assert_eq!(written("soloist.dev/pause"), Value::Null),
        }
        let said = terminal.works("soloist status --name demo");
        let is_paused = line.contains("pause=");
        assert_eq!(said.contains("PAUSED"), is_paused, "{line}: {said}");
    }
    let refused = terminal.run("soloist handover --name demo");
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("web-1 leads, but not as a soloist: it obeys no orders"),
        "{said}"
    );
}
