//! What went wrong, in words, and whether it is worth another try.

use std::error::Error;
use std::io;

use tonic::{Code, Status};

use super::target::TargetError;

/// Whether a failed stream is worth another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The same call may succeed later.
    Retry,
    /// The same call will fail again: somebody has to mend something.
    Final,
}

impl Verdict {
    /// What gRPC's codes mean for a stream that goes on from where it was. A status that the connection made, rather than
    /// the server, is always worth another try.
    #[must_use]
    pub fn of(status: &Status) -> Self {
        if status.source().is_some() {
            return Self::Retry;
        }
        match status.code() {
            // The server is busy, gone or at odds with itself; or the end came without a reason.
            Code::Ok
            | Code::Aborted
            | Code::Cancelled
            | Code::DeadlineExceeded
            | Code::ResourceExhausted
            | Code::Unavailable
            | Code::Unknown => Self::Retry,
            // The server's own trouble may pass. A message that cannot be read stays what it is.
            Code::Internal if !is_unreadable(status) => Self::Retry,
            Code::Internal
            | Code::AlreadyExists
            | Code::DataLoss
            | Code::FailedPrecondition
            | Code::InvalidArgument
            | Code::NotFound
            | Code::OutOfRange
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::Unimplemented => Self::Final,
        }
    }
}

/// tonic says in words only that it was the one who could not read a message. A test with real bytes holds it to them.
fn is_unreadable(status: &Status) -> bool {
    let message = status.message();
    message.starts_with("failed to decode Protobuf message")
        || message.starts_with("protocol error: received message with")
}

fn is_oversized(status: &Status) -> bool {
    status.code() == Code::OutOfRange && status.message().contains("message length too large")
}

/// One failure, told for people.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) verdict: Verdict,
    pub(super) text: String,
    pub(super) status: Option<Status>,
}

impl Failure {
    /// No connection could be made.
    pub(super) fn connecting(address: &str, error: &tonic::transport::Error) -> Self {
        let (verdict, text) = match trouble(error) {
            Some(trouble) => (Verdict::Final, trouble.text(address)),
            None => {
                let text = format!("no connection to {address}: {}", causes(error));
                (Verdict::Retry, text)
            }
        };
        Self {
            verdict,
            text,
            status: None,
        }
    }

    /// The files of the target have changed, and not for the better. They may be in the middle of a change.
    pub(super) fn target(error: &TargetError) -> Self {
        Self {
            verdict: Verdict::Retry,
            text: error.to_string(),
            status: None,
        }
    }

    /// A call or the stream failed. `what` says which.
    pub(super) fn status(
        address: &str,
        what: &str,
        status: Status,
        judge: impl Fn(&Status) -> Verdict,
    ) -> Self {
        let found = status.source().and_then(trouble);
        let verdict = match found {
            Some(_) => Verdict::Final,
            None => judge(&status),
        };
        let text = found.map_or_else(|| in_words(address, what, &status), |it| it.text(address));
        Self {
            verdict,
            text,
            status: Some(status),
        }
    }

    /// Whether the connection broke, rather than the server said something.
    pub(super) fn is_broken(&self) -> bool {
        let status = self.status.as_ref();
        status.is_some_and(|status| status.source().is_some()) && self.verdict == Verdict::Retry
    }

    /// Adds what may be wrong with an address that has never answered.
    pub(super) fn at_first_sight(mut self, address: &str) -> Self {
        if self.is_broken() {
            let other = match address.starts_with("https") {
                true => "http",
                false => "https",
            };
            let hint = format!("; does it speak gRPC there, and is it not meant to be {other}://?");
            self.text.push_str(&hint);
        }
        self
    }

    /// The server has ended the stream without being asked to.
    pub(super) fn ended(address: &str) -> Self {
        Self {
            verdict: Verdict::Retry,
            text: format!("{address} ended the stream"),
            status: None,
        }
    }
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
    let code = status.code();
    let hint = match code {
        _ if is_oversized(status) => {
            "; raise max_decoding_message_size of the client if such messages are meant to be"
        }
        _ if is_unreadable(status) => "; do both sides use the same .proto?",
        Code::Unimplemented => "; is this the right server, and does it speak gRPC?",
        _ => "",
    };
    format!("{what} of {address} failed: {code:?}: {message}{hint}")
}

/// What no waiting mends.
#[derive(Debug, PartialEq, Eq)]
enum Trouble {
    #[cfg(feature = "tls")]
    Untrusted(String),
    #[cfg(feature = "tls")]
    NotTls,
    #[cfg(feature = "tls")]
    UnwelcomeWithTls(String),
    NotHttp2,
}

impl Trouble {
    fn text(&self, address: &str) -> String {
        match self {
            #[cfg(feature = "tls")]
            Self::Untrusted(reason) => format!(
                "the certificate of {address} is not trusted: {reason}; give the CA that signed it, or the name that it bears"
            ),
            #[cfg(feature = "tls")]
            Self::NotTls => format!("{address} does not speak TLS; is it meant to be http://?"),
            #[cfg(feature = "tls")]
            Self::UnwelcomeWithTls(reason) => format!(
                "{address} refuses our side of TLS: {reason}; does it want a client certificate, or another one?"
            ),
            Self::NotHttp2 => format!(
                "{address} speaks no gRPC: its answer is not HTTP/2; is this the right port, and is it meant to be https://?"
            ),
        }
    }
}

fn trouble(error: &(dyn Error + 'static)) -> Option<Trouble> {
    chain(error).find_map(|cause| tls_trouble(cause).or_else(|| http_trouble(cause)))
}

#[cfg(feature = "tls")]
fn tls_trouble(cause: &(dyn Error + 'static)) -> Option<Trouble> {
    // After the handshake h2 passes on the words of rustls' error, not the error.
    if let Some(error) = cause.downcast_ref::<io::Error>() {
        let text = error.to_string();
        let alert = text.strip_prefix("received fatal alert: ")?;
        return Some(Trouble::UnwelcomeWithTls(alert.to_owned()));
    }
    match cause.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(reason) => Some(Trouble::Untrusted(reason.to_string())),
        rustls::Error::InvalidMessage(_) => Some(Trouble::NotTls),
        rustls::Error::AlertReceived(alert) => {
            Some(Trouble::UnwelcomeWithTls(format!("{alert:?}")))
        }
        _ => None,
    }
}

#[cfg(not(feature = "tls"))]
fn tls_trouble(_: &(dyn Error + 'static)) -> Option<Trouble> {
    None
}

fn http_trouble(cause: &(dyn Error + 'static)) -> Option<Trouble> {
    let error = cause.downcast_ref::<h2::Error>()?;
    let is_nonsense = matches!(
        error.reason(),
        Some(h2::Reason::FRAME_SIZE_ERROR | h2::Reason::PROTOCOL_ERROR)
    );
    // Found by our side, in what the other side says.
    (is_nonsense && error.is_go_away() && error.is_library()).then_some(Trouble::NotHttp2)
}

/// An error and all its causes, also those that `io::Error` hides.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        let hidden = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
            .map(|inner| inner as &(dyn Error + 'static));
        hidden.or_else(|| error.source())
    })
}

/// All causes in one line, each said once.
pub(super) fn causes(error: &(dyn Error + 'static)) -> String {
    let mut said: Vec<String> = Vec::new();
    for cause in chain(error) {
        let text = cause.to_string();
        if text != "transport error" && !said.iter().any(|before| before.contains(&text)) {
            said.push(text);
        }
    }
    said.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_told_apart() {
        use Code::*;
        for code in [
            Aborted,
            Cancelled,
            DeadlineExceeded,
            Internal,
            ResourceExhausted,
            Unavailable,
            Unknown,
        ] {
            assert_eq!(
                Verdict::of(&Status::new(code, "")),
                Verdict::Retry,
                "{code:?}"
            );
        }
        for code in [
            AlreadyExists,
            DataLoss,
            FailedPrecondition,
            InvalidArgument,
            NotFound,
            OutOfRange,
            PermissionDenied,
            Unauthenticated,
            Unimplemented,
        ] {
            assert_eq!(
                Verdict::of(&Status::new(code, "")),
                Verdict::Final,
                "{code:?}"
            );
        }
    }

    #[test]
    fn what_the_connection_made_of_it_is_worth_another_try() {
        let broken: Box<dyn Error + Send + Sync> = Box::new(io::Error::other("reset"));
        let status = Status::from_error(broken);
        assert_eq!(Verdict::of(&status), Verdict::Retry);
        let failure = Failure::status("http://feed:1", "the stream", status, Verdict::of);
        assert_eq!(
            failure.text,
            "the stream of http://feed:1 failed: Unknown: reset"
        );
    }

    #[test]
    fn causes_are_said_once() {
        let inner = io::Error::other(io::Error::new(io::ErrorKind::NotFound, "no such host"));
        assert_eq!(causes(&inner), "no such host");
    }
}
