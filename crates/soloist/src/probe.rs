//! Looking at a child from outside: a command, a connection, an HTTP answer, gRPC health.

use std::fmt;
use std::process::{ExitStatus, Stdio};
use std::str::FromStr;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use soloist_process::{OwnChild, own_child};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// A way to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// A shell command that exits 0.
    Exec(String),
    /// An address that accepts a connection.
    Tcp(String),
    /// A URL that answers with a status below 400.
    Http { address: String, path: String },
    /// A server that says SERVING by the gRPC health protocol, for one service or for all.
    Grpc { address: String, service: String },
}

impl FromStr for Probe {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a probe: write exec:COMMAND, tcp:HOST:PORT, http://HOST:PORT/PATH or grpc:HOST:PORT[/SERVICE]"
            )
        };
        if let Some(command) = text.strip_prefix("exec:") {
            return match command.trim() {
                "" => Err(wrong()),
                command => Ok(Self::Exec(command.to_owned())),
            };
        }
        if let Some(address) = text.strip_prefix("tcp:") {
            return Ok(Self::Tcp(with_port(address).ok_or_else(wrong)?));
        }
        if let Some(rest) = text.strip_prefix("grpc:") {
            let (address, service) = rest.split_once('/').unwrap_or((rest, ""));
            return Ok(Self::Grpc {
                address: with_port(address).ok_or_else(wrong)?,
                service: service.to_owned(),
            });
        }
        let rest = text.strip_prefix("http://").ok_or_else(wrong)?;
        let (address, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, "/"),
        };
        Ok(Self::Http {
            address: with_port(address).ok_or_else(wrong)?,
            path: path.to_owned(),
        })
    }
}

fn with_port(address: &str) -> Option<String> {
    let (host, port) = address.rsplit_once(':')?;
    let plain = !host.is_empty() && !address.contains(char::is_whitespace);
    (plain && port.parse::<u16>().is_ok_and(|port| port > 0)).then(|| address.to_owned())
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exec(command) => write!(f, "exec:{command}"),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Http { address, path } => write!(f, "http://{address}{path}"),
            Self::Grpc { address, service } if service.is_empty() => write!(f, "grpc:{address}"),
            Self::Grpc { address, service } => write!(f, "grpc:{address}/{service}"),
        }
    }
}

impl Probe {
    /// Looks once; the error says what was seen.
    pub(crate) async fn look(&self, limit: Duration) -> Result<(), String> {
        match timeout(limit, self.try_once()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(format!(
                "no answer within {}",
                soloist_core::time::Human(limit)
            )),
        }
    }

    async fn try_once(&self) -> Result<(), String> {
        match self {
            Self::Exec(command) => exec(command).await,
            Self::Tcp(address) => connect(address).await.map(drop),
            Self::Http { address, path } => http(address, path).await,
            Self::Grpc { address, service } => grpc(address, service).await,
        }
    }
}

async fn exec(command: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("the check cannot be run: {error}");
    let mut shell = tokio::process::Command::new("sh");
    shell
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    let started = own_child(|| shell.spawn(), tokio::process::Child::id).map_err(failed)?;
    let mut check = Check(Some(started));
    let status = check.wait().await.map_err(failed)?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("the check ended with {status}")),
    }
}

/// A command that runs. One that takes too long is killed, with all that it started, and stays ours until it is reaped.
struct Check(Option<(tokio::process::Child, OwnChild)>);

impl Check {
    async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        let status = match &mut self.0 {
            Some((child, _)) => child.wait().await?,
            None => return Err(std::io::ErrorKind::NotFound.into()),
        };
        self.0 = None;
        Ok(status)
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        let Some((mut child, ours)) = self.0.take() else {
            return;
        };
        let group = child.id().and_then(|pid| i32::try_from(pid).ok());
        if let Some(group) = group.and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = child.wait().await;
                drop(ours);
            });
        }
    }
}

async fn connect(address: &str) -> Result<TcpStream, String> {
    TcpStream::connect(address)
        .await
        .map_err(|error| format!("cannot connect to {address}: {error}"))
}

async fn http(address: &str, path: &str) -> Result<(), String> {
    let mut stream = connect(address).await?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: soloist\r\nConnection: close\r\n\r\n"
    );
    let broken = |error: std::io::Error| format!("the connection to {address} broke: {error}");
    stream.write_all(request.as_bytes()).await.map_err(broken)?;
    let mut answer = Vec::new();
    // The status line is all we want; what follows may be long.
    while answer.len() < 1024 && !answer.contains(&b'\n') {
        let mut part = [0; 256];
        match stream.read(&mut part).await.map_err(broken)? {
            0 => break,
            read => answer.extend_from_slice(&part[..read]),
        }
    }
    let line = String::from_utf8_lossy(&answer);
    let status = line
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split_whitespace().nth(1))
        .and_then(|status| status.parse::<u16>().ok());
    match status {
        Some(200..400) => Ok(()),
        Some(status) => Err(format!("http://{address}{path} answered {status}")),
        None => Err(format!("{address} does not speak HTTP")),
    }
}

async fn grpc(address: &str, service: &str) -> Result<(), String> {
    let refused = |error: &dyn std::error::Error| format!("cannot connect to {address}: {error}");
    let channel = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|error| refused(&error))?
        .connect()
        .await
        .map_err(|error| refused(&error))?;
    let mut client = HealthClient::new(channel);
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    let answer = client.check(request).await;
    match answer.map(|answer| answer.into_inner().status()) {
        Ok(ServingStatus::Serving) => Ok(()),
        Ok(status) => Err(format!("{address} says {}", status.as_str_name())),
        Err(status) => Err(format!("{address} does not tell its health: {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    const LIMIT: Duration = Duration::from_secs(5);

    #[test]
    fn probes_are_written_as_the_help_says() {
        for text in [
            "exec:test -f x",
            "tcp:localhost:1",
            "http://[::1]:80/ready?x=1",
            "grpc:a:1",
            "grpc:a:1/x.Y",
        ] {
            assert_eq!(text.parse::<Probe>().unwrap().to_string(), text);
        }
        let root: Probe = "http://a:1".parse().unwrap();
        assert_eq!(root.to_string(), "http://a:1/");
        for wrong in [
            "",
            "exec:",
            "exec: ",
            "tcp:a",
            "tcp::1",
            "tcp:a:0",
            "tcp:a:x",
            "https://a:1/",
            "http:///x",
            "grpc:a",
        ] {
            assert!(wrong.parse::<Probe>().is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_command_passes_by_its_exit_code() {
        let look = async |command: &str| Probe::Exec(command.into()).look(LIMIT).await;
        assert_eq!(look("exit 0").await, Ok(()));
        assert!(look("exit 3").await.unwrap_err().contains("exit status: 3"));
        let slow = Probe::Exec("sleep 60".into());
        let error = slow.look(Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(error, "no answer within 50ms");
    }

    #[tokio::test]
    async fn a_command_that_takes_too_long_stays_ours_until_it_is_reaped() {
        let shell = tokio::process::Command::new("sleep")
            .arg("60")
            .process_group(0)
            .spawn();
        let mut check = Check(Some(
            own_child(|| shell, tokio::process::Child::id).unwrap(),
        ));
        let slow = timeout(Duration::from_millis(50), check.wait()).await;
        assert!(slow.is_err());
        let pid = check.0.as_ref().and_then(|(child, _)| child.id()).unwrap();
        assert!(soloist_process::is_own_child(pid));
        drop(check);
        assert!(soloist_process::is_own_child(pid), "it is not reaped yet");
        let gone = async {
            while soloist_process::is_own_child(pid) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LIMIT, gone).await.unwrap();
        let left = std::path::PathBuf::from(format!("/proc/{pid}"));
        assert!(!left.exists(), "reaped before it was given up");
    }

    #[tokio::test]
    async fn grpc_health_passes_when_it_says_serving() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (reporter, service) = tonic_health::server::health_reporter();
        let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
        let server = tonic::transport::Server::builder().add_service(service);
        let server = tokio::spawn(server.serve_with_incoming(incoming));
        let probe: Probe = format!("grpc:{address}/feed").parse().unwrap();
        let error = probe.look(LIMIT).await.unwrap_err();
        assert!(error.contains("does not tell its health"), "{error}");
        let status = |status| reporter.set_service_status("feed", status);
        status(tonic_health::ServingStatus::Serving).await;
        assert_eq!(probe.look(LIMIT).await, Ok(()));
        status(tonic_health::ServingStatus::NotServing).await;
        let error = probe.look(LIMIT).await.unwrap_err();
        assert!(error.contains("NOT_SERVING"), "{error}");
        server.abort();
    }

    #[tokio::test]
    async fn an_http_answer_passes_by_its_status() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serve = async |answer: &'static str| {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 512];
            let read = stream.read(&mut request).await.unwrap();
            assert!(request[..read].starts_with(b"GET /ready HTTP/1.1\r\n"));
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        let probe: Probe = format!("http://{address}/ready").parse().unwrap();
        for (answer, passes) in [
            ("HTTP/1.1 200 OK\r\n\r\n", true),
            ("HTTP/1.0 302 Found\r\n\r\n", true),
            ("HTTP/1.1 503 No\r\n\r\n", false),
            ("SSH-2.0-x\r\n", false),
        ] {
            let (seen, ()) = tokio::join!(probe.look(LIMIT), serve(answer));
            assert_eq!(seen.is_ok(), passes, "{answer}: {seen:?}");
        }
        let nobody: Probe = "http://127.0.0.1:1/".parse().unwrap();
        let error = nobody.look(LIMIT).await.unwrap_err();
        assert!(error.contains("cannot connect"), "{error}");
    }
}
