//! Credentials that a command gives, as on EKS and GKE.
//!
//! They are kept apart from connections: a new connection asks for none, and the command runs again, beside the requests, before what
//! it gave ends and when the server does not accept it. However slow it is, no request waits for it but the first.

use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kube::config::{AuthInfo, ExecConfig};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tracing::{debug, warn};

use super::authorization;
use super::connection::Own;
use crate::clock::{self, Timer};
use crate::repeats::Repeats;
use soloist_core::time::Moment;

/// A command that takes longer than this has hung.
const LIMIT: Duration = Duration::from_secs(60);
/// Between two runs, whatever the server says.
const PAUSE: Duration = Duration::from_secs(5);

/// What a command gave.
#[derive(Debug)]
pub(super) struct Credential {
    token: Option<String>,
    /// Certificate and key, as PEM.
    identity: Option<(String, String)>,
    ends_in: Option<Duration>,
}

impl Credential {
    /// Puts it where a connection that is made looks for it.
    pub(super) fn put_into(&self, auth: &mut AuthInfo) {
        auth.token = self.token.clone().map(Into::into);
        if let Some((certificate, key)) = &self.identity {
            auth.client_certificate_data = Some(STANDARD.encode(certificate));
            auth.client_key_data = Some(STANDARD.encode(key).into());
        }
    }

    /// With a fifth of its life left.
    pub(super) fn refresh_at(&self, now: Moment) -> Moment {
        let ends_in = self.ends_in.map(|left| left * 4 / 5);
        ends_in.map_or(Moment::NEVER, |left| now + left)
    }
}

/// Takes the command out of a configuration whose credentials it gives.
pub(super) fn take(auth: &mut AuthInfo) -> Option<ExecConfig> {
    let others = authorization::token(auth).is_some()
        || auth
            .token_file
            .as_ref()
            .is_some_and(|path| !path.is_empty())
        || (auth.username.is_some() && auth.password.is_some());
    match others {
        true => None,
        false => auth.exec.take(),
    }
}

/// Runs the command, on a thread of its own: a runtime that ends does not wait for it.
pub(super) async fn run(exec: ExecConfig) -> Result<Credential, String> {
    let (sender, answer) = oneshot::channel();
    let work = move || drop(sender.send(run_here(&exec)));
    let thread = thread::Builder::new().name("credentials".into());
    thread
        .spawn(work)
        .map_err(|error| format!("no thread for the command: {error}"))?;
    tokio::select! {
        answer = answer => answer.map_err(|_| "the thread of the command died".to_owned())?,
        slept = clock::sleep(LIMIT) => {
            slept.map_err(|error| format!("no timer: {error}"))?;
            Err(format!("the command has not ended within {} s", LIMIT.as_secs()))
        }
    }
}

fn run_here(exec: &ExecConfig) -> Result<Credential, String> {
    let program = exec.command.as_deref().ok_or("it names no command")?;
    let mut command = Command::new(program);
    command.args(exec.args.iter().flatten());
    for variable in exec.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            command.env(name, value);
        }
    }
    let cluster = exec.cluster.as_ref().filter(|_| exec.provide_cluster_info);
    let asked = json!({
        "apiVersion": exec.api_version,
        "kind": "ExecCredential",
        "spec": {"interactive": false, "cluster": cluster},
    });
    command
        .env("KUBERNETES_EXEC_INFO", asked.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let failed = |error: io::Error| {
        let hint = exec.install_hint.as_deref().unwrap_or_default();
        format!("cannot run {program}: {error}. {hint}")
    };
    let mut child = command.spawn().map_err(failed)?;
    let mut said = String::new();
    if let Some(output) = &mut child.stdout {
        output.read_to_string(&mut said).map_err(failed)?;
    }
    // In a process that reaps all children, somebody else may have heard how it ended.
    if let Ok(status) = child.wait()
        && !status.success()
    {
        return Err(format!("{program} failed: {status}"));
    }
    parse(&said).map_err(|reason| format!("what {program} says is no credential: {reason}"))
}

fn parse(said: &str) -> Result<Credential, String> {
    let said: Value = serde_json::from_str(said).map_err(|error| error.to_string())?;
    let text = |name: &str| Some(said.get("status")?.get(name)?.as_str()?.to_owned());
    let ends = text("expirationTimestamp")
        .map(|ends| ends.parse::<Timestamp>())
        .transpose()
        .map_err(|error| error.to_string())?;
    let left = ends.map(|ends| ends.duration_since(Timestamp::now()));
    let credential = Credential {
        token: text("token"),
        identity: text("clientCertificateData").zip(text("clientKeyData")),
        ends_in: left.map(|left| Duration::try_from(left).unwrap_or_default()),
    };
    match (&credential.token, &credential.identity) {
        (None, None) => Err("there is neither a token nor a certificate in its status".into()),
        _ => Ok(credential),
    }
}

/// Runs the command again when what it gave is about to end, and when the server does not accept it.
pub(super) async fn keep_fresh(connection: Weak<Own>, exec: ExecConfig, first: Moment) {
    let Ok(mut timer) = Timer::new() else {
        return;
    };
    let mut refresh_at = first;
    let mut repeats = Repeats::default();
    while let Some(wanted) = connection.upgrade().map(|own| Arc::clone(&own.refresh)) {
        // However often the server says no, and however short what it gives lives.
        let _ = timer.until(clock::now() + PAUSE).await;
        tokio::select! {
            () = wanted.notified() => {}
            _ = timer.until(refresh_at) => {}
        }
        if connection.strong_count() == 0 {
            return;
        }
        let credential = run(exec.clone()).await;
        let Some(own) = connection.upgrade() else {
            return;
        };
        match credential {
            Ok(credential) => {
                debug!("new credentials");
                refresh_at = credential.refresh_at(clock::now());
                own.accept(&credential);
            }
            Err(reason) => {
                refresh_at = clock::now() + PAUSE;
                if repeats.are_due(clock::now(), &reason) {
                    warn!("no new credentials for the API server: {reason}");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_asked_unless_something_else_is_said() {
        for (auth, is_asked) in [
            (r#"{"exec": {"command": "x"}}"#, true),
            (r#"{"exec": {"command": "x"}, "token": ""}"#, true),
            (r#"{"exec": {"command": "x"}, "username": "u"}"#, true),
            (r#"{"exec": {"command": "x"}, "token": "t"}"#, false),
            (r#"{"exec": {"command": "x"}, "tokenFile": "f"}"#, false),
            ("{}", false),
        ] {
            let mut parsed: AuthInfo = serde_json::from_str(auth).unwrap();
            assert_eq!(take(&mut parsed).is_some(), is_asked, "{auth}");
        }
    }

    #[test]
    fn a_credential_is_a_token_or_a_certificate_with_or_without_an_end() {
        let token = parse(r#"{"status": {"token": "t"}}"#).unwrap();
        assert_eq!(token.token.as_deref(), Some("t"));
        assert_eq!(token.refresh_at(clock::now()), Moment::NEVER);
        let both = r#"{"status": {"clientCertificateData": "c", "clientKeyData": "k", "expirationTimestamp": "2020-01-01T00:00:00Z"}}"#;
        let certificate = parse(both).unwrap();
        assert_eq!(certificate.identity, Some(("c".into(), "k".into())));
        assert_eq!(certificate.ends_in, Some(Duration::ZERO));
        for wrong in [
            "",
            "{}",
            r#"{"status": {}}"#,
            r#"{"status": {"token": "t", "expirationTimestamp": "soon"}}"#,
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
