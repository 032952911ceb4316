//! A link between a client and an echo server, fault by fault.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    time::{Duration, Instant},
};

use testbed::{Direction, Link};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};

const SOON: Duration = Duration::from_secs(10);
const A_WHILE: Duration = Duration::from_millis(300);

/// Echoes what it gets, and tells what it got.
struct Server {
    address: SocketAddr,
    got: mpsc::UnboundedReceiver<Vec<u8>>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, got) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(echo(stream, sender.clone()));
            }
        });
        Self { address, got }
    }

    async fn got(&mut self) -> Vec<u8> {
        timeout(SOON, self.got.recv())
            .await
            .expect("the server gets something")
            .expect("it runs")
    }
}

async fn echo(mut stream: TcpStream, got: mpsc::UnboundedSender<Vec<u8>>) -> io::Result<()> {
    let mut buffer = [0; 1024];
    loop {
        let length = stream.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        let _ = got.send(buffer[..length].to_vec());
        stream.write_all(&buffer[..length]).await?;
    }
}

async fn setup() -> (Server, Link) {
    let server = Server::start().await;
    let link = Link::to(server.address).unwrap();
    (server, link)
}

async fn connect(link: &Link) -> io::Result<TcpStream> {
    timeout(SOON, TcpStream::connect(link.address()))
        .await
        .expect("connecting is decided soon")
}

async fn ask(stream: &mut TcpStream, text: &str) -> io::Result<String> {
    stream.write_all(text.as_bytes()).await?;
    answer(stream).await
}

async fn answer(stream: &mut TcpStream) -> io::Result<String> {
    let mut buffer = [0; 1024];
    let length = timeout(SOON, stream.read(&mut buffer))
        .await
        .expect("an answer comes")?;
    Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

/// Neither data nor an end comes.
async fn is_silent(stream: &mut TcpStream) -> bool {
    timeout(A_WHILE, stream.read(&mut [0; 1])).await.is_err()
}

#[tokio::test]
async fn a_healthy_link_passes_bytes_and_ends() {
    let (_server, link) = setup().await;
    let mut stream = connect(&link).await.unwrap();
    assert_eq!(ask(&mut stream, "hello").await.unwrap(), "hello");
    stream.shutdown().await.unwrap();
    assert_eq!(
        answer(&mut stream).await.unwrap(),
        "",
        "the server's end arrives as an end"
    );
}

#[tokio::test]
async fn a_cut_link_resets_connections_and_refuses_new_ones() {
    let (_server, link) = setup().await;
    let mut stream = connect(&link).await.unwrap();
    ask(&mut stream, "hello").await.unwrap();

    link.cut().unwrap();
    assert_eq!(
        answer(&mut stream).await.unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    for _ in 0..3 {
        assert_eq!(
            connect(&link).await.unwrap_err().kind(),
            ErrorKind::ConnectionRefused
        );
    }
}

#[tokio::test]
async fn a_cut_link_heals_on_the_same_address_again_and_again() {
    let (_server, link) = setup().await;
    for round in 0..20 {
        link.cut().unwrap();
        assert!(connect(&link).await.is_err(), "round {round}");
        link.heal().unwrap();
        let mut stream = connect(&link).await.unwrap();
        assert_eq!(ask(&mut stream, "hello").await.unwrap(), "hello");
    }
}

#[tokio::test]
async fn a_reset_ends_the_connections_of_now_and_no_later_one() {
    let (_server, link) = setup().await;
    let mut before = connect(&link).await.unwrap();
    ask(&mut before, "hello").await.unwrap();
    link.reset().unwrap();
    assert_eq!(
        answer(&mut before).await.unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    let mut after = connect(&link).await.unwrap();
    assert_eq!(ask(&mut after, "hello").await.unwrap(), "hello");
}

#[tokio::test]
async fn a_reset_returns_even_if_connections_are_just_arriving() {
    let (_server, link) = setup().await;
    let rounds = tokio::task::spawn_blocking(move || {
        for _ in 0..300 {
            let address = link.address();
            let _arriving: Vec<_> = (0..8)
                .map(|_| std::net::TcpStream::connect(address))
                .collect();
            link.reset().unwrap();
        }
    });
    timeout(SOON, rounds)
        .await
        .expect("every reset returns")
        .unwrap();
}

#[tokio::test]
async fn a_black_hole_keeps_connections_open_and_silent() {
    let (mut server, link) = setup().await;
    let mut old = connect(&link).await.unwrap();
    ask(&mut old, "before").await.unwrap();
    assert_eq!(server.got().await, b"before");

    link.swallow(Direction::Both).unwrap();
    let mut new = connect(&link).await.expect("new connections can be opened");
    old.write_all(b"lost").await.unwrap();
    new.write_all(b"lost too").await.unwrap();
    assert!(is_silent(&mut old).await);
    assert!(is_silent(&mut new).await);
    assert!(server.got.try_recv().is_err(), "something came through");
}

#[tokio::test]
async fn after_a_black_hole_a_connection_that_lost_bytes_stays_silent_and_new_ones_work() {
    let (_server, link) = setup().await;
    let mut idle = connect(&link).await.unwrap();
    let mut busy = connect(&link).await.unwrap();
    ask(&mut idle, "before").await.unwrap();
    ask(&mut busy, "before").await.unwrap();

    link.swallow(Direction::Both).unwrap();
    busy.write_all(b"lost").await.unwrap();
    assert!(is_silent(&mut busy).await);
    link.heal().unwrap();

    busy.write_all(b"after").await.unwrap();
    assert!(is_silent(&mut busy).await);
    assert_eq!(ask(&mut idle, "after").await.unwrap(), "after");
    let mut new = connect(&link).await.unwrap();
    assert_eq!(ask(&mut new, "new").await.unwrap(), "new");
}

#[tokio::test]
async fn swallowed_answers_leave_the_requests_alone() {
    let (mut server, link) = setup().await;
    let mut stream = connect(&link).await.unwrap();
    link.swallow(Direction::ToClient).unwrap();
    stream.write_all(b"asked").await.unwrap();
    assert_eq!(server.got().await, b"asked");
    assert!(is_silent(&mut stream).await);
}

#[tokio::test]
async fn a_black_hole_swallows_the_end_of_a_connection_too() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let link = Link::to(listener.local_addr().unwrap()).unwrap();
    let client = connect(&link).await.unwrap();
    let (mut server_end, _) = timeout(SOON, listener.accept()).await.unwrap().unwrap();

    link.swallow(Direction::Both).unwrap();
    drop(client);
    assert!(
        is_silent(&mut server_end).await,
        "the server saw the client leave"
    );
    link.heal().unwrap();
    let ended = timeout(SOON, server_end.read(&mut [0; 1]))
        .await
        .expect("the server sees it now");
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

#[tokio::test]
async fn a_delay_takes_its_time_in_both_directions() {
    let (_server, link) = setup().await;
    let mut stream = connect(&link).await.unwrap();
    ask(&mut stream, "warm").await.unwrap();

    link.delay(Duration::from_millis(300)).unwrap();
    let began = Instant::now();
    assert_eq!(ask(&mut stream, "slow").await.unwrap(), "slow");
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(600), "{took:?}");

    link.heal().unwrap();
    let began = Instant::now();
    ask(&mut stream, "fast").await.unwrap();
    let took = began.elapsed();
    assert!(took < Duration::from_millis(300), "{took:?}");
}

#[tokio::test]
async fn a_stall_holds_bytes_back_and_healing_delivers_them() {
    let (mut server, link) = setup().await;
    let mut stream = connect(&link).await.unwrap();
    ask(&mut stream, "before").await.unwrap();
    assert_eq!(server.got().await, b"before");

    link.stall().unwrap();
    stream.write_all(b"held").await.unwrap();
    assert!(is_silent(&mut stream).await);
    assert!(server.got.try_recv().is_err(), "something came through");
    link.heal().unwrap();
    assert_eq!(answer(&mut stream).await.unwrap(), "held");
}

#[tokio::test]
async fn a_stall_for_a_while_ends_by_itself() {
    let (_server, link) = setup().await;
    let mut stream = connect(&link).await.unwrap();
    let began = Instant::now();
    link.stall_for(A_WHILE).unwrap();
    assert_eq!(ask(&mut stream, "held").await.unwrap(), "held");
    assert!(began.elapsed() >= A_WHILE / 2, "{:?}", began.elapsed());
    assert!(link.is_clear());
}

#[tokio::test]
async fn a_dropped_link_resets_its_connections() {
    let (_server, link) = setup().await;
    let mut stream = connect(&link).await.unwrap();
    ask(&mut stream, "hello").await.unwrap();
    drop(link);
    assert_eq!(
        answer(&mut stream).await.unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
}
