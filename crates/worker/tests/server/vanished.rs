//! Clients that are gone without a word, or so slow that it looks like it.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::http2::*;
use crate::stage::*;

const LINGER: Duration = Duration::from_millis(400);
const LIMIT: Duration = Duration::from_millis(300);
/// Longer than any client has to answer a farewell.
const STALL: Duration = Duration::from_millis(2500);

#[tokio::test]
async fn an_http2_client_that_has_vanished_does_not_hold_the_server_up() {
    let stage = Stage::new(LONG, LINGER).await;
    let mut client = stage.client().await;
    client.greet().await;
    client.ask(1, "/hello").await;
    assert_eq!(client.body(1).await, 5);
    stage.shutdown.begin();
    let drained = stage.drained().await;
    assert!(drained.is_complete(), "{drained:?}");
}

#[tokio::test]
async fn an_http2_client_that_vanished_while_it_was_answered_is_noticed() {
    let stage = Stage::with(LONG, |server| server.keepalive(LIMIT)).await;
    let mut client = stage.client().await;
    client.greet().await;
    client.ask(1, "/never").await;
    stage.hands.wait_until_entered().await;
    stage.hands.wait_until_dropped().await;
    stage.shutdown.begin();
    assert!(stage.drained().await.is_complete());
}

#[tokio::test]
async fn an_http2_client_that_takes_its_time_gets_all() {
    let stage = Stage::new(LONG, LINGER).await;
    let mut client = stage.client().await;
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    client.send_frame(SETTINGS, 0, 0, &[]).await;
    client.ask(1, "/").await;
    stage.hands.wait_until_entered().await;
    stage.hands.go_on.add_permits(1);
    // All that the window allows: the rest waits in the server.
    let mut length = client.wait_for(DATA).await.payload.len();
    stage.shutdown.begin();
    let mut is_answered = false;
    while length < 65_535 || !is_answered {
        let frame = client.frame().await;
        match frame.kind {
            DATA => length += frame.payload.len(),
            PING if frame.flags & ACK == 0 => {
                client.send_frame(PING, ACK, 0, &frame.payload).await;
                is_answered = true;
            }
            _ => {}
        }
    }
    sleep(STALL).await;
    for stream in [0, 1] {
        let more = (1_u32 << 30).to_be_bytes();
        client.send_frame(WINDOW_UPDATE, 0, stream, &more).await;
    }
    length += client.body(1).await;
    assert_eq!(length, BIG);
    drop(client);
    let drained = stage.drained().await;
    assert!(drained.is_complete(), "{drained:?}");
}

#[tokio::test]
async fn an_http1_client_that_takes_its_time_gets_all() {
    let stage = Stage::new(LONG, Duration::ZERO).await;
    let mut client = stage.client().await;
    client.get("/").await;
    stage.hands.wait_until_entered().await;
    stage.hands.go_on.add_permits(1);
    client.head().await;
    stage.shutdown.begin();
    sleep(STALL).await;
    assert_eq!(client.rest().await.len(), BIG);
    let drained = stage.drained().await;
    assert!(drained.is_complete(), "{drained:?}");
}

#[tokio::test]
async fn a_client_that_does_not_end_its_head_does_not_hold_the_server_up() {
    let stage = Stage::new(LONG, LINGER).await;
    let mut first = stage.client().await;
    first.send("GET /hello HTTP/1.1\r\nho").await;
    let mut second = stage.client().await;
    second.get("/hello").await;
    second.head().await;
    assert_eq!(second.text(5).await, "hello");
    second.send("GET /hello HTTP/1.1\r\nho").await;
    let mut preface = stage.client().await;
    preface.send("PRI * HTTP/2.0\r\n").await;
    stage.shutdown.begin();
    let drained = stage.drained().await;
    assert!(drained.is_complete(), "{drained:?}");
}

#[tokio::test]
async fn a_head_that_takes_too_long_ends_the_connection() {
    let stage = Stage::with(LONG, |server| server.header_timeout(LIMIT)).await;
    let mut client = stage.client().await;
    let begun = Instant::now();
    client.send("GET /hello HTTP/1.1\r\nho").await;
    client.expect_close().await;
    assert!(begun.elapsed() >= LIMIT, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_connection_that_is_idle_is_not_taken_for_a_head_that_takes_too_long() {
    let stage = Stage::with(LONG, |server| server.header_timeout(LIMIT)).await;
    let mut client = stage.client().await;
    for _ in 0..2 {
        sleep(3 * LIMIT).await;
        client.get("/hello").await;
        client.head().await;
        assert_eq!(client.text(5).await, "hello");
    }
}
