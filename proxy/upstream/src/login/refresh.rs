//! A refresh (RFC 6749, section 6), by the SDK.

use reqwest::Url;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, CredentialStore as _, InMemoryCredentialStore,
    OAuthClientConfig, OAuthTokenResponse, StoredCredentials,
};
use serde_json::Value;

use super::authority::Authority;
use super::file::{Tokens, now_ms};

/// Why there are no new tokens.
pub(super) enum RefreshError {
    /// The refresh token is no good any more.
    Rejected,
    /// It may be tried again.
    ForNow(String),
}

fn for_now<E: std::error::Error>(error: E) -> RefreshError {
    RefreshError::ForNow(error.to_string())
}

/// New tokens for those. Who calls has the lock.
pub(super) async fn refreshed(url: &Url, tokens: &Tokens) -> Result<Tokens, RefreshError> {
    crate::tls::use_ring();
    let mut manager = AuthorizationManager::new(url.clone())
        .await
        .map_err(for_now)?;
    // The SDK has the tokens in memory only: what is in the file is our affair.
    let store = InMemoryCredentialStore::new();
    let response: OAuthTokenResponse =
        serde_json::from_value(tokens.token.clone()).map_err(|_| RefreshError::Rejected)?;
    let stored = StoredCredentials::new(
        tokens.client_id.clone(),
        Some(response),
        tokens.scopes.clone(),
        None,
    );
    store.save(stored).await.map_err(for_now)?;
    manager.set_credential_store(store.clone());
    // The resource that the token is for is found anew with it.
    let Authority { issuer, metadata } = Authority::of(&manager)
        .await
        .map_err(RefreshError::ForNow)?;
    // Whoever answers for the server must not get the refresh token by it.
    if issuer != tokens.issuer || metadata.token_endpoint != tokens.token_endpoint {
        return Err(RefreshError::ForNow(
            "the server now names another authorization server".to_owned(),
        ));
    }
    manager.set_metadata(metadata);
    let mut client = OAuthClientConfig::new(tokens.client_id.clone(), tokens.redirect.clone());
    if let Some(secret) = &tokens.client_secret {
        client = client.with_client_secret(secret.clone());
    }
    manager.configure_client(client).map_err(for_now)?;
    let asked_ms = now_ms();
    let response = manager.refresh_token().await.map_err(|error| match error {
        AuthError::TokenRefreshRejected(_) | AuthError::AuthorizationRequired => {
            RefreshError::Rejected
        }
        error => for_now(error),
    })?;
    let scopes = manager.get_current_scopes().await;
    let token: Value = serde_json::to_value(response).map_err(for_now)?;
    Ok(Tokens {
        token,
        asked_ms,
        scopes,
        ..tokens.clone()
    })
}
