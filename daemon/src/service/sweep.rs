//! Ends sessions by hand.

use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::debug::{Ended, SweepRequest};

use super::Daemon;
use crate::contents::SweptSession;

impl Daemon {
    /// Ends the sessions that no process can use any more, or those of one service that were not
    /// used for some time.
    pub(super) async fn sweep(&self, request: SweepRequest) -> Result<Vec<Ended>, Error> {
        let swept = match request {
            SweepRequest {
                service: None,
                older_than_ms: None,
            } => {
                self.contents
                    .sweep(|place| self.edge.standing(place))
                    .await?
            }
            SweepRequest {
                service: Some(service),
                older_than_ms: Some(older_than_ms),
            } => self.contents.end_unused(&service, older_than_ms).await?,
            _ => {
                let sentence = "`service` and `older_than_ms` go together".into();
                return Err(Error::InvalidArgument { sentence });
            }
        };
        let ended = |swept: SweptSession| {
            let session = swept.place.name.parse().ok()?;
            Some(Ended {
                owner: swept.place.owner,
                session,
                why: swept.why.as_str().into(),
            })
        };
        Ok(swept.into_iter().filter_map(ended).collect())
    }
}
