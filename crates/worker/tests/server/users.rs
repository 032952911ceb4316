//! A child that is a web server, under load, as the users that children are: what it loses when it is told to stop.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

#[cfg(target_os = "linux")]
use socket2::SockRef;
#[cfg(target_os = "linux")]
use tokio::time::sleep;

use crate::child::{Kind, WebChild};
use crate::load::{Load, Manner};
use crate::stage::Client;
#[cfg(target_os = "linux")]
use crate::storm::{loopbacks, lose_ends_of_handshakes};

const DRAIN: Duration = Duration::from_secs(20);
const THINKS: Duration = Duration::from_millis(20);
const MANNERS: [(Manner, usize); 4] = [
    (Manner::Fresh(Duration::ZERO), 16),
    (Manner::Fresh(THINKS), 8),
    (Manner::KeepAlive, 4),
    (Manner::Http2, 4),
];
/// Answers before the child is told to stop.
const ENOUGH: usize = 300;

fn listen() -> (TcpListener, SocketAddr) {
    listen_on("127.0.0.1:0")
}

fn listen_on(address: &str) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// The child's log.
async fn nothing_is_lost(
    kind: Kind,
    (listener, address): (TcpListener, SocketAddr),
    manners: &[(Manner, usize)],
) -> Option<String> {
    let child = WebChild::start(kind, listener, DRAIN)?;
    let load = Load::begin(address, manners);
    load.until_answered(ENOUGH).await;
    child.terminate();
    let count = load.until_refused().await;
    let (code, log) = child.ended().await;
    assert_eq!(count.lost(), 0, "{} were answered\n{log}", count.answered());
    assert_eq!(code, Some(0), "{log}");
    Some(log)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordinary_user_loses_no_request() {
    for _ in 0..3 {
        let Some(log) = nothing_is_lost(Kind::Nobody, listen(), &MANNERS).await else {
            return;
        };
        assert!(log.contains("new connections are "), "{log}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordinary_user_resets_nobody_who_has_connected_and_is_not_yet_heard() {
    for address in loopbacks().into_iter().cycle().take(4) {
        let (listener, address) = listen_on(address);
        if let Err(error) = lose_ends_of_handshakes(&SockRef::from(&listener)) {
            println!("skipped: no socket filter: {error}");
            return;
        }
        let far = [(Manner::Fresh(Duration::from_millis(50)), 32)];
        let Some(_log) = nothing_is_lost(Kind::Nobody, (listener, address), &far).await else {
            return;
        };
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordinary_user_with_the_right_to_filter_loses_no_request() {
    let kind = Kind::NobodyWithNetAdmin;
    for _ in 0..2 {
        let Some(log) = nothing_is_lost(kind, listen(), &MANNERS).await else {
            return;
        };
        assert!(log.contains("ignored, by a socket filter"), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_runs_the_test_loses_no_request() {
    nothing_is_lost(Kind::Own, listen(), &MANNERS).await;
}

/// A listener that is bound to an interface cannot leave it without a right.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_nobody_can_be_kept_out_all_are_served_until_it_is_quiet() {
    for _ in 0..3 {
        let (listener, address) = listen();
        SockRef::from(&listener).bind_device(Some(b"lo")).unwrap();
        let Some(child) = WebChild::start(Kind::Nobody, listener, DRAIN) else {
            return;
        };
        let load = Load::begin(address, &MANNERS);
        load.until_answered(ENOUGH).await;
        child.terminate();
        // As in a Pod: connections come for a while after the signal.
        sleep(Duration::from_secs(1)).await;
        load.until_answered(load.count.answered() + ENOUGH).await;
        let count = load.end().await;
        let (code, log) = child.ended().await;
        assert_eq!(count.lost(), 0, "{} were answered\n{log}", count.answered());
        assert_eq!(code, Some(0), "{log}");
        assert!(log.contains("served until none has come"), "{log}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_never_cease_do_not_keep_the_child_from_its_end() {
    let (listener, address) = listen();
    SockRef::from(&listener).bind_device(Some(b"lo")).unwrap();
    let drain = Duration::from_secs(4);
    let Some(child) = WebChild::start(Kind::Nobody, listener, drain) else {
        return;
    };
    let load = Load::begin(address, &[(Manner::Restless, 8)]);
    load.until_answered(ENOUGH).await;
    child.terminate();
    let (code, log) = child.ended().await;
    load.end().await;
    // Who comes in the very last moment may be reset; who was let in is answered.
    assert_eq!(code, Some(0), "{log}");
}

#[tokio::test]
async fn a_request_that_had_to_be_cut_shows_in_the_exit_code() {
    let (listener, address) = listen();
    let child = WebChild::start(Kind::Own, listener, Duration::from_secs(1)).unwrap();
    let mut client = Client::new(address).await;
    client.get("/never").await;
    // Accepted in turn: when this one is answered, the other has been accepted, and its request has come.
    let mut later = Client::new(address).await;
    later.get("/hello").await;
    later.head().await;
    child.terminate();
    let (code, log) = child.ended().await;
    assert_eq!(code, Some(1), "{log}");
    assert!(
        log.contains("the time ran out before http had ended in order"),
        "{log}"
    );
}
