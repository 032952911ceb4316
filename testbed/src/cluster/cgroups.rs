//! The cgroups of a node: everything that runs on it is in them, so all of it can be frozen, counted and ended.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::Error;

/// One hierarchy of this machine: all of version 2, or one or some controllers of version 1.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    kind: &'static str,
    options: String,
    mount_point: PathBuf,
}

/// A node's cgroups, one in each hierarchy.
#[derive(Debug)]
pub(crate) struct Cgroups {
    name: String,
    hierarchies: Vec<Hierarchy>,
}

impl Cgroups {
    /// Makes them, empty.
    pub(crate) fn create(name: &str) -> Result<Self, Error> {
        let path = "/proc/self/mountinfo";
        let mounts = fs::read_to_string(path).map_err(Error::io("read", path))?;
        let hierarchies = hierarchies(&mounts);
        for hierarchy in &hierarchies {
            hierarchy.create(name)?;
        }
        Ok(Self {
            name: name.to_owned(),
            hierarchies,
        })
    }

    /// The files to which a process writes its id to be in them.
    pub(crate) fn members(&self) -> Vec<PathBuf> {
        let file = |hierarchy: &Hierarchy| hierarchy.members(&self.name);
        self.hierarchies.iter().map(file).collect()
    }

    /// How the node mounts them for itself, as its first process reads it.
    pub(crate) fn mounts(&self) -> String {
        let line = |hierarchy: &Hierarchy| {
            format!(
                "{} {} {}\n",
                hierarchy.kind,
                hierarchy.options,
                hierarchy.mount_point.display()
            )
        };
        self.hierarchies.iter().map(line).collect()
    }

    /// Stops every process in them, and returns once all have stopped.
    pub(crate) fn freeze(&self) -> Result<(), Error> {
        self.set_frozen(true)
    }

    /// Lets them go on.
    pub(crate) fn thaw(&self) -> Result<(), Error> {
        self.set_frozen(false)
    }

    fn set_frozen(&self, frozen: bool) -> Result<(), Error> {
        const PATIENCE: Duration = Duration::from_secs(10);
        let freezer = self
            .hierarchies
            .iter()
            .find_map(|hierarchy| hierarchy.freezer(&self.name))
            .ok_or_else(|| Error::Timeout {
                awaited: format!("a freezer for {}", self.name),
                waited: Duration::ZERO,
            })?;
        let deadline = Instant::now() + PATIENCE;
        // On version 1 a process that forks meanwhile may be missed: it is asked again until all have stopped.
        while !freezer.set(frozen)? {
            if Instant::now() >= deadline {
                return Err(Error::Timeout {
                    awaited: format!("frozen={frozen} of {}", self.name),
                    waited: PATIENCE,
                });
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

enum Freezer {
    Version1(PathBuf),
    Version2(PathBuf),
}

impl Freezer {
    /// Asks for it, and says whether it is so.
    fn set(&self, frozen: bool) -> Result<bool, Error> {
        let write =
            |path: &Path, text: &str| fs::write(path, text).map_err(Error::io("write", path));
        let read = |path: &Path| fs::read_to_string(path).map_err(Error::io("read", path));
        match self {
            Self::Version1(group) => {
                let state = group.join("freezer.state");
                let wanted = if frozen { "FROZEN" } else { "THAWED" };
                write(&state, wanted)?;
                Ok(read(&state)?.trim() == wanted)
            }
            Self::Version2(group) => {
                write(&group.join("cgroup.freeze"), if frozen { "1" } else { "0" })?;
                let wanted = format!("frozen {}", u8::from(frozen));
                Ok(read(&group.join("cgroup.events"))?
                    .lines()
                    .any(|line| line == wanted))
            }
        }
    }
}

impl Hierarchy {
    fn create(&self, name: &str) -> Result<(), Error> {
        let group = self.mount_point.join(name);
        fs::create_dir_all(&group).map_err(Error::io("create the cgroup", &group))?;
        match self.kind {
            "cgroup2" => {
                let controllers = self.mount_point.join("cgroup.controllers");
                let controllers = fs::read_to_string(controllers).unwrap_or_default();
                let all: Vec<_> = controllers
                    .split_whitespace()
                    .map(|one| format!("+{one}"))
                    .collect();
                // Those that cannot be had for children stay out; the kubelet says which it misses.
                let _ = fs::write(
                    self.mount_point.join("cgroup.subtree_control"),
                    all.join(" "),
                );
                let inner = group.join("init");
                fs::create_dir_all(&inner).map_err(Error::io("create the cgroup", &inner))
            }
            _ => self.copy_cpuset(&group),
        }
    }

    /// A cpuset of version 1 takes no process before it has processors and memory.
    fn copy_cpuset(&self, group: &Path) -> Result<(), Error> {
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let Ok(value) = fs::read(self.mount_point.join(file)) else {
                continue;
            };
            let path = group.join(file);
            fs::write(&path, value).map_err(Error::io("write", &path))?;
        }
        Ok(())
    }

    /// On version 2 a cgroup with processes has no controllers for those below it.
    fn members(&self, name: &str) -> PathBuf {
        let group = self.mount_point.join(name);
        match self.kind {
            "cgroup2" => group.join("init/cgroup.procs"),
            _ => group.join("cgroup.procs"),
        }
    }

    fn freezer(&self, name: &str) -> Option<Freezer> {
        let group = self.mount_point.join(name);
        if group.join("freezer.state").exists() {
            return Some(Freezer::Version1(group));
        }
        // Where version 1 has the freezer too, the containers' processes are in both.
        group
            .join("cgroup.freeze")
            .exists()
            .then_some(Freezer::Version2(group))
    }
}

fn hierarchies(mountinfo: &str) -> Vec<Hierarchy> {
    mountinfo.lines().filter_map(hierarchy).collect()
}

fn hierarchy(line: &str) -> Option<Hierarchy> {
    let (mount, filesystem) = line.split_once(" - ")?;
    let mut filesystem = filesystem.split(' ');
    let kind = match filesystem.next()? {
        "cgroup" => "cgroup",
        "cgroup2" => "cgroup2",
        _ => return None,
    };
    let options = filesystem.nth(1)?;
    let own = |option: &&str| {
        !matches!(
            *option,
            "rw" | "ro" | "nsdelegate" | "memory_recursiveprot" | "xattr"
        )
    };
    let mut options: Vec<&str> = options.split(',').filter(own).collect();
    if options.iter().any(|option| option.starts_with("name=")) {
        options.insert(0, "none");
    }
    if options.is_empty() || kind == "cgroup2" {
        options = vec!["rw"];
    }
    Some(Hierarchy {
        kind,
        options: options.join(","),
        mount_point: mount.split(' ').nth(4)?.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(mountinfo: &str) -> Vec<(&'static str, String, String)> {
        let told = |one: Hierarchy| (one.kind, one.options, one.mount_point.display().to_string());
        hierarchies(mountinfo).into_iter().map(told).collect()
    }

    #[test]
    fn hierarchies_of_version_1_are_found_with_their_controllers() {
        let mounts = "48 47 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
            56 47 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd\n\
            57 47 0:38 / /proc rw - proc proc rw\n";
        let expected = [
            (
                "cgroup",
                "cpu,cpuacct".to_owned(),
                "/sys/fs/cgroup/cpu,cpuacct".to_owned(),
            ),
            (
                "cgroup",
                "none,name=systemd".to_owned(),
                "/sys/fs/cgroup/systemd".to_owned(),
            ),
        ];
        assert_eq!(found(mounts), expected);
    }

    #[test]
    fn the_one_hierarchy_of_version_2_is_found() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n";
        let expected = [("cgroup2", "rw".to_owned(), "/sys/fs/cgroup".to_owned())];
        assert_eq!(found(mounts), expected);
    }
}
