//! The images that the Pods run, made here once.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use image::{File, Image};

/// soloist and its child in one image, as a user's own image has it.
pub(crate) const BOTH: &str = "testbed.local/soloist-and-child:1";
/// soloist's own image.
pub(crate) const SOLOIST: &str = "testbed.local/soloist:1";
/// soloist and a server of HTTP and gRPC that is made with its SDK.
pub(crate) const WEB: &str = "testbed.local/web:1";
/// A user's image that has never heard of soloist.
pub(crate) const STOCK: &str = "testbed.local/stock:1";

/// Names that stand in the documents and in deploy/.
const OF_THE_DOCUMENTS: [(&str, &str); 3] = [
    ("docker.io/library/soloist:0.1.0", "soloist"),
    ("docker.io/library/my-program:1", "my-program"),
    ("docker.io/library/feed:1", "feed"),
];

/// The program, built here for these images.
pub(crate) fn soloist() -> PathBuf {
    programs().join("soloist")
}

fn programs() -> &'static Path {
    static PROGRAMS: LazyLock<PathBuf> = LazyLock::new(|| image::build_static(checkout()).unwrap());
    &PROGRAMS
}

pub(crate) fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// All of them, as docker-archives.
pub(crate) fn all() -> &'static [Vec<u8>] {
    static ALL: LazyLock<Vec<Vec<u8>>> = LazyLock::new(make);
    &ALL
}

fn make() -> Vec<Vec<u8>> {
    let read = |name: &str| fs::read(programs().join(name)).unwrap();
    let (soloist, child) = (read("soloist"), read("soloist-test-child"));
    let web = image::build_static_package(checkout(), "web").unwrap();
    let web = fs::read(web.join("web")).unwrap();
    assert!(
        soloist.len() < 9_000_000,
        "the static program has {} bytes",
        soloist.len()
    );
    let file = |path: &str, content: &[u8]| File {
        path: path.to_owned(),
        content: content.to_owned(),
    };
    let archive = |name: &str, files: Vec<File>| {
        let image = Image {
            name: name.to_owned(),
            entrypoint: vec![format!("/{}", files[0].path)],
            files,
            user: Some(65532),
            created: 0,
            labels: Vec::new(),
        };
        image.docker_archive()
    };
    let mut all = vec![
        archive(BOTH, vec![file("soloist", &soloist), file("child", &child)]),
        archive(WEB, vec![file("soloist", &soloist), file("web", &web)]),
        archive(SOLOIST, vec![file("soloist", &soloist)]),
        archive(STOCK, vec![file("child", &child)]),
    ];
    for (name, path) in OF_THE_DOCUMENTS {
        let content = if path == "soloist" { &soloist } else { &child };
        all.push(archive(name, vec![file(path, content)]));
    }
    all
}
