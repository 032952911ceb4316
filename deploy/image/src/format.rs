//! What images look like in files.

use std::{fs, io, path::Path};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{Image, tar::Tar};

const ARCHITECTURE: &str = "amd64";
const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar";

/// A file of a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// Where it is in the layout.
    pub path: String,
    /// What is in it.
    pub content: Vec<u8>,
}

/// An OCI layout, in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout(pub Vec<Blob>);

impl Layout {
    /// Writes it into a folder, which is made.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        for blob in &self.0 {
            let path = folder.join(&blob.path);
            fs::create_dir_all(path.parent().unwrap_or(folder))?;
            fs::write(path, &blob.content)?;
        }
        Ok(())
    }
}

pub(crate) fn oci_layout(image: &Image) -> Layout {
    let layer = image.layer();
    let config = config(image, &layer).to_string().into_bytes();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": descriptor(CONFIG_TYPE, &config),
        "layers": [descriptor(LAYER_TYPE, &layer)],
    });
    let manifest = manifest.to_string().into_bytes();
    let mut entry = descriptor(MANIFEST_TYPE, &manifest);
    entry["annotations"] = json!({ "org.opencontainers.image.ref.name": image.name });
    entry["platform"] = json!({ "architecture": ARCHITECTURE, "os": "linux" });
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [entry] });
    let blob = |content: Vec<u8>| Blob {
        path: format!("blobs/sha256/{}", digest(&content)),
        content,
    };
    let file = |path: &str, value: Value| Blob {
        path: path.to_owned(),
        content: value.to_string().into_bytes(),
    };
    Layout(vec![
        file("oci-layout", json!({ "imageLayoutVersion": "1.0.0" })),
        file("index.json", index),
        blob(manifest),
        blob(config),
        blob(layer),
    ])
}

pub(crate) fn docker_archive(image: &Image) -> Vec<u8> {
    let layer = image.layer();
    let config = config(image, &layer).to_string().into_bytes();
    let (config_path, layer_path) = (
        format!("{}.json", digest(&config)),
        format!("{}.tar", digest(&layer)),
    );
    let manifest =
        json!([{ "Config": config_path, "Layers": [layer_path], "RepoTags": [image.name] }]);
    let mut tar = Tar::new(image.created);
    tar.file("manifest.json", 0o644, manifest.to_string().as_bytes());
    tar.file(&config_path, 0o644, &config);
    tar.file(&layer_path, 0o644, &layer);
    tar.finish()
}

fn config(image: &Image, layer: &[u8]) -> Value {
    let created = utc(image.created);
    let labels: serde_json::Map<String, Value> = image
        .labels
        .iter()
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    let mut container = json!({ "Entrypoint": image.entrypoint, "WorkingDir": "/" });
    if let Some(user) = image.user {
        container["User"] = json!(format!("{user}:{user}"));
    }
    if !labels.is_empty() {
        container["Labels"] = Value::Object(labels);
    }
    json!({
        "architecture": ARCHITECTURE,
        "config": container,
        "created": created,
        "history": [{ "created": created, "created_by": "image" }],
        "os": "linux",
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", digest(layer))] },
    })
}

fn descriptor(kind: &str, content: &[u8]) -> Value {
    json!({ "mediaType": kind, "digest": format!("sha256:{}", digest(content)), "size": content.len() })
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// RFC 3339, from seconds since 1970.
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Civil from days, with years that begin in March.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn times_are_written_as_calendars_have_them() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_735_689_599), "2024-12-31T23:59:59Z");
    }
}
