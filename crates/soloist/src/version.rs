//! What `soloist --version` says.

/// Version, commit, and the Kubernetes that the tests run on.
pub(crate) const LONG: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit ",
    env!("SOLOIST_BUILD_COMMIT"),
    "\nlease API coordination.k8s.io/v1, tested with Kubernetes v1.36.4"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubernetes_that_is_named_is_the_one_of_the_tests() {
        assert!(LONG.ends_with(testbed::kubernetes_version()), "{LONG}");
    }

    #[test]
    fn the_commit_is_part_of_it() {
        assert!(LONG.contains("\ncommit "), "{LONG}");
    }
}
