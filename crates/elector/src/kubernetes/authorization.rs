//! The header that says who we are.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request};
use kube::config::AuthInfo;
use secrecy::ExposeSecret;
use soloist_core::time::Moment;

use super::source::ConnectError;
use crate::clock;

/// A kubelet replaces a token when a fifth of its life, of at least ten minutes, is left.
const READ_EVERY: Duration = Duration::from_secs(60);

/// What every request says.
#[derive(Clone)]
pub(super) enum Authorization {
    Nothing,
    Always(HeaderValue),
    File(Arc<TokenFile>),
}

impl Authorization {
    pub(super) fn of(auth: &AuthInfo) -> Result<Self, ConnectError> {
        let inline = token(auth);
        if let Some(path) = auth.token_file.as_deref().filter(|path| !path.is_empty()) {
            return TokenFile::open(path.into(), inline).map(|file| Self::File(Arc::new(file)));
        }
        if let Some(token) = inline {
            return bearer(token).map(Self::Always);
        }
        let (Some(user), Some(password)) = (&auth.username, &auth.password) else {
            return Ok(Self::Nothing);
        };
        let both = format!("{user}:{}", password.expose_secret());
        header(&format!("Basic {}", STANDARD.encode(both))).map(Self::Always)
    }

    pub(super) fn put_into<B>(&self, request: &mut Request<B>) {
        let value = match self {
            Self::Nothing => return,
            Self::Always(value) => value.clone(),
            Self::File(file) => file.current(),
        };
        request.headers_mut().insert(AUTHORIZATION, value);
    }
}

/// The one in the configuration itself. An empty one is none.
pub(super) fn token(auth: &AuthInfo) -> Option<&str> {
    let token = auth.token.as_ref().map(ExposeSecret::expose_secret);
    token.filter(|token| !token.is_empty())
}

/// A token that is replaced while we run. What was last read goes on when the file cannot be read any more.
pub(super) struct TokenFile {
    path: PathBuf,
    held: Mutex<(HeaderValue, Moment)>,
}

impl TokenFile {
    fn open(path: PathBuf, instead: Option<&str>) -> Result<Self, ConnectError> {
        let value = match (read(&path), instead) {
            (Ok(value), _) => value,
            (Err(_), Some(token)) => bearer(token)?,
            (Err(error), None) => return Err(error),
        };
        let held = Mutex::new((value, clock::now() + READ_EVERY));
        Ok(Self { path, held })
    }

    fn current(&self) -> HeaderValue {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::now();
        if now >= held.1 {
            held.1 = now + READ_EVERY;
            if let Ok(value) = read(&self.path) {
                held.0 = value;
            }
        }
        held.0.clone()
    }
}

fn read(path: &PathBuf) -> Result<HeaderValue, ConnectError> {
    let unusable = |reason: String| {
        ConnectError::Credentials(format!("the token file {}: {reason}", path.display()))
    };
    let token = fs::read_to_string(path).map_err(|error| unusable(error.to_string()))?;
    match token.trim() {
        "" => Err(unusable("it is empty".into())),
        token => bearer(token),
    }
}

fn bearer(token: &str) -> Result<HeaderValue, ConnectError> {
    header(&format!("Bearer {token}"))
}

fn header(text: &str) -> Result<HeaderValue, ConnectError> {
    let value = HeaderValue::try_from(text);
    let mut value = value.map_err(|_| {
        ConnectError::Credentials("there are characters in them that no header can have".into())
    })?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(authorization: &Authorization) -> Option<String> {
        let mut request = Request::new(());
        authorization.put_into(&mut request);
        let value = request.headers().get(AUTHORIZATION)?;
        assert!(value.is_sensitive());
        Some(value.to_str().unwrap().to_owned())
    }

    fn of(yaml: &str) -> Result<Authorization, ConnectError> {
        let auth: AuthInfo = serde_json::from_str(yaml).unwrap();
        Authorization::of(&auth)
    }

    #[test]
    fn a_token_or_a_password_is_said_and_a_certificate_needs_no_word() {
        let said = |yaml: &str| said(&of(yaml).unwrap_or_else(|error| panic!("{error}")));
        assert_eq!(said("{}"), None);
        assert_eq!(said(r#"{"username": "u"}"#), None);
        assert_eq!(said(r#"{"token": "", "tokenFile": ""}"#), None);
        assert_eq!(said(r#"{"token": "t"}"#).as_deref(), Some("Bearer t"));
        assert_eq!(
            said(r#"{"username": "u", "password": "p"}"#).as_deref(),
            Some("Basic dTpw")
        );
    }

    #[test]
    fn a_token_file_is_read_again_and_outlived_by_what_was_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "one\n").unwrap();
        let file = TokenFile::open(path.clone(), Some("inline")).unwrap();
        let due = || file.held.lock().unwrap().1 = clock::now();
        let current = || file.current().to_str().unwrap().to_owned();
        fs::write(&path, "two").unwrap();
        assert_eq!(current(), "Bearer one", "not at every request");
        due();
        assert_eq!(current(), "Bearer two");
        for broken in ["", "a\nb"] {
            fs::write(&path, broken).unwrap();
            due();
            assert_eq!(current(), "Bearer two");
        }
        fs::remove_file(&path).unwrap();
        due();
        assert_eq!(current(), "Bearer two");
    }

    #[test]
    fn credentials_that_cannot_be_used_are_named_without_being_shown() {
        let error = |yaml: &str| of(yaml).err().unwrap().to_string();
        let missing = error(r#"{"tokenFile": "/nonexistent/token"}"#);
        assert_eq!(
            missing,
            "the credentials of the cluster's configuration cannot be used: the token file /nonexistent/token: No such file or directory (os error 2)"
        );
        let token = error(r#"{"token": "se\ncret"}"#);
        assert!(token.contains("no header can have"), "{token}");
        assert!(!token.contains("cret"), "{token}");
        let instead = of(r#"{"tokenFile": "/nonexistent/token", "token": "t"}"#).unwrap();
        assert_eq!(said(&instead).as_deref(), Some("Bearer t"));
    }
}
