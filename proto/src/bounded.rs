//! Reads lists with bounded memory: a frame takes at most a small multiple of its size.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};

/// Reads at most `MOST + 1` elements of a list and skips the rest. The extra one shows the caller
/// that there were too many.
///
/// # Errors
/// When it is no list, or an element has another type.
pub(crate) fn list<'de, D, T, const MOST: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Elements<T, const MOST: usize>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Elements<T, MOST> {
        type Value = Vec<T>;
        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a sequence")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::new();
            while list.len() <= MOST {
                let Some(element) = seq.next_element()? else {
                    return Ok(list);
                };
                list.push(element);
            }
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            Ok(list)
        }
    }
    deserializer.deserialize_seq(Elements::<T, MOST>(PhantomData))
}
