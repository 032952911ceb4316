//! What soloist tells its child in the environment.

use std::ffi::OsString;
use std::time::Duration;

use soloist_core::ids::{Term, Token};
use soloist_core::ladder::{Ladder, LadderRequest};

/// In whose name a child works: the lease, the replica and the term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// The lease's name (`SOLOIST_NAME`).
    pub name: String,
    /// The replica's name (`SOLOIST_IDENTITY`).
    pub identity: String,
    /// The number of the term, for people (`SOLOIST_TERM`).
    pub term: Term,
    /// Greater than that of every term before (`SOLOIST_TOKEN`).
    pub token: Token,
}

/// A variable that does not say what soloist would say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{variable} is {found}, but must be {expected}; soloist sets it, so do not set it by hand, or unset SOLOIST_TOKEN to run without soloist"
)]
pub struct EnvironmentError {
    variable: &'static str,
    found: String,
    expected: &'static str,
}

/// All that the environment says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Environment {
    /// `None` without soloist.
    pub(crate) role: Option<Role>,
    /// From the stop signal until the process must have ended.
    pub(crate) stop: Duration,
    /// Of it, for the remaining messages of a stream.
    pub(crate) drain: Duration,
    /// Say `WATCHDOG=1` more often than this.
    pub(crate) watchdog: Option<Duration>,
    pub(crate) notify_socket: Option<OsString>,
}

impl Environment {
    /// From any source of variables. The one of this process is `std::env::var_os`.
    pub(crate) fn read(
        variable: impl Fn(&str) -> Option<OsString>,
        pid: u32,
    ) -> Result<Self, EnvironmentError> {
        let variables = Variables(variable);
        // Without soloist nobody kills us after a time; we keep to the times of its defaults.
        let (mut stop, mut drain) = default_times();
        let mut role = None;
        if variables.text("SOLOIST_TOKEN").is_some() {
            role = Some(Role {
                name: variables.need("SOLOIST_NAME", "the lease's name", some_text)?,
                identity: variables.need("SOLOIST_IDENTITY", "the replica's name", some_text)?,
                term: Term::new(variables.need("SOLOIST_TERM", "a whole number", number)?),
                token: Token::new(variables.need("SOLOIST_TOKEN", "a whole number", number)?),
            });
        }
        // A replica that needs no lease has no token for its child, and stops it as others do.
        let told = |name| variables.text(name).is_some();
        if role.is_some() || told("SOLOIST_STOP_SECONDS") && told("SOLOIST_DRAIN_SECONDS") {
            let seconds = "a number of seconds";
            stop = variables.need("SOLOIST_STOP_SECONDS", seconds, time)?;
            drain = variables.need("SOLOIST_DRAIN_SECONDS", seconds, time)?;
        }
        // As systemd has it: the watchdog may be meant for another process.
        let is_meant = variables
            .text("WATCHDOG_PID")
            .is_none_or(|text| text == pid.to_string());
        let watchdog = match variables.text("WATCHDOG_USEC").filter(|_| is_meant) {
            None => None,
            Some(_) => {
                let micros = "a whole number of microseconds above 0";
                Some(variables.need("WATCHDOG_USEC", micros, |text| {
                    let length = Duration::from_micros(text.parse().ok()?);
                    (!length.is_zero()).then_some(length)
                })?)
            }
        };
        Ok(Self {
            role,
            stop,
            drain,
            watchdog,
            notify_socket: (variables.0)("NOTIFY_SOCKET").filter(|path| !path.is_empty()),
        })
    }
}

fn default_times() -> (Duration, Duration) {
    const GRACE: Duration = Duration::from_secs(30);
    let ladder = Ladder::try_new(LadderRequest::from_grace(GRACE));
    ladder.map_or((GRACE, GRACE), |ladder| (ladder.child(), ladder.drain()))
}

fn some_text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

fn time(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

struct Variables<F>(F);

impl<F: Fn(&str) -> Option<OsString>> Variables<F> {
    fn text(&self, name: &str) -> Option<String> {
        Some((self.0)(name)?.to_string_lossy().into_owned())
    }

    fn need<T>(
        &self,
        variable: &'static str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, EnvironmentError> {
        let text = self.text(variable);
        let found = text
            .as_ref()
            .map_or_else(|| "not set".to_owned(), |text| format!("{text:?}"));
        text.and_then(|text| parse(&text)).ok_or(EnvironmentError {
            variable,
            found,
            expected,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOLOIST: [(&str, &str); 6] = [
        ("SOLOIST_NAME", "orders"),
        ("SOLOIST_IDENTITY", "pod-a"),
        ("SOLOIST_TERM", "7"),
        ("SOLOIST_TOKEN", "4711"),
        ("SOLOIST_STOP_SECONDS", "20"),
        ("SOLOIST_DRAIN_SECONDS", "1.5"),
    ];

    fn read(variables: &[(&str, &str)]) -> Result<Environment, EnvironmentError> {
        let find = |name: &str| {
            let found = variables.iter().rfind(|(key, _)| *key == name)?;
            Some(OsString::from(found.1))
        };
        Environment::read(find, 100)
    }

    #[test]
    fn under_soloist_all_is_known() {
        let environment = read(&SOLOIST).unwrap();
        let role = environment.role.unwrap();
        assert_eq!(
            (role.name.as_str(), role.identity.as_str()),
            ("orders", "pod-a")
        );
        assert_eq!((role.term, role.token), (Term::new(7), Token::new(4711)));
        assert_eq!(environment.stop, Duration::from_secs(20));
        assert_eq!(environment.drain, Duration::from_millis(1500));
    }

    #[test]
    fn without_soloist_the_times_are_those_of_its_defaults() {
        // Alone it is nobody's word.
        let environment = read(&[("SOLOIST_STOP_SECONDS", "7")]).unwrap();
        assert_eq!(environment.role, None);
        assert_eq!(environment.stop, Duration::from_secs(20));
        assert_eq!(environment.drain, Duration::from_secs(15));
        assert_eq!(
            (environment.watchdog, environment.notify_socket),
            (None, None)
        );
    }

    #[test]
    fn a_child_without_a_lease_has_times_and_no_role() {
        let environment = read(&[SOLOIST[0], SOLOIST[1], SOLOIST[4], SOLOIST[5]]).unwrap();
        assert_eq!(environment.role, None);
        assert_eq!(environment.stop, Duration::from_secs(20));
        assert_eq!(environment.drain, Duration::from_millis(1500));
    }

    #[test]
    fn a_variable_that_is_missing_or_wrong_is_named() {
        for (variable, value, found) in [
            (
                "SOLOIST_TOKEN",
                "x",
                "SOLOIST_TOKEN is \"x\", but must be a whole number",
            ),
            (
                "SOLOIST_TERM",
                "",
                "SOLOIST_TERM is \"\", but must be a whole number",
            ),
            (
                "SOLOIST_NAME",
                "",
                "SOLOIST_NAME is \"\", but must be the lease's name",
            ),
            (
                "SOLOIST_DRAIN_SECONDS",
                "-1",
                "SOLOIST_DRAIN_SECONDS is \"-1\", but must be a number of seconds",
            ),
            (
                "WATCHDOG_USEC",
                "0",
                "WATCHDOG_USEC is \"0\", but must be a whole number of microseconds above 0",
            ),
        ] {
            let mut variables = SOLOIST.to_vec();
            variables.push((variable, value));
            let error = read(&variables).unwrap_err().to_string();
            assert!(error.starts_with(found), "{error}");
        }
        let error = read(&[("SOLOIST_TOKEN", "1")]).unwrap_err().to_string();
        assert!(
            error.starts_with("SOLOIST_NAME is not set, but must be"),
            "{error}"
        );
    }

    #[test]
    fn a_watchdog_that_is_meant_for_another_process_is_not_ours() {
        let watchdog = |pid: &str| {
            let variables = [("WATCHDOG_USEC", "500000"), ("WATCHDOG_PID", pid)];
            read(&variables).unwrap().watchdog
        };
        assert_eq!(watchdog("100"), Some(Duration::from_millis(500)));
        assert_eq!(watchdog("99"), None);
        let unsaid = read(&[("WATCHDOG_USEC", "500000")]).unwrap();
        assert_eq!(unsaid.watchdog, Some(Duration::from_millis(500)));
    }
}
