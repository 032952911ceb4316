//! Where the leases of the tests live: in a file each or, with `SOLOIST_TEST_STORE=kubernetes`, on the real API server.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use testbed::{Account, ControlPlane};
use tokio::runtime::Runtime;

/// Every lease's name.
pub(crate) const LEASE: &str = "test";
const USER: &str = "replica-0";

pub(crate) struct Place {
    /// What `soloist run` is told of it.
    pub(crate) flags: Vec<String>,
    /// What other commands are: which lease.
    pub(crate) lease: Vec<String>,
}

/// One kind of place, and timings that it is quick enough for.
pub(crate) struct Wanted {
    kubernetes: bool,
    pub(crate) lease: Duration,
    timings: [&'static str; 3],
}

/// Whether a test may lay hands on the lease as a file; the suite `kubernetes` does the like on the API server.
pub(crate) fn is_a_file() -> bool {
    !Place::wanted().kubernetes
}

impl Place {
    pub(crate) fn wanted() -> Wanted {
        let kubernetes = std::env::var("SOLOIST_TEST_STORE").is_ok_and(|s| s == "kubernetes");
        match kubernetes {
            true => Wanted {
                kubernetes,
                lease: Duration::from_secs(3),
                timings: ["3s", "2200ms", "300ms"],
            },
            false => Wanted {
                kubernetes,
                lease: Duration::from_secs(2),
                timings: ["2s", "1400ms", "200ms"],
            },
        }
    }

    /// A lease of its own for one test.
    pub(crate) fn new(folder: &Path) -> Self {
        let wanted = Self::wanted();
        let [lease, renew, retry] = wanted.timings;
        let mut flags = vec![
            format!("--lease-duration={lease}"),
            format!("--renew-deadline={renew}"),
            format!("--retry-period={retry}"),
        ];
        let lease = match wanted.kubernetes {
            false => vec![format!("--store=file:{}", folder.join("lease").display())],
            true => on_the_api_server().into(),
        };
        flags.extend(lease.clone());
        Self { flags, lease }
    }
}

impl Place {
    /// There is no lease, so that every replica runs its child.
    pub(crate) fn everywhere() -> Self {
        Self {
            flags: vec!["--store=none".into()],
            lease: Vec::new(),
        }
    }
}

fn on_the_api_server() -> [String; 3] {
    static PLANE: OnceLock<(Runtime, &'static ControlPlane)> = OnceLock::new();
    let (runtime, plane) = PLANE.get_or_init(|| {
        let runtime = Runtime::new().unwrap();
        let plane = runtime.block_on(testbed::shared("replicas on the real API server"));
        (
            runtime,
            plane.expect("SOLOIST_TEST_STORE=kubernetes needs the testbed"),
        )
    });
    let namespace = runtime.block_on(async {
        let namespace = plane.namespace("replicas").await.unwrap();
        let user = Account::User(USER);
        plane.allow_lease(&namespace, LEASE, user).await.unwrap();
        namespace
    });
    [
        "--store=kubernetes".to_owned(),
        format!("--namespace={namespace}"),
        format!(
            "--kubeconfig={}",
            plane.kubeconfig(USER, None).unwrap().display()
        ),
    ]
}
