//! What tells the instances of one host apart.

use alloc::string::String;
use core::fmt;

use mcp_sessiond_proto::{ClientName, Label};
use serde::{Deserialize, Serialize};

use crate::Encoder;

/// What keys are made of, read once from a process and kept: digests alone, no argument and no
/// variable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traits {
    /// The file name of its executable, for people.
    pub program: String,
    /// Digest of the executable's file name and the arguments. None: one of them can't be known,
    /// `doubt` says why.
    pub core: Option<[u8; 32]>,
    /// Digest of the executable's path, directory and environment. None: one of them can't be
    /// known, `doubt` says why unless it is about `core`.
    pub place: Option<[u8; 32]>,
    /// Digest of the directory alone.
    pub directory: Option<[u8; 32]>,
    /// The conversation that the host hands it.
    pub conversation: Conversation,
    /// Why `core` is missing, or else why `place` is.
    pub doubt: Option<KeyDoubt>,
}

/// The conversation that a host hands its servers in a variable.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize,
)]
pub enum Conversation {
    /// None.
    #[default]
    None,
    /// The environment can't be read. That is not the absence of one: a process must not lose its
    /// conversation by becoming unreadable.
    Hidden,
    /// The digest of its id.
    Of([u8; 32]),
}

/// What an instance says of itself. It is believed, since it only narrows: nobody gets another
/// one's session by it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelfDescription {
    /// Takes the place of directory, environment and the path to the executable.
    pub label: Option<Label>,
    /// The name of its entry in the host's file.
    pub entry: Option<Label>,
    /// What the host calls itself: `clientInfo.name` of its first message.
    pub client: Option<ClientName>,
}

/// Tells the instances of one host apart. As text: 8 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Key {
    /// Digest of program, arguments, entry, and of label or place.
    pub what: [u8; 32],
    /// The conversation that is served.
    pub conversation: Conversation,
    /// Digest of the name of the client that is served, where that gave one.
    pub client: Option<[u8; 32]>,
}

/// Why it can't be said for sure what a process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum KeyDoubt {
    /// It can't be read, as with a process that is not dumpable.
    #[error("its executable can't be read")]
    Executable,
    /// They can't be read.
    #[error("its arguments can't be read")]
    Arguments,
    /// It goes by a title of its own making.
    #[error("it has overwritten its arguments")]
    Rewritten,
    /// It can't be read.
    #[error("its working directory can't be read")]
    Directory,
    /// It can't be read, as with a process that is not dumpable, or that macOS protects.
    #[error("its environment can't be read")]
    Environment,
    /// It went from exec to exec.
    #[error("it became another program while it was read")]
    Changed,
    /// It exited.
    #[error("it exited while it was read")]
    Gone,
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut encoder = Encoder::new("mcp-sessiond key as text");
        encoder.field(&self.what);
        match &self.conversation {
            Conversation::None => encoder.field(b"none"),
            Conversation::Hidden => encoder.field(b"hidden"),
            Conversation::Of(id) => encoder.field(b"of").field(id),
        };
        encoder.list(self.client.as_slice());
        encoder.finish()[..4]
            .iter()
            .try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl Key {
    /// The first in order: where a search begins.
    pub const FIRST: Self = Self {
        what: [0; 32],
        conversation: Conversation::None,
        client: None,
    };

    /// Whether this key and that one differ in their conversations alone, and both have one.
    pub fn is_another_conversation_of(&self, other: &Self) -> bool {
        let both = matches!(
            (self.conversation, other.conversation),
            (Conversation::Of(_), Conversation::Of(_))
        );
        both && self.conversation != other.conversation
            && Self {
                conversation: other.conversation,
                ..*self
            } == *other
    }

    /// Whether this key and that one have the same conversation and client, and differ in what is
    /// run.
    pub fn is_another_program_for(&self, other: &Self) -> bool {
        self.what != other.what
            && Self {
                what: other.what,
                ..*self
            } == *other
    }

    /// The key of a session that the user has named.
    pub fn of_name(name: &Label) -> Self {
        let what = digest("mcp-sessiond name", name.as_str().as_bytes());
        Self {
            what,
            conversation: Conversation::None,
            client: None,
        }
    }
}

impl Traits {
    /// The key of an instance with these traits that says this of itself.
    ///
    /// # Errors
    /// [`KeyDoubt`], when something that the key is made of is not known.
    pub fn key(&self, said: &SelfDescription) -> Result<Key, KeyDoubt> {
        let doubt = self.doubt.unwrap_or(KeyDoubt::Changed);
        let mut encoder = Encoder::new("mcp-sessiond key");
        encoder.field(&self.core.ok_or(doubt)?);
        match &said.entry {
            Some(entry) => encoder.field(b"entry").field(entry.as_str().as_bytes()),
            None => encoder.field(b"no entry"),
        };
        match &said.label {
            Some(label) => encoder.field(b"label").field(label.as_str().as_bytes()),
            None => encoder.field(b"place").field(&self.place.ok_or(doubt)?),
        };
        let client = said
            .client
            .as_ref()
            .map(|client| digest("mcp-sessiond client", client.as_str().as_bytes()));
        Ok(Key {
            what: encoder.finish(),
            conversation: self.conversation,
            client,
        })
    }

    /// The key that the same server had before its entry had a name: the name alone makes no other
    /// server. None: it has no name, or something that the key is made of is not known.
    pub fn unnamed_key(&self, said: &SelfDescription) -> Option<Key> {
        said.entry.as_ref()?;
        let unnamed = SelfDescription {
            entry: None,
            ..said.clone()
        };
        self.key(&unnamed).ok()
    }

    /// Those of a process of which nothing is known but its name.
    pub fn unknown(program: String, doubt: KeyDoubt) -> Self {
        Self {
            program,
            core: None,
            place: None,
            directory: None,
            conversation: Conversation::Hidden,
            doubt: Some(doubt),
        }
    }
}

/// The digest of one field.
pub fn digest(domain: &str, bytes: &[u8]) -> [u8; 32] {
    let mut encoder = Encoder::new(domain);
    encoder.field(bytes);
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_keys_differ_in() {
        let key = |what, conversation, client| Key {
            what: [what; 32],
            conversation: if conversation == 0 {
                Conversation::None
            } else {
                Conversation::Of([conversation; 32])
            },
            client: Some([client; 32]),
        };
        assert!(key(1, 1, 1).is_another_conversation_of(&key(1, 2, 1)));
        for other in [key(1, 1, 1), key(1, 0, 1), key(2, 2, 1), key(1, 2, 2)] {
            assert!(
                !key(1, 1, 1).is_another_conversation_of(&other),
                "{other:?}"
            );
        }
        assert!(key(1, 1, 1).is_another_program_for(&key(2, 1, 1)));
        for other in [key(1, 1, 1), key(2, 2, 1), key(2, 1, 2)] {
            assert!(!key(1, 1, 1).is_another_program_for(&other), "{other:?}");
        }
    }
}
