//! HTTP/2, frame by frame.

use std::time::Duration;

use crate::stage::*;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GO_AWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const ANY_STREAM: u32 = u32::MAX >> 1;

pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    fn last_stream(&self) -> u32 {
        assert_eq!(self.kind, GO_AWAY);
        u32::from_be_bytes(self.payload[..4].try_into().unwrap())
    }
}

impl Client {
    pub(crate) async fn frame(&mut self) -> Frame {
        let head = self.read(9).await;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        Frame {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes(head[5..].try_into().unwrap()),
            payload: self.read(length as usize).await,
        }
    }

    pub(crate) async fn wait_for(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.frame().await;
            if frame.kind == kind {
                return frame;
            }
        }
    }

    pub(crate) async fn send_frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.send(frame).await;
    }

    /// Opens an HTTP/2 connection with windows for all that we want to read.
    pub(crate) async fn greet(&mut self) {
        self.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        let initial_window = [0, 4, 0x7f, 0xff, 0xff, 0xff];
        self.send_frame(SETTINGS, 0, 0, &initial_window).await;
        self.send_frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes())
            .await;
    }

    pub(crate) async fn ask(&mut self, stream: u32, path: &str) {
        let mut block = vec![0x82, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
        block.extend(path.as_bytes());
        block.extend([0x01, 4]);
        block.extend(b"test");
        self.send_frame(HEADERS, END_STREAM | END_HEADERS, stream, &block)
            .await;
    }

    /// The length of a stream's response, to its end.
    pub(crate) async fn body(&mut self, stream: u32) -> usize {
        let mut length = 0;
        loop {
            let frame = self.wait_for(DATA).await;
            assert_eq!(frame.stream, stream);
            length += frame.payload.len();
            if frame.flags & END_STREAM != 0 {
                return length;
            }
        }
    }
}

#[tokio::test]
async fn a_client_is_told_to_go_away_and_its_stream_finishes() {
    let stage = Stage::new(LONG, Duration::from_secs(60)).await;
    let mut client = stage.client().await;
    client.greet().await;
    client.ask(1, "/").await;
    stage.hands.wait_until_entered().await;
    stage.shutdown.begin();
    assert_eq!(client.wait_for(GO_AWAY).await.last_stream(), ANY_STREAM);
    let ping = client.wait_for(PING).await;
    // On its way before the client knew.
    client.ask(3, "/hello").await;
    client.send_frame(PING, ACK, 0, &ping.payload).await;
    assert_eq!(client.body(3).await, 5);
    stage.hands.go_on.add_permits(1);
    assert_eq!(client.body(1).await, BIG);
    client.rest().await;
    let drained = stage.drained().await;
    assert!(drained.is_complete(), "{drained:?}");
    assert_eq!(drained.in_flight, 1);
}

#[tokio::test]
async fn an_idle_client_is_told_at_once() {
    let stage = Stage::new(LONG, LONG).await;
    let mut client = stage.client().await;
    client.greet().await;
    client.wait_for(SETTINGS).await;
    stage.shutdown.begin();
    assert_eq!(client.wait_for(GO_AWAY).await.last_stream(), ANY_STREAM);
    let ping = client.wait_for(PING).await;
    client.send_frame(PING, ACK, 0, &ping.payload).await;
    assert_eq!(client.wait_for(GO_AWAY).await.last_stream(), 0);
    client.expect_close().await;
    assert!(stage.drained().await.is_complete());
}

#[tokio::test]
async fn a_connection_that_was_silent_until_the_shutdown_is_heard() {
    let stage = Stage::new(LONG, Duration::from_secs(60)).await;
    let mut client = stage.client().await;
    stage.shutdown.begin();
    client.greet().await;
    client.ask(1, "/hello").await;
    let mut answered = false;
    let mut went_away = false;
    while !(answered && went_away) {
        let frame = client.frame().await;
        answered |= frame.kind == DATA && frame.flags & END_STREAM != 0;
        went_away |= frame.kind == GO_AWAY;
        if frame.kind == PING {
            client.send_frame(PING, ACK, 0, &frame.payload).await;
        }
    }
    drop(client);
    assert!(stage.drained().await.is_complete());
}

#[tokio::test]
async fn a_stream_that_never_ends_is_cut_at_the_deadline() {
    let stage = Stage::new(Duration::from_secs(1), Duration::ZERO).await;
    let mut client = stage.client().await;
    client.greet().await;
    client.ask(1, "/never").await;
    client.ask(3, "/never").await;
    stage.hands.wait_until_entered().await;
    stage.hands.wait_until_entered().await;
    stage.shutdown.begin();
    let hands = stage.hands.clone();
    let drained = stage.drained().await;
    assert_eq!((drained.cut, drained.cut_connections), (2, 1));
    hands.wait_until_dropped().await;
    hands.wait_until_dropped().await;
}

#[tokio::test]
async fn an_announced_shutdown_sends_a_client_away_and_serves_who_comes() {
    let stage = Stage::new(LONG, Duration::from_secs(60)).await;
    let mut client = stage.client().await;
    client.greet().await;
    client.ask(1, "/").await;
    stage.hands.wait_until_entered().await;
    stage.shutdown.announce();
    assert_eq!(client.wait_for(GO_AWAY).await.last_stream(), ANY_STREAM);
    let ping = client.wait_for(PING).await;
    client.send_frame(PING, ACK, 0, &ping.payload).await;
    assert_eq!(client.wait_for(GO_AWAY).await.last_stream(), 1);
    let mut new = stage.client().await;
    new.greet().await;
    new.ask(1, "/hello").await;
    assert_eq!(new.body(1).await, 5);
    stage.hands.go_on.add_permits(1);
    assert_eq!(client.body(1).await, BIG);
    client.rest().await;
    // It may have no other place to go to: it stays until the stop.
    new.ask(3, "/hello").await;
    assert_eq!(new.body(3).await, 5);
    assert!(stage.is_serving() && !stage.shutdown.is_begun());
    stage.shutdown.begin();
    assert_eq!(new.wait_for(GO_AWAY).await.last_stream(), ANY_STREAM);
    drop(new);
    assert!(stage.drained().await.is_complete());
}
