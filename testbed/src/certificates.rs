use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::{Error, cluster::lan};

/// The certificate authority, the API server's certificate and the key that signs service accounts' tokens.
#[derive(Debug)]
pub(crate) struct Certificates {
    pub ca_pem: String,
    pub ca: PathBuf,
    pub server: PathBuf,
    pub server_key: PathBuf,
    pub accounts_private: PathBuf,
    pub accounts_public: PathBuf,
    authority: Authority,
}

struct Authority(Issuer<'static, KeyPair>);

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

impl Certificates {
    pub(crate) fn generate(dir: &Path) -> Result<Self, Error> {
        let made = Made::generate().map_err(|error| Error::Io {
            doing: "generate certificates in",
            path: dir.to_owned(),
            source: std::io::Error::other(error),
        })?;
        let write = |name: &str, text: &str| {
            let path = dir.join(name);
            fs::write(&path, text).map_err(Error::io("write", &path))?;
            Ok::<_, Error>(path)
        };
        Ok(Self {
            ca: write("ca.crt", &made.ca)?,
            server: write("apiserver.crt", &made.server)?,
            server_key: write("apiserver.key", &made.server_key.serialize_pem())?,
            accounts_private: write("service-accounts.key", &made.accounts.serialize_pem())?,
            accounts_public: write("service-accounts.pub", &made.accounts.public_key_pem())?,
            ca_pem: made.ca,
            authority: made.authority,
        })
    }

    /// Signs service accounts' tokens with a new key once the API server is restarted; tokens of the old ones stay good.
    pub(crate) fn renew_accounts_key(&self) -> Result<(), Error> {
        let key = KeyPair::generate().map_err(|error| Error::Io {
            doing: "generate",
            path: self.accounts_private.clone(),
            source: std::io::Error::other(error),
        })?;
        let old = fs::read_to_string(&self.accounts_public)
            .map_err(Error::io("read", &self.accounts_public))?;
        let both = format!("{}{old}", key.public_key_pem());
        let write =
            |path: &Path, text: &str| fs::write(path, text).map_err(Error::io("write", path));
        write(&self.accounts_private, &key.serialize_pem())?;
        write(&self.accounts_public, &both)
    }

    /// Leaves only the newest of the keys by which service accounts' tokens are checked.
    pub(crate) fn forget_old_accounts_keys(&self) -> Result<(), Error> {
        const END: &str = "-----END PUBLIC KEY-----";
        let path = &self.accounts_public;
        let keys = fs::read_to_string(path).map_err(Error::io("read", path))?;
        let newest = keys
            .find(END)
            .map_or(&keys[..], |at| &keys[..at + END.len()]);
        fs::write(path, format!("{newest}\n")).map_err(Error::io("write", path))
    }

    /// A client's certificate and key, as PEM, valid for so long from now on.
    pub(crate) fn client(&self, user: &str, lifetime: Duration) -> Result<(String, String), Error> {
        let made = || {
            let mut client = CertificateParams::new(Vec::new())?;
            client.distinguished_name.push(DnType::CommonName, user);
            client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            let since_epoch = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            client.not_after = rcgen::date_time_ymd(1970, 1, 1) + since_epoch + lifetime;
            let key = KeyPair::generate()?;
            let certificate = client.signed_by(&key, &self.authority.0)?;
            Ok::<_, rcgen::Error>((certificate.pem(), key.serialize_pem()))
        };
        made().map_err(|error| Error::Io {
            doing: "sign a certificate for",
            path: user.into(),
            source: std::io::Error::other(error),
        })
    }
}

struct Made {
    ca: String,
    server: String,
    server_key: KeyPair,
    accounts: KeyPair,
    authority: Authority,
}

impl Made {
    fn generate() -> Result<Self, rcgen::Error> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority
            .distinguished_name
            .push(DnType::CommonName, "soloist-testbed");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let authority_key = KeyPair::generate()?;
        let ca = authority.self_signed(&authority_key)?.pem();

        // Pods use the first address of the services' range, nodes the gateway of their network.
        let (service, gateway) = ("10.0.0.1", lan::GATEWAY.to_string());
        let names = [
            "127.0.0.1",
            "localhost",
            "kubernetes.default.svc",
            service,
            &gateway,
        ]
        .map(str::to_owned);
        let mut server = CertificateParams::new(names)?;
        server
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        let server_key = KeyPair::generate()?;
        let authority = Authority(Issuer::new(authority, authority_key));
        let server = server.signed_by(&server_key, &authority.0)?.pem();
        Ok(Self {
            ca,
            server,
            server_key,
            accounts: KeyPair::generate()?,
            authority,
        })
    }
}
