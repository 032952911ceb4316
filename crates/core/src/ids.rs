//! Names and numbers that must not be mixed up.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::fmt;

/// Who a replica is, for people and for other electors on the same lease (`holderIdentity`).
///
/// It is a name, not a proof: two replicas with one identity are two replicas (see [`InstanceId`]).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity(Arc<str>);

/// Why a text is no [`Identity`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// An empty holder means "free" in the lease.
    #[error(
        "the identity is empty; an empty holder means that nobody leads, so every replica needs a name"
    )]
    Empty,
    /// It could not be read back from logs and records as one word.
    #[error(
        "the identity {identity:?} contains {character:?}; use letters, digits and punctuation, no spaces or control characters"
    )]
    Character {
        /// The refused text.
        identity: String,
        /// What is wrong in it.
        character: char,
    },
    /// Longer than any name that Kubernetes gives out.
    #[error(
        "the identity is {length} bytes long; at most {} are allowed",
        Identity::MAX_BYTES
    )]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
}

impl Identity {
    /// As long as the longest Kubernetes object name.
    pub const MAX_BYTES: usize = 253;

    /// Checks that `text` can be a holder's name.
    ///
    /// # Errors
    /// When it is empty, too long, or has white space or control characters in it.
    pub fn try_new(text: &str) -> Result<Self, IdentityError> {
        if text.is_empty() {
            return Err(IdentityError::Empty);
        }
        if text.len() > Self::MAX_BYTES {
            return Err(IdentityError::TooLong { length: text.len() });
        }
        match text.chars().find(|c| c.is_whitespace() || c.is_control()) {
            Some(character) => Err(IdentityError::Character {
                identity: text.to_string(),
                character,
            }),
            None => Ok(Self(text.into())),
        }
    }

    /// A holder as it stands in a record: whatever another elector calls itself, we respect it.
    /// `None` if it is empty, which means that nobody holds the lease.
    #[must_use]
    pub fn found(holder: &str) -> Option<Self> {
        (!holder.is_empty()).then(|| Self(holder.into()))
    }

    /// The name itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One run of one process. Drawn at random at start, so no two replicas share it, whatever they are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(u128);

impl InstanceId {
    /// From 128 random bits.
    #[must_use]
    pub const fn from_random(bits: u128) -> Self {
        Self(bits)
    }

    /// Reads what [`fmt::Display`] wrote.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == 32)
            .then(|| u128::from_str_radix(text, 16).ok())
            .flatten()
            .map(Self)
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The UID of the Pod that a replica is the only process tree of.
///
/// Give it to the election only when the replica has a PID namespace of its own: then a new replica
/// with the same UID proves that the former container, with everything in it, is dead.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodUid(Arc<str>);

impl PodUid {
    /// `None` for an empty text: that is what an unset variable looks like.
    #[must_use]
    pub fn new(uid: &str) -> Option<Self> {
        (!uid.is_empty()).then(|| Self(uid.into()))
    }

    /// The UID itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// Wraps the number.
            #[must_use]
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// The number itself.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// The store's version of one state of the record. It grows with every change, also across the
    /// record's deletion (Kubernetes `resourceVersion`, etcd `mod_revision`, a counter in a file).
    Version
}
number! {
    /// The fencing token of a term: the version of the write that began it. A later term's is greater.
    Token
}
number! {
    /// The number of a term, kept in the record (`leaseTransitions`). For people; it starts again when
    /// the record is lost, so it does not fence. [`Token`] does.
    Term
}
number! {
    /// One request of one replica to the store; also how a replica knows its own writes again.
    OpId
}

number! {
    /// One watch of one replica on the record. What an earlier one still delivers is passed over.
    WatchId
}
number! {
    /// One tree of one replica: a guard, and the child that it starts. Every start makes a new one.
    TreeId
}

impl From<Version> for Token {
    fn from(version: Version) -> Self {
        Self(version.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_one_printable_word() {
        assert_eq!(
            Identity::try_new("pod-a_1.x").unwrap().as_str(),
            "pod-a_1.x"
        );
        assert_eq!(
            Identity::try_new("").unwrap_err().to_string(),
            "the identity is empty; an empty holder means that nobody leads, so every replica needs a name"
        );
        assert_eq!(
            Identity::try_new("pod a").unwrap_err().to_string(),
            "the identity \"pod a\" contains ' '; use letters, digits and punctuation, no spaces or control characters"
        );
        let long = "x".repeat(254);
        assert_eq!(
            Identity::try_new(&long).unwrap_err().to_string(),
            "the identity is 254 bytes long; at most 253 are allowed"
        );
    }

    #[test]
    fn an_instance_id_survives_being_written_and_read() {
        let id = InstanceId::from_random(0xfeed);
        assert_eq!(InstanceId::parse(&id.to_string()), Some(id));
        assert_eq!(InstanceId::parse("feed"), None);
        assert_eq!(InstanceId::parse(&"x".repeat(32)), None);
    }

    #[test]
    fn an_unset_pod_uid_is_no_pod_uid() {
        assert_eq!(PodUid::new(""), None);
        assert_eq!(PodUid::new("1-2").unwrap().as_str(), "1-2");
    }
}
