//! What soloist found when it was started, and its child shall find as well.

use std::fmt::Write as _;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::signal::Signal;
use crate::sys::{self, SignalSet};

/// Signal mask, ignored signals and resource limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inherited {
    blocked: SignalSet,
    ignored: SignalSet,
    limits: Vec<Rlimit>,
}

const RESOURCES: [Resource; 16] = [
    Resource::Cpu,
    Resource::Fsize,
    Resource::Data,
    Resource::Stack,
    Resource::Core,
    Resource::Rss,
    Resource::Nproc,
    Resource::Nofile,
    Resource::Memlock,
    Resource::As,
    Resource::Locks,
    Resource::Sigpending,
    Resource::Msgqueue,
    Resource::Nice,
    Resource::Rtprio,
    Resource::Rttime,
];

static FOUND: OnceLock<Inherited> = OnceLock::new();

/// What was found, which is what is found at the first call.
pub(crate) fn found() -> &'static Inherited {
    FOUND.get_or_init(|| Inherited {
        blocked: sys::blocked(),
        // The Rust runtime ignores SIGPIPE before anyone can look. The default is the better guess.
        ignored: sys::ignored().without(libc::SIGPIPE),
        limits: RESOURCES.into_iter().map(getrlimit).collect(),
    })
}

/// Whether whoever started this process wants it to ignore the signal, as `nohup` does with SIGHUP. To be asked after
/// [`hold_signals`](crate::hold_signals).
#[must_use]
pub fn was_ignored(signal: Signal) -> bool {
    found().ignored.contains(signal.number())
}

impl Inherited {
    pub(crate) const fn blocked(&self) -> SignalSet {
        self.blocked
    }

    /// Makes the calling process find the same. For a forked child, between fork and exec.
    pub(crate) fn restore_limits(&self) {
        for (resource, limit) in RESOURCES.into_iter().zip(&self.limits) {
            // Only differences: putting the same back may need a privilege.
            if getrlimit(resource) != *limit {
                let _ = setrlimit(resource, *limit);
            }
        }
    }

    /// As [`Inherited::restore_limits`].
    pub(crate) fn restore_signals(&self) {
        sys::ignore(self.ignored);
        sys::block(self.blocked);
    }

    /// As one argument.
    pub(crate) fn encode(&self) -> String {
        let mut text = format!("{:x},{:x}", self.blocked.0, self.ignored.0);
        for limit in &self.limits {
            for bound in [limit.current, limit.maximum] {
                text.push(',');
                if let Some(bound) = bound {
                    let _ = write!(text, "{bound:x}");
                }
            }
        }
        text
    }

    /// Back again.
    pub(crate) fn decode(text: &str) -> Option<Self> {
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let bound = |text: &str| match text {
            "" => Some(None),
            _ => number(text).map(Some),
        };
        let mut fields = text.split(',');
        let blocked = SignalSet(number(fields.next()?)?);
        let ignored = SignalSet(number(fields.next()?)?);
        let mut limits = Vec::with_capacity(RESOURCES.len());
        for _ in RESOURCES {
            let current = bound(fields.next()?)?;
            let maximum = bound(fields.next()?)?;
            limits.push(Rlimit { current, maximum });
        }
        fields.next().is_none().then_some(Self {
            blocked,
            ignored,
            limits,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_survives_the_way_to_the_guard() {
        let found = found();
        assert_eq!(Inherited::decode(&found.encode()).as_ref(), Some(found));
        assert_eq!(Inherited::decode(""), None);
        assert_eq!(Inherited::decode(&(found.encode() + ",1")), None);
    }
}
