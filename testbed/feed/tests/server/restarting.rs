use std::process::Stdio;

use rustix::process::Signal;
use tonic::Code;

use crate::common::{Server, command};

#[tokio::test]
async fn a_killed_server_still_knows_what_it_confirmed() {
    let mut server = Server::start(&[]);
    server.client(9).await.ack(50).await.unwrap();
    server.kill();
    let second = Server::start_on(&server.store(), &[]);
    let status = second.client(8).await.subscribe(50).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    let mut client = second.client(9).await;
    let status = client.subscribe(49).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange);
    client.subscribe(50).await.unwrap().read_to(51).await;
}

#[tokio::test]
async fn a_server_killed_at_any_moment_has_lost_nothing_that_it_confirmed() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    let mut confirmed = 0;
    for round in 1..=10_u64 {
        let mut server = Server::start_on(&store, &[]);
        let mut client = server.client(round).await;
        assert!(client.ack(0).await.unwrap() >= confirmed, "round {round}");
        let (acked, at_least) = tokio::sync::watch::channel(confirmed);
        let acking = tokio::spawn(async move {
            let mut position = *acked.borrow();
            while let Ok(highest) = client.ack(position + 1).await {
                position = highest;
                acked.send_replace(highest);
            }
        });
        let mut reached = at_least.clone();
        let goal = confirmed + round * 7;
        reached.wait_for(|&acked| acked >= goal).await.unwrap();
        server.kill();
        acking.await.unwrap();
        confirmed = *at_least.borrow();
    }
    let server = Server::start_on(&store, &[]);
    let status = server.client(9).await.ack(0).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(server.client(10).await.ack(0).await.unwrap() >= confirmed);
}

#[tokio::test]
async fn a_server_killed_while_it_starts_leaves_a_store_that_can_be_opened() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..30_u64 {
        let store = directory.path().join(format!("store-{round}"));
        let mut child = command(&store, &[]).stdout(Stdio::null()).spawn().unwrap();
        // Not to wait for anything: to kill it at various moments of its start.
        std::thread::sleep(std::time::Duration::from_micros(round * 700));
        child.kill().unwrap();
        child.wait().unwrap();
        let server = Server::start_on(&store, &[]);
        server.client(1).await.ack(1).await.unwrap();
    }
}

#[tokio::test]
async fn the_feed_goes_on_after_a_restart() {
    let mut server = Server::start(&["--rate", "1000"]);
    let mut client = server.client(1).await;
    client.subscribe(0).await.unwrap().read_to(300).await;
    server.kill();
    let server = Server::start_on(&server.store(), &["--rate", "1000"]);
    let mut client = server.client(1).await;
    // It knows that these have been produced.
    client.ack(300).await.unwrap();
    client.subscribe(300).await.unwrap().read_to(600).await;
}

#[tokio::test]
async fn a_second_server_on_the_same_store_is_refused() {
    let server = Server::start(&[]);
    let second = command(&server.store(), &[]).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8(second.stderr).unwrap();
    assert!(said.contains("is in use by another process"), "{said}");
}

#[tokio::test]
async fn a_signal_ends_the_streams_and_the_server() {
    for signal in [Signal::TERM, Signal::INT] {
        let server = Server::start(&["--messages", "3"]);
        let mut client = server.client(1).await;
        let mut messages = client.subscribe(0).await.unwrap();
        messages.read_to(3).await;
        server.signal(signal);
        let status = messages.error().await;
        assert_eq!(status.code(), Code::Unavailable);
        assert!(status.message().starts_with("the server stops"));
        assert_eq!(server.wait().await.code(), Some(0));
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_does_not_hold_the_server_up() {
    let server = Server::start(&["--payload-size", "10000"]);
    let mut client = server.client(1).await;
    let messages = client.subscribe(0).await.unwrap();
    server.signal(Signal::TERM);
    assert_eq!(server.wait().await.code(), Some(0));
    drop(messages);
}
