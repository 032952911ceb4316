use std::time::{Duration, Instant};

use tonic::Code;

use crate::common::Server;

#[tokio::test]
async fn a_drain_ends_the_stream_with_ok_after_what_is_under_way() {
    let server = Server::start(&[]);
    let mut client = server.client(1).await;
    let mut messages = client.subscribe(0).await.unwrap();
    messages.read_to(10).await;
    let (last, read) = tokio::join!(client.drain(), messages.read_to_end());
    assert_eq!(last.unwrap(), read);
    assert!(read >= 10);
}

#[tokio::test]
async fn what_was_produced_before_a_drain_is_sent_before_the_end() {
    let server = Server::start(&["--rate", "100"]);
    let mut client = server.client(1).await;
    let mut other = client.clone();
    client.subscribe(0).await.unwrap().read_to(20).await;
    // Twenty have been produced, and a new stream has sent none of them yet.
    let messages = client.subscribe(0).await.unwrap();
    let (last, read) = tokio::join!(other.drain(), messages.read_to_end());
    assert_eq!(last.unwrap(), read);
    assert!(read >= 20, "{read}");
}

#[tokio::test]
async fn a_silent_stream_is_drained_too() {
    let server = Server::start(&["--messages", "3"]);
    let mut client = server.client(1).await;
    let mut messages = client.subscribe(0).await.unwrap();
    messages.read_to(3).await;
    assert_eq!(client.drain().await.unwrap(), 3);
    assert_eq!(messages.read_to_end().await, 3);
}

#[tokio::test]
async fn without_a_stream_there_is_nothing_to_drain() {
    let server = Server::start(&["--messages", "3"]);
    let mut client = server.client(1).await;
    assert_eq!(client.drain().await.unwrap(), 0);
    // After a drain the subscription can be taken up again, and drained again.
    for _ in 0..2 {
        let messages = client.subscribe(1).await.unwrap();
        assert_eq!(client.drain().await.unwrap(), 3);
        assert_eq!(messages.read_to_end().await, 3);
    }
}

#[tokio::test]
async fn a_delayed_drain_ends_the_stream_after_its_delay() {
    let server = Server::start(&["--messages", "3", "--drain-delay", "400ms"]);
    let mut client = server.client(1).await;
    let messages = client.subscribe(0).await.unwrap();
    let begun = Instant::now();
    let (last, read) = tokio::join!(client.drain(), messages.read_to_end());
    assert_eq!((last.unwrap(), read), (3, 3));
    assert!(begun.elapsed() >= Duration::from_millis(400));
}

#[tokio::test]
async fn a_drain_that_a_newer_token_overtakes_says_so() {
    let server = Server::start(&["--messages", "3", "--drain-delay", "1h"]);
    let mut old = server.client(5).await;
    let mut messages = old.subscribe(0).await.unwrap();
    let mut new = server.client(6).await;
    let (drained, status, newer) =
        tokio::join!(old.drain(), messages.error(), async { new.ack(1).await });
    newer.unwrap();
    // The newer token may also have been there first: then the drain itself was refused.
    assert_eq!(drained.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(status.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn a_client_that_goes_away_is_drained() {
    let server = Server::start(&["--messages", "3", "--drain-delay", "1h"]);
    let mut client = server.client(1).await;
    let mut messages = client.subscribe(0).await.unwrap();
    messages.read_to(3).await;
    let (_, drained) = tokio::join!(async { drop(messages) }, client.drain());
    drained.unwrap();
}
