//! For servers: refuses who bears an older token than the highest seen.

use std::future::Future;
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
    /// Held while writing: two tokens must not be written in the wrong order.
    writing: tokio::sync::Mutex<()>,
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
        Self {
            highest: Mutex::new(highest),
            writing: tokio::sync::Mutex::const_new(()),
        }
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
        let mut highest = self.lock();
        if token < *highest {
            let highest = *highest;
            return Err(StaleToken { token, highest });
        }
        *highest = token;
        Ok(())
    }

    /// As [`admit`](Self::admit), after `write` has ended well for a token that is higher than all before.
    ///
    /// When this future is dropped, so is the write. One that may go on all the same (on another thread, in a database) must not
    /// replace a higher token that was written meanwhile; or spawn this, so that it is not dropped.
    ///
    /// # Errors
    /// When it is older, or cannot be written: then it is not admitted, and the highest stays what it was.
    pub async fn admit_durably<E, F>(
        &self,
        token: Token,
        write: impl FnOnce(Token) -> F,
    ) -> Result<(), Refusal<E>>
    where
        F: Future<Output = Result<(), E>>,
    {
        if token > self.highest() {
            let _writing = self.writing.lock().await;
            // It may have been written while we waited.
            if token > self.highest() {
                write(token).await.map_err(Refusal::NotWritten)?;
            }
            return Ok(self.admit(token)?);
        }
        Ok(self.admit(token)?)
    }

    fn lock(&self) -> MutexGuard<'_, Token> {
        self.highest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

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

    #[tokio::test]
    async fn a_token_that_cannot_be_written_down_is_not_admitted() {
        let fence = Fence::new(Token::new(3));
        let refused = fence.admit_durably(Token::new(4), async |_| Err("the disk is full"));
        assert_eq!(
            refused.await.unwrap_err().to_string(),
            "the token cannot be written down: the disk is full"
        );
        assert_eq!(fence.highest(), Token::new(3));
        assert_eq!(fence.admit(Token::new(3)), Ok(()));
    }

    #[tokio::test]
    async fn a_token_is_written_down_once() {
        let fence = Fence::new(Token::new(0));
        let written = Mutex::new(Vec::new());
        for token in [2, 2, 7, 7] {
            let write = async |token: Token| {
                written.lock().unwrap().push(token.get());
                Ok::<_, ()>(())
            };
            assert!(fence.admit_durably(Token::new(token), write).await.is_ok());
        }
        assert_eq!(*written.lock().unwrap(), [2, 7]);
    }

    #[tokio::test]
    async fn a_write_that_was_given_up_admits_nobody_and_holds_nobody_up() {
        let fence = Fence::new(Token::new(0));
        let never =
            fence.admit_durably(Token::new(4), |_| std::future::pending::<Result<(), ()>>());
        assert!(never.now_or_never().is_none());
        assert_eq!(fence.highest(), Token::new(0));
        let written = fence.admit_durably(Token::new(5), async |_| Ok::<_, ()>(()));
        assert!(written.await.is_ok());
        assert_eq!(fence.highest(), Token::new(5));
    }

    #[tokio::test]
    async fn a_token_that_was_overtaken_while_it_was_written_is_refused() {
        let fence = Fence::new(Token::new(0));
        let admitted = fence.admit_durably(Token::new(4), async |_| {
            fence.admit(Token::new(9)).unwrap();
            Ok::<_, ()>(())
        });
        assert!(matches!(admitted.await, Err(Refusal::Stale(_))));
        assert_eq!(fence.highest(), Token::new(9));
    }
}
