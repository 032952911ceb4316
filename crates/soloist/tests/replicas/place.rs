//! Where the leases of the tests live: in a file each or, with `SOLOIST_TEST_STORE=kubernetes`, on the real API server, or with
//! `SOLOIST_TEST_STORE=etcd` in a real etcd of three members.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use testbed::{Account, ControlPlane, EtcdCluster, EtcdTransport};
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Store {
    File,
    Kubernetes,
    Etcd,
}

/// One kind of place, and timings that it is quick enough for.
pub(crate) struct Wanted {
    store: Store,
    pub(crate) lease: Duration,
    timings: [&'static str; 3],
}

/// Whether a test may lay hands on the lease as a file; the suite `kubernetes` does the like on the API server.
pub(crate) fn is_a_file() -> bool {
    Place::wanted().store == Store::File
}

impl Place {
    pub(crate) fn wanted() -> Wanted {
        let store = match std::env::var("SOLOIST_TEST_STORE").as_deref() {
            Err(_) | Ok("" | "file") => Store::File,
            Ok("kubernetes") => Store::Kubernetes,
            Ok("etcd") => Store::Etcd,
            Ok(other) => panic!("SOLOIST_TEST_STORE={other}: it is file, kubernetes or etcd"),
        };
        match store {
            Store::Kubernetes | Store::Etcd => Wanted {
                store,
                lease: Duration::from_secs(3),
                timings: ["3s", "2200ms", "300ms"],
            },
            Store::File => Wanted {
                store,
                lease: Duration::from_secs(2),
                timings: ["2s", "1400ms", "200ms"],
            },
        }
    }

    /// A lease of its own for one test.
    pub(crate) fn new(folder: &Path) -> Self {
        Self::with_timings(folder, Self::wanted().timings)
    }

    /// One with these timings: lease duration, renew deadline, retry period.
    pub(crate) fn with_timings(folder: &Path, timings: [&str; 3]) -> Self {
        let wanted = Self::wanted();
        let [lease, renew, retry] = timings;
        let mut flags = vec![
            format!("--lease-duration={lease}"),
            format!("--renew-deadline={renew}"),
            format!("--retry-period={retry}"),
        ];
        let lease = match wanted.store {
            Store::File => vec![format!("--store=file:{}", folder.join("lease").display())],
            Store::Kubernetes => on_the_api_server().into(),
            Store::Etcd => vec![in_etcd()],
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

fn in_etcd() -> String {
    static ETCD: OnceLock<EtcdCluster> = OnceLock::new();
    static LEASES: AtomicUsize = AtomicUsize::new(0);
    let etcd = ETCD.get_or_init(|| {
        let etcd = EtcdCluster::start(3, EtcdTransport::Plain);
        etcd.expect("SOLOIST_TEST_STORE=etcd needs etcd and etcdctl")
    });
    let number = LEASES.fetch_add(1, Ordering::Relaxed);
    format!("--store=etcd:{}/test-{number}", etcd.endpoints())
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
