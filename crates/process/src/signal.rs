//! Signals by number and by name.

use std::fmt;
use std::str::FromStr;

/// Any signal, real-time ones included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Signal(u8);

/// There is no such signal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a signal: write it as TERM, SIGTERM, 15 or RTMIN+3")]
pub struct UnknownSignal(String);

const REAL_TIME: std::ops::RangeInclusive<u8> = 34..=64;

const NAMES: [(&str, i32); 31] = [
    ("HUP", libc::SIGHUP),
    ("INT", libc::SIGINT),
    ("QUIT", libc::SIGQUIT),
    ("ILL", libc::SIGILL),
    ("TRAP", libc::SIGTRAP),
    ("ABRT", libc::SIGABRT),
    ("BUS", libc::SIGBUS),
    ("FPE", libc::SIGFPE),
    ("KILL", libc::SIGKILL),
    ("USR1", libc::SIGUSR1),
    ("SEGV", libc::SIGSEGV),
    ("USR2", libc::SIGUSR2),
    ("PIPE", libc::SIGPIPE),
    ("ALRM", libc::SIGALRM),
    ("TERM", libc::SIGTERM),
    ("STKFLT", libc::SIGSTKFLT),
    ("CHLD", libc::SIGCHLD),
    ("CONT", libc::SIGCONT),
    ("STOP", libc::SIGSTOP),
    ("TSTP", libc::SIGTSTP),
    ("TTIN", libc::SIGTTIN),
    ("TTOU", libc::SIGTTOU),
    ("URG", libc::SIGURG),
    ("XCPU", libc::SIGXCPU),
    ("XFSZ", libc::SIGXFSZ),
    ("VTALRM", libc::SIGVTALRM),
    ("PROF", libc::SIGPROF),
    ("WINCH", libc::SIGWINCH),
    ("IO", libc::SIGIO),
    ("PWR", libc::SIGPWR),
    ("SYS", libc::SIGSYS),
];

impl Signal {
    /// SIGTERM, the default way to ask a program to end.
    pub const TERM: Self = Self(libc::SIGTERM as u8);
    /// SIGHUP: the terminal is closed, or by custom, read your settings again.
    pub const HUP: Self = Self(libc::SIGHUP as u8);
    /// SIGCONT, which wakes a stopped program.
    pub const CONT: Self = Self(libc::SIGCONT as u8);
    /// SIGKILL, which no program can refuse.
    pub const KILL: Self = Self(libc::SIGKILL as u8);

    /// The signal with this number.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        let named = NAMES.iter().any(|(_, known)| *known == number);
        let number = u8::try_from(number).ok()?;
        (named || REAL_TIME.contains(&number)).then_some(Self(number))
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0 as i32
    }
}

impl FromStr for Signal {
    type Err = UnknownSignal;

    fn from_str(text: &str) -> Result<Self, UnknownSignal> {
        let unknown = || UnknownSignal(text.to_owned());
        if let Ok(number) = text.parse() {
            return Self::from_number(number).ok_or_else(unknown);
        }
        let upper = text.to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        if let Some((_, number)) = NAMES.iter().find(|(known, _)| *known == name) {
            return Self::from_number(*number).ok_or_else(unknown);
        }
        let real_time = match (name.strip_prefix("RTMIN"), name.strip_prefix("RTMAX")) {
            (Some(""), _) => Some(*REAL_TIME.start()),
            (_, Some("")) => Some(*REAL_TIME.end()),
            (Some(up), _) => up
                .strip_prefix('+')
                .and_then(|up| up.parse().ok())
                .and_then(|up| REAL_TIME.start().checked_add(up)),
            (_, Some(down)) => down
                .strip_prefix('-')
                .and_then(|down| down.parse().ok())
                .and_then(|down| REAL_TIME.end().checked_sub(down)),
            (None, None) => None,
        };
        real_time
            .filter(|number| REAL_TIME.contains(number))
            .map(Self)
            .ok_or_else(unknown)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(_, number)| *number == self.number()) {
            Some((name, _)) => write!(f, "SIG{name}"),
            None => write!(f, "SIGRTMIN+{}", self.0 - REAL_TIME.start()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_read_as_people_write_it() {
        for (text, number) in [
            ("TERM", 15),
            ("SIGTERM", 15),
            ("sigint", 2),
            ("9", 9),
            ("RTMIN", 34),
            ("SIGRTMIN+3", 37),
            ("RTMAX-1", 63),
            ("64", 64),
        ] {
            assert_eq!(text.parse::<Signal>().unwrap().number(), number, "{text}");
        }
        for text in [
            "",
            "0",
            "65",
            "-1",
            "32",
            "TERMINATE",
            "RTMIN+31",
            "RTMAX-31",
            "RTMIN3",
        ] {
            assert!(text.parse::<Signal>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_shown_reads_back() {
        for number in 1..=64 {
            let Some(signal) = Signal::from_number(number) else {
                assert!([32, 33].contains(&number));
                continue;
            };
            assert_eq!(signal.to_string().parse(), Ok(signal));
        }
    }
}
