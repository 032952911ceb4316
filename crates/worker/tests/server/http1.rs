//! HTTP/1.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::stage::*;

const LINGER: Duration = Duration::from_millis(400);

#[tokio::test]
async fn a_request_in_flight_is_answered_in_full() {
    let stage = Stage::new(LONG, LINGER).await;
    let mut client = stage.client().await;
    client.get("/").await;
    stage.hands.wait_until_entered().await;
    stage.shutdown.begin();
    stage.hands.go_on.add_permits(1);
    let head = client.head().await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(head.contains("connection: close"), "{head}");
    assert!(head.contains(&format!("content-length: {BIG}")), "{head}");
    assert_eq!(client.rest().await.len(), BIG);
    let drained = stage.drained().await;
    assert!(drained.is_complete(), "{drained:?}");
    assert_eq!(drained.in_flight, 1);
}

#[tokio::test]
async fn a_stream_that_has_begun_goes_on_to_its_end() {
    let stage = Stage::new(LONG, LINGER).await;
    let mut client = stage.client().await;
    client.get("/stream").await;
    let head = client.head().await;
    assert!(!head.contains("connection: close"), "{head}");
    stage.shutdown.begin();
    let begun = Instant::now();
    // Beyond the linger, which is for connections without a request.
    while begun.elapsed() < 2 * LINGER {
        stage.hands.send("more").await;
        assert_eq!(client.text(9).await, "4\r\nmore\r\n");
    }
    stage.hands.send("end").await;
    assert_eq!(client.rest().await, b"0\r\n\r\n");
    assert!(stage.drained().await.is_complete());
}

#[tokio::test]
async fn who_could_not_be_told_while_it_was_served_may_ask_once_more() {
    let stage = Stage::new(LONG, Duration::from_secs(60)).await;
    let mut client = stage.client().await;
    client.get("/stream").await;
    client.head().await;
    stage.shutdown.begin();
    stage.hands.send("end").await;
    assert_eq!(client.text(5).await, "0\r\n\r\n");
    client.get("/hello").await;
    let head = client.head().await;
    assert!(head.contains("connection: close"), "{head}");
    assert_eq!(client.rest().await, b"hello");
    assert!(stage.drained().await.is_complete());
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_the_linger() {
    let stage = Stage::new(LONG, LINGER).await;
    let mut idle = stage.client().await;
    idle.get("/hello").await;
    let head = idle.head().await;
    assert!(!head.contains("connection: close"), "{head}");
    assert_eq!(idle.text(5).await, "hello");
    let mut silent = stage.client().await;
    let begun = Instant::now();
    stage.shutdown.begin();
    idle.expect_close().await;
    assert!(begun.elapsed() >= LINGER, "{:?}", begun.elapsed());
    silent.expect_close().await;
    let drained = stage.drained().await;
    assert!(drained.is_complete(), "{drained:?}");
    assert_eq!(drained.in_flight, 0);
}

#[tokio::test]
async fn a_request_during_the_linger_is_answered_and_told_that_it_was_the_last() {
    let stage = Stage::new(LONG, Duration::from_secs(60)).await;
    let mut client = stage.client().await;
    client.get("/hello").await;
    client.head().await;
    assert_eq!(client.text(5).await, "hello");
    stage.shutdown.begin();
    client.get("/hello").await;
    let head = client.head().await;
    assert!(head.contains("connection: close"), "{head}");
    assert_eq!(client.rest().await, b"hello");
    assert!(stage.drained().await.is_complete());
}

#[tokio::test]
async fn a_connection_that_was_silent_until_the_shutdown_is_heard() {
    let stage = Stage::new(LONG, Duration::from_secs(60)).await;
    let mut never_served = stage.client().await;
    // Accepted in turn: when this one is answered, the other has been accepted.
    let mut later = stage.client().await;
    later.get("/hello").await;
    later.head().await;
    stage.shutdown.begin();
    never_served.get("/hello").await;
    let head = never_served.head().await;
    assert!(head.contains("connection: close"), "{head}");
    assert_eq!(never_served.rest().await, b"hello");
    drop(later);
    assert!(stage.drained().await.is_complete());
}

#[tokio::test]
async fn new_connections_are_refused_while_a_request_is_in_flight() {
    let stage = Stage::new(LONG, LINGER).await;
    let mut client = stage.client().await;
    client.get("/").await;
    stage.hands.wait_until_entered().await;
    stage.shutdown.begin();
    let refused = within("a connection is refused", async {
        loop {
            let connect = TcpStream::connect(stage.address);
            match timeout(Duration::from_millis(200), connect).await {
                Ok(Err(error)) => break error,
                // Before the server has seen the shutdown, or while it ignores who knocks.
                Ok(Ok(_)) | Err(_) => tokio::task::yield_now().await,
            }
        }
    });
    assert_eq!(refused.await.kind(), ErrorKind::ConnectionRefused);
    assert!(stage.is_serving());
    stage.hands.go_on.add_permits(1);
    client.head().await;
    assert_eq!(client.rest().await.len(), BIG);
    assert!(stage.drained().await.is_complete());
}

#[tokio::test]
async fn a_handler_that_panics_answers_500_and_the_connection_lives() {
    let stage = Stage::new(LONG, LINGER).await;
    let mut client = stage.client().await;
    client.get("/panic").await;
    let head = client.head().await;
    assert!(head.starts_with("http/1.1 500"), "{head}");
    assert!(head.contains("content-length: 0"), "{head}");
    client.get("/hello").await;
    client.head().await;
    assert_eq!(client.text(5).await, "hello");
    stage.shutdown.begin();
    let drained = stage.drained().await;
    assert!(drained.is_complete(), "{drained:?}");
}

#[tokio::test]
async fn what_a_connection_was_upgraded_to_is_waited_for() {
    let stage = Stage::new(LONG, Duration::ZERO).await;
    let mut client = stage.client().await;
    client
        .send("GET /echo HTTP/1.1\r\nhost: test\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n")
        .await;
    let head = client.head().await;
    assert!(head.starts_with("http/1.1 101"), "{head}");
    let mut idle = stage.client().await;
    stage.shutdown.begin();
    idle.expect_close().await;
    client.send("still here").await;
    assert_eq!(client.text(10).await, "still here");
    assert!(stage.is_serving());
    drop(client);
    assert!(stage.drained().await.is_complete());
}

#[tokio::test]
async fn an_announced_shutdown_closes_each_connection_after_its_answer_and_takes_new_ones() {
    let stage = Stage::new(LONG, LINGER).await;
    let mut idle = stage.client().await;
    idle.get("/hello").await;
    let head = idle.head().await;
    assert!(!head.contains("connection: close"), "{head}");
    assert_eq!(idle.text(5).await, "hello");
    let mut in_flight = stage.client().await;
    in_flight.get("/").await;
    stage.hands.wait_until_entered().await;
    stage.shutdown.announce();
    let mut new = stage.client().await;
    for client in [&mut idle, &mut new] {
        client.get("/hello").await;
        let head = client.head().await;
        assert!(head.contains("connection: close"), "{head}");
        assert_eq!(client.rest().await, b"hello");
    }
    stage.hands.go_on.add_permits(1);
    let head = in_flight.head().await;
    assert!(head.contains("connection: close"), "{head}");
    assert_eq!(in_flight.rest().await.len(), BIG);
    assert!(stage.is_serving() && !stage.shutdown.is_begun());
    stage.shutdown.begin();
    assert!(stage.drained().await.is_complete());
}
