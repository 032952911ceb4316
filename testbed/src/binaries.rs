use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::{Error, Progress, availability::program, build, cache_dir, missing};

/// A program that the testbed builds with Go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// kube-apiserver.
    Apiserver,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// kubelet.
    Kubelet,
    /// kube-proxy.
    KubeProxy,
    /// containerd: a newer one than Debian's, for image volumes.
    Containerd,
    /// What containerd starts for each Pod.
    ContainerdShim,
    /// containerd's client.
    Ctr,
    /// kubectl.
    Kubectl,
    /// helm.
    Helm,
    /// The first process of a Pod's sandbox, in `pause/`.
    Pause,
    /// The client-go leader election program in `peer/`.
    Peer,
    /// The same with a client-go that still had the locks before Leases, in `peer-legacy/`.
    PeerLegacy,
}

/// A Go module that is compiled into this crate, so that building needs no checkout.
pub(crate) struct Module {
    pub name: &'static str,
    pub files: &'static [(&'static str, &'static str)],
}

const KUBERNETES: Module = Module {
    name: "kubernetes",
    files: &[
        ("go.mod", include_str!("../kubernetes/go.mod")),
        ("go.sum", include_str!("../kubernetes/go.sum")),
    ],
};

const PEER: Module = Module {
    name: "peer",
    files: &[
        ("go.mod", include_str!("../peer/go.mod")),
        ("go.sum", include_str!("../peer/go.sum")),
        ("main.go", include_str!("../peer/main.go")),
        ("child.go", include_str!("../peer/child.go")),
        ("lock.go", include_str!("../peer/lock.go")),
    ],
};

const PEER_LEGACY: Module = Module {
    name: "peer-legacy",
    files: &[
        ("go.mod", include_str!("../peer-legacy/go.mod")),
        ("go.sum", include_str!("../peer-legacy/go.sum")),
        ("main.go", include_str!("../peer/main.go")),
        ("child.go", include_str!("../peer/child.go")),
        ("lock.go", include_str!("../peer-legacy/lock.go")),
    ],
};

const CONTAINERD: Module = Module {
    name: "containerd",
    files: &[
        ("go.mod", include_str!("../containerd/go.mod")),
        ("go.sum", include_str!("../containerd/go.sum")),
    ],
};

const HELM: Module = Module {
    name: "helm",
    files: &[
        ("go.mod", include_str!("../helm/go.mod")),
        ("go.sum", include_str!("../helm/go.sum")),
    ],
};

const KUBECTL: Module = Module {
    name: "kubectl",
    files: &[
        ("go.mod", include_str!("../kubectl/go.mod")),
        ("go.sum", include_str!("../kubectl/go.sum")),
        ("main.go", include_str!("../kubectl/main.go")),
    ],
};

const PAUSE: Module = Module {
    name: "pause",
    files: &[
        ("go.mod", include_str!("../pause/go.mod")),
        ("main.go", include_str!("../pause/main.go")),
    ],
};

/// The version of Kubernetes that is pinned, such as `v1.36.4`.
pub fn kubernetes_version() -> &'static str {
    required(&KUBERNETES, "k8s.io/kubernetes")
}

/// The version of a module that another one's go.mod requires.
fn required(module: &Module, path: &str) -> &'static str {
    let (_, go_mod) = module.files[0];
    let mut words = go_mod.split_whitespace().skip_while(|word| *word != path);
    let version = words.nth(1);
    version.expect("go.mod requires the module that it is for")
}

impl Kind {
    /// Everything that can be built.
    pub const ALL: [Self; 13] = [
        Self::Apiserver,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Kubelet,
        Self::KubeProxy,
        Self::Containerd,
        Self::ContainerdShim,
        Self::Ctr,
        Self::Kubectl,
        Self::Helm,
        Self::Pause,
        Self::Peer,
        Self::PeerLegacy,
    ];

    /// What a control plane and its tests need.
    pub const OF_A_CONTROL_PLANE: [Self; 3] = [Self::Apiserver, Self::Peer, Self::PeerLegacy];

    /// What a cluster with nodes needs besides.
    pub const OF_NODES: [Self; 8] = [
        Self::ControllerManager,
        Self::Scheduler,
        Self::Kubelet,
        Self::KubeProxy,
        Self::Containerd,
        Self::ContainerdShim,
        Self::Ctr,
        Self::Pause,
    ];

    /// The program with this file name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The file's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Apiserver => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
            Self::Containerd => "containerd",
            Self::ContainerdShim => "containerd-shim-runc-v2",
            Self::Ctr => "ctr",
            Self::Kubectl => "kubectl",
            Self::Helm => "helm",
            Self::Pause => "pause",
            Self::Peer => "peer",
            Self::PeerLegacy => "peer-legacy",
        }
    }

    pub(crate) fn module(self) -> &'static Module {
        match self {
            Self::Peer => &PEER,
            Self::PeerLegacy => &PEER_LEGACY,
            Self::Helm => &HELM,
            Self::Pause => &PAUSE,
            Self::Kubectl => &KUBECTL,
            Self::Containerd | Self::ContainerdShim | Self::Ctr => &CONTAINERD,
            Self::Apiserver
            | Self::ControllerManager
            | Self::Scheduler
            | Self::Kubelet
            | Self::KubeProxy => &KUBERNETES,
        }
    }

    pub(crate) fn package(self) -> String {
        match self {
            Self::Peer | Self::PeerLegacy | Self::Pause | Self::Kubectl => ".".to_owned(),
            Self::Helm => "helm.sh/helm/v4/cmd/helm".to_owned(),
            Self::Containerd | Self::ContainerdShim | Self::Ctr => {
                format!("github.com/containerd/containerd/v2/cmd/{}", self.name())
            }
            Self::Apiserver
            | Self::ControllerManager
            | Self::Scheduler
            | Self::Kubelet
            | Self::KubeProxy => format!("k8s.io/kubernetes/cmd/{}", self.name()),
        }
    }

    pub(crate) fn ldflags(self) -> String {
        let stripped = "-s -w".to_owned();
        match self {
            Self::Peer | Self::PeerLegacy | Self::Pause | Self::Helm => return stripped,
            Self::Containerd | Self::ContainerdShim | Self::Ctr => {
                let version = required(&CONTAINERD, "github.com/containerd/containerd/v2");
                return format!(
                    "{stripped} -X github.com/containerd/containerd/v2/version.Version={version}"
                );
            }
            Self::Apiserver
            | Self::ControllerManager
            | Self::Scheduler
            | Self::Kubelet
            | Self::KubeProxy
            | Self::Kubectl => {}
        }
        let version = kubernetes_version();
        let mut numbers = version.trim_start_matches('v').split('.');
        let (major, minor) = (
            numbers.next().unwrap_or_default(),
            numbers.next().unwrap_or_default(),
        );
        ["gitVersion", "gitMajor", "gitMinor"]
            .iter()
            .zip([version, major, minor])
            .fold(stripped, |flags, (name, value)| {
                format!("{flags} -X k8s.io/component-base/version.{name}={value}")
            })
    }
}

/// The programs that a control plane consists of.
#[derive(Debug, Clone)]
pub struct Binaries {
    /// Debian's etcd.
    pub etcd: PathBuf,
    /// kube-apiserver.
    pub apiserver: PathBuf,
    /// The client-go peer.
    pub peer: PathBuf,
}

impl Binaries {
    /// Finds etcd and builds what the cache lacks.
    pub fn prepare(progress: &mut Progress<'_>) -> Result<Self, Error> {
        if let Some(missing) = missing().into_iter().next() {
            return Err(missing.into());
        }
        Ok(Self {
            etcd: program("etcd").ok_or(crate::Missing::Etcd)?,
            apiserver: Self::build(Kind::Apiserver, progress)?,
            peer: Self::build(Kind::Peer, progress)?,
        })
    }

    /// Builds one program unless the cache has it. Two callers at once build once.
    pub fn build(kind: Kind, progress: &mut Progress<'_>) -> Result<PathBuf, Error> {
        build::build(kind, &Self::path(kind), progress)
    }

    /// Where the program is once it is built.
    pub fn path(kind: Kind) -> PathBuf {
        let module = kind.module();
        let mut hash = Sha256::new();
        for (name, text) in module.files {
            hash.update(format!("{name} {}\n{text}", text.len()));
        }
        hash.update(kind.ldflags());
        let key: String = hash
            .finalize()
            .iter()
            .take(6)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let folder = match module.name == KUBERNETES.name {
            true => format!("{}-{}-{key}", module.name, kubernetes_version()),
            false => format!("{}-{key}", module.name),
        };
        cache_dir().join(folder).join(kind.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_comes_from_go_mod() {
        let version = kubernetes_version();
        assert!(
            version.starts_with("v1.3") && version.split('.').count() == 3,
            "{version}"
        );
    }

    #[test]
    fn the_binary_says_its_version() {
        let flags = Kind::Apiserver.ldflags();
        assert!(
            flags.contains(&format!("gitVersion={}", kubernetes_version())),
            "{flags}"
        );
        assert!(flags.contains("gitMajor=1 "), "{flags}");
    }

    #[test]
    fn programs_of_one_module_share_a_folder_and_modules_do_not() {
        let folder = |kind| Binaries::path(kind).parent().unwrap().to_owned();
        assert_eq!(folder(Kind::Apiserver), folder(Kind::Kubelet));
        assert_ne!(folder(Kind::Apiserver), folder(Kind::Peer));
    }
}
