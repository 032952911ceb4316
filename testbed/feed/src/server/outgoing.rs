//! What the server sends on a stream.

use prost::bytes::{Buf, BufMut, Bytes};
use prost::encoding::{self, DecodeContext, WireType};
use prost::{DecodeError, Message};

use crate::payload::Recipe;

/// A `feed.v1.Message` that is written straight into the connection's buffer, or bytes that are none.
#[derive(Clone, Debug)]
pub enum Outgoing {
    /// The message at a position.
    Message {
        /// Where it stands.
        position: u64,
        /// What it holds.
        recipe: Recipe,
    },
    /// These bytes in the place of a message.
    Raw(Bytes),
}

impl Outgoing {
    /// No message of any kind begins like this: a number that never ends.
    pub(super) const fn malformed() -> Self {
        Self::Raw(Bytes::from_static(&[0xff; 16]))
    }
}

// As in the proto file.
const POSITION: u32 = 1;
const PAYLOAD: u32 = 2;

impl Message for Outgoing {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        match self {
            Self::Message { position, recipe } => {
                encoding::uint64::encode(POSITION, position, buffer);
                encoding::encode_key(PAYLOAD, WireType::LengthDelimited, buffer);
                encoding::encode_varint(recipe.size() as u64, buffer);
                recipe.write(*position, buffer);
            }
            Self::Raw(bytes) => buffer.put_slice(bytes),
        }
    }

    fn encoded_len(&self) -> usize {
        match self {
            Self::Message { position, recipe } => {
                let size = recipe.size();
                encoding::uint64::encoded_len(POSITION, position)
                    + encoding::key_len(PAYLOAD)
                    + encoding::encoded_len_varint(size as u64)
                    + size
            }
            Self::Raw(bytes) => bytes.len(),
        }
    }

    /// Never called: a server does not receive what it sends.
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        encoding::skip_field(wire_type, tag, buffer, context)
    }

    fn clear(&mut self) {
        *self = Self::Raw(Bytes::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto;

    #[test]
    fn a_message_has_the_bytes_that_the_proto_file_says() {
        for (position, size) in [(1, 8), (300, 127), (u64::MAX, 5000)] {
            let recipe = Recipe::try_new(1, size).unwrap();
            let outgoing = Outgoing::Message { position, recipe };
            let payload = recipe.payload(position);
            let message = proto::Message { position, payload };
            assert_eq!(outgoing.encode_to_vec(), message.encode_to_vec());
            assert_eq!(outgoing.encoded_len(), message.encoded_len());
        }
    }

    #[test]
    fn what_is_malformed_cannot_be_read() {
        let bytes = Outgoing::malformed().encode_to_vec();
        assert!(proto::Message::decode(&bytes[..]).is_err());
    }
}
