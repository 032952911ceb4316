use std::time::{Duration, Instant};

use tonic::Code;

use crate::common::Server;

#[tokio::test]
async fn a_stream_breaks_after_as_many_messages_and_can_be_taken_up_again() {
    let server = Server::start(&["--break-every", "10"]);
    let mut client = server.client(1).await;
    for round in 0..3 {
        let mut messages = client.subscribe(round * 10).await.unwrap();
        let status = messages.error().await;
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(messages.last, (round + 1) * 10);
    }
}

#[tokio::test]
async fn a_stalled_stream_is_silent_and_open() {
    let server = Server::start(&["--stall-after", "10"]);
    let mut client = server.client(1).await;
    let mut messages = client.subscribe(0).await.unwrap();
    messages.read_to(10).await;
    let silence = tokio::time::timeout(Duration::from_millis(200), messages.next()).await;
    assert!(silence.is_err(), "{silence:?}");
    // Other requests are answered, and a new stream goes on.
    client.ack(10).await.unwrap();
    client.subscribe(10).await.unwrap().read_to(20).await;
}

#[tokio::test]
async fn a_stalled_stream_can_be_drained() {
    let server = Server::start(&["--stall-after", "10"]);
    let mut client = server.client(1).await;
    let messages = client.subscribe(0).await.unwrap();
    let (last, read) = tokio::join!(client.drain(), messages.read_to_end());
    assert_eq!(last.unwrap(), read);
    assert!(read <= 10);
}

#[tokio::test]
async fn a_malformed_message_is_no_protobuf() {
    let server = Server::start(&["--malformed-at", "7"]);
    let mut client = server.client(1).await;
    let mut messages = client.subscribe(0).await.unwrap();
    let status = messages.error().await;
    assert_eq!(messages.last, 6);
    assert_eq!(status.code(), Code::Internal);
    assert!(status.message().contains("decode Protobuf"), "{status}");
    client.subscribe(7).await.unwrap().read_to(10).await;
}

#[tokio::test]
async fn an_oversized_message_is_more_than_a_client_takes_by_default() {
    let server = Server::start(&["--oversized-at", "7"]);
    let mut client = server.client(1).await;
    let mut messages = client.subscribe(0).await.unwrap();
    let status = messages.error().await;
    assert_eq!(messages.last, 6);
    assert_eq!(status.code(), Code::OutOfRange);
    let mut patient = server.client(1).await;
    patient.inner = patient.inner.max_decoding_message_size(6 << 20);
    let mut messages = patient.subscribe(6).await.unwrap();
    let message = messages.next().await.unwrap().unwrap();
    assert_eq!(message.payload.len(), 5 << 20);
}

#[tokio::test]
async fn every_subscribe_is_refused_with_the_code() {
    for (name, code) in [
        ("UNAVAILABLE", Code::Unavailable),
        ("PERMISSION_DENIED", Code::PermissionDenied),
    ] {
        let server = Server::start(&["--refuse", name]);
        let mut client = server.client(1).await;
        for _ in 0..2 {
            assert_eq!(client.subscribe(0).await.unwrap_err().code(), code);
        }
        client.ack(1).await.unwrap();
    }
}

#[tokio::test]
async fn a_delayed_ack_is_answered_after_its_delay() {
    let server = Server::start(&["--ack-delay", "300ms"]);
    let mut client = server.client(1).await;
    let begun = Instant::now();
    client.ack(1).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(300));
}
