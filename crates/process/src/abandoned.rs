//! Trees that nobody watches any more: whoever had their tasks has failed, and the process is about to end.

use std::thread;
use std::time::Duration;

use rustix::process::Pid;
use soloist_clock as clock;

use crate::{privileges, registry, sweep};

/// Not everybody could be killed in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", words(.0))]
pub struct StillThere(Vec<u32>);

impl StillThere {
    /// Who is left, as far as it is known.
    #[must_use]
    pub fn processes(&self) -> &[u32] {
        &self.0
    }
}

fn words(left: &[u32]) -> String {
    match left {
        [] => "nobody knows what is left of the child's tree".to_owned(),
        left => {
            let numbers: Vec<String> = left.iter().map(ToString::to_string).collect();
            format!("left of the child's tree: process {}", numbers.join(", "))
        }
    }
}

/// Kills and reaps all trees of this process, whether their guards live or not, and returns when none is left or the limit is
/// reached. It needs no runtime and blocks the thread: for who has lost its trees and ends.
///
/// Whoever was here before the first guard, and children that are somebody's ([`own_child`](crate::own_child)), are left alone.
/// A guard is killed only when nothing is below it any more, or when it is stopped: where it is known by name, it stands for
/// what is left of its tree.
///
/// # Errors
/// Who is left.
pub fn kill_abandoned_trees(limit: Duration) -> Result<(), StillThere> {
    let begun = clock::now();
    let mut told = Vec::new();
    loop {
        let pass = registry::lock().kill_abandoned();
        for pid in pass.refused.iter().copied().map(number) {
            if !told.contains(&pid) {
                privileges::tell_not_permitted(pid);
                told.push(pid);
            }
        }
        match pass.left {
            Some(left) if left.is_empty() => return Ok(()),
            left => {
                let taken = clock::now().since(begun);
                if taken >= limit {
                    let left = left.unwrap_or_default();
                    return Err(StillThere(left.into_iter().map(number).collect()));
                }
                thread::sleep(sweep::pause(taken));
            }
        }
    }
}

fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}
