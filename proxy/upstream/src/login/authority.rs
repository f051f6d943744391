//! What a server says of its authorization server, and what of it is believed.

use reqwest::Url;
use rmcp::transport::auth::{
    AuthorizationManager, AuthorizationMetadata, AuthorizationMetadataSource,
};

use crate::url::is_private;

/// An authorization server. The refresh token goes to its token endpoint, and nowhere else.
pub(super) struct Authority {
    pub(super) issuer: String,
    pub(super) metadata: AuthorizationMetadata,
}

impl Authority {
    /// The one that the server names now.
    pub(super) async fn of(manager: &AuthorizationManager) -> Result<Self, String> {
        let found = manager
            .resolve_metadata()
            .await
            .map_err(|error| error.to_string())?;
        Self::believed(found.metadata, found.source)
    }

    fn believed(
        metadata: AuthorizationMetadata,
        source: AuthorizationMetadataSource,
    ) -> Result<Self, String> {
        // The SDK guesses endpoints at the server's own address.
        if source == AuthorizationMetadataSource::LegacyEndpointFallback {
            return Err("the server names no authorization server; if it needs a key, put that into `headers`"
                .to_owned());
        }
        let endpoints = [
            Some(&metadata.authorization_endpoint),
            Some(&metadata.token_endpoint),
            metadata.registration_endpoint.as_ref(),
        ];
        if !endpoints
            .into_iter()
            .flatten()
            .all(|url| Url::parse(url).is_ok_and(|url| is_private(&url)))
        {
            return Err(
                "its authorization server has an endpoint that does not begin with https://"
                    .to_owned(),
            );
        }
        match metadata.issuer.clone().filter(|issuer| !issuer.is_empty()) {
            Some(issuer) => Ok(Self { issuer, metadata }),
            None => Err("the metadata of its authorization server names no `issuer`".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn believed(
        source: AuthorizationMetadataSource,
        change: impl FnOnce(&mut AuthorizationMetadata),
    ) -> Option<String> {
        let mut metadata: AuthorizationMetadata = serde_json::from_value(json!({
            "issuer": "https://a", "authorization_endpoint": "https://a/authorize", "token_endpoint": "https://a/token",
        }))
        .expect("metadata");
        change(&mut metadata);
        Authority::believed(metadata, source).err()
    }

    #[test]
    fn an_authorization_server_that_is_guessed_or_has_no_name_is_not_believed() {
        let named = AuthorizationMetadataSource::ProtectedResourceMetadata;
        assert_eq!(believed(named, |_| {}), None);
        let refused = believed(AuthorizationMetadataSource::LegacyEndpointFallback, |_| {});
        assert!(
            refused
                .expect("refused")
                .contains("names no authorization server")
        );
        let refused = believed(named, |metadata| metadata.issuer = None);
        assert!(refused.expect("refused").contains("names no `issuer`"));
    }

    #[test]
    fn each_endpoint_is_encrypted_or_on_this_machine() {
        let named = AuthorizationMetadataSource::ProtectedResourceMetadata;
        for (url, is) in [
            ("http://127.0.0.1:1/x", true),
            ("http://a/x", false),
            ("javascript:alert(1)", false),
            ("/token", false),
        ] {
            let changes: [fn(&mut AuthorizationMetadata, String); 3] = [
                |metadata, url| metadata.authorization_endpoint = url,
                |metadata, url| metadata.token_endpoint = url,
                |metadata, url| metadata.registration_endpoint = Some(url),
            ];
            for change in changes {
                let refused = believed(named, |metadata| change(metadata, url.to_owned()));
                assert_eq!(refused.is_none(), is, "{url}: {refused:?}");
            }
        }
    }
}
