//! Where a process's number and start time mean something: which boot, which namespaces, in the kernel's own words.
//!
//! A container may be shown files of its maker's in place of the kernel's (LXD gives each container a boot id of its own). Such a file
//! may tell two places apart, but nobody is dead because of what it says.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, fstatfs, statx};
use serde_json::{Value, json};

const PROCFS: i64 = 0x9fa0;
const NSFS: i64 = 0x6e73_6673;

/// Those of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Surroundings {
    boot: Boot,
    pid_namespace: String,
    /// Start times are shown as the reader's own time namespace counts. `None` where the kernel has none.
    time_namespace: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Boot {
    id: String,
    /// It is the kernel's own word.
    is_proven: bool,
}

impl Surroundings {
    /// Of the calling process.
    ///
    /// # Errors
    /// When `/proc` cannot be read, or is not that of this process's PID namespace.
    pub(super) fn now() -> io::Result<Self> {
        let own_number = std::process::id().to_string();
        if fs::read_link("/proc/self")?.as_os_str() != own_number.as_str() {
            return Err(io::Error::other("/proc is that of another PID namespace"));
        }
        Ok(Self {
            boot: Boot::now()?,
            pid_namespace: namespace("pid")?,
            time_namespace: time_namespace()?,
        })
    }

    /// Whether the machine was proven to be restarted between these and `later`.
    pub(super) fn ended_before(&self, later: &Self) -> bool {
        self.boot.is_proven && later.boot.is_proven && self.boot.id != later.boot.id
    }

    /// The caller's part of the record.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "boot": self.boot.id,
            "bootIsProven": self.boot.is_proven,
            "pidNamespace": self.pid_namespace,
            "timeNamespace": self.time_namespace,
        })
    }

    /// `None` for anything that is not exactly this.
    pub(super) fn from_json(value: &Value) -> Option<Self> {
        let text = |name: &str| Some(value.get(name)?.as_str()?.to_owned());
        Some(Self {
            boot: Boot {
                id: text("boot")?,
                is_proven: value.get("bootIsProven").and_then(Value::as_bool) == Some(true),
            },
            pid_namespace: text("pidNamespace")?,
            time_namespace: text("timeNamespace"),
        })
    }
}

impl Boot {
    fn now() -> io::Result<Self> {
        let mut file = File::open("/proc/sys/kernel/random/boot_id")?;
        let mut id = String::new();
        file.read_to_string(&mut id)?;
        Ok(Self {
            id: id.trim().to_owned(),
            is_proven: is_of(PROCFS, &file)? && !is_mount(&file)?,
        })
    }
}

/// In the form of the link in `/proc/self/ns`.
fn namespace(kind: &str) -> io::Result<String> {
    let file = File::open(format!("/proc/self/ns/{kind}"))?;
    match is_of(NSFS, &file)? {
        true => Ok(format!("{kind}:[{}]", file.metadata()?.ino())),
        false => Err(io::Error::other(format!(
            "/proc/self/ns/{kind} is not the kernel's"
        ))),
    }
}

fn time_namespace() -> io::Result<Option<String>> {
    match namespace("time") {
        Ok(own) => Ok(Some(own)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_of(file_system: i64, file: &File) -> io::Result<bool> {
    // Its type differs between architectures.
    fn is(kind: impl TryInto<i64>, wanted: i64) -> bool {
        kind.try_into().is_ok_and(|kind| kind == wanted)
    }
    Ok(is(fstatfs(file)?.f_type, file_system))
}

/// Whether something was mounted upon this very file; also where the kernel cannot tell (before Linux 5.8).
fn is_mount(file: &File) -> io::Result<bool> {
    let found = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::empty())?;
    let can_tell = found
        .stx_attributes_mask
        .contains(StatxAttributes::MOUNT_ROOT);
    Ok(!can_tell || found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The same, with something changed.
    pub(in crate::file) fn edited(of: &Surroundings, name: &str, value: Value) -> Surroundings {
        let mut json = of.to_json();
        json[name] = value;
        Surroundings::from_json(&json).unwrap()
    }

    #[test]
    fn only_the_kernels_own_word_proves_a_restart() {
        let now = Surroundings::now().unwrap();
        assert!(!now.ended_before(&now));
        let before = edited(&now, "boot", json!("another"));
        assert!(before.ended_before(&now));
        for unproven in [json!(false), json!(null), json!("yes")] {
            let told = edited(&before, "bootIsProven", unproven);
            assert!(!told.ended_before(&now));
            assert!(!now.ended_before(&told));
        }
    }

    #[test]
    fn a_namespace_is_called_as_the_link_to_it() {
        let link = fs::read_link("/proc/self/ns/pid").unwrap();
        assert_eq!(namespace("pid").unwrap(), link.to_str().unwrap());
    }
}
