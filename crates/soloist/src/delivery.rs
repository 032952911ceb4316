//! How the program soloist comes into somebody's container.

use clap::{Args, ValueEnum};

use crate::manifests::yaml::{indented, string};

/// The image of the same version as this program, with nothing in it but `/soloist`.
const IMAGE: &str = concat!("soloist:", env!("CARGO_PKG_VERSION"));

/// The volume that brings soloist, and where it is mounted.
pub(crate) const VOLUME: &str = "soloist";
pub(crate) const FOLDER: &str = "/soloist-bin";

#[derive(Clone, Debug, Args)]
pub(crate) struct DeliveryArgs {
    /// How soloist comes into the container
    #[arg(long, default_value = "image-volume", value_name = "HOW")]
    pub(crate) delivery: Delivery,
    /// The image that has /soloist in it, for image-volume and init-container
    #[arg(long, default_value = IMAGE, value_name = "IMAGE")]
    pub(crate) soloist_image: String,
    /// Where the program's own image has soloist, for in-image
    #[arg(long, default_value = "/soloist", value_name = "PATH")]
    pub(crate) soloist_path: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Delivery {
    /// The kubelet mounts soloist's image as a volume: Kubernetes 1.35 and newer (1.33 and 1.34 with the feature gate ImageVolume), with containerd 2.1 or CRI-O 1.31
    ImageVolume,
    /// An init container copies soloist into an emptyDir: any Kubernetes
    InitContainer,
    /// It is in the program's own image
    InImage,
}

impl DeliveryArgs {
    /// Where soloist is in the program's container.
    pub(crate) fn path(&self) -> String {
        match self.delivery {
            Delivery::ImageVolume | Delivery::InitContainer => format!("{FOLDER}/soloist"),
            Delivery::InImage => self.soloist_path.clone(),
        }
    }

    /// An item of the Pod's `volumes`.
    pub(crate) fn volume(&self) -> Option<String> {
        let image = string(&self.soloist_image);
        match self.delivery {
            Delivery::ImageVolume => Some(format!(
                "- name: {VOLUME}\n  image:\n    reference: {image}\n    pullPolicy: IfNotPresent\n"
            )),
            Delivery::InitContainer => Some(format!("- name: {VOLUME}\n  emptyDir: {{}}\n")),
            Delivery::InImage => None,
        }
    }

    /// An item of the container's `volumeMounts`.
    pub(crate) fn mount(&self) -> Option<String> {
        match self.delivery {
            Delivery::ImageVolume | Delivery::InitContainer => Some(format!(
                "- name: {VOLUME}\n  mountPath: {FOLDER}\n  readOnly: true\n"
            )),
            Delivery::InImage => None,
        }
    }

    /// An item of the Pod's `initContainers`. A scratch image has no `cp`: soloist copies itself.
    pub(crate) fn init_container(&self) -> Option<String> {
        let image = string(&self.soloist_image);
        let hardened = indented(HARDENED, 4);
        (self.delivery == Delivery::InitContainer).then(|| {
            format!(
                "- name: {VOLUME}-install\n  image: {image}\n  command: [\"/soloist\", \"install\", \"{FOLDER}/soloist\"]\n  \
                 securityContext:\n{hardened}  resources:\n    requests: {{cpu: 10m, memory: 16Mi}}\n  \
                 volumeMounts:\n  - name: {VOLUME}\n    mountPath: {FOLDER}\n"
            )
        })
    }
}

/// A container's `securityContext` under the Pod security standard `restricted`, and a root that cannot be written.
pub(crate) const HARDENED: &str = "\
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
";
