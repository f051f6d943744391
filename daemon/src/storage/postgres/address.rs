//! Where the database is, and how it is spoken to: what a URL says.

use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::super::url::{self, Parts};
use super::OpenError;
use super::pool::ANSWER_TIMEOUT;

/// The schema where the URL names none.
const SCHEMA: &str = "mcp_sessiond";

/// What the server lists us as where the URL says nothing else.
const APPLICATION: &str = "mcp-sessiond";

/// A connection on which nothing is said for so long is probed, lest it is dead and nobody knows.
const PROBE_AFTER: Duration = Duration::from_secs(30);

/// A URL, understood.
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) schema: String,
    /// A file with the certificates to trust, in place of this machine's.
    certificates: Option<String>,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, OpenError> {
        let is_ours = |parts: &Parts<'_>| ["postgres", "postgresql"].contains(&parts.scheme);
        let Parts {
            scheme,
            user,
            place,
            query,
        } = url::split(url).filter(is_ours).ok_or(OpenError::Url)?;
        let query = query.unwrap_or_default();
        let mut schema = SCHEMA.to_owned();
        let (mut certificates, mut options) = (None, Vec::new());
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("schema", name)) => name.clone_into(&mut schema),
                Some(("sslrootcert", path)) => certificates = Some(path.to_owned()),
                // Certificates and the name in them are verified whenever there is TLS at all.
                Some(("sslmode", "verify-ca" | "verify-full")) => options.push("sslmode=require"),
                _ => options.push(option),
            }
        }
        if !is_schema(&schema) {
            return Err(OpenError::Schema(schema));
        }
        // The parser takes the first `@` for the end of the password, wherever it stands.
        let quoted = |text: &str| text.replace('@', "%40");
        let user = user.map_or_else(String::new, |user| format!("{}@", quoted(user)));
        let options = quoted(&options.join("&"));
        let config: Option<Config> = format!("{scheme}://{user}{place}?{options}").parse().ok();
        // What the parser has to say might have part of a password in it.
        let mut config = config
            .filter(|config| !config.get_hosts().is_empty())
            .ok_or(OpenError::Url)?;
        if config.get_application_name().is_none() {
            config.application_name(APPLICATION);
        }
        if config.get_hosts().len() > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(ANSWER_TIMEOUT);
        }
        config.keepalives_idle(config.get_keepalives_idle().min(PROBE_AFTER));
        Ok(Self {
            config,
            schema,
            certificates,
        })
    }

    /// TLS as `sslmode` says. Whom to trust is said by `sslrootcert`, or else is this machine's
    /// matter: its certificates, or what `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
    pub(super) fn tls(&self) -> Result<MakeRustlsConnect, OpenError> {
        let is_local = self
            .config
            .get_hosts()
            .iter()
            .all(|host| matches!(host, Host::Unix(_)));
        let mut roots = RootCertStore::empty();
        if !is_local && self.config.get_ssl_mode() != SslMode::Disable {
            roots.add_parsable_certificates(self.certificates()?);
            if roots.is_empty() && self.config.get_ssl_mode() == SslMode::Require {
                return Err(OpenError::Certificates);
            }
        }
        // The versions of the protocol are those of the provider, so that there are some.
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|_| OpenError::Certificates)?;
        Ok(MakeRustlsConnect::new(
            config.with_root_certificates(roots).with_no_client_auth(),
        ))
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, OpenError> {
        let Some(path) = &self.certificates else {
            return Ok(rustls_native_certs::load_native_certs().certs);
        };
        let certificates = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
        certificates.map_err(|_| OpenError::Certificates)
    }
}

/// Whether this is a name that can stand in a statement as it is, and that PostgreSQL doesn't keep
/// for itself.
fn is_schema(name: &str) -> bool {
    let is_first = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    name.len() <= 63
        && !name.starts_with("pg_")
        && name.bytes().next().is_some_and(is_first)
        && name
            .bytes()
            .all(|byte| is_first(byte) || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Address {
        Address::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    #[test]
    fn what_a_url_says() {
        let address = parsed(
            "postgres://me:secret@host:1234/base?schema=other&connect_timeout=4&sslmode=disable",
        );
        assert_eq!(address.schema, "other");
        assert_eq!(address.config.get_ssl_mode(), SslMode::Disable);
        assert_eq!(address.config.get_dbname(), Some("base"));
        assert_eq!(
            address.config.get_connect_timeout(),
            Some(&Duration::from_secs(4))
        );
        assert_eq!(address.config.get_application_name(), Some("mcp-sessiond"));
        let address = parsed("postgresql://%2Frun%2Fpostgresql/base?application_name=mine");
        assert_eq!(address.schema, "mcp_sessiond");
        assert_eq!(address.config.get_application_name(), Some("mine"));
        assert!(matches!(address.config.get_hosts(), [Host::Unix(_)]));
        for mode in ["require", "verify-ca", "verify-full"] {
            let address = parsed(&format!("postgres://host/base?sslmode={mode}"));
            assert_eq!(address.config.get_ssl_mode(), SslMode::Require, "{mode}");
        }
        let address = parsed("postgres://me:sec?schema=ret&@host/base?schema=other");
        assert_eq!(address.config.get_password(), Some(&b"sec?schema=ret&"[..]));
        assert_eq!(address.schema, "other");
        for url in [
            "postgres://me@host/base?password=p@ss",
            "postgres://me:p@ss@host/base",
        ] {
            let address = parsed(url);
            assert_eq!(address.config.get_password(), Some(&b"p@ss"[..]), "{url}");
            assert_eq!(
                address.config.get_hosts(),
                [Host::Tcp("host".into())],
                "{url}"
            );
        }
        let address = parsed("postgres://host/base?user=me&password=p@ss");
        assert_eq!(address.config.get_hosts(), [Host::Tcp("host".into())]);
        assert_eq!(
            (address.config.get_user(), address.config.get_dbname()),
            (Some("me"), Some("base"))
        );
        let address = parsed("postgres://one,other/base");
        assert_eq!(
            address.config.get_target_session_attrs(),
            TargetSessionAttrs::ReadWrite
        );
    }

    #[test]
    fn what_is_refused_is_not_repeated() {
        for url in [
            "postgres://host/base?sec=ret",
            "postgres://host/base?sslmode=secret",
            "mysql://me:secret@host/base",
            "host=here password=secret",
            "postgres://",
            "",
        ] {
            let error = Address::parse(url)
                .err()
                .unwrap_or_else(|| panic!("{url} is no URL of ours"));
            let told = format!("{error} {error:?}");
            assert!(!told.contains("sec") && !told.contains("ret@"), "{told}");
        }
    }

    #[test]
    fn schemas() {
        for name in ["a", "_a1", "mcp_sessiond", &"a".repeat(63)] {
            assert!(is_schema(name), "{name}");
        }
        for name in [
            "",
            "1a",
            "A",
            "a-b",
            "a\"b",
            "a b",
            "é",
            "pg_catalog",
            &"a".repeat(64),
        ] {
            assert!(!is_schema(name), "{name}");
            assert!(matches!(
                Address::parse(&format!("postgres://host/?schema={name}")),
                Err(OpenError::Schema(_))
            ));
        }
    }
}
