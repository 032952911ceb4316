//! Leads for as long as it can, and says so.
//!
//! ```sh
//! cargo run -p soloist-elector --example leader -- file /tmp/demo/lease
//! cargo run -p soloist-elector --example leader -- kubernetes demo
//! ```

use std::error::Error;
use std::process::ExitCode;

use soloist_elector::file::FileStore;
use soloist_elector::kubernetes::{KubernetesStore, Options};
use soloist_elector::{Elector, ElectorError, LeaseStore};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match start().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn start() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["file", path] => run(FileStore::open(path)?).await,
        ["kubernetes", name] => run(KubernetesStore::connect(Options::lease(name)).await?).await,
        _ => Err("usage: leader file PATH | leader kubernetes NAME".into()),
    }
}

async fn run(store: impl LeaseStore) -> Result<(), Box<dyn Error>> {
    let elector = Elector::builder(store).spawn()?;
    let mut terminate = signal(SignalKind::terminate())?;
    println!("{} waits", elector.identity());
    tokio::select! {
        ended = lead_for_ever(&elector) => ended?,
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
    Ok(elector.shutdown().await?)
}

async fn lead_for_ever(elector: &Elector) -> Result<(), ElectorError> {
    loop {
        let term = elector.lead().await?;
        println!("leads: term {}, token {}", term.number(), term.token());
        term.cancelled().await;
        println!("leads no more");
    }
}
