use std::fs;

use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::common::{Server, command, soon};

#[tokio::test]
async fn the_server_and_the_service_are_healthy() {
    let server = Server::start(&[]);
    let mut client = HealthClient::new(server.channel().await);
    for service in ["", "feed.v1.Feed"] {
        let service = service.to_owned();
        let answer = client.check(HealthCheckRequest { service });
        let answer = soon(answer).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving);
    }
}

#[tokio::test]
async fn reflection_lists_the_service() {
    let server = Server::start(&[]);
    let mut client = ServerReflectionClient::new(server.channel().await);
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let requests = futures_util::stream::iter([request]);
    let answers = soon(client.server_reflection_info(requests)).await.unwrap();
    let answer = soon(answers.into_inner().message()).await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(services)) = answer.message_response else {
        panic!("{answer:?}");
    };
    let names: Vec<_> = services.service.iter().map(|found| &*found.name).collect();
    assert!(names.contains(&"feed.v1.Feed"), "{names:?}");
    assert!(names.contains(&"grpc.health.v1.Health"), "{names:?}");
}

#[tokio::test]
async fn the_port_file_names_the_port() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("port");
    let server = Server::start(&["--port-file", file.to_str().unwrap()]);
    let port = fs::read_to_string(&file).unwrap();
    assert!(server.address.ends_with(&format!(":{}", port.trim_end())));
    assert!(port.ends_with('\n'));
}

#[test]
fn bad_usage_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    let no_pem = directory.path().join("no-pem");
    fs::write(&no_pem, "no certificate").unwrap();
    let no_pem = no_pem.to_str().unwrap();
    for (flags, code, expected) in [
        (&["--payload-size", "7"][..], 1, "--payload-size"),
        (&["--drain-delay", "15"], 2, "write it as 15s"),
        (&["--refuse", "OK"], 2, "UNAVAILABLE"),
        (
            &["--tls-cert", no_pem, "--tls-key", no_pem],
            1,
            "private key",
        ),
        (
            &["--tls-cert", "nowhere", "--tls-key", "nowhere"],
            1,
            "--tls-cert",
        ),
    ] {
        let ended = command(&store, flags).output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(code), "{said}");
        assert!(said.contains(expected), "{said}");
        assert!(ended.stdout.is_empty(), "it does not say that it listens");
    }
}
