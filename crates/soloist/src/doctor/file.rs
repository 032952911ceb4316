//! A lease that is a file.

use std::path::Path;
use std::time::Duration;

use soloist_core::time::Human;
use soloist_elector::LeaseStore;
use soloist_elector::file::FileStore;
use tokio::time::timeout;

use crate::report::{Report, Verdict, read};

const GROUP: &str = "lease file";
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) async fn check(path: &Path, report: &mut Report) {
    let advice =
        "Give a path on a local file system, in a folder that is yours alone: --store file:PATH";
    let store = match FileStore::open(path) {
        Ok(store) => {
            report.add(
                GROUP,
                "its folder can be used",
                Verdict::good(path.display().to_string()),
            );
            store
        }
        Err(error) => {
            let reason = format!("{}: {:#}", path.display(), anyhow::Error::from(error));
            return report.add(
                GROUP,
                "its folder can be used",
                Verdict::bad(reason, advice, read::OPERATIONS),
            );
        }
    };
    let verdict = match timeout(PATIENCE, store.read()).await {
        Err(_) => Verdict::bad(
            format!("no answer for {}", Human(PATIENCE)),
            "A slow disk, or a replica of a former version that is stopped (SIGSTOP) with the lock file locked: look who has it open (fuser)",
            read::OPERATIONS,
        ),
        Ok(Err(error)) => Verdict::bad(error.to_string(), advice, read::OPERATIONS),
        Ok(Ok(snapshot)) => match snapshot.record.and_then(|record| record.holder) {
            Some(holder) if snapshot.holder_gone => Verdict::good(format!(
                "{holder} has it and is gone: the next one takes it at once"
            )),
            Some(holder) => Verdict::good(format!("held by {holder}")),
            None => Verdict::good("nobody has it"),
        },
    };
    report.add(GROUP, "it can be read", verdict);
}
