//! `/`: one page for people, with all that it needs in it.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{CONTENT_SECURITY_POLICY, HeaderMap, HeaderValue, REFERRER_POLICY};
use sha2::{Digest, Sha256};

pub(super) const PAGE: &str = include_str!("page.html");

/// Nothing but the page's own style and script, by their hashes, and this listener.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let (style, script) = (hash(inside("style")), hash(inside("script")));
    let policy = format!(
        "default-src 'none'; style-src '{style}'; script-src '{script}'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    );
    HeaderValue::try_from(policy).unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'"))
});

pub(super) fn protect(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, POLICY.clone());
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
}

/// What is in the page's only element of this name.
fn inside(element: &str) -> &'static str {
    let begin = PAGE.split_once(&format!("<{element}>"));
    let end = begin.and_then(|(_, rest)| rest.split_once(&format!("</{element}>")));
    end.map_or("", |(inside, _)| inside)
}

fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_one_style_and_one_script_and_neither_is_elsewhere() {
        for element in ["style", "script"] {
            assert!(!inside(element).is_empty());
            assert_eq!(PAGE.matches(&format!("<{element}")).count(), 1);
        }
        for outside in ["http:", "https:", "src=", " style=", " onclick=", "@import"] {
            assert!(!PAGE.contains(outside), "{outside}");
        }
    }
}
