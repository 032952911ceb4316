//! What etcd and the way to it can do wrong, and what to do about it.

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::time::Duration;

use tonic::{Code, Status};

use super::connection::{DialError, was_not_sent};
use super::members::{Members, Trouble};
use super::tls;
use crate::causes::find;
use crate::store::{StoreError, Throttling};

/// etcd does not say for how long to wait.
const BREATHER: Duration = Duration::from_secs(1);

/// What was asked for, and of whom.
pub(super) struct Asked<'a> {
    pub(super) writes: bool,
    pub(super) key: &'a str,
    pub(super) place: String,
    pub(super) members: &'a Members,
}

impl Asked<'_> {
    pub(super) fn failed(&self, trouble: &Trouble) -> StoreError {
        match trouble {
            Trouble::NoConnection(failures) => self.unreachable(failures),
            Trouble::Status(endpoint, status) => self.answered(*endpoint, status),
        }
    }

    fn unreachable(&self, failures: &[(usize, DialError)]) -> StoreError {
        let mut text = String::new();
        for (number, failure) in failures {
            let separator = if text.is_empty() { "" } else { "; " };
            let endpoint = &self.members.endpoints[*number];
            let _ = write!(text, "{separator}{endpoint}: {}", chain(failure));
        }
        let is_tls = |(_, failure): &(usize, DialError)| matches!(failure, DialError::Tls(_));
        let is_stranger =
            |(_, failure): &(usize, DialError)| matches!(failure, DialError::Stranger(_));
        if failures.iter().all(is_tls) {
            return StoreError::refused(
                format!("no member of the etcd can be trusted, or none trusts us. {text}"),
                self.place.clone(),
                "Look at --etcd-ca, --etcd-cert and --etcd-key, and at the certificates of the members",
            );
        }
        if failures.iter().all(|f| is_tls(f) || is_stranger(f)) {
            return StoreError::refused(
                format!("nobody who speaks as an etcd does is there. {text}"),
                self.place.clone(),
                "Check the addresses: of each member the one for clients, with port 2379 unless it was changed. With --etcd-ca there is TLS, \
                 without it there is none",
            );
        }
        StoreError::Unavailable(format!("cannot reach the etcd: {text}"))
    }

    fn answered(&self, endpoint: usize, status: &Status) -> StoreError {
        let member = &self.members.endpoints[endpoint];
        let said = status.message();
        if let Some(alert) = find::<rustls::Error>(status)
            && let Some(files) = &self.members.tls
        {
            return StoreError::refused(
                format!("{member}: {}", tls::in_words(alert, files, &member.host)),
                self.place.clone(),
                "Look at --etcd-cert and --etcd-key, and at what the members trust",
            );
        }
        match (status.code(), said) {
            _ if was_not_sent(status) => StoreError::Unavailable(format!(
                "the connection to the etcd {member} was closed: {}",
                chain(status)
            )),
            (Code::Unavailable, NO_LEADER) => StoreError::Unavailable(format!(
                "the etcd {member} has no leader: it has lost the other members, or they are choosing one"
            )),
            (Code::ResourceExhausted, NO_SPACE) => StoreError::refused(
                format!("the etcd {member} is full: {said}"),
                self.place.clone(),
                "Compact and defragment it, or raise its quota, and then: etcdctl alarm disarm",
            ),
            (Code::ResourceExhausted, _) => StoreError::Throttled(Box::new(Throttling {
                reason: format!("the etcd {member} has too much to do: {said}"),
                wait: BREATHER,
            })),
            (Code::Unavailable, LEARNER) => StoreError::Unavailable(format!(
                "the etcd {member} is a learner, which serves nobody yet: leave it out of the addresses until it votes"
            )),
            (Code::InvalidArgument, TOO_LARGE) => StoreError::refused(
                format!(
                    "the value of the key {:?} has grown too large: {said}",
                    self.key
                ),
                self.place.clone(),
                "Take out of it what is not soloist's, or delete the key while nobody leads",
            ),
            (Code::PermissionDenied, _) => self.missing_right(said),
            (Code::InvalidArgument, NO_USER) => StoreError::refused(
                format!("the etcd {member} wants to know who we are: {said}"),
                self.place.clone(),
                "Give --etcd-user and --etcd-password-file, or the certificate of a user: --etcd-cert and --etcd-key",
            ),
            (Code::InvalidArgument | Code::FailedPrecondition | Code::Unauthenticated, _) => {
                StoreError::refused(
                    format!("the etcd {member} refuses us: {said}"),
                    self.place.clone(),
                    "Look at --etcd-user and --etcd-password-file, and at etcdctl user get",
                )
            }
            (Code::Unimplemented, _) => StoreError::refused(
                format!("{member} does not speak etcd's v3 API: {said}"),
                self.place.clone(),
                "Check that this is the client address of an etcd 3.4 or later",
            ),
            _ if !self.writes && status.code() == Code::Unavailable => {
                StoreError::Unavailable(format!("the etcd {member} failed: {}", chain(status)))
            }
            // Among them the timeouts of etcd's own: what was proposed may still come to pass.
            _ => StoreError::Unknown(format!("the etcd {member} failed: {}", chain(status))),
        }
    }

    /// The user may do other things, but not this.
    pub(super) fn missing_right(&self, said: &str) -> StoreError {
        let (right, key) = (if self.writes { "write" } else { "read" }, self.key);
        let user = match &self.members.login {
            Some(login) => format!("the user {}", login.user),
            None => "the user that our certificate names".to_owned(),
        };
        StoreError::refused(
            format!("{user} may not {right} the key {key:?}; etcd says: {said}"),
            self.place.clone(),
            format!(
                "Give a role of it the right: etcdctl role grant-permission ROLE readwrite '{key}'"
            ),
        )
    }

    /// The answer is not what was asked for.
    pub(super) fn not_understood(&self, reason: &str) -> StoreError {
        match self.writes {
            true => StoreError::Unknown(format!("the answer cannot be understood: {reason}")),
            false => StoreError::refused(
                format!("the value of the key {:?} {reason}", self.key),
                self.place.clone(),
                "Choose another prefix or name, or delete the key if nobody needs it",
            ),
        }
    }
}

const NO_LEADER: &str = "etcdserver: no leader";
const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";
const LEARNER: &str = "etcdserver: rpc not supported for learner";
const TOO_LARGE: &str = "etcdserver: request is too large";
const NO_USER: &str = "etcdserver: user name is empty";
const OLD_TOKENS: [&str; 2] = [
    "etcdserver: invalid auth token",
    "etcdserver: revision of auth store is old",
];

/// Whether a member in good health says this: then another one would, too.
pub(super) fn is_an_answer(status: &Status) -> bool {
    // It has a new leader, so it is not the one that has lost the others.
    let is_led = status.message() == "etcdserver: leader changed";
    is_led
        || status.message().starts_with("etcdserver: ")
            && matches!(
                status.code(),
                Code::PermissionDenied
                    | Code::InvalidArgument
                    | Code::FailedPrecondition
                    | Code::Unauthenticated
            )
}

/// What is refused before it is looked at.
pub(super) fn empty_password(path: &Path) -> Status {
    let path = path.display();
    Status::failed_precondition(format!("the password file {path} is empty"))
}

pub(super) fn is_an_old_token(status: &Status) -> bool {
    OLD_TOKENS.contains(&status.message())
}

pub(super) fn is_without_users(status: &Status) -> bool {
    status.message() == "etcdserver: authentication is not enabled"
}

pub(super) fn no_password(path: &Path, error: &io::Error) -> Status {
    let path = path.display();
    Status::failed_precondition(format!("the password file {path} cannot be read: {error}"))
}

/// All causes in one line; each says something the others do not.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = match error.downcast_ref::<Status>() {
        // Its own text has every detail of the protocol in it.
        Some(status) => status.message().to_owned(),
        None => error.to_string(),
    };
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            let separator = if text.is_empty() { "" } else { ": " };
            let _ = write!(text, "{separator}{next}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use soloist_core::election::Answer;

    use super::super::options::Options;
    use super::*;

    #[test]
    fn each_status_means_one_thing_to_the_election() {
        let members = Members::new(Options::lease("a:1".parse().unwrap(), "demo"));
        let asked = |writes| Asked {
            writes,
            key: "soloist/demo",
            place: "lease soloist/demo".into(),
            members: &members,
        };
        for (code, said, read, write) in [
            (
                Code::Unavailable,
                NO_LEADER,
                Answer::Unavailable,
                Answer::Unavailable,
            ),
            (
                Code::Unavailable,
                "etcdserver: request timed out",
                Answer::Unavailable,
                Answer::Unknown,
            ),
            (
                Code::Unavailable,
                "etcdserver: leader changed",
                Answer::Unavailable,
                Answer::Unknown,
            ),
            (
                Code::Unknown,
                "raft proposal dropped",
                Answer::Unknown,
                Answer::Unknown,
            ),
            (Code::DeadlineExceeded, "", Answer::Unknown, Answer::Unknown),
            (
                Code::PermissionDenied,
                "etcdserver: permission denied",
                Answer::Refused,
                Answer::Refused,
            ),
            (
                Code::InvalidArgument,
                NO_USER,
                Answer::Refused,
                Answer::Refused,
            ),
            (
                Code::Unauthenticated,
                OLD_TOKENS[0],
                Answer::Refused,
                Answer::Refused,
            ),
            (
                Code::ResourceExhausted,
                NO_SPACE,
                Answer::Refused,
                Answer::Refused,
            ),
            (
                Code::ResourceExhausted,
                "etcdserver: too many requests",
                Answer::Throttled { wait: BREATHER },
                Answer::Throttled { wait: BREATHER },
            ),
        ] {
            let trouble = Trouble::Status(0, Box::new(Status::new(code, said)));
            for (writes, answer) in [(false, &read), (true, &write)] {
                let error = asked(writes).failed(&trouble);
                assert_eq!(error.answer(), *answer, "{error}");
            }
        }
        let trouble = Trouble::Status(0, Box::new(Status::permission_denied("no")));
        let told = asked(true).failed(&trouble).to_string();
        assert!(
            told.contains("grant-permission ROLE readwrite 'soloist/demo'"),
            "{told}"
        );
    }
}
