//! What is in the image, and that nothing else decides it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::{fs, process::Command};

use image::{File, Image};

fn image() -> Image {
    Image {
        name: "soloist:test".to_owned(),
        files: vec![
            File {
                path: "soloist".to_owned(),
                content: b"program".to_vec(),
            },
            File {
                path: "etc/more/file".to_owned(),
                content: b"more".to_vec(),
            },
        ],
        entrypoint: vec!["/soloist".to_owned()],
        user: Some(65532),
        created: 1_735_689_599,
        labels: vec![("a".to_owned(), "b".to_owned())],
    }
}

#[test]
fn the_same_content_gives_the_same_bytes() {
    assert_eq!(image().docker_archive(), image().docker_archive());
    assert_eq!(image().oci_layout(), image().oci_layout());
}

#[test]
fn the_order_in_which_files_are_given_changes_nothing() {
    let mut other = image();
    other.files.reverse();
    assert_eq!(image().docker_archive(), other.docker_archive());
}

#[test]
fn tar_reads_the_archive_and_its_layer() {
    let folder = tempfile::tempdir().unwrap();
    let tar = |arguments: &[&str]| {
        let output = Command::new("tar")
            .args(arguments)
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    fs::write(folder.path().join("image.tar"), image().docker_archive()).unwrap();
    let names = tar(&["-xvf", "image.tar"]);
    let layer = names.lines().find(|name| name.ends_with(".tar")).unwrap();
    let listed = tar(&["--utc", "-tvf", layer]);
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 4, "{listed}");
    assert!(
        lines[3].starts_with("-rwxr-xr-x 0/0") && lines[3].ends_with("2024-12-31 23:59 soloist"),
        "{listed}"
    );
}

#[test]
fn every_blob_of_the_layout_is_named_by_its_digest_and_linked_from_the_index() {
    let layout = image().oci_layout();
    let text = |path: &str| {
        let blob = layout.0.iter().find(|blob| blob.path.ends_with(path));
        String::from_utf8_lossy(&blob.unwrap().content).into_owned()
    };
    let digest = |json: &str, at: &str| {
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        value
            .pointer(at)
            .unwrap()
            .as_str()
            .unwrap()
            .trim_start_matches("sha256:")
            .to_owned()
    };
    let manifest = text(&digest(&text("index.json"), "/manifests/0/digest"));
    let config = text(&digest(&manifest, "/config/digest"));
    assert!(config.contains(r#""User":"65532:65532""#), "{config}");
    let layer = digest(&manifest, "/layers/0/digest");
    assert_eq!(layer, digest(&config, "/rootfs/diff_ids/0"));
    assert!(
        layout
            .0
            .iter()
            .any(|blob| blob.path == format!("blobs/sha256/{layer}"))
    );
}

#[test]
fn a_program_that_needs_a_dynamic_loader_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_image"))
        .args(["--program", "/bin/sh", "--out"])
        .arg(folder.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && errors.contains("not a static program"),
        "{errors}"
    );
}
