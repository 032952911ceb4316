//! kube-controller-manager and kube-scheduler, on loopback beside the API server.

use std::time::Duration;

use crate::{Binaries, ControlPlane, Error, Kind, process::Component};

pub(super) const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
pub(super) const SCHEDULER: &str = "system:kube-scheduler";

/// Ends with this.
#[derive(Debug)]
pub(super) struct Controllers {
    manager: Component,
    scheduler: Component,
}

impl Controllers {
    /// `node_grace` is how long a node may be silent before it is not ready.
    pub(super) fn start(plane: &ControlPlane, node_grace: Duration) -> Result<Self, Error> {
        let certificates = plane.certificates();
        let manager = [
            (
                "kubeconfig",
                plane
                    .kubeconfig(CONTROLLER_MANAGER, None)?
                    .display()
                    .to_string(),
            ),
            ("leader-elect", "false".to_owned()),
            ("secure-port", "0".to_owned()),
            ("use-service-account-credentials", "true".to_owned()),
            ("root-ca-file", certificates.ca.display().to_string()),
            (
                "service-account-private-key-file",
                certificates.accounts_private.display().to_string(),
            ),
            (
                "node-monitor-grace-period",
                format!("{}s", node_grace.as_secs()),
            ),
            ("node-monitor-period", "1s".to_owned()),
        ];
        let scheduler = [
            (
                "kubeconfig",
                plane.kubeconfig(SCHEDULER, None)?.display().to_string(),
            ),
            ("leader-elect", "false".to_owned()),
            ("secure-port", "0".to_owned()),
        ];
        let flags = |pairs: &[(&str, String)]| {
            let flag = |(name, value): &(&str, String)| format!("--{name}={value}");
            pairs.iter().map(flag).collect::<Vec<_>>()
        };
        let start = |name, kind, arguments: &[String]| {
            Component::start(name, &Binaries::path(kind), arguments, plane.folder())
        };
        Ok(Self {
            manager: start(
                "kube-controller-manager",
                Kind::ControllerManager,
                &flags(&manager),
            )?,
            scheduler: start("kube-scheduler", Kind::Scheduler, &flags(&scheduler))?,
        })
    }

    pub(super) fn check(&mut self) -> Result<(), Error> {
        self.manager.check()?;
        self.scheduler.check()
    }
}
