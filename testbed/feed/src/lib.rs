//! A feed of numbered messages over gRPC, and what shows that a consumer wrote each of them once.
//!
//! The service stands in `proto/feed.proto`. [`server`] is the service, which remembers in a [`store`]; [`writer`]
//! is what the worker does with the messages, [`output`] where it writes them, and [`verify`] reads that again and says whether every message stands there once, in order
//! and with the right [`payload`].

pub mod output;
pub mod payload;
pub mod server;
pub mod store;
pub mod verify;
pub mod writer;

/// The messages and the client, generated from `proto/feed.proto`.
#[allow(
    missing_docs,
    unused_qualifications,
    reason = "generated; the proto file is the documentation"
)]
pub mod proto {
    tonic::include_proto!("feed.v1");

    /// The proto file, compiled, for reflection.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/feed.bin"));
}
