//! Standard input, output and error.

mod common;

use common::*;

#[tokio::test]
async fn a_soloist_with_closed_streams_still_runs_its_child() {
    let mut stage = Stage::new();
    let shell = std::process::Command::new("sh")
        .args([
            "-c",
            "exec \"$0\" soloist 60000 streams <&- >&- 2>&-",
            HELPER,
        ])
        .env("REPORT", stage.report_path())
        .spawn();
    let mut soloist = Soloist(shell.unwrap());
    let streams = stage.hear("streams").await;
    assert_eq!(streams, "/dev/null /dev/null /dev/null");
    assert_eq!(soloist.0.wait().unwrap().code(), Some(0));
}

#[tokio::test]
async fn the_streams_are_soloists_own() {
    let mut stage = Stage::new();
    let file = stage.dir.path().join("out");
    let open = || std::fs::File::create(&file).unwrap();
    let soloist = std::process::Command::new(HELPER)
        .args(["soloist", "60000", "streams"])
        .env("REPORT", stage.report_path())
        .stdin(std::process::Stdio::null())
        .stdout(open())
        .stderr(open())
        .spawn();
    let mut soloist = Soloist(soloist.unwrap());
    let streams = stage.hear("streams").await;
    let file = file.display();
    assert_eq!(streams, format!("/dev/null {file} {file}"));
    assert_eq!(soloist.0.wait().unwrap().code(), Some(0));
}
