use std::{path::Path, process::Command, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::{Error, availability::program, ports::Ports, process::Component};

pub(crate) fn arguments(ports: &Ports, data: &Path) -> Vec<String> {
    let client = format!("http://127.0.0.1:{}", ports.etcd);
    let peer = format!("http://127.0.0.1:{}", ports.etcd_peer);
    vec![
        "--name=testbed".to_owned(),
        format!("--data-dir={}", data.display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=testbed={peer}"),
        "--unsafe-no-fsync".to_owned(),
    ]
}

/// Saves all that is in etcd.
pub(crate) fn save(ports: &Ports, file: &Path) -> Result<(), Error> {
    let mut etcdctl = Command::new("etcdctl");
    etcdctl
        .env("ETCDCTL_API", "3")
        .arg(format!("--endpoints=http://127.0.0.1:{}", ports.etcd))
        .args(["snapshot", "save"])
        .arg(file);
    run("save a snapshot", etcdctl)
}

/// Makes the data of an etcd that has just what was saved, revisions included.
pub(crate) fn restore(ports: &Ports, file: &Path, data: &Path) -> Result<(), Error> {
    // From 3.6 on only etcdutl can.
    let tool = program("etcdutl").unwrap_or_else(|| "etcdctl".into());
    let peer = format!("http://127.0.0.1:{}", ports.etcd_peer);
    let mut restore = Command::new(tool);
    restore
        .env("ETCDCTL_API", "3")
        .args(["snapshot", "restore"])
        .arg(file)
        .arg(format!("--data-dir={}", data.display()))
        .arg("--name=testbed")
        .arg(format!("--initial-cluster=testbed={peer}"))
        .arg(format!("--initial-advertise-peer-urls={peer}"));
    run("restore a snapshot", restore)
}

fn run(doing: &'static str, mut command: Command) -> Result<(), Error> {
    let output = command.output().map_err(|source| Error::Spawn {
        program: "etcdctl (Debian: etcd-client)".to_owned(),
        source,
    })?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Error::Etcd {
            doing,
            answer: String::from_utf8_lossy(&output.stderr).into_owned(),
        }),
    }
}

/// Whether this etcd cannot report a watch's progress on request (before 3.4.31 and 3.5.13).
///
/// With such an etcd, kube-apiserver fails every watch that begins at version 0 and allows bookmarks, unless its
/// feature `WatchList` is off.
pub(crate) fn lacks_watch_progress(program: &Path) -> bool {
    let output = Command::new(program).arg("--version").output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    version(&String::from_utf8_lossy(&text)).is_none_or(is_too_old)
}

fn version(text: &str) -> Option<(u16, u16, u16)> {
    let version = text
        .split_once("etcd Version: ")?
        .1
        .split_whitespace()
        .next()?;
    let mut numbers = version.split(['.', '-']).map(str::parse);
    Some((
        numbers.next()?.ok()?,
        numbers.next()?.ok()?,
        numbers.next()?.ok()?,
    ))
}

fn is_too_old(version: (u16, u16, u16)) -> bool {
    version < (3, 4, 31) || ((3, 5, 0)..(3, 5, 13)).contains(&version)
}

pub(crate) async fn wait_until_healthy(
    etcd: &mut Component,
    port: u16,
    patience: Duration,
) -> Result<(), Error> {
    let healthy = async {
        loop {
            etcd.check()?;
            if revision(port).await.is_ok() {
                return Ok(());
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    match timeout(patience, healthy).await {
        Ok(result) => result,
        Err(_) => Err(etcd.not_ready(patience)),
    }
}

/// Forgets everything older than now, and returns the revision that is the oldest left.
pub(crate) async fn compact(port: u16) -> Result<i64, Error> {
    let revision = revision(port).await?;
    let order = json!({ "revision": revision, "physical": true });
    match post(port, "compact", "/v3/kv/compaction", &order).await {
        Err(Error::Etcd { answer, .. }) if answer.contains("revision has been compacted") => {
            Ok(revision)
        }
        outcome => outcome.map(|_| revision),
    }
}

async fn revision(port: u16) -> Result<i64, Error> {
    let doing = "say its revision";
    let answer = post(
        port,
        doing,
        "/v3/kv/range",
        &json!({ "key": STANDARD.encode("none") }),
    )
    .await?;
    let revision = answer["header"]["revision"]
        .as_str()
        .and_then(|text| text.parse().ok());
    revision.ok_or_else(|| Error::Etcd {
        doing,
        answer: answer.to_string(),
    })
}

/// One request to etcd's JSON gateway, in HTTP/1.0 so that the answer ends with the connection.
async fn post(port: u16, doing: &'static str, path: &str, body: &Value) -> Result<Value, Error> {
    let failed = |answer: String| Error::Etcd { doing, answer };
    let body = body.to_string();
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let exchange = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = timeout(Duration::from_secs(10), exchange)
        .await
        .map_err(|_| failed("no answer within 10 s".to_owned()))?
        .map_err(|error| failed(error.to_string()))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if !head
        .lines()
        .next()
        .is_some_and(|status| status.contains(" 200 "))
    {
        return Err(failed(answer));
    }
    serde_json::from_str(body).map_err(|error| failed(format!("{error}: {body}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_what_etcd_prints() {
        assert_eq!(
            version("etcd Version: 3.4.23\nGit SHA: Not provided\n"),
            Some((3, 4, 23))
        );
        assert_eq!(version("etcd Version: 3.6.0-rc.1\n"), Some((3, 6, 0)));
        assert_eq!(version("something else"), None);
    }

    #[test]
    fn etcd_reports_progress_from_3_4_31_and_3_5_13_on() {
        assert!(
            [(3, 4, 23), (3, 4, 30), (3, 5, 0), (3, 5, 12)]
                .into_iter()
                .all(is_too_old)
        );
        assert!(
            ![(3, 4, 31), (3, 5, 13), (3, 6, 0)]
                .into_iter()
                .any(is_too_old)
        );
    }
}
