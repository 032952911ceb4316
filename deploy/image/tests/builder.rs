//! `deploy/Dockerfile`, really built with buildah, gives what the program `image` makes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use serde_json::Value;

/// What the first line of the Dockerfile's builder names.
const COMPILER: &str = "docker.io/library/rust:1.95-bookworm";

/// Does what is asked of it, and notes how it was asked.
const CARGO: &str = r#"#!/bin/sh
set -eu
release=target/x86_64-unknown-linux-gnu/release
[ -f Cargo.toml ] && [ ! -e target/old ]
mkdir -p "$release"
cp /compiled "$release/soloist"
printf '%s\n%s\n' "$*" "$RUSTFLAGS"
"#;

/// buildah with a store of its own, which is removed at the end.
struct Buildah {
    folder: tempfile::TempDir,
}

impl Buildah {
    /// `None` where there is none.
    fn find() -> Option<Self> {
        let is_there = Command::new("buildah").arg("--version").output().is_ok();
        if !is_there {
            let is_required = env::var("SOLOIST_TESTBED").is_ok_and(|wish| wish == "required");
            assert!(
                !is_required,
                "SOLOIST_TESTBED=required, but there is no buildah"
            );
            // Past the capture of the test harness.
            let _ = writeln!(
                io::stderr(),
                "SKIPPED deploy/Dockerfile: there is no buildah"
            );
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        Some(Self { folder })
    }

    fn run(&self, arguments: &[&str]) -> String {
        let store = |name: &str| self.folder.path().join(name);
        let output = Command::new("buildah")
            .args(["--storage-driver", "vfs", "--root"])
            .arg(store("root"))
            .arg("--runroot")
            .arg(store("run"))
            .args(arguments)
            .output()
            .unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {complaint}");
        String::from_utf8(output.stdout).unwrap() + &complaint
    }

    /// Builds the Dockerfile with this context; what was said, and the image.
    fn build(&self, context: &Path, flags: &[&str]) -> (String, Built) {
        let checkout = checkout();
        let file = checkout.join("deploy/Dockerfile");
        let ignored = checkout.join("deploy/Dockerfile.dockerignore");
        let mut arguments = vec!["bud", "--isolation", "chroot", "--pull-never"];
        arguments.extend(["-f", file.to_str().unwrap()]);
        arguments.extend(["--ignorefile", ignored.to_str().unwrap()]);
        arguments.extend(flags);
        arguments.extend(["-t", "soloist:test", context.to_str().unwrap()]);
        let said = self.run(&arguments);
        let layout = self.folder.path().join("layout");
        let target = format!("oci:{}", layout.display());
        self.run(&["push", "--disable-compression", "soloist:test", &target]);
        (said, Built::read(&layout))
    }
}

/// What is in an image of files alone.
#[derive(Debug, PartialEq)]
struct Built {
    /// Mode, owner and content, by name.
    files: BTreeMap<String, (String, Vec<u8>)>,
    config: Value,
}

impl Built {
    fn read(layout: &Path) -> Self {
        let blob = |digest: &Value| {
            let (_, hash) = digest.as_str().unwrap().split_once(':').unwrap();
            layout.join("blobs/sha256").join(hash)
        };
        let json =
            |path: &Path| -> Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
        let index = json(&layout.join("index.json"));
        let manifest = json(&blob(&index["manifests"][0]["digest"]));
        let mut files = BTreeMap::new();
        for layer in manifest["layers"].as_array().unwrap() {
            let folder = tempfile::tempdir().unwrap();
            let tar = |arguments: &[&str]| {
                let output = Command::new("tar")
                    .arg("-f")
                    .arg(blob(&layer["digest"]))
                    .args(arguments)
                    .current_dir(&folder)
                    .output()
                    .unwrap();
                assert!(output.status.success(), "{output:?}");
                String::from_utf8(output.stdout).unwrap()
            };
            tar(&["-x", "--no-same-owner"]);
            for line in tar(&["-tv", "--numeric-owner"]).lines() {
                let words: Vec<&str> = line.split_whitespace().collect();
                let [mode, owner, .., name] = words.as_slice() else {
                    panic!("{line}");
                };
                if !name.ends_with('/') {
                    let content = fs::read(folder.path().join(name)).unwrap();
                    files.insert((*name).to_owned(), (format!("{mode} {owner}"), content));
                }
            }
        }
        let mut config = json(&blob(&manifest["config"]["digest"]))["config"].take();
        let fields = config.as_object_mut().unwrap();
        // Who built it, and what every builder adds by itself.
        fields
            .get_mut("Labels")
            .and_then(Value::as_object_mut)
            .unwrap()
            .remove("io.buildah.version");
        fields.remove("Env");
        Self { files, config }
    }
}

fn checkout() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    folder.unwrap().to_owned()
}

/// A static program, and what `image` makes of it.
fn made(folder: &Path) -> (PathBuf, Built) {
    let program = folder.join("soloist");
    fs::write(folder.join("program.rs"), "fn main() {}").unwrap();
    let compiled = Command::new("rustc")
        .args(["-C", "target-feature=+crt-static", "-o"])
        .arg(&program)
        .arg(folder.join("program.rs"))
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{compiled:?}");
    let out = folder.join("made");
    let made = Command::new(env!("CARGO_BIN_EXE_image"))
        .arg("--program")
        .arg(&program)
        .arg("--out")
        .arg(&out)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    (program, Built::read(&out.join("oci")))
}

fn revision(made: &Built) -> String {
    let revision = &made.config["Labels"]["org.opencontainers.image.revision"];
    format!("REVISION={}", revision.as_str().unwrap())
}

#[test]
fn with_a_static_program_that_is_there_it_gives_what_image_makes() {
    let Some(buildah) = Buildah::find() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (program, made) = made(folder.path());
    let revision = revision(&made);
    let context = folder.path().join("context");
    fs::create_dir(&context).unwrap();
    fs::copy(&program, context.join("soloist")).unwrap();
    let flags = ["--target", "prebuilt", "--build-arg", &revision];
    let (_, built) = buildah.build(&context, &flags);
    assert_eq!(built, made);
}

/// The compiler's image cannot be had without a registry: one with a shell takes its place, whose `cargo` brings what was compiled
/// elsewhere. So all is tried but the compiling.
#[test]
fn the_builder_compiles_as_image_does_and_what_it_compiled_is_in_the_image() {
    let Some(buildah) = Buildah::find() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (program, made) = made(folder.path());
    let compiler = folder.path().join("compiler");
    fs::create_dir(&compiler).unwrap();
    for tool in ["/bin/sh", "/bin/mkdir", "/bin/cp"] {
        copy_with_libraries(tool, &compiler);
    }
    fs::write(compiler.join("bin/cargo"), CARGO).unwrap();
    let is_executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(compiler.join("bin/cargo"), is_executable).unwrap();
    fs::copy(&program, compiler.join("compiled")).unwrap();
    let text = "FROM scratch\nCOPY . /\n";
    let file = folder.path().join("Dockerfile");
    fs::write(&file, text).unwrap();
    let (file, compiler) = (file.to_str().unwrap(), compiler.to_str().unwrap());
    buildah.run(&["bud", "-f", file, "-t", COMPILER, compiler]);

    let context = folder.path().join("context");
    fs::create_dir_all(context.join("target/old")).unwrap();
    fs::write(context.join("Cargo.toml"), "").unwrap();
    let (said, built) = buildah.build(&context, &["--build-arg", &revision(&made)]);
    assert_eq!(built, made);
    let asked = "build --locked --release --target x86_64-unknown-linux-gnu -p soloist --bins\n";
    assert!(said.contains(asked), "{said}");
    let source = fs::read_to_string(checkout().join("deploy/image/src/program.rs")).unwrap();
    let small = source
        .lines()
        .find_map(|line| line.strip_prefix("const SMALL: &str = \""));
    let small = small.unwrap().trim_end_matches("\";");
    assert!(
        said.contains(&format!("-C target-feature=+crt-static {small} --remap")),
        "{said}"
    );
}

/// A program of this machine, and what it is linked with.
fn copy_with_libraries(program: &str, root: &Path) {
    let linked = Command::new("ldd").arg(program).output().unwrap();
    let linked = String::from_utf8(linked.stdout).unwrap();
    let libraries = linked
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    for file in libraries.chain([program]) {
        let target = root.join(file.trim_start_matches('/'));
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(file, target).unwrap();
    }
}
