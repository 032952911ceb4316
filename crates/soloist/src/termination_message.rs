//! The container's termination message, in which soloist says who it was: when the kubelet reports the container's end, it reports
//! that with it, and whoever waits for the lease knows that it waits for nobody.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, open};
use soloist_core::ids::{InstanceId, PodUid};
use soloist_elector::kubernetes::termination_message;
use tracing::debug;

/// Leaves it where the kubelet looks for it. Without it, the lease is waited out.
pub(crate) fn leave(pod: &PodUid, instance: InstanceId) {
    match write(pod, instance) {
        Ok(Some(path)) => {
            debug!(path = %path.display(), "the termination message names this replica");
        }
        Ok(None) => debug!("this container has no termination message"),
        Err(error) => debug!(%error, "the termination message cannot be written"),
    }
}

fn write(pod: &PodUid, instance: InstanceId) -> io::Result<Option<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let Some(path) = find(&mounts, pod) else {
        return Ok(None);
    };
    // The program may write a message of its own there, before or after this line.
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = fs::File::from(open(&path, flags, Mode::empty())?);
    file.write_all(termination_message(instance).as_bytes())?;
    Ok(Some(path))
}

/// A file of the host that the kubelet makes for each run of a container, `pods/UID/containers/NAME/RUN`, wherever the manifest wants
/// it. So what is in it is never another container's, or that of an earlier run.
fn find(mounts: &str, pod: &PodUid) -> Option<PathBuf> {
    let found = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(3);
        let (root, mounted_on) = (fields.next()?, fields.next()?);
        is_of_this_run(root, pod).then_some(mounted_on)
    });
    found.map(PathBuf::from)
}

fn is_of_this_run(root: &str, pod: &PodUid) -> bool {
    let mut parts = root.rsplit('/');
    let run = parts.next().unwrap_or_default();
    let is_hex = run.len() == 8 && run.chars().all(|c| c.is_ascii_hexdigit());
    let has_name = parts.next().is_some_and(|name| !name.is_empty());
    let rest = [parts.next(), parts.next(), parts.next()];
    is_hex && has_name && rest == [Some("containers"), Some(pod.as_str()), Some("pods")]
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0c1e-77";

    fn path(root: &str) -> Option<PathBuf> {
        let mounts = format!(
            "600 500 0:50 / / rw,relatime - overlay overlay rw,lowerdir=x\n\
             605 600 8:1 {root} /dev/termination-log rw,relatime - ext4 /dev/sda1 rw\n\
             606 600 8:1 /var/lib/kubelet/pods/{UID}/etc-hosts /etc/hosts rw,relatime - ext4 /dev/sda1 rw\n"
        );
        find(&mounts, &PodUid::new(UID).unwrap())
    }

    #[test]
    fn the_file_is_the_kubelets_own_of_this_pod() {
        let here = Some(PathBuf::from("/dev/termination-log"));
        for root in ["/var/lib/kubelet", "/data/k", ""] {
            let root = format!("{root}/pods/{UID}/containers/soloist/1a2b3c4d");
            assert_eq!(path(&root), here, "{root}");
        }
        for root in [
            "/",
            "/var/lib/kubelet/pods/another/containers/soloist/1a2b3c4d",
            "/var/lib/kubelet/pods/0c1e-77/volumes/soloist/1a2b3c4d",
            "/var/lib/kubelet/pods/0c1e-77/containers/soloist/log",
            "/pods/0c1e-77/containers/1a2b3c4d",
        ] {
            assert_eq!(path(root), None, "{root}");
        }
    }
}
