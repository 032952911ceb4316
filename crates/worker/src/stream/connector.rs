//! One connection, and not another one behind our back.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::codegen::{Service, StdError as BoxError};
use tonic::transport::Uri;

const KEEPALIVE: Duration = Duration::from_secs(10);

/// Connects once. tonic's channels would connect again whenever something is called, without a wait and without a word; when
/// to do so is the consumer's to decide.
pub(super) struct Once {
    unused: Option<HttpConnector>,
}

impl Once {
    pub(super) fn new(connect_limit: Duration) -> Self {
        let mut connector = HttpConnector::new();
        // TLS comes on top of it.
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(connect_limit));
        // A host that is gone: no server minds to be asked by its kernel.
        connector.set_keepalive(Some(KEEPALIVE));
        connector.set_keepalive_interval(Some(KEEPALIVE / 2));
        connector.set_keepalive_retries(Some(3));
        let unused = Some(connector);
        Self { unused }
    }
}

impl Service<Uri> for Once {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match &mut self.unused {
            Some(connector) => connector.poll_ready(context).map_err(Into::into),
            None => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.unused.take();
        Box::pin(async move {
            match connector {
                Some(mut connector) => Ok(connector.call(uri).await?),
                None => {
                    let gone = "the connection was closed";
                    Err(io::Error::new(io::ErrorKind::NotConnected, gone).into())
                }
            }
        })
    }
}
