//! A server of the file that all hosts share.

use std::path::Path;
use std::time::Duration;

use mcp_sessiond_daemon::config::Config;
use mcp_sessiond_proxy::server::shared::Shared;

use super::{Entry, Kind};

impl Entry {
    /// What is shared, where this is; `list` is the file. What stands for something else is looked
    /// up, and what it stands for makes no other server: a token that was renewed is given to the
    /// next one.
    ///
    /// # Errors
    /// Those of [`Entry::resolve`].
    pub(crate) fn shared(&self, list: &Path, config: &Config) -> Result<Option<Shared>, String> {
        if !self.options().shared {
            return Ok(None);
        }
        let Kind::Stdio {
            command,
            args,
            env,
            cwd,
        } = self.resolve()?
        else {
            return Ok(None);
        };
        let key = Shared::key_of(list, self.name(), &self.kind().written());
        let linger = Duration::from_millis(config.backends.closed_linger_ms);
        Ok(Some(Shared {
            name: self.name().to_owned(),
            key,
            command,
            args,
            env,
            cwd,
            linger,
            has_sources: self.options().has_sources,
        }))
    }
}
