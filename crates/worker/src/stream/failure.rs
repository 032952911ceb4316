//! What went wrong, in words, and whether it is worth another try.

use std::error::Error;
use std::time::Duration;

use soloist_core::time::Human;
use tonic::{Code, Status};

use super::dependency_errors::{Misfit, causes, from_page, is_too_large, is_unreadable, misfit};
use super::target::TargetError;

/// Whether a failed stream is worth another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The same call may succeed later.
    Retry,
    /// The same call will fail again: somebody has to mend something.
    Final,
}

/// What failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// No connection could be made.
    Unreachable,
    /// The files of certificates cannot be read or used. They may be in the middle of a change.
    Files,
    /// The server's certificate is not trusted.
    Untrusted,
    /// The server does not speak TLS.
    NotTls,
    /// The server has ended TLS with an alert: it may want another certificate of ours.
    TlsAlert,
    /// The server does not speak HTTP/2.
    NotHttp2,
    /// There is a connection, but no answer to the call within [`open_limit`](super::Consumer::open_limit).
    Unanswered,
    /// The connection broke.
    Broken,
    /// A message cannot be decoded.
    Unreadable,
    /// A message is larger than the client takes.
    TooLarge,
    /// The server has ended the stream or a call with this code.
    Status(Code),
    /// The server has ended the stream without being asked to.
    Ended,
}

/// One failure of a stream: for [`judge`](super::Consumer::judge), and for people.
#[derive(Debug)]
pub struct Failure {
    kind: FailureKind,
    text: String,
    status: Option<Status>,
    was_open: bool,
}

impl Verdict {
    /// What is judged unless [`judge`](super::Consumer::judge) says otherwise.
    ///
    /// What has worked before may work again: a CA is rotated, a proxy answers while its server is replaced, a token is renewed.
    /// So some failures are final only as long as the stream has [never been open](Failure::was_open).
    #[must_use]
    pub fn of(failure: &Failure) -> Self {
        let unless_it_worked = match failure.was_open {
            true => Self::Retry,
            false => Self::Final,
        };
        match failure.kind {
            FailureKind::Unreachable
            | FailureKind::Files
            | FailureKind::Unanswered
            | FailureKind::Broken
            | FailureKind::Ended => Self::Retry,
            FailureKind::Untrusted
            | FailureKind::NotTls
            | FailureKind::TlsAlert
            | FailureKind::NotHttp2 => unless_it_worked,
            FailureKind::Unreadable | FailureKind::TooLarge => Self::Final,
            FailureKind::Status(code) => match code {
                // The server is busy, gone or at odds with itself; or the end came without a reason.
                Code::Ok
                | Code::Aborted
                | Code::Cancelled
                | Code::DeadlineExceeded
                | Code::Internal
                | Code::ResourceExhausted
                | Code::Unavailable
                | Code::Unknown => Self::Retry,
                Code::Unauthenticated | Code::Unimplemented => unless_it_worked,
                Code::AlreadyExists
                | Code::DataLoss
                | Code::FailedPrecondition
                | Code::InvalidArgument
                | Code::NotFound
                | Code::OutOfRange
                | Code::PermissionDenied => Self::Final,
            },
        }
    }
}

impl Failure {
    /// What failed.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// What the server said, or what the connection made of it.
    #[must_use]
    pub fn status(&self) -> Option<&Status> {
        self.status.as_ref()
    }

    /// Whether the stream has been open before, in this run of the consumer.
    #[must_use]
    pub fn was_open(&self) -> bool {
        self.was_open
    }

    /// What happened, for people.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    fn new(kind: FailureKind, text: String) -> Self {
        Self {
            kind,
            text,
            status: None,
            was_open: false,
        }
    }

    /// No connection could be made.
    pub(super) fn connecting(address: &str, error: &tonic::transport::Error) -> Self {
        match misfit(error) {
            Some(misfit) => Self::new(misfit.kind(), misfit.text(address)),
            None => {
                let text = format!("no connection to {address}: {}", causes(error));
                Self::new(FailureKind::Unreachable, text)
            }
        }
    }

    /// The files of the target have changed, and not for the better.
    pub(super) fn target(error: &TargetError) -> Self {
        Self::new(FailureKind::Files, error.to_string())
    }

    /// The server answers pings, perhaps, but not the call.
    pub(super) fn unanswered(address: &str, waited: Duration) -> Self {
        let waited = Human(waited);
        let text = format!("{address} has not answered the call within {waited}");
        Self::new(FailureKind::Unanswered, text)
    }

    /// The server has ended the stream without being asked to.
    pub(super) fn ended(address: &str) -> Self {
        Self::new(FailureKind::Ended, format!("{address} ended the stream"))
    }

    /// A call or the stream failed. `what` says which.
    pub(super) fn from_status(address: &str, what: &str, status: Status) -> Self {
        let status = from_page(&status).unwrap_or(status);
        let found = status.source().and_then(misfit);
        let (kind, text) = match found {
            Some(misfit) => (misfit.kind(), misfit.text(address)),
            None => (kind_of(&status), in_words(address, what, &status)),
        };
        Self {
            status: Some(status),
            ..Self::new(kind, text)
        }
    }

    /// Notes whether the stream has been open before. If not, adds what may be wrong with the address.
    pub(super) fn after(mut self, was_open: bool, address: &str) -> Self {
        self.was_open = was_open;
        if !was_open && self.kind == FailureKind::Broken {
            let other = match address.starts_with("https") {
                true => "http",
                false => "https",
            };
            let hint = format!("; does it speak gRPC there, and is it not meant to be {other}://?");
            self.text.push_str(&hint);
        }
        self
    }
}

fn kind_of(status: &Status) -> FailureKind {
    if status.source().is_some() {
        return FailureKind::Broken;
    }
    if is_unreadable(status) {
        return FailureKind::Unreadable;
    }
    if is_too_large(status) {
        return FailureKind::TooLarge;
    }
    FailureKind::Status(status.code())
}

fn in_words(address: &str, what: &str, status: &Status) -> String {
    let mut message = status.message().to_owned();
    if let Some(source) = status.source() {
        let causes = causes(source);
        if !message.contains(&causes) {
            message = match message.is_empty() {
                true => causes,
                false => format!("{message}: {causes}"),
            };
        }
    }
    let hint = match kind_of(status) {
        FailureKind::TooLarge => {
            "; raise max_decoding_message_size of the client if such messages are meant to be"
        }
        FailureKind::Unreadable => "; do both sides use the same .proto?",
        FailureKind::Status(Code::Unimplemented) => {
            "; is this the right server, and does it speak gRPC?"
        }
        _ => "",
    };
    let code = status.code();
    format!("{what} of {address} failed: {code:?}: {message}{hint}")
}

impl Misfit {
    fn kind(&self) -> FailureKind {
        match self {
            #[cfg(feature = "tls")]
            Self::Untrusted(_) => FailureKind::Untrusted,
            #[cfg(feature = "tls")]
            Self::NotTls => FailureKind::NotTls,
            #[cfg(feature = "tls")]
            Self::TlsAlert(_) => FailureKind::TlsAlert,
            Self::NotHttp2 => FailureKind::NotHttp2,
        }
    }

    fn text(&self, address: &str) -> String {
        match self {
            #[cfg(feature = "tls")]
            Self::Untrusted(reason) => format!(
                "the certificate of {address} is not trusted: {reason}; give the CA that signed it, or the name that it bears"
            ),
            #[cfg(feature = "tls")]
            Self::NotTls => format!("{address} does not speak TLS; is it meant to be http://?"),
            #[cfg(feature = "tls")]
            Self::TlsAlert(reason) => format!(
                "{address} refuses our side of TLS: {reason}; does it want a client certificate, or another one?"
            ),
            Self::NotHttp2 => format!(
                "{address} speaks no gRPC: its answer is not HTTP/2; is this the right port, and is it meant to be https://?"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn verdict(kind: FailureKind, was_open: bool) -> Verdict {
        let mut failure = Failure::new(kind, String::new());
        failure.was_open = was_open;
        Verdict::of(&failure)
    }

    #[test]
    fn codes_are_told_apart() {
        use Code::*;
        let retried = [
            Aborted,
            Cancelled,
            DeadlineExceeded,
            Internal,
            ResourceExhausted,
            Unavailable,
            Unknown,
        ];
        let last = [
            AlreadyExists,
            DataLoss,
            FailedPrecondition,
            InvalidArgument,
            NotFound,
            OutOfRange,
            PermissionDenied,
        ];
        for was_open in [false, true] {
            for code in retried {
                let kind = FailureKind::Status(code);
                assert_eq!(verdict(kind, was_open), Verdict::Retry, "{code:?}");
            }
            for code in last {
                let kind = FailureKind::Status(code);
                assert_eq!(verdict(kind, was_open), Verdict::Final, "{code:?}");
            }
        }
    }

    #[test]
    fn what_has_worked_before_is_worth_another_try() {
        for kind in [
            FailureKind::Untrusted,
            FailureKind::NotTls,
            FailureKind::TlsAlert,
            FailureKind::NotHttp2,
            FailureKind::Status(Code::Unauthenticated),
            FailureKind::Status(Code::Unimplemented),
        ] {
            assert_eq!(verdict(kind, false), Verdict::Final, "{kind:?}");
            assert_eq!(verdict(kind, true), Verdict::Retry, "{kind:?}");
        }
    }

    #[test]
    fn what_the_connection_made_of_it_is_worth_another_try() {
        let broken: Box<dyn Error + Send + Sync> = Box::new(io::Error::other("reset"));
        let failure =
            Failure::from_status("http://feed:1", "the stream", Status::from_error(broken));
        assert_eq!(Verdict::of(&failure), Verdict::Retry);
        assert_eq!(
            failure.text(),
            "the stream of http://feed:1 failed: Unknown: reset"
        );
    }
}
