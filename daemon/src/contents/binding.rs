//! To whom a session is bound. A credential that is refreshed stays good for a while beside its
//! successor, so that no refresh ever kills a session.

use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::sessions::{Binding, Caller, CredentialHash, IDENTITY_MAX, OnMismatch};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

/// Credentials that were rotated out and may still be good at the same time: one that is refreshed
/// once a minute, for some minutes.
const FORMER_MAX: usize = 8;

/// How long a former credential is good where nobody says, in ms: longer than any request is under
/// way.
pub(super) const ROTATED_GRACE_MS: u64 = 60_000;

/// A binding on record: hashes alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bound {
    kind: Kind,
    current: Hash,
    /// Former credentials, and until when each is good.
    former: Vec<(Hash, u64)>,
    on_mismatch: OnMismatch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    Identity,
    Credential,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct Hash(#[serde(with = "serde_bytes")] [u8; 32]);

impl std::fmt::Debug for Hash {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Hash")
    }
}

fn hash(caller: &Caller) -> Result<(Kind, Hash), Error> {
    match caller {
        Caller::Identity { iss, sub } => {
            if iss.is_empty()
                || sub.is_empty()
                || iss.len() > IDENTITY_MAX
                || sub.len() > IDENTITY_MAX
            {
                let sentence = format!("`iss` and `sub` have 1 to {IDENTITY_MAX} bytes each");
                return Err(Error::InvalidArgument { sentence });
            }
            // The length keeps what ends one from being taken for the beginning of the other.
            let length = (iss.len() as u64).to_be_bytes();
            let digest = Sha256::new()
                .chain_update(length)
                .chain_update(iss)
                .chain_update(sub)
                .finalize();
            Ok((Kind::Identity, Hash(digest.into())))
        }
        // Hashed once more: what is on record can't be sent as it is.
        Caller::Credential {
            hash: CredentialHash(hash),
        } => Ok((Kind::Credential, Hash(Sha256::digest(hash).into()))),
    }
}

impl Bound {
    pub(super) fn new(binding: &Binding) -> Result<Self, Error> {
        let (kind, current) = hash(&binding.caller)?;
        Ok(Self {
            kind,
            current,
            former: Vec::new(),
            on_mismatch: binding.on_mismatch,
        })
    }

    /// Whether the caller may use the session.
    pub(super) fn admits(&self, caller: Option<&Caller>, now_ms: u64) -> Result<(), Error> {
        let Some(caller) = caller else {
            return Err(Error::BindingMismatch);
        };
        let (kind, given) = hash(caller)?;
        // All of them are compared, each in constant time.
        let mut same = given.0.ct_eq(&self.current.0);
        for (former, until_ms) in &self.former {
            same |= given.0.ct_eq(&former.0) & Choice::from(u8::from(*until_ms > now_ms));
        }
        if kind == self.kind && bool::from(same) {
            Ok(())
        } else {
            Err(Error::BindingMismatch)
        }
    }

    /// Whether this caller, who is not admitted, ends the session. One whose credential was
    /// refreshed does not, however long ago.
    pub(super) fn terminates(&self, caller: Option<&Caller>) -> bool {
        let given = caller.and_then(|caller| hash(caller).ok());
        let is_former =
            given.is_some_and(|(_, given)| self.former.iter().any(|(former, _)| *former == given));
        self.on_mismatch == OnMismatch::Terminate && !is_former
    }

    /// Puts a credential in place of the current one, which `caller` has to be; or in the place of
    /// which it is already.
    pub(super) fn rotate(
        &mut self,
        caller: Option<&Caller>,
        new: CredentialHash,
        grace_ms: u64,
        now_ms: u64,
    ) -> Result<(), Error> {
        if self.kind != Kind::Credential {
            let sentence = "the session is bound to an identity, which stays the same when a token is refreshed";
            return Err(Error::InvalidArgument {
                sentence: sentence.into(),
            });
        }
        let (_, new) = hash(&Caller::Credential { hash: new })?;
        if new == self.current {
            return Ok(());
        }
        // A late rotation must not put the newest credential out.
        let is_current = match caller.map(hash).transpose()? {
            Some((_, given)) => bool::from(given.0.ct_eq(&self.current.0)),
            None => false,
        };
        if !is_current {
            return Err(Error::BindingMismatch);
        }
        if self
            .former
            .iter()
            .filter(|(_, until_ms)| *until_ms > now_ms)
            .count()
            >= FORMER_MAX
        {
            let what = "the number of previous credentials that are still good".into();
            return Err(Error::QuotaExceeded {
                what,
                limit: FORMER_MAX as u64,
            });
        }
        let former = std::mem::replace(&mut self.current, new.clone());
        self.former
            .retain(|(hash, _)| *hash != former && *hash != new);
        // Those that have expired are remembered while there is room: they are no strangers.
        while self.former.len() >= FORMER_MAX {
            let oldest = self
                .former
                .iter()
                .position(|(_, until_ms)| *until_ms <= now_ms)
                .unwrap_or(0);
            self.former.remove(oldest);
        }
        self.former.push((former, now_ms.saturating_add(grace_ms)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(byte: u8) -> Caller {
        Caller::Credential {
            hash: CredentialHash([byte; 32]),
        }
    }

    #[test]
    fn a_refreshed_credential_is_good_and_so_is_the_former_for_a_while() {
        let binding = Binding {
            caller: credential(1),
            on_mismatch: OnMismatch::Refuse,
        };
        let mut bound = Bound::new(&binding).expect("bound");
        bound
            .rotate(Some(&credential(1)), CredentialHash([2; 32]), 1_000, 0)
            .expect("rotated");
        for (caller, now, good) in [
            (1, 999, true),
            (1, 1_000, false),
            (2, 1_000, true),
            (3, 0, false),
        ] {
            assert_eq!(
                bound.admits(Some(&credential(caller)), now).is_ok(),
                good,
                "{caller} at {now}"
            );
        }
        assert_eq!(bound.admits(None, 0), Err(Error::BindingMismatch));
        // Repeated, as after a lost answer: the former one keeps its time.
        bound
            .rotate(Some(&credential(1)), CredentialHash([2; 32]), 5_000, 500)
            .expect("rotated");
        // But a late one that says otherwise is refused.
        let late = bound.rotate(Some(&credential(1)), CredentialHash([3; 32]), 5_000, 500);
        assert_eq!(late, Err(Error::BindingMismatch));
        assert!(!bound.terminates(Some(&credential(1))));
        assert!(bound.admits(Some(&credential(1)), 999).is_ok());
        assert!(bound.admits(Some(&credential(1)), 1_001).is_err());
    }

    #[test]
    fn an_identity_is_both_of_its_parts() {
        let identity = |iss: &str, sub: &str| Caller::Identity {
            iss: iss.into(),
            sub: sub.into(),
        };
        let binding = Binding {
            caller: identity("a", "bc"),
            on_mismatch: OnMismatch::Terminate,
        };
        let bound = Bound::new(&binding).expect("bound");
        assert!(bound.admits(Some(&identity("a", "bc")), 0).is_ok());
        assert_eq!(
            bound.admits(Some(&identity("ab", "c")), 0),
            Err(Error::BindingMismatch)
        );
        assert!(matches!(
            bound.admits(Some(&identity("", "c")), 0),
            Err(Error::InvalidArgument { .. })
        ));
    }
}
