//! What is wrong from outside: the worker ends with a code and says in words what is wrong, or waits and says so.
//!
//! 2: it cannot begin; 1: it cannot go on.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use feed::output::Output;
use feed::payload::DEFAULT_SEED;
use feed::verify;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustix::process::Signal;
use soloist_worker::{Term, Token};

use crate::stage::{Stage, send, wait_for};

#[test]
fn an_address_that_is_none_is_refused() {
    let stage = Stage::new();
    for (address, reason) in [
        ("feed:50051", "it does not begin with http:// or https://"),
        ("ftp://feed:50051", "ftp:// is not spoken here"),
        ("http://feed:70000", "its port is no number from 1 to 65535"),
    ] {
        let mut worker = Worker::start(&stage, &["--server", address]);
        let said = worker.end(2);
        let text = format!("feed-worker: {address:?} is no address of a gRPC server: {reason}; ");
        assert!(said.contains(&text), "{said}");
    }
}

#[test]
fn a_port_where_nobody_listens_is_tried_again_until_the_worker_is_told_to_stop() {
    let stage = Stage::new();
    let mut worker = Worker::start(&stage, &["--backoff=100ms"]);
    let reason = format!("no connection to http://{}", stage.address());
    for wait in ["100ms", "200ms", "400ms"] {
        let text = format!("trying again in {wait}");
        wait_for(&text, || worker.said().contains(&text).then_some(()));
    }
    send(worker.process.id(), Signal::TERM);
    let said = worker.end(0);
    assert!(
        said.contains(&reason) && said.contains("Connection refused"),
        "{said}"
    );
    assert!(
        said.contains("there was no connection: 0 received"),
        "{said}"
    );
}

#[test]
fn a_server_with_a_certificate_of_another_authority_is_not_trusted() {
    let mut stage = Stage::new();
    let [ours, theirs] = ["ours", "theirs"].map(|name| stage.path(name));
    let [_, _, our_ca] = certificates(&ours);
    let [certificate, key, their_ca] = certificates(&theirs);
    let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
    let [certificate, key] = [flag("tls-cert", &certificate), flag("tls-key", &key)];
    stage.start_server(&[&certificate, &key, "--messages=3"]);
    let server = format!("--server=https://{}", stage.address());
    let name = "--server-name=localhost";

    let mut worker = Worker::start(&stage, &[&server, name, &flag("ca", &our_ca)]);
    let said = worker.end(1);
    let text = format!(
        "the certificate of https://{} is not trusted",
        stage.address()
    );
    assert!(said.contains(&text), "{said}");
    assert_eq!(stage.lines(), 0);

    let trusted = flag("ca", &their_ca);
    let mut worker = Worker::start(&stage, &[&server, &trusted, "--server-name=elsewhere"]);
    assert!(worker.end(1).contains(&text));
    let mut worker = Worker::start(&stage, &[&server, &trusted, name]);
    stage.wait_lines(3);
    send(worker.process.id(), Signal::TERM);
    worker.end(0);
}

#[test]
fn a_ca_that_cannot_be_read_is_refused() {
    let stage = Stage::new();
    let server = format!("--server=https://{}", stage.address());
    let ca = stage.path("ca.pem");
    let flag = format!("--ca={}", ca.display());
    let text = format!("the CA certificate cannot be read from {}: ", ca.display());
    let mut worker = Worker::start(&stage, &[&server, &flag]);
    let said = worker.end(2);
    let missing = format!("{text}No such file or directory");
    assert!(said.contains(&missing), "{said}");

    fs::write(&ca, "no certificate\n").unwrap();
    let mut worker = Worker::start(&stage, &[&server, &flag]);
    let said = worker.end(2);
    let empty = format!("{text}there is no PEM certificate in it");
    assert!(said.contains(&empty), "{said}");

    let mut worker = Worker::start(&stage, &[&flag]);
    let said = worker.end(2);
    assert!(said.contains("has TLS settings but no TLS"), "{said}");
}

#[test]
fn a_server_that_speaks_no_grpc_is_named() {
    let stage = Stage::new();
    let listener = TcpListener::bind(stage.address()).unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut worker = Worker::start(&stage, &[]);
    // An answer that comes before the request is not seen: the client connects once more.
    wait_for("the worker's end", || {
        while let Ok((stream, _)) = listener.accept() {
            thread::spawn(move || answer_http1(stream));
        }
        worker.process.try_wait().unwrap()
    });
    let said = worker.end(1);
    let text = format!(
        "http://{} speaks no gRPC: its answer is not HTTP/2; is this the right port",
        stage.address()
    );
    assert!(said.contains(&text), "{said}");
}

fn answer_http1(mut stream: TcpStream) {
    let _ = stream.read(&mut [0; 1024]);
    let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n");
    // To close at once with something unread would be a reset, and the answer might be lost.
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn a_message_that_cannot_be_read_ends_the_worker_after_the_ones_before_it() {
    for (flag, text) in [
        ("--malformed-at=3", "failed to decode Protobuf message: "),
        (
            "--oversized-at=3",
            "raise max_decoding_message_size of the client",
        ),
    ] {
        let mut stage = Stage::new();
        stage.start_server(&[flag]);
        let mut worker = Worker::start(&stage, &[]);
        let said = worker.end(1);
        assert!(said.contains(text), "{said}");
        let report = verify::file(&stage.output(), DEFAULT_SEED, Some(2)).unwrap();
        assert!(report.findings.is_empty() && report.lines == 2, "{report}");
    }
}

#[test]
fn an_output_that_another_process_holds_is_left_alone() {
    let stage = Stage::new();
    let path = stage.output();
    let _held = Output::open(&path, Token::new(1), Term::new(1)).unwrap();
    let mut worker = Worker::start(&stage, &[]);
    let said = worker.end(2);
    let text = format!(
        "feed-worker: two at once: another process holds the output {}",
        path.display()
    );
    assert!(said.contains(&text), "{said}");
}

#[test]
fn an_output_of_a_later_leader_is_left_alone() {
    let stage = Stage::new();
    let path = stage.output();
    let mut output = Output::open(&path, Token::new(8), Term::new(2)).unwrap();
    output.append(1, b"later").unwrap();
    drop(output);
    let before = fs::read(&path).unwrap();
    let mut worker = Worker::start(&stage, &[]);
    let said = worker.end(2);
    assert!(
        said.contains("has lines of token 8, and ours is 7"),
        "{said}"
    );
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn an_output_that_cannot_be_written_is_named() {
    let stage = Stage::new();
    let nowhere = stage.path("no/folder/output");
    // Root may write everywhere, but not into a folder as if it were a file.
    let folder = stage.path("folder");
    fs::create_dir(&folder).unwrap();
    for (path, reason) in [
        (nowhere, "No such file or directory"),
        (folder, "Is a directory"),
    ] {
        let flag = format!("--output={}", path.display());
        let mut worker = Worker::begin(&stage, &[&flag], |_| {});
        let said = worker.end(2);
        let text = format!(
            "feed-worker: cannot open the output {}: {reason}",
            path.display()
        );
        assert!(said.contains(&text), "{said}");
    }
}

#[test]
fn a_worker_without_soloist_says_how_to_run_it() {
    let stage = Stage::new();
    let output = format!("--output={}", stage.output().display());
    let mut worker = Worker::begin(&stage, &[&output], |command| {
        command.env_remove("SOLOIST_TOKEN");
    });
    let said = worker.end(2);
    assert!(said.contains("there is no SOLOIST_TOKEN"), "{said}");
    assert!(said.contains("soloist run -- feed-worker"), "{said}");

    let mut worker = Worker::begin(&stage, &[&output], |command| {
        command.env("SOLOIST_TOKEN", "seven");
    });
    let said = worker.end(2);
    let text = "SOLOIST_TOKEN is \"seven\", but must be a whole number; soloist sets it";
    assert!(said.contains(text), "{said}");
    assert!(!stage.output().exists());
}

/// A feed-worker in a term of our own making. It names the stage's folder, and so ends with the stage.
struct Worker {
    process: Child,
    log: PathBuf,
}

impl Worker {
    /// On the stage's output and, unless told otherwise, its server.
    fn start(stage: &Stage, arguments: &[&str]) -> Self {
        let output = format!("--output={}", stage.output().display());
        let server = format!("--server=http://{}", stage.address());
        let is_server = |argument: &&str| argument.starts_with("--server=");
        let server = match arguments.iter().any(is_server) || arguments.contains(&"--server") {
            true => None,
            false => Some(server.as_str()),
        };
        let arguments = arguments.iter().copied().chain(server).chain([&*output]);
        Self::begin(stage, &arguments.collect::<Vec<_>>(), |_| {})
    }

    fn begin(stage: &Stage, arguments: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let log = stage.path("worker.log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_feed-worker"));
        command
            .args(arguments)
            .env("SOLOIST_NAME", "feed")
            .env("SOLOIST_IDENTITY", "alone")
            .env("SOLOIST_TERM", "1")
            .env("SOLOIST_TOKEN", "7")
            .env("SOLOIST_STOP_SECONDS", "2")
            .env("SOLOIST_DRAIN_SECONDS", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap());
        change(&mut command);
        let process = command.spawn().unwrap();
        Self { process, log }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Waits for its end, which must be with this code. What it has said.
    fn end(&mut self, code: i32) -> String {
        let process = &mut self.process;
        let ended = wait_for("the worker's end", || process.try_wait().unwrap());
        let said = self.said();
        assert_eq!(ended.code(), Some(code), "{said}");
        said
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A certificate for localhost, its key and the authority that signed it, as files in a new folder.
fn certificates(folder: &Path) -> [PathBuf; 3] {
    let ca_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let name = folder.display().to_string();
    params.distinguished_name.push(DnType::CommonName, name);
    let ca = params.self_signed(&ca_key).unwrap();
    let issuer = Issuer::new(params, ca_key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    fs::create_dir(folder).unwrap();
    let texts = [certificate.pem(), key.serialize_pem(), ca.pem()];
    let paths = ["certificate", "key", "ca"].map(|name| folder.join(name));
    for (path, text) in paths.iter().zip(texts) {
        fs::write(path, text).unwrap();
    }
    paths
}
