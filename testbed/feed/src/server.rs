//! The service of `proto/feed.proto`.

use std::panic::resume_unwind;
use std::sync::Arc;

use soloist_worker::fence::Refusal;
use soloist_worker::{Fence, Token, metadata};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use crate::proto::{AckRequest, AckResponse, DrainRequest, DrainResponse, SubscribeRequest};
use crate::store::{Store, StoreError};
use head::Head;
use subscriptions::Subscriptions;

pub use messages::Messages;
pub use outgoing::Outgoing;
pub use serve::{ServeError, Tls, serve, transport};
pub use settings::{Faults, Settings};

mod control;
mod head;
mod messages;
mod outgoing;
mod serve;
mod settings;
mod subscriptions;

#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    reason = "generated; the proto file is the documentation"
)]
mod service {
    include!(concat!(env!("OUT_DIR"), "/server/feed.v1.rs"));
}

/// A drain sends as many messages more at most.
const UNDER_WAY: u64 = 100;

/// The service. Clones are the same.
#[derive(Clone, Debug)]
pub struct Feed {
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    settings: Settings,
    store: Store,
    fence: Fence,
    head: Head,
    subscriptions: Arc<Subscriptions>,
}

impl Feed {
    /// Goes on from what the store knows.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn new(store: Store, settings: Settings) -> Result<Self, StoreError> {
        let state = State {
            settings,
            head: Head::resume(&store, settings.rate, settings.messages)?,
            fence: Fence::new(store.token()),
            store,
            subscriptions: Arc::default(),
        };
        let state = Arc::new(state);
        Ok(Self { state })
    }

    /// Ends all streams, and lets no new one in.
    pub fn stop(&self) {
        self.state.subscriptions.stop();
    }

    /// Lets the request's token in, and ends the streams of older ones.
    async fn admit(&self, metadata: &MetadataMap) -> Result<Token, Status> {
        let token = metadata::token(metadata)?;
        if token <= self.state.fence.highest() {
            self.state.fence.admit(token)?;
            return Ok(token);
        }
        // A new one waits for the disk. It is done even if its sender does not wait.
        let state = Arc::clone(&self.state);
        let admitted = tokio::spawn(async move { state.admit(token).await }).await;
        admitted.map_err(|error| Status::internal(error.to_string()))??;
        tracing::info!(%token, "a new term");
        Ok(token)
    }
}

impl State {
    async fn admit(self: &Arc<Self>, token: Token) -> Result<(), Refusal<StoreError>> {
        let write = async |token| {
            let state = Arc::clone(self);
            let written = tokio::task::spawn_blocking(move || state.store.write_token(token));
            written
                .await
                .unwrap_or_else(|error| resume_unwind(error.into_panic()))
        };
        self.fence.admit_durably(token, write).await?;
        self.subscriptions.cut_older(token);
        Ok(())
    }
}

#[tonic::async_trait]
impl service::feed_server::Feed for Feed {
    type SubscribeStream = Messages;

    async fn subscribe(
        &self,
        request: Request<SubscribeRequest>,
    ) -> Result<Response<Messages>, Status> {
        let token = self.admit(request.metadata()).await?;
        let State {
            settings,
            store,
            head,
            fence,
            subscriptions,
        } = &*self.state;
        if let Some(code) = settings.faults.refuse {
            return Err(Status::new(code, "refused on purpose"));
        }
        let SubscribeRequest {
            subscription,
            after,
        } = request.into_inner();
        let acked = store.acked();
        if after < acked {
            return Err(Status::out_of_range(format!(
                "messages up to {acked} are forgotten; the subscription asks for those after {after}"
            )));
        }
        tracing::info!(%token, %subscription, after, "subscribed");
        let registration = subscriptions.add(subscription, token, after, fence)?;
        Ok(Response::new(Messages::new(*settings, *head, registration)))
    }

    async fn ack(&self, request: Request<AckRequest>) -> Result<Response<AckResponse>, Status> {
        let delay = self.state.settings.faults.ack_delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let token = self.admit(request.metadata()).await?;
        let State {
            store,
            fence,
            head,
            subscriptions,
            ..
        } = &*self.state;
        let position = request.into_inner().position;
        let head = head.now();
        if position > head {
            return Err(Status::invalid_argument(format!(
                "the message at {position} cannot be acknowledged: the last produced is {head}"
            )));
        }
        let acked = subscriptions.act_as(token, fence, || store.ack(position))?;
        // Another time it may work.
        let acknowledged = acked.map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(Response::new(AckResponse { acknowledged }))
    }

    async fn drain(
        &self,
        request: Request<DrainRequest>,
    ) -> Result<Response<DrainResponse>, Status> {
        let token = self.admit(request.metadata()).await?;
        let State {
            settings,
            head,
            subscriptions,
            ..
        } = &*self.state;
        let subscription = request.into_inner().subscription;
        let Some(control) = subscriptions.find(&subscription) else {
            return Ok(Response::new(DrainResponse { last: 0 }));
        };
        tracing::info!(%token, %subscription, "drain");
        control.limit(
            head.now()
                .min(control.last_sent().saturating_add(UNDER_WAY)),
        );
        let delay = settings.faults.drain_delay;
        if delay.is_zero() {
            control.finish();
        } else {
            // A drain that has begun goes on even if its sender does not wait.
            let control = Arc::clone(&control);
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                control.finish();
            });
        }
        control.over().await;
        match control.reason() {
            Some(cut) => Err(cut.into()),
            None => Ok(Response::new(DrainResponse {
                last: control.last_sent(),
            })),
        }
    }
}
