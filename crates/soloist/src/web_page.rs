//! A page with all that it needs in it, and the policy that lets it have nothing else.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{CONTENT_SECURITY_POLICY, HeaderMap, HeaderValue, REFERRER_POLICY};
use sha2::{Digest, Sha256};

pub(crate) struct WebPage {
    pub(crate) text: &'static str,
    policy: HeaderValue,
}

impl WebPage {
    /// Nothing but the page's own style and script, by their hashes, and where it came from.
    pub(crate) fn new(text: &'static str) -> Self {
        let (style, script) = (hash(inside(text, "style")), hash(inside(text, "script")));
        let policy = format!(
            "default-src 'none'; style-src '{style}'; script-src '{script}'; connect-src 'self'; img-src data:; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'"
        );
        let policy = HeaderValue::try_from(policy);
        Self {
            text,
            policy: policy.unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'")),
        }
    }

    pub(crate) fn protect(&self, headers: &mut HeaderMap) {
        headers.insert(CONTENT_SECURITY_POLICY, self.policy.clone());
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    }
}

/// What is in the page's only element of this name.
fn inside(text: &'static str, element: &str) -> &'static str {
    let begin = text.split_once(&format!("<{element}>"));
    let end = begin.and_then(|(_, rest)| rest.split_once(&format!("</{element}>")));
    end.map_or("", |(inside, _)| inside)
}

fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

/// For the tests of each page.
#[cfg(test)]
pub(crate) fn assert_self_contained(text: &'static str) {
    for element in ["style", "script"] {
        assert!(!inside(text, element).is_empty());
        assert_eq!(text.matches(&format!("<{element}")).count(), 1);
    }
    for outside in ["http:", "https:", "src=", " style=", " onclick=", "@import"] {
        assert!(!text.contains(outside), "{outside}");
    }
}
