//! Generates the messages, the client and the server from the proto file. Needs no protoc.

use std::path::PathBuf;
use std::{env, error, fs};

use prost::Message;

fn main() -> Result<(), Box<dyn error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(["feed.proto"], ["proto"])?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    fs::write(out.join("feed.bin"), descriptors.encode_to_vec())?;

    tonic_prost_build::configure()
        .build_server(false)
        .bytes(".")
        .compile_fds(descriptors.clone())?;

    // The server has its own type for what it sends: see `server::outgoing`.
    let server = out.join("server");
    fs::create_dir_all(&server)?;
    tonic_prost_build::configure()
        .build_client(false)
        .out_dir(server)
        .extern_path(".feed.v1", "crate::proto")
        .extern_path(".feed.v1.Message", "crate::server::Outgoing")
        .compile_fds(descriptors)?;
    Ok(())
}
