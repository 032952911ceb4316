//! Planned switches from anywhere: `soloist handover`, `pause`, `resume` and `status`. They read the lease, write orders
//! beside it, and watch what becomes of them. What is done about an order is decided by the replicas.

mod follow;
mod handover;
mod lease;
mod live;
mod pause;
mod pods;
mod status;

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use soloist_elector::StoreError;
use soloist_elector::kubernetes::ConnectError;

use crate::etcd::EtcdArgs;
use crate::store::{NoLease, StoreChoice};
pub(crate) use handover::HandoverArgs;
pub(crate) use pause::{PauseArgs, ResumeArgs};
pub(crate) use status::StatusArgs;

/// Which lease.
#[derive(Debug, Args)]
#[command(next_help_heading = "Which lease")]
pub(crate) struct LeaseArgs {
    /// The lease's name, as the replicas were told
    #[arg(long, env = "SOLOIST_NAME")]
    pub(crate) name: Option<String>,
    /// Where the lease lives: kubernetes, etcd:HOST:PORT[,HOST:PORT…]/PREFIX, file, or file:PATH; deprecated: configmap, endpoints, configmap+lease, endpoints+lease [default: kubernetes with a kubeconfig or in a Pod, file elsewhere]
    #[arg(long, env = "SOLOIST_STORE", value_name = "STORE")]
    pub(crate) store: Option<StoreChoice>,
    /// The lease's namespace [default: $NAMESPACE, $POD_NAMESPACE, the service account's, the context's]
    #[arg(long, short, env = "SOLOIST_NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// A kubeconfig file [default: $KUBECONFIG, the Pod's service account, ~/.kube/config]
    #[arg(long, env = "SOLOIST_KUBECONFIG", value_name = "PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig instead of its current one
    #[arg(long, env = "SOLOIST_CONTEXT")]
    pub(crate) context: Option<String>,
    #[command(flatten)]
    pub(crate) etcd: EtcdArgs,
}

/// Why something was not done. Nothing has changed then, unless it says so.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotDone {
    #[error("there is no {0}; has a replica ever run with this name?")]
    NoLease(String),
    #[error("nobody leads, so there is nothing to hand over ({0})")]
    NobodyLeads(String),
    #[error("{0} leads, but not as a soloist: it obeys no orders")]
    NotASoloist(String),
    #[error(
        "term {wanted} is over: {leader} leads in term {term}. Look again (soloist status), and order it for that term"
    )]
    AnotherTerm {
        wanted: u64,
        term: u64,
        leader: String,
    },
    #[error("{0} leads already")]
    LeadsAlready(String),
    #[error("there is no replica {name} ({place})")]
    NoSuchReplica { name: String, place: String },
    #[error("the replica {name} cannot take over: {why}")]
    Unfit { name: String, why: String },
    #[error("the lease is paused, so nobody could take over; resume first (soloist resume)")]
    Paused,
    #[error("the lease changed again and again while the order was written; try again")]
    Busy,
    #[error("the order stands, but {what} within {limit}")]
    TookLong { what: String, limit: String },
    #[error(
        "{leader} leads now, not {heir}: it did not take the lease while the others stood back"
    )]
    HeirPassedOver { heir: String, leader: String },
}

impl NotDone {
    const fn code(&self) -> u8 {
        match self {
            Self::TookLong { .. } => 4,
            _ => 1,
        }
    }
}

/// The exit code for what went wrong.
pub(crate) fn code_of(error: &anyhow::Error) -> u8 {
    if let Some(not_done) = error.downcast_ref::<NotDone>() {
        return not_done.code();
    }
    match error.downcast_ref() {
        Some(StoreError::Refused(_)) => 3,
        _ if error.is::<ConnectError>() => 2,
        _ if error.is::<lease::WhichLease>() || error.is::<NoLease>() => 2,
        _ => 1,
    }
}

/// One line of progress for people. Whoever has closed standard output has heard enough.
/// Whether somebody can still read what is said.
fn is_heard() -> bool {
    let out = std::io::stdout();
    let mut look = [PollFd::new(&out, PollFlags::empty())];
    !matches!(poll(&mut look, Some(&Timespec::default())), Ok(1..))
}

/// Without what would move a terminal's cursor: names in a lease are anybody's.
fn say(line: impl std::fmt::Display) {
    let line = line.to_string();
    let plain = line.replace(|c: char| c.is_control() && c != '\n', "");
    let _ = writeln!(std::io::stdout(), "{plain}");
}
