//! For a scraper.

use std::net::SocketAddr;

use super::section::section;

section! {
    /// Where metrics can be had over HTTP. Applies at start.
    pub struct Metrics {
        /// An address of this machine and a port, as `127.0.0.1:9464`. Empty: nowhere.
        address: String = String::new(),
        /// Whether it may be an address that other machines and users can reach.
        beyond_loopback: bool = false,
    }
}

impl Metrics {
    /// Where, if anywhere.
    ///
    /// # Errors
    /// A sentence that says what would be right.
    pub fn bound(&self) -> Result<Option<SocketAddr>, String> {
        if self.address.is_empty() {
            return Ok(None);
        }
        let address: SocketAddr = self.address.parse().map_err(|_| {
            "metrics.address is an address and a port, such as `127.0.0.1:9464` or `[::1]:9464`"
                .to_owned()
        })?;
        if !address.ip().is_loopback() && !self.beyond_loopback {
            return Err("metrics.address can be reached from other machines, without any authentication; if you mean that, set metrics.beyond_loopback = true"
                .into());
        }
        Ok(Some(address))
    }
}
