//! Where the lease of a stage lives: in a file or, with `SOLOIST_TEST_STORE=kubernetes`, on the real API server, to which every
//! replica has a link of its own.

use std::path::Path;
use std::sync::OnceLock;

use testbed::{Account, ControlPlane, Link};
use tokio::runtime::Runtime;

const LEASE: &str = "feed";
const USER: &str = "replica-0";

pub(crate) enum Place {
    File { flags: Vec<String> },
    Kubernetes { namespace: String },
}

impl Place {
    pub(crate) fn new(folder: &Path) -> Self {
        if std::env::var("SOLOIST_TEST_STORE").is_ok_and(|store| store == "kubernetes") {
            let (runtime, plane) = plane();
            let namespace = runtime.block_on(async {
                let namespace = plane.namespace("feed").await.unwrap();
                let user = Account::User(USER);
                plane.allow_lease(&namespace, LEASE, user).await.unwrap();
                namespace
            });
            return Self::Kubernetes { namespace };
        }
        let store = format!("--store=file:{}", folder.join("lease").display());
        let mut flags = timings(["2s", "1400ms", "200ms"]);
        flags.push(store);
        Self::File { flags }
    }

    /// What one more replica is told, and its link to the API server if there is one.
    pub(crate) fn replica(&self) -> (Vec<String>, Option<Link>) {
        let (mut flags, link) = match self {
            Self::File { flags } => (flags.clone(), None),
            Self::Kubernetes { namespace } => {
                let (_, plane) = plane();
                let link = plane.link().unwrap();
                let kubeconfig = plane.kubeconfig(USER, Some(&link)).unwrap();
                let mut flags = timings(["3s", "2200ms", "300ms"]);
                flags.push("--store=kubernetes".to_owned());
                flags.push(format!("--namespace={namespace}"));
                flags.push(format!("--kubeconfig={}", kubeconfig.display()));
                (flags, Some(link))
            }
        };
        flags.push(format!("--name={LEASE}"));
        (flags, link)
    }

    /// Whether the way to the lease can be cut.
    pub(crate) fn has_links(&self) -> bool {
        matches!(self, Self::Kubernetes { .. })
    }
}

fn timings([lease, renew, retry]: [&str; 3]) -> Vec<String> {
    vec![
        format!("--lease-duration={lease}"),
        format!("--renew-deadline={renew}"),
        format!("--retry-period={retry}"),
    ]
}

fn plane() -> &'static (Runtime, &'static ControlPlane) {
    static PLANE: OnceLock<(Runtime, &'static ControlPlane)> = OnceLock::new();
    PLANE.get_or_init(|| {
        let runtime = Runtime::new().unwrap();
        let plane = runtime.block_on(testbed::shared("the feed on the real API server"));
        (
            runtime,
            plane.expect("SOLOIST_TEST_STORE=kubernetes needs the testbed"),
        )
    })
}
