//! The headers `Accept` and `Content-Type`.

use axum::http::{HeaderMap, HeaderName, StatusCode, header};

use crate::refusal::Refusal;

/// The type of a message.
pub(super) const JSON: &str = "application/json";
/// The type of a stream of events.
pub(super) const EVENTS: &str = "text/event-stream";

/// Checks that the client accepts all of these types.
///
/// # Errors
/// 406.
pub(super) fn takes(headers: &HeaderMap, wanted: &[&str]) -> Result<(), Refusal> {
    let fits = |wanted: &&str| {
        let kind = wanted.split('/').next().unwrap_or_default();
        types(headers, &header::ACCEPT).any(|accepted| {
            let of_kind = accepted.strip_suffix("/*");
            accepted.eq_ignore_ascii_case(wanted)
                || of_kind
                    .is_some_and(|accepted| accepted == "*" || accepted.eq_ignore_ascii_case(kind))
        })
    };
    if wanted.iter().all(fits) {
        return Ok(());
    }
    let message = format!("the client must accept {}", wanted.join(" and "));
    Err(Refusal::new(StatusCode::NOT_ACCEPTABLE, message))
}

/// Checks that the body is JSON.
///
/// # Errors
/// 415.
pub(super) fn is_json(headers: &HeaderMap) -> Result<(), Refusal> {
    if types(headers, &header::CONTENT_TYPE).any(|sent| sent.eq_ignore_ascii_case(JSON)) {
        return Ok(());
    }
    Err(Refusal::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        format!("the body must be {JSON}"),
    ))
}

fn types<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers
        .get_all(name)
        .into_iter()
        .filter_map(|value| value.to_str().ok());
    let parts = values.flat_map(|value| value.split(','));
    parts.map(|part| part.split(';').next().unwrap_or_default().trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        [(name, value.parse().expect("a value"))]
            .into_iter()
            .collect()
    }

    #[test]
    fn both_kinds_of_answers_have_to_be_accepted() {
        let takes_both =
            |value: &str| takes(&headers(header::ACCEPT, value), &[JSON, EVENTS]).is_ok();
        assert!(takes_both("application/json, text/event-stream") && takes_both("*/*"));
        assert!(takes_both("text/*;q=0.5,Application/JSON; charset=utf-8"));
        assert!(
            !takes_both("application/json") && !takes_both("text/event-stream") && !takes_both("")
        );
        assert!(takes(&HeaderMap::new(), &[EVENTS]).is_err());
    }

    #[test]
    fn a_body_is_json_with_or_without_parameters() {
        let is_json = |value: &str| is_json(&headers(header::CONTENT_TYPE, value)).is_ok();
        assert!(is_json("application/json") && is_json("application/json; charset=utf-8"));
        assert!(!is_json("text/plain") && !is_json("application/json-rpc") && !is_json(""));
    }
}
