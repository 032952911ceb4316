//! What is handled is acknowledged, in order, and nothing else is.

use std::num::NonZeroUsize;
use std::time::Duration;

use tonic::Status;

use crate::harness::{DRAIN, Stage, Work, note};

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

/// Three are in hand, and the second comes to a bad end. What the consumer says of it, once only the first is acknowledged.
async fn error_of_the_second(come_to_a_bad_end: impl FnOnce(Work)) -> String {
    let mut stage = Stage::with(|consumer| consumer.concurrency(many(3)), DRAIN).await;
    let sent = stage.opened().await;
    for position in 1..=3 {
        sent.send(note(position)).await.unwrap();
    }
    let [first, second, third] = [stage.work().await, stage.work().await, stage.work().await];
    third.done();
    come_to_a_bad_end(second);
    first.done();
    stage.acknowledged(1).await;
    let error = stage.ended().await.unwrap_err();
    assert!(
        stage.server.calls.try_recv().is_err(),
        "more was acknowledged"
    );
    error.to_string()
}

#[tokio::test]
async fn what_cannot_be_handled_ends_it_and_only_what_came_before_is_acknowledged() {
    let error = error_of_the_second(|work| work.fail("the disk is full")).await;
    assert_eq!(error, "a message could not be handled: the disk is full");
}

#[tokio::test]
async fn a_panic_in_the_handler_ends_it_and_what_came_before_is_acknowledged() {
    let error = error_of_the_second(|work| work.panic("index out of bounds")).await;
    assert_eq!(error, "handle or commit panicked: index out of bounds");
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
