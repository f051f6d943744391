//! Who may use `serve`, and on whose behalf requests are made.

use std::path::PathBuf;

use clap::Args;
use mcp_sessiond_daemon::config;
use mcp_sessiond_serve::identity_headers::IdentityHeaders;
use mcp_sessiond_serve::jwt::Jwt;
use mcp_sessiond_serve::settings::{Listen, Proof};
use mcp_sessiond_serve::token::Token;

use crate::ui::output::warn;

#[derive(Debug, Args)]
pub(super) struct AccessArgs {
    /// Demand the bearer token of every caller. `serve` always does on macOS, and at an address
    /// other than loopback
    #[arg(long)]
    token: bool,
    /// The file with the token, which is made if it is missing; by default `serve.token` beside the
    /// configuration
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The header in which a proxy names the user of a request, such as X-Forwarded-User; needs
    /// --token or a Unix socket
    #[arg(long, value_name = "HEADER", conflicts_with = "jwt_issuer")]
    identity_header: Option<String>,
    /// The header in which the proxy names who has identified the user; by default the issuer is
    /// `proxy`
    #[arg(long, value_name = "HEADER", requires = "identity_header")]
    issuer_header: Option<String>,
    /// Demand a JWT of every caller as bearer token, with this `iss`
    #[arg(long, value_name = "URL", requires = "jwt_audience", requires = "jwt_keys",
        conflicts_with_all = ["token", "token_file"])]
    jwt_issuer: Option<String>,
    /// The `aud` that the JWT must have
    #[arg(long, value_name = "AUDIENCE", requires = "jwt_issuer")]
    jwt_audience: Option<String>,
    /// The file with the issuer's public keys, a JSON Web Key Set. `serve` reads it again when it
    /// changes, and fetches nothing
    #[arg(long, value_name = "FILE", requires = "jwt_issuer")]
    jwt_keys: Option<PathBuf>,
}

impl AccessArgs {
    /// What every caller has to show.
    pub(super) fn proof(&self, listen: &Listen) -> Result<Proof, String> {
        let jwt = (&self.jwt_issuer, &self.jwt_audience, &self.jwt_keys);
        if let (Some(issuer), Some(audience), Some(keys)) = jwt {
            if !issuer.contains("://") {
                return Err(format!("--jwt-issuer: `{issuer}` is not a URL"));
            }
            let jwt = Jwt::new(issuer.clone(), audience.clone(), keys.clone());
            return jwt
                .map(Proof::Jwt)
                .map_err(|error| format!("--jwt-keys {}: {error}", keys.display()));
        }
        Ok(self.token(listen)?.map_or(Proof::Kernel, Proof::Token))
    }

    /// The headers of a proxy.
    pub(super) fn identity(&self, listen: &Listen) -> Result<Option<IdentityHeaders>, String> {
        let Some(subject) = &self.identity_header else {
            return Ok(None);
        };
        let is_proxy_alone =
            self.token || self.token_file.is_some() || matches!(listen, Listen::Unix(_));
        if !is_proxy_alone {
            return Err(
                "--identity-header needs --token, or a Unix socket as --listen: otherwise any local program could name any user"
                    .into(),
            );
        }
        IdentityHeaders::new(subject, self.issuer_header.as_deref()).map(Some)
    }

    /// The token, where one is needed.
    fn token(&self, listen: &Listen) -> Result<Option<Token>, String> {
        let vouched = match listen {
            Listen::Tcp(at) => at.ip().is_loopback() && cfg!(target_os = "linux"),
            Listen::Unix(_) => true,
        };
        if vouched && !self.token && self.token_file.is_none() {
            return Ok(None);
        }
        let usual = || config::usual_path().map(|path| path.with_file_name("serve.token"));
        let path = self
            .token_file
            .clone()
            .or_else(usual)
            .ok_or("say where the token is: `--token-file PATH`")?;
        let token = Token::at(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        warn(format_args!(
            "every caller has to show the bearer token in {}",
            path.display()
        ));
        Ok(Some(token))
    }
}
