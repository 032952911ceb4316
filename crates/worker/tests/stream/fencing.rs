//! A server that has seen a later leader ends the term at once, whatever is in hand.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use soloist_worker::metadata::{TOKEN, token};
use soloist_worker::stream::ConsumerError;
use soloist_worker::{Fence, Part, Role, Shutdown, Term, Token, Worker};
use tonic::Status;

use crate::harness::{DRAIN, Ended, Notes, Stage, note, quick, within};
use crate::server::Server;

/// A refusal by a server that has seen the token 23.
fn stale() -> Status {
    let fence = Fence::new(Token::new(23));
    fence.admit(Token::new(17)).unwrap_err().into()
}

fn assert_fenced(ended: Ended) {
    let error = ended.unwrap_err();
    assert!(matches!(error, ConsumerError::Fenced { .. }), "{error}");
}

async fn stage_of(concurrency: usize) -> Stage {
    let many = NonZeroUsize::new(concurrency).unwrap();
    Stage::with(|consumer| consumer.concurrency(many), DRAIN).await
}

#[tokio::test]
async fn a_refusal_of_an_acknowledgement_ends_it_whatever_is_in_hand() {
    let mut stage = stage_of(2).await;
    let sent = stage.opened().await;
    sent.send(note(1)).await.unwrap();
    sent.send(note(2)).await.unwrap();
    let (first, hangs) = (stage.work().await, stage.work().await);
    first.done();
    stage.call("Ack").await.refuse(stale());
    assert_fenced(stage.ended().await);
    assert!(hangs.is_given_up());
}

#[tokio::test]
async fn a_stream_that_is_refused_ends_at_once_though_the_handler_hangs() {
    for concurrency in [1, 2] {
        let mut stage = stage_of(concurrency).await;
        let sent = stage.opened().await;
        sent.send(note(1)).await.unwrap();
        let hangs = stage.work().await;
        sent.send(Err(stale())).await.unwrap();
        assert_fenced(stage.ended().await);
        assert!(hangs.is_given_up());
    }
}

#[tokio::test]
async fn an_error_of_the_handler_does_not_hide_a_refusal() {
    let mut stage = stage_of(1).await;
    let sent = stage.opened().await;
    sent.send(note(1)).await.unwrap();
    let work = stage.work().await;
    sent.send(Err(stale())).await.unwrap();
    within("the end of the work", async {
        while !work.is_given_up() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    work.fail("the disk is full");
    assert_fenced(stage.ended().await);
}

#[tokio::test]
async fn a_stream_is_refused_also_after_it_is_read_no_further() {
    let server = Server::start().await;
    let consumer = quick(&server.url());
    let mut stage = Stage::set(server, consumer, Shutdown::new(DRAIN), false);
    let sent = stage.opened().await;
    sent.send(note(1)).await.unwrap();
    let hangs = stage.work().await;
    stage.shutdown.begin();
    sent.send(Err(stale())).await.unwrap();
    assert_fenced(stage.ended().await);
    assert!(hangs.is_given_up());
}

#[tokio::test]
async fn the_message_that_was_read_ahead_is_handled_in_its_turn() {
    let mut stage = stage_of(1).await;
    let sent = stage.opened().await;
    sent.send(note(1)).await.unwrap();
    let first = stage.work().await;
    for position in 2..=4 {
        sent.send(note(position)).await.unwrap();
    }
    let early = tokio::time::timeout(Duration::from_millis(200), stage.works.recv()).await;
    assert!(early.is_err(), "two at once");
    first.done();
    for position in 2..=4 {
        let work = stage.work().await;
        assert_eq!(work.position, position);
        work.done();
    }
    stage.acknowledged(4).await;
}

#[tokio::test]
async fn a_farewell_that_is_refused_ends_it_at_once() {
    let mut stage = Stage::new().await;
    let sent = stage.opened().await;
    sent.send(note(1)).await.unwrap();
    let hangs = stage.work().await;
    stage.shutdown.begin();
    stage.call("Drain").await.refuse(stale());
    assert_fenced(stage.ended().await);
    assert!(hangs.is_given_up());
}

#[tokio::test]
async fn every_request_bears_the_token_and_an_older_one_ends_the_term() {
    let server = Server::start().await;
    let role = Role {
        name: "orders".to_owned(),
        identity: "pod-a".to_owned(),
        term: Term::new(3),
        token: Token::new(17),
    };
    let consumer = quick(&server.url()).role(Some(&role));
    let mut stage = Stage::set(server, consumer, Shutdown::new(DRAIN), true);
    let fence = Fence::new(Token::new(0));
    let open = stage.call("Open").await;
    fence.admit(token(&open.metadata).unwrap()).unwrap();
    let sent = open.stream();
    sent.send(note(1)).await.unwrap();
    stage.work().await.done();
    let ack = stage.call("Ack").await;
    assert_eq!(ack.metadata.get(TOKEN).unwrap(), "17");
    // Meanwhile there is a new leader.
    fence.admit(Token::new(23)).unwrap();
    let stale = fence.admit(token(&ack.metadata).unwrap()).unwrap_err();
    ack.refuse(stale.into());
    let error = stage.ended().await.unwrap_err();
    assert!(matches!(error, ConsumerError::Fenced { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.ends_with("has seen the token 23 of a later leader, ours is 17"),
        "{text}"
    );
    within("the server's end of the stream", sent.closed()).await;
}

#[tokio::test]
async fn a_refused_stream_leaves_the_other_parts_no_time() {
    let mut server = Server::start().await;
    let worker = Worker::from_env().unwrap();
    let (notes, _works) = Notes::new(true);
    let parts = [
        Part::stream("feed", quick(&server.url()), notes),
        Part::task("deaf", async |_| {
            std::future::pending::<()>().await;
            Ok::<_, std::io::Error>(())
        }),
    ];
    let (ran, began) = (worker.clone(), Instant::now());
    let running = tokio::spawn(async move { ran.run(parts).await });
    let open = within("a call", server.calls.recv()).await.unwrap();
    open.refuse(stale());
    let code = within("the end", running).await.unwrap();
    assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::FAILURE));
    // Else the deaf one would have had all of the drain.
    let drain = worker.stream().budget();
    assert!(began.elapsed() < drain / 2, "{:?}", began.elapsed());
}
