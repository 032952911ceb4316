//! What the errors of tonic, h2, hyper and rustls mean. Some say it in words only: tests with real peers hold them to their words.

use std::error::Error;
use std::io;

use tonic::{Code, Status};

/// What no waiting mends, unless it has worked before.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// Why the server's certificate is not trusted.
    #[cfg(feature = "tls")]
    Untrusted(String),
    #[cfg(feature = "tls")]
    NotTls,
    /// The alert with which the server has ended TLS.
    #[cfg(feature = "tls")]
    TlsAlert(String),
    NotHttp2,
}

/// The misfit that an error is about, if it is about one.
pub(super) fn misfit(error: &(dyn Error + 'static)) -> Option<Misfit> {
    chain(error).find_map(|cause| tls_misfit(cause).or_else(|| http_misfit(cause)))
}

/// Whether tonic could not read a message.
pub(super) fn is_unreadable(status: &Status) -> bool {
    let message = status.message();
    status.code() == Code::Internal
        && (message.starts_with("failed to decode Protobuf message")
            || message.starts_with("protocol error: received message with"))
}

/// Whether tonic would not read a message.
pub(super) fn is_too_large(status: &Status) -> bool {
    status.code() == Code::OutOfRange && status.message().contains("message length too large")
}

/// What a proxy says with a page of its own: tonic reads that as a message, and loses the HTTP status but for its words.
pub(super) fn from_page(status: &Status) -> Option<Status> {
    let (_, words) = match is_unreadable(status) {
        true => status
            .message()
            .split_once("while receiving response with status: ")?,
        false => return None,
    };
    let code = match words.get(..3)? {
        "401" => Code::Unauthenticated,
        "403" => Code::PermissionDenied,
        "404" => Code::Unimplemented,
        "429" | "502" | "503" | "504" => Code::Unavailable,
        // The server's own answer, or one that says nothing more.
        _ => return None,
    };
    let text = format!("HTTP {words}: the answer is a page, and no gRPC");
    Some(Status::new(code, text))
}

#[cfg(feature = "tls")]
fn tls_misfit(cause: &(dyn Error + 'static)) -> Option<Misfit> {
    // After the handshake h2 passes on the words of rustls' error, not the error.
    if let Some(error) = cause.downcast_ref::<io::Error>() {
        let text = error.to_string();
        let alert = text.strip_prefix("received fatal alert: ")?;
        return Some(Misfit::TlsAlert(alert.to_owned()));
    }
    match cause.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(reason) => Some(Misfit::Untrusted(reason.to_string())),
        rustls::Error::InvalidMessage(_) => Some(Misfit::NotTls),
        rustls::Error::AlertReceived(alert) => Some(Misfit::TlsAlert(format!("{alert:?}"))),
        _ => None,
    }
}

#[cfg(not(feature = "tls"))]
fn tls_misfit(_: &(dyn Error + 'static)) -> Option<Misfit> {
    None
}

fn http_misfit(cause: &(dyn Error + 'static)) -> Option<Misfit> {
    let error = cause.downcast_ref::<h2::Error>()?;
    let is_nonsense = matches!(
        error.reason(),
        Some(h2::Reason::FRAME_SIZE_ERROR | h2::Reason::PROTOCOL_ERROR)
    );
    // Found by our side, in what the other side says.
    (is_nonsense && error.is_go_away() && error.is_library()).then_some(Misfit::NotHttp2)
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
    fn causes_are_said_once() {
        let inner = io::Error::other(io::Error::new(io::ErrorKind::NotFound, "no such host"));
        assert_eq!(causes(&inner), "no such host");
    }
}
