//! The lease as a Kubernetes object: to come.
