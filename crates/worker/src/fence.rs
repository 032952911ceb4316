//! For servers: refuses who bears an older token than the highest seen.

use std::sync::{Mutex, MutexGuard, PoisonError};

use soloist_core::ids::Token;

/// Remembers the highest token. Whoever comes with a lower one is a leader of yesterday.
///
/// A request that was admitted may still be overtaken by a newer one before it has done its work. Where that matters, check
/// once more under the lock, or in the transaction, in which the work is done.
///
/// What must survive a restart of the server has to be written down before the first request of a new term is
/// served: see [`admit_durably`](Self::admit_durably).
#[derive(Debug)]
pub struct Fence {
    highest: Mutex<Token>,
}

/// A token that is older than one already seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the token {token} is older than {highest}, which has been seen: a later leader is at work, and this one must stop"
)]
pub struct StaleToken {
    /// What the request bore.
    pub token: Token,
    /// The highest so far.
    pub highest: Token,
}

/// Why a token was not admitted.
#[derive(Debug, thiserror::Error)]
pub enum Refusal<E> {
    /// It is older than the highest seen.
    #[error(transparent)]
    Stale(#[from] StaleToken),
    /// It is the highest, and could not be written down.
    #[error("the token cannot be written down: {0}")]
    NotWritten(#[source] E),
}

impl Fence {
    /// With the highest token that was seen before; 0 if none was.
    #[must_use]
    pub const fn new(highest: Token) -> Self {
        let highest = Mutex::new(highest);
        Self { highest }
    }

    /// The highest token so far.
    #[must_use]
    pub fn highest(&self) -> Token {
        *self.lock()
    }

    /// Lets the token in, unless it is older than the highest seen. From now on none below it gets in.
    ///
    /// # Errors
    /// When it is older.
    pub fn admit(&self, token: Token) -> Result<(), StaleToken> {
        match self.admit_durably(token, |_| Ok::<_, std::convert::Infallible>(())) {
            Ok(()) => Ok(()),
            Err(Refusal::Stale(stale)) => Err(stale),
            Err(Refusal::NotWritten(never)) => match never {},
        }
    }

    /// As [`admit`](Self::admit), with `write` called first for a token that is higher than all before.
    ///
    /// # Errors
    /// When it is older, or cannot be written: then it is not admitted, and the highest stays what it was.
    pub fn admit_durably<E>(
        &self,
        token: Token,
        write: impl FnOnce(Token) -> Result<(), E>,
    ) -> Result<(), Refusal<E>> {
        // Held while writing: two tokens must not be written in the wrong order.
        let mut highest = self.lock();
        if token < *highest {
            let highest = *highest;
            return Err(StaleToken { token, highest }.into());
        }
        if token > *highest {
            write(token).map_err(Refusal::NotWritten)?;
            *highest = token;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Token> {
        // A panic in `write` leaves the highest as it was.
        self.highest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_token_is_refused_once_a_newer_one_was_seen() {
        let fence = Fence::new(Token::new(0));
        assert_eq!(fence.admit(Token::new(5)), Ok(()));
        assert_eq!(fence.admit(Token::new(5)), Ok(()));
        assert_eq!(fence.admit(Token::new(9)), Ok(()));
        let stale = fence.admit(Token::new(5)).unwrap_err();
        assert_eq!(
            stale.to_string(),
            "the token 5 is older than 9, which has been seen: a later leader is at work, and this one must stop"
        );
        assert_eq!(fence.highest(), Token::new(9));
    }

    #[test]
    fn a_token_that_cannot_be_written_down_is_not_admitted() {
        let fence = Fence::new(Token::new(3));
        let refused = fence.admit_durably(Token::new(4), |_| Err("the disk is full"));
        assert_eq!(
            refused.unwrap_err().to_string(),
            "the token cannot be written down: the disk is full"
        );
        assert_eq!(fence.highest(), Token::new(3));
        assert_eq!(fence.admit(Token::new(3)), Ok(()));
    }

    #[test]
    fn a_token_is_written_down_once() {
        let fence = Fence::new(Token::new(0));
        let mut written = Vec::new();
        for token in [2, 2, 7, 7] {
            let admitted = fence.admit_durably(Token::new(token), |token| {
                written.push(token.get());
                Ok::<_, ()>(())
            });
            assert!(admitted.is_ok());
        }
        assert_eq!(written, [2, 7]);
    }
}
