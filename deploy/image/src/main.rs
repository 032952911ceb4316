//! `image`: soloist's container image from this checkout.

#![forbid(unsafe_code)]

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::Parser;
use image::{File, Image};

/// Nobody's, as images without a shell have it.
const USER: u32 = 65532;

/// Makes soloist's container image: nothing but the static program, run as user 65532.
///
/// DIR gets `soloist.tar` (for `docker load`, `podman load`, `ctr images import`) and `oci` (an OCI layout, for skopeo, crane and buildah). The same
/// commit gives the same bytes with the same toolchain, wherever the checkout is.
#[derive(Debug, Parser)]
#[command(name = "image", version, max_term_width = 100)]
struct Arguments {
    /// Where to
    #[arg(long, value_name = "DIR", default_value = "target/image")]
    out: PathBuf,
    /// The image's name
    #[arg(long, default_value = "soloist:latest")]
    name: String,
    /// Put this program into the image instead of building it
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .context("no checkout above this crate")?;
    let program = match arguments.program {
        Some(program) => program,
        None => image::build_static(checkout)?.join("soloist"),
    };
    let content =
        fs::read(&program).with_context(|| format!("cannot read {}", program.display()))?;
    image::ensure_static(&content)
        .with_context(|| format!("{} would not start in an empty image", program.display()))?;
    let image = Image {
        name: arguments.name,
        files: vec![File {
            path: "soloist".to_owned(),
            content,
        }],
        entrypoint: vec!["/soloist".to_owned()],
        user: Some(USER),
        created: image::commit_time(checkout)?,
        labels: vec![
            (
                "org.opencontainers.image.licenses".to_owned(),
                env!("CARGO_PKG_LICENSE").to_owned(),
            ),
            (
                "org.opencontainers.image.revision".to_owned(),
                image::commit(checkout, "%H")?,
            ),
            (
                "org.opencontainers.image.title".to_owned(),
                "soloist".to_owned(),
            ),
            (
                "org.opencontainers.image.version".to_owned(),
                env!("CARGO_PKG_VERSION").to_owned(),
            ),
        ],
    };
    let (archive, layout) = (arguments.out.join("soloist.tar"), arguments.out.join("oci"));
    let written = "cannot write the image";
    fs::create_dir_all(&arguments.out).context(written)?;
    if layout.join("oci-layout").exists() {
        fs::remove_dir_all(&layout).context(written)?;
    }
    let bytes = image.docker_archive();
    fs::write(&archive, &bytes).context(written)?;
    image.oci_layout().write(&layout).context(written)?;
    println!("{} ({:.1} MB)", archive.display(), bytes.len() as f64 / 1e6);
    println!("{}", layout.display());
    Ok(())
}
