//! Users, their passwords and rights.

use std::path::{Path, PathBuf};

use futures_util::StreamExt;
use soloist_elector::core::election::Purpose;
use soloist_elector::etcd::{EtcdStore, Login};
use soloist_elector::testing::{absent, held_by, in_time};
use soloist_elector::{LeaseStore, WatchEnded};
use tempfile::TempDir;

use crate::harness::{Etcd, refused};

const ROOT: &str = "first";

struct Users {
    etcd: Etcd,
    folder: TempDir,
}

impl Users {
    /// `me` may read and write the one key, `reader` only read it, `writer` only write it, `nobody` nothing.
    fn new() -> Option<Self> {
        let etcd = Etcd::own(1)?;
        let key = etcd.key();
        {
            let mut cluster = etcd.cluster();
            let order = |words: &[&str]| drop(cluster.etcdctl(words).unwrap());
            for (role, right) in [
                ("holder", "readwrite"),
                ("reader", "read"),
                ("writer", "write"),
            ] {
                order(&["role", "add", role]);
                order(&["role", "grant-permission", role, right, &key]);
            }
            for (user, role) in [
                ("me", Some("holder")),
                ("reader", Some("reader")),
                ("writer", Some("writer")),
                ("nobody", None),
            ] {
                order(&["user", "add", &format!("{user}:secret")]);
                if let Some(role) = role {
                    order(&["user", "grant-role", user, role]);
                }
            }
            cluster.enable_users(ROOT).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("password"), "secret\n").unwrap();
        Some(Self { etcd, folder })
    }

    fn password(&self) -> PathBuf {
        self.folder.path().join("password")
    }

    fn store(&self, user: &str, password_file: &Path) -> EtcdStore {
        let endpoint = self.etcd.cluster().endpoint(0);
        EtcdStore::new(self.etcd.options(&endpoint).login(Login {
            user: user.into(),
            password_file: password_file.into(),
        }))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_is_served_and_logs_in_again_when_its_token_is_not_known_any_more() {
    let Some(users) = Users::new() else { return };
    let store = users.store("me", &users.password());
    in_time(store.may_write()).await.unwrap();
    let record = held_by("a", 1, 1);
    let written = in_time(store.write(&absent(), &record, Purpose::Acquire)).await;
    let mut last = written.unwrap();
    let mut changes = store.watch(&last).boxed();
    // The tokens of all users are forgotten.
    users.etcd.cluster().etcdctl(&["auth", "disable"]).unwrap();
    users
        .etcd
        .cluster()
        .etcdctl_without_users(&["auth", "enable"])
        .unwrap();
    for n in 2..4 {
        let record = held_by("a", 1, n);
        let renewed = in_time(store.write(&last, &record, Purpose::Renew)).await;
        last = renewed.unwrap();
    }
    let seen = in_time(changes.next()).await.unwrap();
    assert!(seen.is_ok(), "{seen:?}");
    // A password that was changed is in the same file.
    let change = ["user", "passwd", "me", "--interactive=false"];
    users
        .etcd
        .cluster()
        .etcdctl_with_input(&change, "other\n")
        .unwrap();
    std::fs::write(users.password(), "other").unwrap();
    users.etcd.cluster().etcdctl(&["auth", "disable"]).unwrap();
    users
        .etcd
        .cluster()
        .etcdctl_without_users(&["auth", "enable"])
        .unwrap();
    in_time(store.read()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_is_told_what_is_missing() {
    let Some(users) = Users::new() else { return };
    let password = users.password();
    let endpoint = users.etcd.cluster().endpoint(0);
    let nameless = users.etcd.store_at(&endpoint);
    let told = refused(in_time(nameless.read()).await);
    assert!(told.contains("wants to know who we are: "), "{told}");
    assert!(told.contains("--etcd-user"), "{told}");

    let wrong = users.folder.path().join("wrong");
    std::fs::write(&wrong, "guess").unwrap();
    let told = refused(in_time(users.store("me", &wrong).read()).await);
    assert!(told.contains(" refuses us: "), "{told}");
    assert!(told.contains("invalid user ID or password"), "{told}");
    let missing = users.folder.path().join("missing");
    let told = refused(in_time(users.store("me", &missing).read()).await);
    assert!(told.contains("missing cannot be read"), "{told}");

    // A folder, and a file with a line's end only.
    let told = refused(in_time(users.store("me", users.folder.path()).read()).await);
    assert!(told.contains("cannot be read"), "{told}");
    let empty = users.folder.path().join("empty");
    std::fs::write(&empty, "\r\n").unwrap();
    let told = refused(in_time(users.store("me", &empty).read()).await);
    assert!(told.contains("empty is empty"), "{told}");

    let key = users.etcd.key();
    let grant = format!("grant-permission ROLE readwrite '{key}'");
    let nobody = users.store("nobody", &password);
    let told = refused(in_time(nobody.read()).await);
    assert!(
        told.contains("the user nobody may not read") && told.contains(&grant),
        "{told}"
    );
    // Watching needs the right to read; etcd knows no other.
    let writer = users.store("writer", &password);
    let told = refused(in_time(writer.read()).await);
    assert!(
        told.contains("the user writer may not read") && told.contains(&grant),
        "{told}"
    );
    let ended = in_time(writer.watch(&absent()).boxed().next()).await;
    let Some(Err(WatchEnded::Refused(told))) = ended else {
        panic!("{ended:?}");
    };
    assert!(told.to_string().contains(&grant), "{told}");
    let reader = users.store("reader", &password);
    let found = in_time(reader.read()).await.unwrap();
    for told in [
        refused(in_time(reader.may_write()).await),
        refused(in_time(reader.write(&absent(), &held_by("a", 1, 1), Purpose::Acquire)).await),
    ] {
        assert!(
            told.contains("the user reader may not write") && told.contains(&grant),
            "{told}"
        );
    }
    let ended = in_time(nobody.watch(&found).boxed().next()).await.unwrap();
    let Err(WatchEnded::Refused(told)) = ended else {
        panic!("{ended:?}");
    };
    assert!(told.to_string().contains(&grant), "{told}");
}
