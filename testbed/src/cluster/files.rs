//! What a node's programs are told. Paths under /run and /var are the node's own.

use super::lan;

/// The name under which the sandbox's image is imported.
pub(crate) const PAUSE_IMAGE: &str = "testbed.local/pause:1";

/// What a Pod has when its node shuts down, if its own grace period is not shorter.
pub(super) const SHUTDOWN_GRACE_SECONDS: u64 = 20;

pub(super) const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

/// `restrict_oom_score_adj`: in containers a lower score than the own may not be allowed, and sandboxes would fail.
pub(super) fn containerd(root: &str, shim: &str) -> String {
    format!(
        r#"version = 3
root = "{root}"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.internal.v1.restart", "io.containerd.nri.v1.nri", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.blockfile"]
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE_IMAGE}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  disable_hugetlb_controller = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "/run/cni/net.d"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    runtime_path = "{shim}"
"#
    )
}

pub(super) fn cni(number: u8) -> String {
    let network = lan::pod_network(number);
    format!(
        r#"{{
  "cniVersion": "0.4.0",
  "name": "pods",
  "plugins": [
    {{
      "type": "bridge",
      "bridge": "pods",
      "isGateway": true,
      "ipMasq": false,
      "ipam": {{
        "type": "host-local",
        "dataDir": "/run/cni/addresses",
        "ranges": [[{{ "subnet": "{network}.0/24" }}]],
        "routes": [{{ "dst": "0.0.0.0/0" }}]
      }}
    }},
    {{ "type": "portmap", "capabilities": {{ "portMappings": true }} }},
    {{ "type": "loopback" }}
  ]
}}
"#
    )
}

pub(super) fn kubelet() -> String {
    format!(
        r#"apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous:
    enabled: true
  webhook:
    enabled: false
authorization:
  mode: AlwaysAllow
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix://{CONTAINERD_SOCKET}
enforceNodeAllocatable: []
evictionHard:
  imagefs.available: "0%"
  memory.available: "10Mi"
  nodefs.available: "0%"
  nodefs.inodesFree: "0%"
failCgroupV1: false
failSwapOn: false
imageGCHighThresholdPercent: 100
makeIPTablesUtilChains: false
nodeStatusReportFrequency: 10s
nodeStatusUpdateFrequency: 4s
registryPullQPS: 0
resolvConf: ""
serializeImagePulls: false
shutdownGracePeriod: {SHUTDOWN_GRACE_SECONDS}s
volumePluginDir: /run/kubelet-plugins
"#
    )
}

pub(super) fn kube_proxy(kubeconfig: &str, name: &str) -> Vec<String> {
    [
        ("kubeconfig", kubeconfig),
        ("hostname-override", name),
        ("proxy-mode", "nftables"),
        ("cluster-cidr", "10.20.0.0/16"),
        ("conntrack-max-per-core", "0"),
        ("conntrack-min", "0"),
        ("conntrack-tcp-timeout-established", "0"),
        ("conntrack-tcp-timeout-close-wait", "0"),
        ("healthz-bind-address", "127.0.0.1:10256"),
        ("metrics-bind-address", "127.0.0.1:10249"),
    ]
    .map(|(flag, value)| format!("--{flag}={value}"))
    .into()
}
