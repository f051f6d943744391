//! Reads callers and statuses field by field, so that a frame takes at most a small multiple of its
//! size.

use serde::Deserialize;
use serde::de::{Error as _, value};

use super::{Caller, CredentialHash, Part, STATUS_MAX, Status};
use crate::bounded::list;

/// A status with more parts than this is too large as JSON: the shortest part has three bytes.
const STATUS_PARTS: usize = STATUS_MAX / 3;

/// The variants of a [`Caller`], told apart by their tag.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Identity,
    Credential,
}

/// A [`Caller`] field by field. For a tagged enum serde would keep all fields as a tree until it
/// has found the tag.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallerFields {
    kind: Kind,
    iss: Option<String>,
    sub: Option<String>,
    hash: Option<CredentialHash>,
}

impl TryFrom<CallerFields> for Caller {
    type Error = value::Error;

    fn try_from(fields: CallerFields) -> Result<Self, value::Error> {
        let missing = value::Error::missing_field;
        match fields {
            CallerFields {
                kind: Kind::Identity,
                hash: Some(_),
                ..
            } => Err(value::Error::unknown_field("hash", &["iss", "sub"])),
            CallerFields {
                kind: Kind::Identity,
                iss,
                sub,
                ..
            } => {
                let iss = iss.ok_or_else(|| missing("iss"))?;
                Ok(Self::Identity {
                    iss,
                    sub: sub.ok_or_else(|| missing("sub"))?,
                })
            }
            CallerFields {
                iss: None,
                sub: None,
                hash,
                ..
            } => Ok(Self::Credential {
                hash: hash.ok_or_else(|| missing("hash"))?,
            }),
            CallerFields { iss, .. } => Err(value::Error::unknown_field(
                if iss.is_some() { "iss" } else { "sub" },
                &["hash"],
            )),
        }
    }
}

/// The variants of a [`Status`].
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Is {
    Initializing,
    Ready,
    Failed,
    Terminated,
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Parts(#[serde(deserialize_with = "list::<_, _, STATUS_PARTS>")] Vec<Part>);

/// A [`Status`] field by field. Parts are ignored where it can have none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StatusFields {
    is: Is,
    parts: Option<Parts>,
}

impl TryFrom<StatusFields> for Status {
    type Error = value::Error;

    fn try_from(StatusFields { is, parts }: StatusFields) -> Result<Self, value::Error> {
        Ok(match is {
            Is::Initializing => Self::Initializing,
            Is::Ready => Self::Ready {
                parts: parts.map_or_else(Vec::new, |Parts(parts)| parts),
            },
            Is::Failed => Self::Failed {
                parts: parts.ok_or_else(|| value::Error::missing_field("parts"))?.0,
            },
            Is::Terminated => Self::Terminated,
        })
    }
}
