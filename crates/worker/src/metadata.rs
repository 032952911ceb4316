//! The term in gRPC metadata: put there by the child, read by the server that it writes to.

use soloist_core::ids::Token;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Code, Request, Status};

use crate::environment::Role;
use crate::fence::{Refusal, StaleToken};

/// The token of the term in which a request was made.
pub const TOKEN: &str = "soloist-token";
/// The number of that term, for people.
pub const TERM: &str = "soloist-term";
/// The replica's name, for people.
pub const IDENTITY: &str = "soloist-identity";
/// In a refusal: the highest token that the server has seen.
pub const HIGHEST: &str = "soloist-highest-token";

/// Puts the term into every request; without soloist it puts nothing.
#[derive(Clone, Debug, Default)]
pub struct Signature {
    entries: MetadataMap,
}

impl Signature {
    /// In whose name requests are made.
    #[must_use]
    pub fn new(role: Option<&Role>) -> Self {
        let mut entries = MetadataMap::new();
        if let Some(role) = role {
            entries.insert(TOKEN, role.token.get().into());
            entries.insert(TERM, role.term.get().into());
            // A name that is not ASCII is left out: it is for people.
            let identity = MetadataValue::try_from(&role.identity);
            if let (true, Ok(identity)) = (role.identity.is_ascii(), identity) {
                entries.insert(IDENTITY, identity);
            }
        }
        Self { entries }
    }
}

impl Interceptor for Signature {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let metadata = request.metadata_mut().as_mut();
        for (key, value) in self.entries.as_ref() {
            metadata.insert(key.clone(), value.clone());
        }
        Ok(request)
    }
}

/// The token that a request bears.
///
/// # Errors
/// `INVALID_ARGUMENT` when there is none, or it is no number.
pub fn token(metadata: &MetadataMap) -> Result<Token, Status> {
    let text = metadata.get(TOKEN).ok_or_else(|| {
        Status::invalid_argument(format!(
            "the request has no {TOKEN} in its metadata; run the client under soloist, and send it SOLOIST_TOKEN"
        ))
    })?;
    let number = text.to_str().ok().and_then(|text| text.parse().ok());
    number.map(Token::new).ok_or_else(|| {
        Status::invalid_argument(format!(
            "the request's {TOKEN} is {text:?}, which is not a whole number"
        ))
    })
}

/// The highest token that the server has seen, if this is its refusal of an older one.
#[must_use]
pub fn highest(status: &Status) -> Option<Token> {
    let text = status.metadata().get(HIGHEST)?;
    Some(Token::new(text.to_str().ok()?.parse().ok()?))
}

impl From<StaleToken> for Status {
    fn from(stale: StaleToken) -> Self {
        let mut metadata = MetadataMap::new();
        metadata.insert(HIGHEST, stale.highest.get().into());
        Self::with_metadata(Code::FailedPrecondition, stale.to_string(), metadata)
    }
}

impl<E: std::fmt::Display> From<Refusal<E>> for Status {
    fn from(refusal: Refusal<E>) -> Self {
        match refusal {
            Refusal::Stale(stale) => stale.into(),
            // Another time it may work.
            Refusal::NotWritten(_) => Self::unavailable(refusal.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::Fence;
    use soloist_core::ids::Term;

    fn role(identity: &str) -> Role {
        Role {
            name: "orders".to_owned(),
            identity: identity.to_owned(),
            term: Term::new(7),
            token: Token::new(4711),
        }
    }

    #[test]
    fn what_the_child_signs_the_server_reads() {
        let mut signature = Signature::new(Some(&role("pod-a")));
        let request = signature.call(Request::new(())).unwrap();
        assert_eq!(token(request.metadata()).unwrap(), Token::new(4711));
        assert_eq!(request.metadata().get(TERM).unwrap(), "7");
        assert_eq!(request.metadata().get(IDENTITY).unwrap(), "pod-a");
    }

    #[test]
    fn a_name_that_cannot_be_sent_is_left_out() {
        let mut signature = Signature::new(Some(&role("ノード")));
        let request = signature.call(Request::new(())).unwrap();
        assert!(request.metadata().get(IDENTITY).is_none());
        assert!(token(request.metadata()).is_ok());
    }

    #[test]
    fn a_request_without_a_token_is_told_what_it_lacks() {
        let request = Signature::new(None).call(Request::new(())).unwrap();
        let status = token(request.metadata()).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains("SOLOIST_TOKEN"), "{status}");
        let mut metadata = MetadataMap::new();
        metadata.insert(TOKEN, "new".parse().unwrap());
        let status = token(&metadata).unwrap_err();
        assert!(status.message().contains("\"new\""), "{status}");
    }

    #[test]
    fn a_refusal_says_which_token_has_been_seen() {
        let fence = Fence::new(Token::new(9));
        let status = Status::from(fence.admit(Token::new(5)).unwrap_err());
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_eq!(highest(&status), Some(Token::new(9)));
        assert_eq!(highest(&Status::failed_precondition("other")), None);
    }
}
