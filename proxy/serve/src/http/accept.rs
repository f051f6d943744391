//! The headers `Accept` and `Content-Type`.

use axum::http::{HeaderMap, HeaderName, StatusCode, header};

use crate::refusal::Refusal;

/// The type of a message.
pub(super) const JSON: &str = "application/json";
/// The type of a stream of events.
pub(super) const EVENTS: &str = "text/event-stream";

/// What a client takes for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accepted {
    /// A message or a stream of events, as MCP has it (2025-11-25, Sending Messages to the Server).
    Both,
    /// A message alone.
    Json,
    /// A stream of events alone.
    Events,
}

/// What the client takes. Without the header it takes anything (RFC 9110, section 12.5.1).
///
/// # Errors
/// 406, where it takes neither.
pub(super) fn accepted(headers: &HeaderMap) -> Result<Accepted, Refusal> {
    match (takes(headers, JSON), takes(headers, EVENTS)) {
        (true, true) => Ok(Accepted::Both),
        (true, false) => Ok(Accepted::Json),
        (false, true) => Ok(Accepted::Events),
        (false, false) => Err(not_acceptable(&format!("{JSON} or {EVENTS}"))),
    }
}

/// Checks that the client takes a stream of events.
///
/// # Errors
/// 406.
pub(super) fn takes_events(headers: &HeaderMap) -> Result<(), Refusal> {
    match takes(headers, EVENTS) {
        true => Ok(()),
        false => Err(not_acceptable(EVENTS)),
    }
}

/// The client must accept this.
pub(super) fn not_acceptable(wanted: &str) -> Refusal {
    let message = format!("the client must accept {wanted}");
    Refusal::new(StatusCode::NOT_ACCEPTABLE, message)
}

/// Whether the client takes this type. Of the ranges that have it, the most specific one counts.
fn takes(headers: &HeaderMap, wanted: &str) -> bool {
    if !headers.contains_key(header::ACCEPT) {
        return true;
    }
    let kind = wanted.split('/').next().unwrap_or_default();
    let of_kind = format!("{kind}/*");
    let specific = |range: &str| {
        let ranges = [wanted, &of_kind, "*/*"];
        ranges
            .iter()
            .position(|one| one.eq_ignore_ascii_case(range))
    };
    let ranges = values(headers, &header::ACCEPT).filter_map(|value| {
        let mut parts = value.split(';').map(str::trim);
        let found = specific(parts.next()?)?;
        let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
        let refused = weight.is_some_and(|q| q.parse::<f32>().is_ok_and(|q| q <= 0.0));
        Some((found, !refused))
    });
    ranges
        .min_by_key(|(found, _)| *found)
        .is_some_and(|(_, taken)| taken)
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
    values(headers, name).map(|part| part.split(';').next().unwrap_or_default().trim())
}

/// The values of a list, in all headers of this name.
fn values<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let all = headers.get_all(name).into_iter();
    all.filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
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
    fn a_client_takes_what_it_says_and_anything_where_it_says_nothing() {
        let taken = |value: &str| accepted(&headers(header::ACCEPT, value)).ok();
        assert_eq!(
            taken("application/json, text/event-stream"),
            Some(Accepted::Both)
        );
        assert_eq!(taken("*/*"), Some(Accepted::Both));
        assert_eq!(
            taken("text/*;q=0.5,Application/JSON; charset=utf-8"),
            Some(Accepted::Both)
        );
        assert_eq!(taken("application/json"), Some(Accepted::Json));
        assert_eq!(taken("*/*, text/event-stream;q=0"), Some(Accepted::Json));
        assert_eq!(
            taken("text/event-stream, application/json; q=0.0"),
            Some(Accepted::Events)
        );
        assert_eq!(taken("text/html"), None);
        assert_eq!(taken(""), None);
        assert_eq!(accepted(&HeaderMap::new()).ok(), Some(Accepted::Both));
        assert!(takes_events(&HeaderMap::new()).is_ok());
        assert!(takes_events(&headers(header::ACCEPT, "application/json")).is_err());
    }

    #[test]
    fn a_body_is_json_with_or_without_parameters() {
        let is_json = |value: &str| is_json(&headers(header::CONTENT_TYPE, value)).is_ok();
        assert!(is_json("application/json") && is_json("application/json; charset=utf-8"));
        assert!(!is_json("text/plain") && !is_json("application/json-rpc") && !is_json(""));
    }
}
