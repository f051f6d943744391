//! What of a URL may be shown, and whether what is sent to it stays private.

use reqwest::Url;

/// The URL without its query.
pub(crate) fn without_query(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.to_string()
}

/// Whether nobody on the way can hear what is said to it: it is encrypted, or stays on this
/// machine.
pub(crate) fn is_private(url: &Url) -> bool {
    url.scheme() == "https" || url.scheme() == "http" && is_loopback(url)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_told_by_the_host() {
        for (url, is) in [
            ("http://127.0.0.1:1/", true),
            ("http://[::1]/", true),
            ("http://localhost/", true),
            ("http://localhost.example.org/", false),
            ("http://10.0.0.1/", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).expect("a URL")), is, "{url}");
            assert_eq!(is_private(&Url::parse(url).expect("a URL")), is, "{url}");
        }
        assert!(is_private(
            &Url::parse("https://example.org/").expect("a URL")
        ));
        assert!(!is_private(&Url::parse("ftp://127.0.0.1/").expect("a URL")));
    }
}
