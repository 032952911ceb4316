//! Names as Kubernetes allows them, checked before they are sent.

/// Why a text cannot be the name of an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {name:?} {problem}")]
pub struct NameError {
    what: &'static str,
    name: String,
    problem: &'static str,
}

/// A lease's name: an RFC 1123 subdomain.
pub(super) fn lease(name: &str) -> Result<(), NameError> {
    let problem = if name.is_empty() {
        "is empty; it must be the lease's name"
    } else if name.len() > 253 {
        "is longer than 253 characters"
    } else if name.split('.').all(is_label) {
        return Ok(());
    } else {
        "is no valid name in Kubernetes: use lower-case letters, digits, '-' and '.', with a letter or digit at both ends of every part"
    };
    Err(NameError {
        what: "the lease name",
        name: name.to_owned(),
        problem,
    })
}

/// A namespace's name: an RFC 1123 label.
pub(super) fn namespace(name: &str) -> Result<(), NameError> {
    let problem = if name.is_empty() {
        "is empty; it must be the name of a namespace"
    } else if name.len() > 63 {
        "is longer than 63 characters"
    } else if is_label(name) {
        return Ok(());
    } else {
        "is no valid name in Kubernetes: use lower-case letters, digits and '-', with a letter or digit at both ends"
    };
    Err(NameError {
        what: "the namespace",
        name: name.to_owned(),
        problem,
    })
}

fn is_label(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(plain) && text.ends_with(plain) && text.chars().all(|c| plain(c) || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_as_kubernetes_would() {
        let long = "a".repeat(63);
        for good in ["a", "demo-1", "a.b-c.9", "0", &"a".repeat(253)] {
            assert_eq!(lease(good), Ok(()));
        }
        for bad in [
            "",
            "Demo",
            "a_b",
            "-a",
            "a-",
            "a..b",
            ".a",
            "a/b",
            "a b",
            "ä",
            &"a".repeat(254),
        ] {
            assert!(lease(bad).is_err(), "{bad}");
        }
        assert_eq!(namespace(&long), Ok(()));
        for bad in ["", "a.b", "kube_system", &format!("{long}a")] {
            assert!(namespace(bad).is_err(), "{bad}");
        }
        assert_eq!(
            lease("My Lease").unwrap_err().to_string(),
            "the lease name \"My Lease\" is no valid name in Kubernetes: use lower-case letters, digits, '-' and '.', with a letter or digit at both ends of every part"
        );
    }
}
