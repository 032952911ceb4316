use std::time::{Duration, Instant};

use feed::proto::{AckRequest, SubscribeRequest};
use tonic::Code;

use crate::common::Server;

#[tokio::test]
async fn all_messages_after_a_position_come_in_order() {
    let server = Server::start(&["--messages", "1000"]);
    let mut client = server.client(1).await;
    let mut messages = client.subscribe(3).await.unwrap();
    messages.read_to(1000).await;
    // There is no other, and the stream is still open.
    assert_eq!(client.drain().await.unwrap(), 1000);
    assert_eq!(messages.read_to_end().await, 1000);
}

#[tokio::test]
async fn messages_have_the_size_that_was_asked_for() {
    let server = Server::start(&["--payload-size", "1000"]);
    let mut client = server.client(1).await;
    let mut messages = client.subscribe(0).await.unwrap();
    let message = messages.next().await.unwrap().unwrap();
    assert_eq!(message.payload.len(), 1000);
}

#[tokio::test]
async fn with_a_rate_no_message_comes_before_its_time() {
    let begun = Instant::now();
    let server = Server::start(&["--rate", "200"]);
    let mut client = server.client(1).await;
    let mut messages = client.subscribe(0).await.unwrap();
    for position in 1..=100 {
        messages.read_to(position).await;
        let soonest = Duration::from_millis(position * 5);
        assert!(begun.elapsed() >= soonest, "{position}");
    }
}

#[tokio::test]
async fn what_is_acknowledged_is_forgotten() {
    let server = Server::start(&[]);
    let mut client = server.client(1).await;
    assert_eq!(client.ack(5).await.unwrap(), 5);
    let status = client.subscribe(4).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange);
    assert!(
        status
            .message()
            .starts_with("messages up to 5 are forgotten")
    );
    client.subscribe(5).await.unwrap().read_to(6).await;
}

#[tokio::test]
async fn an_ack_that_goes_back_changes_nothing() {
    let server = Server::start(&[]);
    let mut client = server.client(1).await;
    client.ack(5).await.unwrap();
    assert_eq!(client.ack(2).await.unwrap(), 5);
    assert!(client.subscribe(4).await.is_err());
}

#[tokio::test]
async fn what_was_never_produced_cannot_be_acknowledged() {
    let server = Server::start(&["--messages", "100"]);
    let mut client = server.client(1).await;
    let status = client.ack(101).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("the last produced is 100"));
    client.ack(100).await.unwrap();

    let server = Server::start(&["--rate", "1"]);
    let status = server.client(1).await.ack(1_000_000).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_request_without_a_token_is_refused() {
    let server = Server::start(&[]);
    let mut client = server.client(1).await.inner;
    let refused = client.subscribe(SubscribeRequest::default()).await;
    assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    let refused = client.ack(AckRequest { position: 1 }).await;
    assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_second_stream_of_a_subscription_ends_the_first() {
    let server = Server::start(&["--messages", "10"]);
    let mut client = server.client(1).await;
    let mut first = client.subscribe(0).await.unwrap();
    let mut second = client.subscribe(0).await.unwrap();
    assert_eq!(first.error().await.code(), Code::Aborted);
    second.read_to(10).await;
}

#[tokio::test]
async fn the_server_does_not_run_ahead_of_a_client_that_does_not_read() {
    let server = Server::start(&["--payload-size", "1000"]);
    let mut client = server.client(1).await;
    let mut messages = client.subscribe(0).await.unwrap();
    messages.read_to(1).await;
    let mut other = server.client(1).await;
    for _ in 0..500 {
        other.ack(1).await.unwrap();
    }
    let (last, read) = tokio::join!(other.drain(), messages.read_to_end());
    assert_eq!(last.unwrap(), read);
    // What fits into the buffers on the way is about a megabyte.
    assert!(read < 20_000, "{read}");
}
