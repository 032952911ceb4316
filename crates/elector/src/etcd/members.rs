//! The ways to the members: one connection for requests, one for the watch, each to another member if there are several.
//!
//! Whatever fails on a connection leaves it, and the next request goes to the next member.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::Message;
use tonic::Status;
use tracing::debug;

use super::connection::{Connection, DialError, Token, was_not_sent};
use super::failure;
use super::messages::{AuthenticateRequest, AuthenticateResponse, method};
use super::options::{Endpoint, Login, Options, Tls};
use crate::apart::apart;
use crate::random;

/// All members of the etcd.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) tls: Option<Tls>,
    pub(super) login: Option<Login>,
    requests: Mutex<Option<Arc<Connection>>>,
    next: AtomicUsize,
    next_watch: AtomicUsize,
    token: Mutex<Option<Token>>,
}

impl Members {
    pub(super) fn new(options: Options) -> Self {
        // Not all replicas on the same member.
        let first =
            random::bits64().map_or(0, |bits| bits % options.address.endpoints.len() as u64);
        let first = usize::try_from(first).unwrap_or(0);
        Self {
            endpoints: options.address.endpoints,
            tls: options.tls,
            login: options.login,
            requests: Mutex::default(),
            next: AtomicUsize::new(first),
            next_watch: AtomicUsize::new(first + 1),
            token: Mutex::default(),
        }
    }

    /// Asks one member.
    pub(super) async fn ask<Q, A>(&self, method: &'static str, question: Q) -> Result<A, Trouble>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        match self.ask_present(method, question.clone()).await {
            // The connection was just being closed: the request has never left this process.
            Err(Trouble::Status(_, status)) if was_not_sent(&status) => {
                self.ask_present(method, question).await
            }
            asked => asked,
        }
    }

    async fn ask_present<Q, A>(&self, method: &'static str, question: Q) -> Result<A, Trouble>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let connection = self.connection().await?;
        let endpoint = connection.endpoint;
        let asked = self.ask_over(&connection, method, question).await;
        asked.map_err(|status| {
            if !failure::is_an_answer(&status) {
                self.leave(&connection);
            }
            Trouble::Status(endpoint, Box::new(status))
        })
    }

    async fn ask_over<Q, A>(
        &self,
        connection: &Connection,
        method: &'static str,
        question: Q,
    ) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let known = self.token().clone();
        let token = match known {
            None => self.log_in(connection).await?,
            token => token,
        };
        let first = connection.ask(method, question.clone(), token).await;
        match first {
            // It had no effect, and a new token may be all that is missing.
            Err(status) if self.login.is_some() && failure::is_an_old_token(&status) => {
                debug!(%status, "logging in to etcd again");
                let token = self.log_in(connection).await?;
                connection.ask(method, question, token).await
            }
            first => first,
        }
    }

    /// The present connection for requests, or one to the next member that can be reached.
    async fn connection(&self) -> Result<Arc<Connection>, Trouble> {
        let present = self.requests().clone();
        if let Some(present) = present.filter(|present| !present.is_closed()) {
            return Ok(present);
        }
        let connection = Arc::new(self.dial(&self.next).await?);
        *self.requests() = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// A connection of its own for a watch, and the right to use it.
    pub(super) async fn watch_connection(&self) -> Result<(Connection, Option<Token>), Trouble> {
        let connection = self.dial(&self.next_watch).await?;
        // Who is not known any more is told that it may not watch, not that it should log in again.
        let token = self.log_in(&connection).await;
        let endpoint = connection.endpoint;
        let token = token.map_err(|status| Trouble::Status(endpoint, Box::new(status)))?;
        Ok((connection, token))
    }

    /// The watch is to go to the next member.
    pub(super) fn leave_watched(&self, endpoint: usize) {
        self.next_watch.store(endpoint + 1, Ordering::Relaxed);
    }

    async fn dial(&self, next: &AtomicUsize) -> Result<Connection, Trouble> {
        let mut failures = Vec::new();
        let first = next.load(Ordering::Relaxed);
        for number in first..first + self.endpoints.len() {
            let number = number % self.endpoints.len();
            // Should this be given up, the next one does not begin here.
            next.store(number + 1, Ordering::Relaxed);
            let dialled = Connection::dial(number, &self.endpoints[number], self.tls.as_ref());
            match dialled.await {
                Ok(connection) => {
                    next.store(number, Ordering::Relaxed);
                    return Ok(connection);
                }
                Err(failure) => failures.push((number, failure)),
            }
        }
        Err(Trouble::NoConnection(failures))
    }

    /// One connection to one member.
    pub(super) async fn dial_one(&self, number: usize) -> Result<Connection, Trouble> {
        let dialled = Connection::dial(number, &self.endpoints[number], self.tls.as_ref()).await;
        dialled.map_err(|failure| Trouble::NoConnection(vec![(number, failure)]))
    }

    /// A new token, if we have a name to log in with.
    pub(super) async fn log_in(&self, connection: &Connection) -> Result<Option<Token>, Status> {
        let Some(login) = self.login.clone() else {
            return Ok(None);
        };
        *self.token() = None;
        let reading = apart(move || {
            let password = std::fs::read_to_string(&login.password_file);
            let unreadable = |error| failure::no_password(&login.password_file, &error);
            let password = password.map_err(unreadable)?;
            let password = password.trim_end_matches(['\r', '\n']).to_owned();
            match password.is_empty() {
                true => Err(failure::empty_password(&login.password_file)),
                false => Ok::<_, Status>(AuthenticateRequest {
                    name: login.user,
                    password,
                }),
            }
        });
        let question = reading
            .await
            .map_err(|error| Status::internal(error.to_string()))??;
        let answer = connection
            .ask::<_, AuthenticateResponse>(method::AUTHENTICATE, question, None)
            .await;
        let token = match answer {
            Ok(answer) => answer.token,
            // Then everybody may do everything.
            Err(status) if failure::is_without_users(&status) => return Ok(None),
            Err(status) => return Err(status),
        };
        let token: Token = token.parse().map_err(|_| {
            Status::internal("the token that etcd gave cannot be sent back in a header")
        })?;
        *self.token() = Some(token.clone());
        Ok(Some(token))
    }

    /// The next request goes to the next member, over a new connection.
    pub(super) fn leave(&self, connection: &Arc<Connection>) {
        let left = self
            .requests()
            .take_if(|present| Arc::ptr_eq(present, connection));
        if left.is_some() {
            self.next.store(connection.endpoint + 1, Ordering::Relaxed);
        }
    }

    /// The same, whichever it is.
    pub(super) fn leave_present(&self) {
        if let Some(present) = self.requests().take() {
            self.next.store(present.endpoint + 1, Ordering::Relaxed);
        }
    }

    fn requests(&self) -> MutexGuard<'_, Option<Arc<Connection>>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn token(&self) -> MutexGuard<'_, Option<Token>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why there is no answer that we wanted.
#[derive(Debug)]
pub(super) enum Trouble {
    /// No member could be reached, each for its reason.
    NoConnection(Vec<(usize, DialError)>),
    /// What this member says, or the connection to it.
    Status(usize, Box<Status>),
}
