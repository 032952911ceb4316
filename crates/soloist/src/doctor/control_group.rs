//! The limits of our control group and of those above it, as they can be seen from inside: memory, processes, CPU.

use std::fs;
use std::path::{Path, PathBuf};

use crate::report::{Verdict, read};

const MOUNT: &str = "/sys/fs/cgroup";
/// soloist and its guard take 8 MiB (bench/README.md), and a start for a moment more.
const MEMORY_NEEDED: u64 = 16 << 20;
/// soloist's threads, the guard, and a few for the program.
const TASKS_NEEDED: u64 = 32;
/// A tenth of a CPU.
const LITTLE_CPU: f64 = 0.1;
/// A share of all periods.
const OFTEN: f64 = 0.01;

pub(super) fn check() -> [(&'static str, Verdict); 3] {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let groups = Groups::new(Path::new(MOUNT), &own);
    [
        ("there is memory left", groups.memory()),
        ("processes can be started", groups.tasks()),
        ("its CPU is not throttled", groups.cpu()),
    ]
}

/// Where the controllers' files are.
struct Groups<'a> {
    mount: &'a Path,
    /// `/proc/self/cgroup`.
    own: &'a str,
}

impl<'a> Groups<'a> {
    const fn new(mount: &'a Path, own: &'a str) -> Self {
        Self { mount, own }
    }

    /// Our group of this controller and those above it, the innermost first. Version 1 has a tree for each controller.
    fn of(&self, controller: &str) -> Vec<PathBuf> {
        let is_unified = self.mount.join("cgroup.controllers").is_file();
        let path = self.own.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let is_wanted = match is_unified {
                true => controllers.is_empty(),
                false => controllers.split(',').any(|name| name == controller),
            };
            is_wanted.then_some(path)
        });
        let root = match is_unified {
            true => self.mount.to_owned(),
            false => self.mount.join(controller),
        };
        let path = Path::new(path.unwrap_or("/"));
        let inside = path.ancestors().filter_map(|path| {
            let folder = root.join(path.strip_prefix("/").ok()?);
            folder.is_dir().then_some(folder)
        });
        // Where only our own group is mounted, it is the root.
        inside.collect()
    }

    fn memory(&self) -> Verdict {
        let groups = self.of("memory");
        let Some(own) = groups.first() else {
            return no_group("memory");
        };
        let killed = ["memory.events", "memory.oom_control"]
            .into_iter()
            .find_map(|file| field(own, file, "oom_kill"));
        if let Some(killed @ 1..) = killed {
            return Verdict::warning(
                format!(
                    "the kernel has killed {killed} processes here because the memory limit was reached"
                ),
                "Raise the memory limit, or let the program take less. When soloist itself is killed, its guard kills the program, and \
                 another replica takes over",
                read::POD,
            );
        }
        let limits = groups.iter().filter_map(|group| {
            let limit = any(group, ["memory.max", "memory.limit_in_bytes"])?;
            // What can be dropped is no need; where there is no limit, version 1 has a very large number.
            let used = any(group, ["memory.current", "memory.usage_in_bytes"])?;
            let cached = ["inactive_file", "total_inactive_file"]
                .into_iter()
                .filter_map(|name| field(group, "memory.stat", name))
                .max();
            let used = used.saturating_sub(cached.unwrap_or(0));
            (limit < 1 << 60).then(|| (limit.saturating_sub(used), limit))
        });
        match limits.min() {
            None => Verdict::good("no limit"),
            Some((left, limit)) if left < MEMORY_NEEDED => Verdict::warning(
                format!("{} of {} are left", mebibytes(left), mebibytes(limit)),
                "Raise the memory limit: soloist and its guard take 8 MiB, and the program's need comes on top",
                read::POD,
            ),
            Some((left, limit)) => {
                Verdict::good(format!("{} of {}", mebibytes(left), mebibytes(limit)))
            }
        }
    }

    fn tasks(&self) -> Verdict {
        let groups = self.of("pids");
        if groups.is_empty() {
            return no_group("pids");
        }
        let limits = groups.iter().filter_map(|group| {
            let limit = any(group, ["pids.max"])?;
            let used = any(group, ["pids.current"])?;
            Some((limit.saturating_sub(used), limit))
        });
        match limits.min() {
            None => Verdict::good("no limit"),
            Some((left, limit)) if left < TASKS_NEEDED => Verdict::warning(
                format!("{left} of {limit} processes and threads are left (pids.max)"),
                "Raise the limit (the kubelet's podPidsLimit, docker's --pids-limit), or look for processes that should have ended: a \
                 leader that cannot start the program gives the lease away",
                read::POD,
            ),
            Some((left, limit)) => Verdict::good(format!("{left} of {limit}")),
        }
    }

    fn cpu(&self) -> Verdict {
        let groups = self.of("cpu");
        let Some(own) = groups.first() else {
            return no_group("cpu");
        };
        let shares = groups.iter().filter_map(|group| share(group));
        let share = shares.min_by(f64::total_cmp);
        let limited = match share {
            None => "no limit".to_owned(),
            Some(share) => format!("the limit is {share:.2} CPU"),
        };
        let number = |name: &str| field(own, "cpu.stat", name).unwrap_or(0);
        let (throttled, periods) = (number("nr_throttled"), number("nr_periods"));
        let advice = "Remove the CPU limit and keep the request, or raise it: when the program uses it up, soloist waits with it and \
             renews late";
        let part = throttled as f64 / periods.max(1) as f64;
        if part > OFTEN {
            return Verdict::warning(
                format!("{limited}, and it was throttled in {throttled} of {periods} periods"),
                advice,
                read::POD,
            );
        }
        match share {
            Some(share) if share < LITTLE_CPU => Verdict::warning(
                format!("{limited}: a start of the program alone can use that up"),
                advice,
                read::POD,
            ),
            _ => Verdict::good(limited),
        }
    }
}

fn no_group(controller: &str) -> Verdict {
    Verdict::Unknown(format!(
        "our control group cannot be seen in {MOUNT} ({controller})"
    ))
}

/// The number in the first of these files that is there; words mean that there is no limit.
fn any<const N: usize>(group: &Path, files: [&str; N]) -> Option<u64> {
    let text = |file| fs::read_to_string(group.join(file)).ok();
    let found = files.into_iter().find_map(text)?;
    found.trim().parse().ok()
}

/// A number in a file of `name number` lines.
fn field(group: &Path, file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(group.join(file)).ok()?;
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find_map(|(found, number)| (found == name).then(|| number.trim().parse().ok())?)
}

/// How many CPUs may be used, if that is limited.
fn share(group: &Path) -> Option<f64> {
    let both = fs::read_to_string(group.join("cpu.max")).or_else(|_| {
        let read = |file| fs::read_to_string(group.join(file));
        let (quota, period) = (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?);
        Ok::<_, std::io::Error>(format!("{} {}", quota.trim(), period.trim()))
    });
    let both = both.ok()?;
    let (quota, period) = both.trim().split_once(' ')?;
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0).then(|| quota as f64 / period as f64)
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(folder).unwrap();
        for (file, text) in files {
            fs::write(folder.join(file), format!("{text}\n")).unwrap();
        }
    }

    #[test]
    fn the_tightest_limit_on_the_way_up_counts_in_version_2() {
        let mount = tempfile::tempdir().unwrap();
        write(mount.path(), &[("cgroup.controllers", "cpu memory pids")]);
        let pod = mount.path().join("pods/a");
        write(
            &pod,
            &[
                ("memory.max", "67108864"),
                ("memory.current", "62914560"),
                ("memory.stat", "anon 1\ninactive_file 0"),
                ("pids.max", "100"),
                ("pids.current", "90"),
                ("cpu.max", "max 100000"),
            ],
        );
        write(
            &pod.join("b"),
            &[
                ("memory.max", "max"),
                ("memory.current", "1"),
                ("memory.events", "oom 0\noom_kill 0"),
                ("pids.max", "max"),
                ("pids.current", "2"),
                ("cpu.max", "50000 100000"),
                ("cpu.stat", "usage_usec 1\nnr_periods 1000\nnr_throttled 5"),
            ],
        );
        let groups = Groups::new(mount.path(), "0::/pods/a/b\n");
        let Verdict::Warning(memory) = groups.memory() else {
            panic!("{:?}", groups.memory());
        };
        assert_eq!(memory.reason, "4 MiB of 64 MiB are left");
        let Verdict::Warning(tasks) = groups.tasks() else {
            panic!("{:?}", groups.tasks());
        };
        assert_eq!(
            tasks.reason,
            "10 of 100 processes and threads are left (pids.max)"
        );
        assert_eq!(groups.cpu(), Verdict::good("the limit is 0.50 CPU"));
        write(&pod, &[("memory.stat", "inactive_file 52428800")]);
        assert_eq!(groups.memory(), Verdict::good("54 MiB of 64 MiB"));
    }

    #[test]
    fn no_limit_is_no_limit_in_version_1_and_where_only_our_group_is_mounted() {
        let mount = tempfile::tempdir().unwrap();
        write(
            &mount.path().join("memory"),
            &[
                ("memory.limit_in_bytes", "9223372036854771712"),
                ("memory.usage_in_bytes", "1000"),
                ("memory.oom_control", "under_oom 0\noom_kill 0"),
            ],
        );
        write(
            &mount.path().join("cpu"),
            &[("cpu.cfs_quota_us", "-1"), ("cpu.cfs_period_us", "100000")],
        );
        let own = "4:memory:/kubepods/x\n2:cpu,cpuacct:/kubepods/x\n0::/\n";
        let groups = Groups::new(mount.path(), own);
        assert_eq!(groups.memory(), Verdict::good("no limit"));
        assert_eq!(groups.cpu(), Verdict::good("no limit"));
        assert!(matches!(groups.tasks(), Verdict::Unknown(_)));
    }
}
