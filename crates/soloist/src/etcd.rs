//! What is to be known of an etcd, beside its address.

use std::path::PathBuf;

use clap::Args;
use soloist_elector::etcd::{Address, Login, Options, Tls};

/// Files are read anew for every connection and login, so they may be replaced at any time.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "etcd")]
pub(crate) struct EtcdArgs {
    /// By TLS; the file (PEM) has the certificates of who signs the members' [default: no TLS]
    #[arg(long, env = "SOLOIST_ETCD_CA", value_name = "PATH")]
    pub(crate) etcd_ca: Option<PathBuf>,
    /// Our own certificate (PEM), for members that ask for one
    #[arg(
        long,
        env = "SOLOIST_ETCD_CERT",
        value_name = "PATH",
        requires = "etcd_key",
        requires = "etcd_ca"
    )]
    pub(crate) etcd_cert: Option<PathBuf>,
    /// The key of that certificate (PEM)
    #[arg(
        long,
        env = "SOLOIST_ETCD_KEY",
        value_name = "PATH",
        requires = "etcd_cert"
    )]
    pub(crate) etcd_key: Option<PathBuf>,
    /// Log in as this user
    #[arg(long, env = "SOLOIST_ETCD_USER", requires = "etcd_password_file")]
    pub(crate) etcd_user: Option<String>,
    /// The file with that user's password
    #[arg(
        long,
        env = "SOLOIST_ETCD_PASSWORD_FILE",
        value_name = "PATH",
        requires = "etcd_user"
    )]
    pub(crate) etcd_password_file: Option<PathBuf>,
}

impl EtcdArgs {
    /// The lease of this name in the etcd at this address.
    pub(crate) fn lease(&self, address: &Address, name: &str) -> Options {
        let mut options = Options::lease(address.clone(), name);
        if let Some(ca) = self.etcd_ca.clone() {
            let identity = self.etcd_cert.clone().zip(self.etcd_key.clone());
            options = options.tls(Tls { ca, identity });
        }
        if let (Some(user), Some(file)) = (&self.etcd_user, &self.etcd_password_file) {
            options = options.login(Login {
                user: user.clone(),
                password_file: file.clone(),
            });
        }
        options
    }
}
