//! An etcd of one or three members on loopback, for tests that keep the lease in it, and the faults that befall such a cluster.

mod peers;
mod tool;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    Error, availability::program, certificates::Certificates, plane::folder::Folder, ports::Ports,
    process::Component,
};
use peers::Peers;
use tool::{failed, run};

const PATIENCE: Duration = Duration::from_secs(30);

/// An etcd. Dropping it kills its members.
///
/// Its methods block; each returns once its effect is there.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<Member>,
    peers: Peers,
    tls: Option<Certificates>,
    client_certificates: bool,
    /// Root's, once there are users.
    password: Option<String>,
    backup: PathBuf,
    restores: u32,
    folder: Folder,
}

#[derive(Debug)]
struct Member {
    ports: Ports,
    process: Option<Component>,
}

/// How members and clients speak with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EtcdTransport {
    /// As they are.
    Plain,
    /// The members have certificates.
    Tls,
    /// So do the clients.
    MutualTls,
}

impl EtcdCluster {
    /// Whether there is no etcd on this machine.
    pub fn is_missing() -> bool {
        ["etcd", "etcdctl"].map(program).contains(&None)
    }

    /// Starts so many members, and returns when they have a leader.
    pub fn start(members: usize, transport: EtcdTransport) -> Result<Self, Error> {
        let folder = Folder::create()?;
        let tls = match transport {
            EtcdTransport::Plain => None,
            _ => Some(Certificates::generate(folder.path())?),
        };
        let ports = (0..members).map(|_| Ports::take(folder.run_dir(), None));
        let ports = ports.collect::<Result<Vec<_>, _>>()?;
        // Between two members there is a proxy, at the port that has no other use here.
        let ways = ports.iter().map(|ports| (ports.apiserver, ports.etcd_peer));
        let peers = Peers::start(ways.collect())?;
        let member = |ports| Member {
            ports,
            process: None,
        };
        let mut cluster = Self {
            members: ports.into_iter().map(member).collect(),
            peers,
            tls,
            client_certificates: transport == EtcdTransport::MutualTls,
            password: None,
            backup: folder.path().join("backup"),
            restores: 0,
            folder,
        };
        for member in 0..members {
            cluster.spawn(member)?;
        }
        cluster.wait_until_healthy()?;
        let ids = cluster.ids()?;
        cluster.peers.name(ids);
        Ok(cluster)
    }

    /// A member's address for clients: `127.0.0.1:PORT`.
    pub fn endpoint(&self, member: usize) -> String {
        format!("127.0.0.1:{}", self.members[member].ports.etcd)
    }

    /// Those of all members.
    pub fn endpoints(&self) -> String {
        let all = (0..self.members.len()).map(|member| self.endpoint(member));
        all.collect::<Vec<_>>().join(",")
    }

    /// The file of who has signed the members' certificates.
    ///
    /// # Panics
    /// Without TLS.
    pub fn ca(&self) -> PathBuf {
        self.certificates().ca.clone()
    }

    /// A certificate and a key for a client of this name, as files.
    ///
    /// # Panics
    /// Without TLS.
    pub fn client(&self, user: &str, lifetime: Duration) -> Result<(PathBuf, PathBuf), Error> {
        let (certificate, key) = self.certificates().client(user, lifetime)?;
        let write = |name: String, text: String| {
            let path = self.folder.path().join(name);
            fs::write(&path, text).map_err(Error::io("write", &path))?;
            Ok::<_, Error>(path)
        };
        Ok((
            write(format!("{user}.crt"), certificate)?,
            write(format!("{user}.key"), key)?,
        ))
    }

    fn certificates(&self) -> &Certificates {
        self.tls.as_ref().expect("started with TLS")
    }

    /// Kills a member.
    pub fn kill(&mut self, member: usize) {
        self.members[member].process = None;
    }

    /// Starts a member that was killed, with the data that it had, and returns when all is well again.
    pub fn start_again(&mut self, member: usize) -> Result<(), Error> {
        self.spawn(member)?;
        self.wait_until_healthy()
    }

    /// Stops a member (SIGSTOP).
    pub fn freeze(&self, member: usize) -> Result<(), Error> {
        self.process(member).freeze()
    }

    /// Lets it go on.
    pub fn thaw(&self, member: usize) -> Result<(), Error> {
        self.process(member).thaw()
    }

    fn process(&self, member: usize) -> &Component {
        self.members[member].process.as_ref().expect("it runs")
    }

    /// Cuts a member off from the others; clients still reach it.
    pub fn cut_off(&self, member: usize) {
        self.peers.cut_off(member);
    }

    /// Heals what [`EtcdCluster::cut_off`] did.
    pub fn join(&self) {
        self.peers.join();
    }

    /// The member that leads the others.
    pub fn leader(&self) -> Result<usize, Error> {
        let status = self.etcdctl(&["endpoint", "status", "--write-out=json"])?;
        let status: Value = serde_json::from_str(&status).unwrap_or_default();
        let leader = status
            .as_array()
            .into_iter()
            .flatten()
            .find(|one| one["Status"]["leader"] == one["Status"]["header"]["member_id"]);
        let endpoint = leader.and_then(|leader| leader["Endpoint"].as_str());
        let is_it = |member: &usize| endpoint.is_some_and(|e| e.ends_with(&self.endpoint(*member)));
        (0..self.members.len())
            .find(is_it)
            .ok_or_else(|| failed("say who leads", status.to_string()))
    }

    /// Forgets everything older than now.
    pub fn compact(&self) -> Result<(), Error> {
        let status = self.etcdctl(&["endpoint", "status", "--write-out=json"])?;
        let status: Value = serde_json::from_str(&status).unwrap_or_default();
        let revision = status[0]["Status"]["header"]["revision"].to_string();
        self.etcdctl(&["compaction", "--physical", &revision])
            .map(drop)
    }

    /// Saves all that is in it.
    pub fn save(&self) -> Result<(), Error> {
        let mut etcdctl = self.command("etcdctl", &self.url(0));
        etcdctl.args(["snapshot", "save"]).arg(&self.backup);
        let _ = fs::remove_file(&self.backup);
        run("save a snapshot", etcdctl).map(drop)
    }

    /// Kills all members, and starts them with what was saved, revisions included.
    pub fn restore(&mut self) -> Result<(), Error> {
        self.restore_with("etcd-cluster")
    }

    /// The same, as another cluster: its id changes.
    pub fn restore_as_another(&mut self) -> Result<(), Error> {
        self.restore_with("another")
    }

    fn restore_with(&mut self, token: &str) -> Result<(), Error> {
        for member in 0..self.members.len() {
            self.kill(member);
        }
        self.restores += 1;
        // From 3.6 on only etcdutl can.
        let tool = program("etcdutl").unwrap_or_else(|| "etcdctl".into());
        for member in 0..self.members.len() {
            let mut restore = Command::new(&tool);
            restore
                .env("ETCDCTL_API", "3")
                .args(["snapshot", "restore"])
                .arg(&self.backup)
                .arg(format!("--initial-cluster-token={token}"))
                .arg(format!("--data-dir={}", self.data(member).display()))
                .args(self.identity(member));
            run("restore a snapshot", restore)?;
        }
        for member in 0..self.members.len() {
            self.spawn(member)?;
        }
        self.wait_until_healthy()
    }

    fn url(&self, member: usize) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.endpoint(member))
    }

    fn data(&self, member: usize) -> PathBuf {
        let name = format!("data-{member}-{}", self.restores);
        self.folder.path().join(name)
    }

    /// Who it is among the members.
    fn identity(&self, member: usize) -> Vec<String> {
        let peer =
            |member: usize| format!("http://127.0.0.1:{}", self.members[member].ports.apiserver);
        let all = (0..self.members.len()).map(|member| format!("m{member}={}", peer(member)));
        vec![
            format!("--name=m{member}"),
            format!("--initial-cluster={}", all.collect::<Vec<_>>().join(",")),
            format!("--initial-advertise-peer-urls={}", peer(member)),
        ]
    }

    /// Starts a member that was killed, and does not wait for it.
    pub fn spawn(&mut self, member: usize) -> Result<(), Error> {
        let program =
            program("etcd").ok_or_else(|| failed("be found", "install etcd-server".into()))?;
        let mut arguments = self.identity(member);
        let url = self.url(member);
        arguments.extend([
            format!("--data-dir={}", self.data(member).display()),
            format!("--listen-client-urls={url}"),
            format!("--advertise-client-urls={url}"),
            format!(
                "--listen-peer-urls=http://127.0.0.1:{}",
                self.members[member].ports.etcd_peer
            ),
            "--unsafe-no-fsync".to_owned(),
            // As is usual from 3.5 on: who comes back does not make the others choose again.
            "--pre-vote=true".to_owned(),
        ]);
        if let Some(tls) = &self.tls {
            if self.client_certificates {
                self.client("root", Duration::from_secs(86_400))?;
                arguments.extend([
                    "--client-cert-auth".to_owned(),
                    format!("--trusted-ca-file={}", tls.ca.display()),
                ]);
            }
            arguments.extend([
                format!("--cert-file={}", tls.server.display()),
                format!("--key-file={}", tls.server_key.display()),
            ]);
        }
        let folder = self.folder.path().join(format!("m{member}"));
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        let process = Component::start("etcd", Path::new(&program), &arguments, &folder)?;
        self.members[member].process = Some(process);
        Ok(())
    }

    /// Waits until all members that run have a leader and agree.
    pub fn wait_until_healthy(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            for member in &mut self.members {
                if let Some(process) = &mut member.process {
                    process.check()?;
                }
            }
            let running = (0..self.members.len()).filter(|n| self.members[*n].process.is_some());
            let urls = running.map(|member| self.url(member)).collect::<Vec<_>>();
            let mut health = self.command("etcdctl", &urls.join(","));
            health.args(["endpoint", "health", "--command-timeout=2s"]);
            match run("become healthy", health) {
                Ok(_) => return Ok(()),
                Err(error) if begun.elapsed() > PATIENCE => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// The members' own numbers, which they tell each other.
    fn ids(&self) -> Result<Vec<u64>, Error> {
        let list = self.etcdctl(&["member", "list", "--write-out=json"])?;
        let list: Value = serde_json::from_str(&list).unwrap_or_default();
        let id = |member: usize| {
            let name = format!("m{member}");
            let members = list["members"].as_array()?;
            let found = members.iter().find(|one| one["name"] == name)?;
            found["ID"].as_u64()
        };
        let ids = (0..self.members.len()).map(id).collect::<Option<Vec<_>>>();
        ids.ok_or_else(|| failed("list its members", list.to_string()))
    }
}
