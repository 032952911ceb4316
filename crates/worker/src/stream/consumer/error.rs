//! Why a consumer ends that was to go on.

use soloist_core::ids::Token;
use tonic::Status;

/// Why a consumer has given up.
#[derive(Debug, thiserror::Error)]
pub enum ConsumerError<E: std::fmt::Display> {
    /// A later leader is at work. This one must stop.
    #[error(
        "the term is over: {address} has seen the token {highest} of a later leader{}", ours.map_or_else(String::new, |ours| format!(", ours is {ours}"))
    )]
    Fenced {
        /// The server.
        address: String,
        /// Our token.
        ours: Option<Token>,
        /// The token that the server has seen.
        highest: Token,
    },
    /// The server will not have us, or cannot be understood: trying again would not help.
    #[error("{text}")]
    Final {
        /// What happened, for people.
        text: String,
        /// What the server said, if it said something.
        status: Option<Box<Status>>,
    },
    /// A message could not be handled.
    #[error("a message could not be handled: {0}")]
    Handler(E),
    /// The subscriber panicked.
    #[error("{method} panicked: {message}")]
    Panicked {
        /// Where.
        method: &'static str,
        /// What the panic said.
        message: String,
    },
}
