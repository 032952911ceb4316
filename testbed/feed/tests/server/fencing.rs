use soloist_worker::{Token, metadata};
use tonic::{Code, Status};

use crate::common::{Client, Server};

fn assert_stale(status: &Status, highest: u64) {
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert_eq!(metadata::highest(status), Some(Token::new(highest)));
}

async fn assert_all_is_refused(client: &mut Client, highest: u64) {
    assert_stale(&client.subscribe(0).await.unwrap_err(), highest);
    assert_stale(&client.ack(1).await.unwrap_err(), highest);
    assert_stale(&client.drain().await.unwrap_err(), highest);
}

#[tokio::test]
async fn a_newer_subscribe_ends_the_older_stream_and_refuses_the_older_client() {
    let server = Server::start(&[]);
    let mut old = server.client(5).await;
    let mut old_messages = old.subscribe(0).await.unwrap();
    old_messages.read_to(10).await;
    let mut new = server.client(9).await;
    let mut new_messages = new.subscribe(0).await.unwrap();
    assert_stale(&old_messages.error().await, 9);
    assert_all_is_refused(&mut old, 9).await;
    new_messages.read_to(1000).await;
}

#[tokio::test]
async fn a_newer_ack_ends_the_older_stream_also_when_it_is_silent() {
    let server = Server::start(&["--messages", "3"]);
    let mut old = server.client(5).await;
    let mut old_messages = old.subscribe(0).await.unwrap();
    old_messages.read_to(3).await;
    let mut new = server.client(6).await;
    new.ack(3).await.unwrap();
    assert_stale(&old_messages.error().await, 6);
    assert_all_is_refused(&mut old, 6).await;
}

#[tokio::test]
async fn a_newer_drain_ends_the_older_stream_as_stale_and_not_as_drained() {
    let server = Server::start(&["--messages", "3"]);
    let mut old = server.client(5).await;
    let mut old_messages = old.subscribe(0).await.unwrap();
    let mut new = server.client(6).await;
    assert_eq!(new.drain().await.unwrap(), 0);
    assert_stale(&old_messages.error().await, 6);
}

#[tokio::test]
async fn an_older_ack_is_not_noted() {
    let server = Server::start(&[]);
    server.client(9).await.ack(5).await.unwrap();
    server.client(8).await.ack(50).await.unwrap_err();
    assert_eq!(server.client(9).await.ack(0).await.unwrap(), 5);
}

#[tokio::test]
async fn an_ack_that_a_newer_token_overtakes_is_not_noted() {
    let server = Server::start(&["--ack-delay", "3s"]);
    let mut old = server.client(5).await;
    let mut new = server.client(6).await;
    let (acked, newer) = tokio::join!(old.ack(50), new.subscribe(0));
    assert_stale(&acked.unwrap_err(), 6);
    drop(newer.unwrap());
    // Nothing is forgotten.
    new.subscribe(0).await.unwrap();
}
