//! What the API server and the way to it can do wrong, and what to do about it.

use std::fmt::Write as _;
use std::time::Duration;

use kube::core::Status;

use super::resource::Resource;
use super::source::ConnectError;
use crate::causes::find;
use crate::store::{StoreError, Throttling};

/// What was asked for, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) verb: &'static str,
    pub(super) resource: Resource,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) server: &'a str,
}

impl Asked<'_> {
    fn place(&self) -> String {
        format!(
            "{} {}/{} on {}",
            self.resource.noun(),
            self.namespace,
            self.name,
            self.server
        )
    }

    fn writes(&self) -> bool {
        matches!(self.verb, "create" | "update")
    }

    pub(super) fn failed(&self, error: &kube::Error) -> StoreError {
        match error {
            kube::Error::Api(status) => self.answered(status),
            kube::Error::BuildRequest(_) | kube::Error::HttpError(_) => {
                StoreError::Unavailable(format!("the request cannot be made: {}", chain(error)))
            }
            _ if find::<ConnectError>(error).is_some()
                || find::<kube::client::AuthError>(error).is_some() =>
            {
                self.no_credentials(error)
            }
            _ if find::<hyper_util::client::legacy::Error>(error)
                .is_some_and(hyper_util::client::legacy::Error::is_connect) =>
            {
                self.unreachable(error)
            }
            _ => StoreError::Unknown(format!(
                "the connection to {} broke during \"{}\": {}",
                self.server,
                self.verb,
                chain(error)
            )),
        }
    }

    fn answered(&self, status: &Status) -> StoreError {
        let said = format!("{} ({} {})", status.message, status.code, status.reason);
        match status.code {
            409 if self.writes() => StoreError::LostRace(said),
            404 if self.verb == "update" => StoreError::LostRace(said),
            404 if !self.writes() => StoreError::refused(
                format!("the server has no {}: {said}", self.resource.plural()),
                self.place(),
                "Check that this address is a Kubernetes API server",
            ),
            404 => StoreError::refused(
                format!("the API server has no place for this lease: {said}"),
                self.place(),
                format!(
                    "Create the namespace (kubectl create namespace {}) or choose another one",
                    self.namespace
                ),
            ),
            401 => StoreError::refused(
                format!("the API server does not know who we are: {said}"),
                self.place(),
                "The token or certificate is missing, wrong or expired. In a Pod: check that the service account's token is mounted \
                 (automountServiceAccountToken) and that the account still exists. Elsewhere: log in again, or check the user in the kubeconfig",
            ),
            403 if status.message.contains("being terminated") => StoreError::refused(
                format!("the namespace is being deleted: {said}"),
                self.place(),
                "Nothing can be created in it any more; choose another namespace",
            ),
            403 => self.forbidden(&said, &status.message),
            // A write may have landed before somebody on the way answered so. The read that comes next is asked to wait too.
            503 if !self.writes() => {
                too_much_to_do(format!("the API server is not available: {said}"), status)
            }
            429 => too_much_to_do(format!("the API server has too much to do: {said}"), status),
            400 | 405 | 406 | 413 | 415 | 422 => StoreError::refused(
                format!("the API server does not accept our lease: {said}"),
                self.place(),
                "Something on the way changes or checks leases (an admission webhook or policy?); its reason is in the message",
            ),
            _ => StoreError::Unknown(format!("the API server failed: {said}")),
        }
    }

    /// Authorisation is only one of those who answer 403, and the only one that begins with the user.
    fn forbidden(&self, said: &str, message: &str) -> StoreError {
        if let Some(user) = quoted_after(message, "is forbidden: User ") {
            return self.missing_right(said, user);
        }
        let namespace = self.namespace;
        let (what, advice) = if message.contains("quota: ") {
            (
                format!("a quota of the namespace {namespace} leaves no room for the lease"),
                format!(
                    "Raise it or free something: kubectl describe resourcequota -n {namespace}"
                ),
            )
        } else if message.contains("denied the request") || message.contains("denied request") {
            (
                "an admission policy or webhook does not allow the lease".to_owned(),
                "No right is missing: change the policy or webhook that the message names, or exempt this lease from it".to_owned(),
            )
        } else {
            (
                format!("\"{}\" on the lease is not allowed", self.verb),
                "It is not said that a right is missing, so it may be somebody on the way to the API server: a policy, a webhook, a proxy".to_owned(),
            )
        };
        StoreError::refused(format!("{what}: {said}"), self.place(), advice)
    }

    fn missing_right(&self, said: &str, user: &str) -> StoreError {
        let namespace = self.namespace;
        // A name cannot be checked before the object exists, so "create" cannot be limited to one.
        let names = match self.verb {
            "create" => String::new(),
            _ => format!("\n  resourceNames: [\"{}\"]", self.name),
        };
        let verb = self.verb;
        let (group, plural) = (self.resource.group(), self.resource.plural());
        StoreError::refused(
            format!(
                "{user} may not \"{verb}\" {plural} in the namespace {namespace}; the API server says: {said}"
            ),
            self.place(),
            format!(
                "Add this rule to a Role in the namespace {namespace} that is bound to {user}:\n\n\
                 - apiGroups: [\"{group}\"]\n  resources: [\"{plural}\"]{names}\n  verbs: [\"{verb}\"]\n"
            ),
        )
    }

    fn unreachable(&self, error: &kube::Error) -> StoreError {
        StoreError::Unavailable(format!(
            "cannot reach the API server {}: {}",
            self.server,
            chain(error)
        ))
    }

    fn no_credentials(&self, error: &kube::Error) -> StoreError {
        StoreError::Unavailable(format!(
            "cannot get credentials for the API server {}: {}",
            self.server,
            chain(error)
        ))
    }

    /// The answer is not what a lease looks like.
    pub(super) fn not_understood(&self, reason: &str) -> StoreError {
        match self.writes() {
            true => StoreError::Unknown(format!("the answer cannot be understood: {reason}")),
            false => StoreError::refused(
                format!("the answer cannot be understood: {reason}"),
                self.place(),
                "Check that this address is a Kubernetes API server",
            ),
        }
    }
}

fn too_much_to_do(reason: String, status: &Status) -> StoreError {
    let seconds = status.details.as_ref().map_or(0, |d| d.retry_after_seconds);
    match seconds {
        0 => StoreError::Unavailable(reason),
        _ => StoreError::Throttled(Box::new(Throttling {
            reason,
            wait: Duration::from_secs(seconds.into()),
        })),
    }
}

fn quoted_after<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("{word}\""))?;
    rest.split_once('"').map(|(quoted, _)| quoted)
}

/// All causes in one line; each says something the others do not.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    // This layer has nothing to say but its name.
    if let Some(kube::Error::Service(cause)) = error.downcast_ref() {
        return chain(cause.as_ref());
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            let _ = write!(text, ": {next}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use soloist_core::election::Answer;

    fn asked(verb: &'static str) -> Asked<'static> {
        Asked {
            verb,
            resource: Resource::Lease,
            namespace: "shop",
            name: "demo",
            server: "https://10.0.0.1",
        }
    }

    fn api(code: u16, message: &str) -> kube::Error {
        kube::Error::Api(Box::new(Status::failure(message, "Reason").with_code(code)))
    }

    #[test]
    fn each_status_means_one_thing_to_the_election() {
        for (verb, code, answer) in [
            ("create", 409, Answer::LostRace),
            ("update", 409, Answer::LostRace),
            ("update", 404, Answer::LostRace),
            ("create", 404, Answer::Refused),
            ("list", 404, Answer::Refused),
            ("update", 401, Answer::Refused),
            ("list", 403, Answer::Refused),
            ("update", 422, Answer::Refused),
            ("update", 429, Answer::Unavailable),
            ("update", 500, Answer::Unknown),
            ("update", 503, Answer::Unknown),
            ("list", 503, Answer::Unavailable),
            ("update", 504, Answer::Unknown),
            ("list", 409, Answer::Unknown),
        ] {
            let error = asked(verb).failed(&api(code, "no"));
            assert_eq!(error.answer(), answer, "{verb} {code}: {error}");
        }
    }

    #[test]
    fn what_cannot_be_helped_by_trying_again_is_said_in_words() {
        for (verb, code, words) in [
            ("list", 404, "the server has no leases: no"),
            (
                "create",
                404,
                "the API server has no place for this lease: no",
            ),
            ("update", 401, "the API server does not know who we are: no"),
            (
                "update",
                422,
                "the API server does not accept our lease: no",
            ),
        ] {
            let error = asked(verb).failed(&api(code, "no"));
            assert_eq!(error.answer(), Answer::Refused);
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn who_refuses_is_told_by_what_it_says() {
        for (message, part) in [
            (
                "leases.coordination.k8s.io \"demo\" is forbidden: User \"u\" cannot create resource \"leases\" in the namespace \"quota\"",
                "Add this rule",
            ),
            (
                "leases.coordination.k8s.io \"demo\" is forbidden: exceeded quota: few, requested: count/leases.coordination.k8s.io=1",
                "kubectl describe resourcequota -n shop",
            ),
            (
                "admission webhook \"deny.example.com\" denied the request: not today",
                "No right is missing",
            ),
            (
                "<html>go away</html>",
                "It is not said that a right is missing",
            ),
        ] {
            let error = asked("create").failed(&api(403, message));
            assert_eq!(error.answer(), Answer::Refused);
            let error = error.to_string();
            assert!(error.contains(part) && error.contains(message), "{error}");
            assert_eq!(error.contains("Add this rule"), part == "Add this rule");
        }
    }

    #[test]
    fn a_namespace_that_ends_and_an_answer_of_somebody_else_are_named() {
        let ends = "leases.coordination.k8s.io \"demo\" is forbidden: unable to create new content in namespace shop because it is being terminated";
        let error = asked("create").failed(&api(403, ends));
        assert_eq!(error.answer(), Answer::Refused);
        assert!(
            error
                .to_string()
                .contains("the namespace is being deleted: "),
            "{error}"
        );
        let error = asked("list").not_understood("it is HTML");
        assert_eq!(error.answer(), Answer::Refused);
        let said = "the answer cannot be understood: it is HTML";
        assert!(error.to_string().contains(said), "{error}");
        assert_eq!(asked("update").not_understood("").answer(), Answer::Unknown);
    }

    #[test]
    fn a_missing_permission_names_everything_and_gives_the_rule() {
        let message = "leases.coordination.k8s.io \"demo\" is forbidden: User \"system:serviceaccount:shop:default\" cannot update resource \"leases\"";
        let error = asked("update").failed(&api(403, message)).to_string();
        for part in [
            "system:serviceaccount:shop:default may not \"update\" leases in the namespace shop",
            "- apiGroups: [\"coordination.k8s.io\"]\n  resources: [\"leases\"]\n  resourceNames: [\"demo\"]\n  verbs: [\"update\"]\n",
            "https://10.0.0.1",
        ] {
            assert!(error.contains(part), "{error}");
        }
        let create = asked("create").failed(&api(403, message)).to_string();
        assert!(!create.contains("resourceNames"), "{create}");
    }
}
