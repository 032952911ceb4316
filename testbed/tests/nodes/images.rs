//! The images that the Pods run, made here once.

use std::{fs, path::Path, sync::LazyLock};

use image::{File, Image};

/// soloist and its child in one image, as a user's own image has it.
pub(crate) const BOTH: &str = "testbed.local/soloist-and-child:1";
/// soloist's own image.
pub(crate) const SOLOIST: &str = "testbed.local/soloist:1";
/// A user's image that has never heard of soloist.
pub(crate) const STOCK: &str = "testbed.local/stock:1";

/// All of them, as docker-archives.
pub(crate) fn all() -> &'static [Vec<u8>] {
    static ALL: LazyLock<Vec<Vec<u8>>> = LazyLock::new(make);
    &ALL
}

fn make() -> Vec<Vec<u8>> {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let programs = image::build_static(checkout).unwrap();
    let read = |name: &str| fs::read(programs.join(name)).unwrap();
    let (soloist, child) = (read("soloist"), read("soloist-test-child"));
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
    vec![
        archive(BOTH, vec![file("soloist", &soloist), file("child", &child)]),
        archive(SOLOIST, vec![file("soloist", &soloist)]),
        archive(STOCK, vec![file("child", &child)]),
    ]
}
