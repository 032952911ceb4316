//! gRPC as tonic's users have it: one channel, that connects again by itself, with several calls in flight.

use std::error::Error;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::{CONNECT_WITHIN, Client, LIMIT, Lost, PAUSE};

/// How long each call takes at the server, one for each that is in flight all the time. At 0 it is a health check and no more.
const WORK: [u64; 5] = [0, 0, 50, 250, 900];

pub(super) fn ask(client: Client) -> Vec<Lost> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().unwrap();
    runtime.block_on(async {
        let endpoint = Endpoint::from_shared(format!("http://{}", client.address)).unwrap();
        let channel = endpoint.connect_timeout(CONNECT_WITHIN).connect_lazy();
        let calls = WORK.map(|millis| call(client.share(), channel.clone(), millis));
        let lost = futures_util::future::join_all(calls).await;
        lost.concat()
    })
}

async fn call(mut client: Client, channel: Channel, millis: u64) -> Vec<Lost> {
    let mut health = HealthClient::new(channel);
    let service = match millis {
        0 => String::new(),
        millis => format!("work/{millis}"),
    };
    while !client.is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        let request = HealthCheckRequest {
            service: service.clone(),
        };
        match timeout(LIMIT, health.check(request)).await {
            Ok(Ok(answer)) if answer.get_ref().status() == ServingStatus::Serving => client.count(),
            Ok(Ok(answer)) => client.lose(began, true, &format!("{answer:?}")),
            // The next try is the same call, as any client's transparent retry.
            Ok(Err(status)) if was_not_sent(&status) => client.ask_again(),
            Ok(Err(status)) => {
                let had_a_connection = !could_not_connect(&status);
                client.lose(began, had_a_connection, &format!("{status:?}"));
            }
            Err(error) => client.lose(began, true, &error),
        }
        sleep(PAUSE.max(Duration::from_millis(1))).await;
    }
    client.lost
}

/// It never got to the connection, which had ended meanwhile; or the server promises that it has not seen it.
fn was_not_sent(status: &Status) -> bool {
    causes(status).any(|cause| {
        let hyper = cause.downcast_ref::<hyper::Error>();
        let h2 = cause.downcast_ref::<h2::Error>();
        hyper.is_some_and(hyper::Error::is_canceled)
            || h2.is_some_and(|error| {
                let is_refused = error.reason() == Some(h2::Reason::REFUSED_STREAM);
                error.is_remote() && (error.is_go_away() || is_refused)
            })
    })
}

fn could_not_connect(status: &Status) -> bool {
    // hyper-util's error of its connector, which has no name; what follows it is the cause.
    causes(status).any(|cause| cause.to_string() == "tcp connect error")
}

fn causes(status: &Status) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(status.source(), |&cause| cause.source())
}
