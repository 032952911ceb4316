//! Reads a feed as fast as it comes and says how fast that was: `throughput ADDRESS MESSAGES`.

use std::time::Instant;

use anyhow::{Context, bail};
use feed::proto::SubscribeRequest;
use feed::proto::feed_client::FeedClient;
use soloist_worker::metadata;
use tonic::Request;
use tonic::transport::Endpoint;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: throughput ADDRESS MESSAGES";
    let address = arguments.next().context(usage)?;
    let messages: u64 = arguments.next().context(usage)?.parse()?;

    let channel = Endpoint::from_shared(format!("http://{address}"))?
        .connect()
        .await?;
    let mut request = Request::new(SubscribeRequest {
        subscription: "throughput".to_owned(),
        after: 0,
    });
    request.metadata_mut().insert(metadata::TOKEN, 1.into());
    let begun = Instant::now();
    let answer = FeedClient::new(channel).subscribe(request).await?;
    let mut stream = answer.into_inner();
    for position in 1..=messages {
        match stream.message().await? {
            Some(message) if message.position == position => {}
            other => bail!("instead of the message at {position} there is {other:?}"),
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let rate = messages as f64 / seconds;
    println!("{messages} messages in {seconds:.2} s: {rate:.0} a second");
    Ok(())
}
