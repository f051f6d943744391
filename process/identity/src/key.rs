//! What tells the instances of one host apart.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use mcp_sessiond_proto::{ClientName, Label};

use crate::Encoder;

/// The recipe by which keys are made from traits. A key that was made by another one is never equal
/// to one of this; what a running host's servers had before an upgrade is found by
/// [`Traits::former_key`].
pub const RECIPE: u8 = 2;

/// The recipe of the version before, which knew no client and no entry.
pub const FORMER_RECIPE: u8 = 1;

/// What keys are made of, read once from a process and kept: digests alone, no argument and no
/// variable.
#[derive(Clone, Debug, PartialEq)]
pub struct Traits {
    /// The file name of its executable, for people.
    pub program: String,
    /// Digest of the executable's file name and the arguments. None: one of them can't be known,
    /// `doubt` says why; or the process was read by a daemon of the version before, and `former`
    /// has what that knew.
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
    /// The same by the former recipe.
    pub former: Former,
}

/// What the former recipe made keys of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Former {
    /// Digest of executable, arguments and conversation.
    pub base: Option<[u8; 32]>,
    /// Digest of directory and environment.
    pub place: Option<[u8; 32]>,
}

/// The conversation that a host hands its servers in a variable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelfDescription {
    /// Takes the place of directory, environment and the path to the executable.
    pub label: Option<Label>,
    /// The name of its entry in the host's file.
    pub entry: Option<Label>,
    /// What the host calls itself: `clientInfo.name` of its first message.
    pub client: Option<ClientName>,
}

/// Tells the instances of one host apart. As text: 8 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Key {
    /// The recipe that it was made by.
    pub recipe: u8,
    /// Digest of program, arguments, entry, and of label or place.
    pub what: [u8; 32],
    /// The conversation that is served.
    pub conversation: Conversation,
    /// Digest of the name of the client that is served, where that gave one.
    pub client: Option<[u8; 32]>,
}

/// Why it can't be said for sure what a process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
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

impl KeyDoubt {
    const ALL: [Self; 7] = [
        Self::Executable,
        Self::Arguments,
        Self::Rewritten,
        Self::Directory,
        Self::Environment,
        Self::Changed,
        Self::Gone,
    ];

    /// A name for it to be stored by; [`FromStr`] is the way back.
    pub fn code(self) -> &'static str {
        match self {
            Self::Executable => "executable",
            Self::Arguments => "arguments",
            Self::Rewritten => "rewritten",
            Self::Directory => "directory",
            Self::Environment => "environment",
            Self::Changed => "changed",
            Self::Gone => "gone",
        }
    }
}

/// A text that is no [code](KeyDoubt::code).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this names no reason for which a key can be doubtful")]
pub struct KeyDoubtError;

impl FromStr for KeyDoubt {
    type Err = KeyDoubtError;
    fn from_str(text: &str) -> Result<Self, KeyDoubtError> {
        Self::ALL
            .into_iter()
            .find(|doubt| doubt.code() == text)
            .ok_or(KeyDoubtError)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut encoder = Encoder::new("mcp-sessiond key as text");
        encoder.field(&self.to_bytes());
        encoder.finish()[..4]
            .iter()
            .try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl Key {
    /// The first in order: where a search begins.
    pub const FIRST: Self = Self {
        recipe: 0,
        what: [0; 32],
        conversation: Conversation::None,
        client: None,
    };

    /// Bytes that a key is written in: the recipe, and three digests, of which two say first
    /// whether they are there.
    pub const BYTES: usize = 1 + 32 + 33 + 33;

    /// The key as bytes, to be stored.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (conversation, id) = match self.conversation {
            Conversation::None => (0, [0; 32]),
            Conversation::Hidden => (1, [0; 32]),
            Conversation::Of(id) => (2, id),
        };
        let mut bytes = Vec::with_capacity(Self::BYTES);
        bytes.push(self.recipe);
        bytes.extend(self.what);
        bytes.push(conversation);
        bytes.extend(id);
        bytes.push(u8::from(self.client.is_some()));
        bytes.extend(self.client.unwrap_or_default());
        bytes
    }

    /// The way back. What the former recipe stored was one digest. None: these are the bytes of no
    /// key.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if let Ok(former) = bytes.try_into() {
            return Some(Self::of_former(former));
        }
        let (recipe, rest) = bytes.split_first()?;
        let (what, rest) = rest.split_first_chunk::<32>()?;
        let (conversation, rest) = rest.split_first()?;
        let (id, rest) = rest.split_first_chunk::<32>()?;
        let (has_client, client) = rest.split_first()?;
        let client: [u8; 32] = client.try_into().ok()?;
        let conversation = match conversation {
            0 => Conversation::None,
            1 => Conversation::Hidden,
            2 => Conversation::Of(*id),
            _ => return None,
        };
        Some(Self {
            recipe: *recipe,
            what: *what,
            conversation,
            client: (*has_client == 1).then_some(client),
        })
    }

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
        self.recipe == other.recipe
            && self.what != other.what
            && Self {
                what: other.what,
                ..*self
            } == *other
    }

    /// The key of a session that the user has named.
    pub fn of_name(name: &Label) -> Self {
        let what = digest("mcp-sessiond name", name.as_str().as_bytes());
        Self {
            recipe: RECIPE,
            what,
            conversation: Conversation::None,
            client: None,
        }
    }

    fn of_former(what: [u8; 32]) -> Self {
        Self {
            recipe: FORMER_RECIPE,
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
        let Some(core) = &self.core else {
            // Processes are read once. Of this one a former daemon has kept what the former recipe
            // needs, which knew no more.
            let says_more = said.entry.is_some() || said.client.is_some();
            return self.former_key(said).filter(|_| !says_more).ok_or(doubt);
        };
        let mut encoder = Encoder::new("mcp-sessiond key 2");
        encoder.field(core);
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
            recipe: RECIPE,
            what: encoder.finish(),
            conversation: self.conversation,
            client,
        })
    }

    /// The key that the former recipe made for such an instance. None: what it was made of is not
    /// known.
    pub fn former_key(&self, said: &SelfDescription) -> Option<Key> {
        let mut encoder = Encoder::new("mcp-sessiond key");
        encoder.field(&self.former.base?);
        match &said.label {
            Some(label) => encoder.field(b"label").field(label.as_str().as_bytes()),
            None => encoder.field(b"place").field(&self.former.place?),
        };
        Some(Key::of_former(encoder.finish()))
    }

    /// The key by which an earlier session of such an instance may be on record: that of the same
    /// server before its entry had a name, since the name alone makes no other server; without a
    /// name, that of the former recipe.
    pub fn earlier_key(&self, said: &SelfDescription) -> Option<Key> {
        if said.entry.is_none() {
            return self.former_key(said);
        }
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
            former: Former::default(),
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
    fn a_doubt_is_found_again_by_its_code() {
        for doubt in KeyDoubt::ALL {
            assert_eq!(doubt.code().parse(), Ok(doubt));
        }
        assert_eq!("".parse::<KeyDoubt>(), Err(KeyDoubtError));
    }
    #[test]
    fn a_key_is_found_again_in_its_bytes() {
        let conversations = [
            Conversation::None,
            Conversation::Hidden,
            Conversation::Of([7; 32]),
        ];
        for (conversation, client) in
            conversations
                .into_iter()
                .zip([None, Some([8; 32]), Some([0; 32])])
        {
            let key = Key {
                recipe: RECIPE,
                what: [6; 32],
                conversation,
                client,
            };
            assert_eq!(key.to_bytes().len(), Key::BYTES);
            assert_eq!(Key::from_bytes(&key.to_bytes()), Some(key));
        }
        let former = Key::of_former([1; 32]);
        assert_eq!(Key::from_bytes(&[1; 32]), Some(former));
        assert_eq!(Key::from_bytes(&former.to_bytes()), Some(former));
        assert_eq!(Key::from_bytes(&[1; 31]), None);
        assert_eq!(Key::from_bytes(&[0; Key::BYTES + 1]), None);
    }

    #[test]
    fn what_two_keys_differ_in() {
        let key = |what, conversation, client| Key {
            recipe: RECIPE,
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
