//! What is handled is acknowledged, in order, and nothing else is.

use std::num::NonZeroUsize;
use std::time::Duration;

use soloist_worker::Fence;
use soloist_worker::Token;
use soloist_worker::metadata::{TOKEN, token};
use soloist_worker::stream::ConsumerError;
use soloist_worker::{Role, Shutdown, Term};
use tonic::Status;

use crate::harness::{DRAIN, Ended, Stage, note, quick, within};
use crate::server::Server;

fn many(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).unwrap()
}

#[tokio::test]
async fn messages_are_handled_one_at_a_time_and_acknowledged_when_they_are() {
    let mut stage = Stage::new().await;
    let sent = stage.opened().await;
    let feeding = tokio::spawn(async move {
        for position in 1..=3 {
            sent.send(note(position)).await.unwrap();
        }
        sent
    });
    for position in 1..=3 {
        let work = stage.work().await;
        assert_eq!(work.position, position);
        assert!(stage.works.try_recv().is_err(), "two at once");
        work.done();
        stage.acknowledged(position).await;
    }
    feeding.await.unwrap();
}

#[tokio::test]
async fn several_at_a_time_are_acknowledged_in_the_order_in_which_they_came() {
    let mut stage = Stage::with(|consumer| consumer.concurrency(many(3)), DRAIN).await;
    let sent = stage.opened().await;
    let feeding = tokio::spawn(async move {
        for position in 1..=5 {
            sent.send(note(position)).await.unwrap();
        }
        sent
    });
    let [first, second, third] = [stage.work().await, stage.work().await, stage.work().await];
    assert!(stage.works.try_recv().is_err(), "four at once");
    third.done();
    second.done();
    // There would be room for the fourth, but the first still holds its place.
    assert!(
        stage.server.calls.try_recv().is_err(),
        "acknowledged too early"
    );
    assert_eq!(first.position, 1);
    first.done();
    stage.acknowledged(3).await;
    assert_eq!(stage.work().await.position, 4);
    feeding.await.unwrap();
}

#[tokio::test]
async fn a_slow_handler_slows_the_server_down() {
    let mut stage = Stage::new().await;
    let sent = stage.opened().await;
    let (counter, mut count) = tokio::sync::watch::channel(0);
    let feeding = tokio::spawn(async move {
        let payload = vec![0; 64 * 1024];
        // 640 MB, if it were not held back.
        for position in 1..=10_000 {
            let note = crate::server::Note {
                position,
                payload: payload.clone(),
            };
            if sent
                .send(Ok(prost::Message::encode_to_vec(&note)))
                .await
                .is_err()
            {
                return;
            }
            counter.send_replace(position);
        }
    });
    let work = stage.work().await;
    // Sent until every buffer is full, and then no more.
    while tokio::time::timeout(Duration::from_millis(500), count.changed())
        .await
        .is_ok()
    {
        assert!(
            *count.borrow_and_update() < 500,
            "nobody reads, and it sends on"
        );
    }
    assert!(!work.is_given_up());
    feeding.abort();
}

#[tokio::test]
async fn no_more_is_read_than_may_wait_for_its_acknowledgement() {
    let mut stage = Stage::with(|consumer| consumer.window(many(3)), DRAIN).await;
    let sent = stage.opened().await;
    let feeding = tokio::spawn(async move {
        for position in 1..=5 {
            sent.send(note(position)).await.unwrap();
        }
        sent
    });
    stage.work().await.done();
    let held = stage.call("Ack").await;
    for position in 2..=3 {
        let work = stage.work().await;
        assert_eq!(work.position, position);
        work.done();
    }
    let fourth = tokio::time::timeout(Duration::from_millis(300), stage.works.recv()).await;
    assert!(fourth.is_err(), "three wait already");
    held.confirm();
    assert_eq!(stage.work().await.position, 4);
    feeding.await.unwrap();
}

#[tokio::test]
async fn an_acknowledgement_that_failed_comes_again_over_the_next_connection() {
    let mut stage = Stage::new().await;
    let sent = stage.opened().await;
    sent.send(note(1)).await.unwrap();
    stage.work().await.done();
    stage
        .call("Ack")
        .await
        .refuse(Status::unavailable("not now"));
    let again = stage.call("Open").await;
    assert_eq!(again.position, 1, "it goes on after what was handled");
    let _sent = again.stream();
    stage.acknowledged(1).await;
}

#[tokio::test]
async fn an_acknowledgement_without_an_answer_is_given_up_after_its_limit() {
    let limit = Duration::from_millis(100);
    let mut stage = Stage::with(|consumer| consumer.call_limit(limit), DRAIN).await;
    let sent = stage.opened().await;
    sent.send(note(1)).await.unwrap();
    stage.work().await.done();
    let unanswered = stage.call("Ack").await;
    stage.call("Open").await.stream();
    drop(unanswered);
}

#[tokio::test]
async fn what_cannot_be_handled_ends_it_and_only_what_came_before_is_acknowledged() {
    let mut stage = Stage::with(|consumer| consumer.concurrency(many(3)), DRAIN).await;
    let sent = stage.opened().await;
    for position in 1..=3 {
        sent.send(note(position)).await.unwrap();
    }
    let [first, second, third] = [stage.work().await, stage.work().await, stage.work().await];
    third.done();
    second.fail("the disk is full");
    first.done();
    stage.acknowledged(1).await;
    let error = stage.ended().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "a message could not be handled: the disk is full"
    );
    assert!(
        stage.server.calls.try_recv().is_err(),
        "more was acknowledged"
    );
}

#[tokio::test]
async fn a_later_message_that_is_done_is_not_gone_on_after_while_an_earlier_one_is_not() {
    let mut stage = Stage::with(|consumer| consumer.concurrency(many(3)), DRAIN).await;
    let sent = stage.opened().await;
    for position in 1..=3 {
        sent.send(note(position)).await.unwrap();
    }
    let [first, second, third] = [stage.work().await, stage.work().await, stage.work().await];
    third.done();
    first.done();
    stage.acknowledged(1).await;
    // The child would die here: 3 is handled, and 2 is not.
    assert_eq!(*stage.committed.borrow(), 1);
    second.done();
    stage.acknowledged(3).await;
    drop(sent);
    assert_eq!(stage.call("Open").await.position, 3);
}

#[tokio::test]
async fn a_panic_in_the_handler_ends_it_and_what_came_before_is_acknowledged() {
    let mut stage = Stage::with(|consumer| consumer.concurrency(many(3)), DRAIN).await;
    let sent = stage.opened().await;
    for position in 1..=3 {
        sent.send(note(position)).await.unwrap();
    }
    let [first, second, third] = [stage.work().await, stage.work().await, stage.work().await];
    third.done();
    second.panic("index out of bounds");
    first.done();
    stage.acknowledged(1).await;
    let error = stage.ended().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "handle or commit panicked: index out of bounds"
    );
    assert!(
        stage.server.calls.try_recv().is_err(),
        "more was acknowledged"
    );
}

/// A refusal by a server that has seen the token 23.
fn stale() -> Status {
    let fence = Fence::new(Token::new(23));
    fence.admit(Token::new(17)).unwrap_err().into()
}

fn assert_fenced(ended: Ended) {
    let error = ended.unwrap_err();
    assert!(matches!(error, ConsumerError::Fenced { .. }), "{error}");
}

#[tokio::test]
async fn a_refusal_of_the_token_ends_it_at_once_whatever_is_in_hand() {
    let mut stage = Stage::with(|consumer| consumer.concurrency(many(2)), DRAIN).await;
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
async fn a_stream_that_is_refused_ends_at_once_and_an_error_of_the_handler_does_not_hide_it() {
    let mut stage = Stage::with(|consumer| consumer.concurrency(many(2)), DRAIN).await;
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
