//! `testbed`: a real Kubernetes control plane on this machine, for tests and for trying things out.

#![forbid(unsafe_code)]

mod daemon;
mod state;

use std::process::ExitCode;

use clap::{Parser, Subcommand, builder::PossibleValuesParser};
use testbed::{Binaries, Kind, kubernetes_version, progress_on_stderr};

/// A real Kubernetes control plane (etcd and kube-apiserver) on loopback, with nodes if asked.
///
/// It needs Go 1.26 (only to build, once), etcd (`apt-get install etcd-server`) and setpriv (util-linux). Binaries are
/// kept in $SOLOIST_TESTBED_CACHE, or in `soloist-testbed` under the user's cache folder. Nodes need root and
/// `apt-get install containerd runc containernetworking-plugins iptables nftables conntrack iproute2`.
#[derive(Debug, Parser)]
#[command(name = "testbed", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build what the cache lacks, with progress; takes some minutes the first time.
    Build {
        /// What to build [default: all that a control plane and its tests need]
        #[arg(value_name = "PROGRAM", value_parser = PossibleValuesParser::new(Kind::ALL.map(Kind::name)))]
        programs: Vec<String>,
    },
    /// Start a control plane in the background and print its kubeconfig.
    Up {
        #[command(flatten)]
        which: Which,
        /// The API server's port on 127.0.0.1 [default: a free one].
        #[arg(long)]
        port: Option<u16>,
        /// With this many nodes, each a kubelet, a containerd and a kube-proxy in namespaces of its own; needs root.
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=50))]
        nodes: u8,
    },
    /// Say whether a control plane runs, and where; exits with 3 if none does.
    Status {
        #[command(flatten)]
        which: Which,
    },
    /// End a control plane and remove its data.
    Down {
        #[command(flatten)]
        which: Which,
    },
    /// Run a control plane until SIGTERM or SIGINT, printing a line of JSON once it is ready; `up` runs this.
    Serve {
        #[command(flatten)]
        which: Which,
        /// The API server's port on 127.0.0.1 [default: a free one].
        #[arg(long)]
        port: Option<u16>,
        /// With this many nodes, each a kubelet, a containerd and a kube-proxy in namespaces of its own; needs root.
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=50))]
        nodes: u8,
        /// Leave the terminal's session.
        #[arg(long)]
        detach: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Which {
    /// Which control plane, if there are several.
    #[arg(long, default_value = "default", value_parser = name)]
    name: String,
}

fn name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match !text.is_empty() && text.chars().all(plain) {
        true => Ok(text.to_owned()),
        false => Err("use letters, digits, - and _".to_owned()),
    }
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Build { programs } => build(&programs)?,
        Command::Up { which, port, nodes } => daemon::up(&which.name, port, nodes)?,
        Command::Status { which } => return daemon::status(&which.name),
        Command::Down { which } => daemon::down(&which.name)?,
        Command::Serve {
            which,
            port,
            nodes,
            detach,
        } => daemon::serve(&which.name, port, nodes, detach)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn build(programs: &[String]) -> anyhow::Result<()> {
    let mut progress = progress_on_stderr();
    if programs.is_empty() {
        let Binaries {
            etcd,
            apiserver,
            peer,
        } = Binaries::prepare(&mut progress)?;
        println!("Kubernetes {}", kubernetes_version());
        for path in [etcd, apiserver, peer] {
            println!("{}", path.display());
        }
        return Ok(());
    }
    for kind in programs.iter().filter_map(|name| Kind::from_name(name)) {
        println!("{}", Binaries::build(kind, &mut progress)?.display());
    }
    Ok(())
}
