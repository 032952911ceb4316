//! etcd's own tool, and users by it.

use std::{fs, process::Command};

use super::EtcdCluster;
use crate::Error;

impl EtcdCluster {
    /// Makes root, with this password, and from then on asks everybody who they are.
    pub fn enable_users(&mut self, password: &str) -> Result<(), Error> {
        self.etcdctl(&["user", "add", &format!("root:{password}")])?;
        self.etcdctl(&["user", "grant-role", "root", "root"])?;
        self.etcdctl(&["auth", "enable"])?;
        self.password = Some(password.to_owned());
        Ok(())
    }

    /// etcd's own tool, as somebody who may do everything, on all members; what it says.
    pub fn etcdctl(&self, words: &[&str]) -> Result<String, Error> {
        let urls = (0..self.members.len()).map(|member| self.url(member));
        let mut etcdctl = self.command("etcdctl", &urls.collect::<Vec<_>>().join(","));
        etcdctl.args(words);
        run("obey etcdctl", etcdctl)
    }

    /// As nobody: while there are no users.
    pub fn etcdctl_without_users(&mut self, words: &[&str]) -> Result<String, Error> {
        let password = self.password.take();
        let done = self.etcdctl(words);
        self.password = password;
        done
    }

    /// With something to read.
    pub fn etcdctl_with_input(&self, words: &[&str], input: &str) -> Result<String, Error> {
        let path = self.folder.path().join("input");
        fs::write(&path, input).map_err(Error::io("write", &path))?;
        let input = fs::File::open(&path).map_err(Error::io("open", &path))?;
        let mut etcdctl = self.command("etcdctl", &self.url(0));
        etcdctl.args(words).stdin(input);
        run("obey etcdctl", etcdctl)
    }

    /// The same, still to be started.
    pub fn command(&self, program: &str, endpoints: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints={endpoints}"));
        if let Some(tls) = &self.tls {
            command.arg(format!("--cacert={}", tls.ca.display()));
            if self.client_certificates {
                let folder = self.folder.path();
                command.arg(format!("--cert={}", folder.join("root.crt").display()));
                command.arg(format!("--key={}", folder.join("root.key").display()));
            }
        }
        if let Some(password) = &self.password {
            command.arg(format!("--user=root:{password}"));
        }
        command
    }
}

pub(super) fn failed(doing: &'static str, answer: String) -> Error {
    Error::Etcd { doing, answer }
}

pub(super) fn run(doing: &'static str, mut command: Command) -> Result<String, Error> {
    let output = command.output().map_err(|source| Error::Spawn {
        program: "etcdctl (Debian: etcd-client)".to_owned(),
        source,
    })?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(failed(
            doing,
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )),
    }
}
