//! A job at intervals that must not run twice: `soloist run --name tidy --ready notify -- example-loop`.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use soloist_worker::{Part, Token, Worker};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let worker = Worker::from_env()?;
    let token = worker.token().map_or(0, Token::get);
    let tidy = Part::task("tidy", async move |task| {
        let mut round = 0;
        while task.pause(Duration::from_secs(1)).await {
            round += 1;
            tidy_up(token, round)?;
            task.status(format!("{round} rounds"));
        }
        Ok::<_, std::io::Error>(())
    });
    Ok(worker.run([tidy]).await)
}

/// Your work. Send the token along with what you write elsewhere, so that a leader of yesterday can be refused.
fn tidy_up(token: u64, round: u32) -> std::io::Result<()> {
    use std::io::Write;
    writeln!(std::io::stdout(), "round {round} with token {token}")
}
