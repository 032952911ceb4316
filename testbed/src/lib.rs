//! A real Kubernetes control plane on loopback, for tests.
//!
//! [`ControlPlane`] runs etcd and kube-apiserver, [`Link`] is a path to the API server that can fail in
//! the ways networks fail, and [`Peer`] is client-go's leader election on the same Lease.
//!
//! Nothing that this crate starts outlives the process that started it, however that process ends.

#![forbid(unsafe_code)]

mod audit;
mod availability;
mod binaries;
mod build;
mod cache;
mod certificates;
mod cluster;
pub mod dispositions;
mod error;
mod etcd;
mod etcd_cluster;
mod kubeconfig;
mod link;
mod objects;
mod peer;
mod plane;
mod ports;
mod process;
pub mod programs;
mod shared;
mod users;

pub use audit::Request;
pub use availability::{Missing, missing, missing_for_nodes, skip, skip_nodes};
pub use binaries::{Binaries, Kind, kubernetes_version};
pub use build::{Progress, progress_on_stderr};
pub use cache::{cache_dir, run_dir};
pub use cluster::{Cluster, ClusterOptions, Node};
pub use error::Error;
pub use etcd_cluster::{EtcdCluster, EtcdTransport};
pub use link::{Direction, Link};
pub use objects::Account;
pub use peer::{Peer, PeerEvent, PeerOptions};
pub use plane::{ControlPlane, Options, client};
pub use process::pids_vanish;
pub use shared::shared;
