//! Servers that break the rules: half a message, no end, no trailers, a page of a proxy.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::SendStream;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use soloist_worker::Shutdown;
use soloist_worker::stream::{ConsumerError, Drain, End, Link, State, Subscriber};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tonic::{Status, Streaming};

use crate::harness::{DRAIN, Notes, Stage, note, quick, within};
use crate::server::{Note, Server};

/// One call, to be answered frame by frame.
struct RawCall {
    path: String,
    answer: h2::server::SendResponse<Bytes>,
}

impl RawCall {
    fn head(&mut self, status: StatusCode, content_type: &str) -> SendStream<Bytes> {
        let head = Response::builder().status(status);
        let head = head.header("content-type", content_type).body(()).unwrap();
        self.answer.send_response(head, false).unwrap()
    }

    fn stream(&mut self) -> SendStream<Bytes> {
        self.head(StatusCode::OK, "application/grpc")
    }

    /// An empty message, and all is well.
    fn confirm(mut self) {
        let mut body = self.stream();
        let _ = body.send_data(Bytes::from_static(&[0; 5]), false);
        let _ = body.send_trailers(ok());
    }
}

fn ok() -> HeaderMap {
    let status = HeaderValue::from_static("0");
    HeaderMap::from_iter([(http::header::HeaderName::from_static("grpc-status"), status)])
}

/// A message with its prefix.
fn frame(position: u64) -> Bytes {
    let message = note(position).unwrap();
    let length = u32::try_from(message.len()).unwrap();
    let mut frame = vec![0];
    frame.extend(length.to_be_bytes());
    frame.extend(message);
    frame.into()
}

/// Speaks HTTP/2, answers pings, and hands every call to the test.
struct RawServer {
    url: String,
    calls: mpsc::UnboundedReceiver<RawCall>,
    connections: JoinHandle<()>,
}

impl RawServer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (send, calls) = mpsc::unbounded_channel();
        let connections = tokio::spawn(async move {
            let mut all = JoinSet::new();
            loop {
                let (connection, _) = listener.accept().await.unwrap();
                let send = send.clone();
                all.spawn(async move {
                    let mut connection = h2::server::handshake(connection).await.unwrap();
                    while let Some(Ok((request, answer))) = connection.accept().await {
                        let path = request.uri().path().to_owned();
                        let _ = send.send(RawCall { path, answer });
                    }
                });
            }
        });
        Self {
            url,
            calls,
            connections,
        }
    }

    /// The next call of this method; acknowledgements before it are confirmed.
    async fn call(&mut self, method: &str) -> RawCall {
        loop {
            let call = within(method, self.calls.recv()).await.unwrap();
            if call.path.ends_with(method) {
                return call;
            }
            assert!(call.path.ends_with("Ack"), "{} before {method}", call.path);
            call.confirm();
        }
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.connections.abort();
    }
}

/// A consumer of the raw server; the stage's own server hears nothing.
async fn stage_of(raw: &RawServer, drain: Duration, drains: bool) -> Stage {
    let idle = Server::start().await;
    Stage::set(idle, quick(&raw.url), Shutdown::new(drain), drains)
}

fn reason(state: &State) -> Option<&str> {
    match state {
        State::Waiting { reason, .. } => Some(reason),
        _ => None,
    }
}

#[tokio::test]
async fn half_a_message_is_not_handled_and_does_not_hold_the_shutdown_up() {
    let mut raw = RawServer::start().await;
    let mut stage = stage_of(&raw, DRAIN, false).await;
    let mut body = raw.call("Open").await.stream();
    body.send_data(frame(1), false).unwrap();
    body.send_data(frame(2).split_to(7), false).unwrap();
    stage.work().await.done();
    raw.call("Ack").await.confirm();
    stage.shutdown.begin();
    let summary = stage.ended().await.unwrap();
    assert_eq!((summary.received, summary.acknowledged), (1, 1));
    assert_eq!(summary.end, End::Drained);
}

#[tokio::test]
async fn a_server_that_was_told_and_never_ends_the_stream_has_the_drain_s_time() {
    let mut raw = RawServer::start().await;
    let drain = Duration::from_millis(500);
    let mut stage = stage_of(&raw, drain, true).await;
    let mut body = raw.call("Open").await.stream();
    body.send_data(frame(1), false).unwrap();
    body.send_data(frame(2).split_to(7), false).unwrap();
    stage.work().await.done();
    raw.call("Ack").await.confirm();
    let begun = Instant::now();
    stage.shutdown.begin();
    raw.call("Drain").await.confirm();
    let summary = stage.ended().await.unwrap();
    assert_eq!(summary.end, End::Cut);
    assert_eq!((summary.received, summary.acknowledged), (1, 1));
    assert!(begun.elapsed() >= drain);
}

#[tokio::test]
async fn half_a_message_and_then_the_end_is_tried_again() {
    let mut raw = RawServer::start().await;
    let mut stage = stage_of(&raw, DRAIN, true).await;
    let mut body = raw.call("Open").await.stream();
    body.send_data(frame(1).split_to(7), false).unwrap();
    body.send_trailers(ok()).unwrap();
    stage.state(|state| reason(state).is_some()).await;
    let mut again = raw.call("Open").await.stream();
    again.send_data(frame(1), false).unwrap();
    assert_eq!(stage.work().await.position, 1);
}

#[tokio::test]
async fn four_gibibytes_that_are_announced_are_refused_before_they_come() {
    let mut raw = RawServer::start().await;
    let mut stage = stage_of(&raw, DRAIN, true).await;
    let mut body = raw.call("Open").await.stream();
    body.send_data(Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff]), false)
        .unwrap();
    let error = stage.ended().await.unwrap_err();
    assert!(matches!(error, ConsumerError::Final { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("found 4294967295 bytes"), "{text}");
}

#[tokio::test]
async fn an_end_without_trailers_is_tried_again_and_confirms_nothing() {
    let mut raw = RawServer::start().await;
    let mut stage = stage_of(&raw, DRAIN, true).await;
    let mut body = raw.call("Open").await.stream();
    body.send_data(Bytes::new(), true).unwrap();
    stage.state(|state| reason(state).is_some()).await;
    let mut again = raw.call("Open").await.stream();
    again.send_data(frame(1), false).unwrap();
    let work = stage.work().await;
    stage.shutdown.begin();
    raw.call("Drain").await.confirm();
    again.send_data(Bytes::new(), true).unwrap();
    work.done();
    let summary = stage.ended().await.unwrap();
    assert_eq!((summary.handled, summary.end), (1, End::Drained));
}

#[tokio::test]
async fn the_page_of_a_proxy_whose_server_is_gone_is_tried_again() {
    for status in [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::BAD_GATEWAY,
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::GATEWAY_TIMEOUT,
    ] {
        let mut raw = RawServer::start().await;
        let mut stage = stage_of(&raw, DRAIN, true).await;
        let mut body = raw.call("Open").await.head(status, "text/html");
        let page = Bytes::from_static(b"<html>\r\n<h1>the server is gone</h1>\r\n</html>");
        body.send_data(page, true).unwrap();
        let waits = stage.state(|state| reason(state).is_some()).await;
        let told = reason(&waits).unwrap_or_default();
        assert!(told.contains(&format!("HTTP {status}")), "{told}");
        let mut again = raw.call("Open").await.stream();
        again.send_data(frame(1), false).unwrap();
        assert_eq!(stage.work().await.position, 1);
    }
}

#[tokio::test]
async fn the_page_of_a_proxy_that_does_not_know_the_method_ends_it_at_first_and_is_tried_again_later()
 {
    let page = Bytes::from_static(b"<html>no such page</html>");
    let mut raw = RawServer::start().await;
    let mut stage = stage_of(&raw, DRAIN, true).await;
    let mut body = raw
        .call("Open")
        .await
        .head(StatusCode::NOT_FOUND, "text/html");
    body.send_data(page.clone(), true).unwrap();
    let error = stage.ended().await.unwrap_err();
    assert!(matches!(error, ConsumerError::Final { .. }), "{error}");

    let mut stage = stage_of(&raw, DRAIN, true).await;
    let mut body = raw.call("Open").await.stream();
    body.send_data(frame(1), false).unwrap();
    stage.work().await.done();
    raw.call("Ack").await.confirm();
    body.send_reset(h2::Reason::INTERNAL_ERROR);
    let mut body = raw
        .call("Open")
        .await
        .head(StatusCode::NOT_FOUND, "text/html");
    body.send_data(page, true).unwrap();
    raw.call("Open").await;
}

/// Handles every message at once.
struct AtOnce(Notes);

impl Subscriber for AtOnce {
    type Message = Note;
    type Receipt = u64;
    type Error = String;

    async fn open(&self, link: Link, after: Option<&u64>) -> Result<Streaming<Note>, Status> {
        self.0.open(link, after).await
    }

    async fn handle(&self, message: Note) -> Result<u64, String> {
        Ok(message.position)
    }

    async fn commit(&self, position: u64) -> Result<u64, String> {
        self.0.commit(position).await
    }

    async fn acknowledge(&self, link: Link, receipts: &[u64]) -> Result<(), Status> {
        self.0.acknowledge(link, receipts).await
    }

    async fn drain(&self, link: Link) -> Result<Drain, Status> {
        self.0.drain(link).await
    }
}

/// Sends as fast as it can, whatever it is told, and confirms every call.
async fn flood(mut server: Server) {
    let mut floods = JoinSet::new();
    while let Some(call) = server.calls.recv().await {
        if call.method != "Open" {
            call.confirm();
            continue;
        }
        let position = call.position;
        let sent = call.stream();
        floods.spawn(async move {
            for position in position + 1.. {
                if sent.send(note(position)).await.is_err() {
                    return;
                }
            }
        });
    }
}

#[tokio::test]
async fn a_flood_does_not_outlast_the_drain_and_what_was_handled_is_acknowledged() {
    for concurrency in [1, 16] {
        let server = Server::start().await;
        let many = NonZeroUsize::new(concurrency).unwrap();
        let consumer = quick(&server.url()).concurrency(many);
        let progress = consumer.progress();
        let drain = Duration::from_millis(500);
        let shutdown = Shutdown::new(drain);
        let flooding = tokio::spawn(flood(server));
        let running = tokio::spawn({
            let (shutdown, at_once) = (shutdown.clone(), AtOnce(Notes::new(true).0));
            async move { consumer.run(&shutdown, &at_once).await }
        });
        within("a thousand messages", async {
            while progress.handled() < 1000 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let begun = Instant::now();
        shutdown.begin();
        let summary = within("the end", running).await.unwrap().unwrap();
        assert!(begun.elapsed() >= drain);
        assert_eq!(summary.end, End::Cut);
        assert_eq!(summary.handled, summary.acknowledged);
        flooding.abort();
    }
}

#[tokio::test]
async fn one_handler_that_hangs_among_sixteen_costs_the_drain_its_time_and_nothing_that_was_before_it()
 {
    let many = NonZeroUsize::new(16).unwrap();
    let drain = Duration::from_millis(500);
    let mut stage = Stage::with(|consumer| consumer.concurrency(many), drain).await;
    let sent = stage.opened().await;
    let mut works = Vec::new();
    for position in 1..=16 {
        sent.send(note(position)).await.unwrap();
        works.push(stage.work().await);
    }
    let hangs = works.remove(3);
    assert_eq!(hangs.position, 4);
    for work in works {
        work.done();
    }
    stage.acknowledged(3).await;
    stage.shutdown.begin();
    stage.call("Drain").await.confirm();
    drop(sent);
    let summary = stage.ended().await.unwrap();
    assert_eq!(summary.end, End::Cut);
    assert_eq!((summary.handled, summary.acknowledged), (3, 3));
    assert_eq!(*stage.committed.borrow(), 3);
    assert!(hangs.is_given_up());
}

#[tokio::test]
async fn a_server_that_vanishes_in_the_middle_of_the_drain_is_not_waited_for() {
    let mut raw = RawServer::start().await;
    let mut stage = stage_of(&raw, DRAIN, true).await;
    let mut body = raw.call("Open").await.stream();
    body.send_data(frame(1), false).unwrap();
    let work = stage.work().await;
    stage.shutdown.begin();
    let drain = raw.call("Drain").await;
    drop(raw);
    drop((body, drain));
    work.done();
    let summary = stage.ended().await.unwrap();
    assert_eq!((summary.handled, summary.end), (1, End::Drained));
}
