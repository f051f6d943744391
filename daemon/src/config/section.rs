//! Sections of the configuration: each setting stands once, with what it means, its type, its
//! default and its range.

use std::ops::{Bound, RangeBounds};

use super::ConfigError;

/// Makes a section of settings: a struct with public fields, its `Default`, and a check of the
/// ranges. A range stands behind the default; where there is none, every value of the type is
/// allowed. A name that is none of the settings is refused.
macro_rules! section {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$what:meta])* $setting:ident: $type:ty = $default:expr $(; $range:expr)?,)*
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(#[$what])* pub $setting: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($setting: $default,)* }
            }
        }

        impl $name {
            /// Refuses a value that is out of its range. `prefix` stands before the names.
            pub(super) fn check_ranges(&self, prefix: &str) -> Result<(), super::ConfigError> {
                let _ = prefix;
                $($(
                    let name = stringify!($setting);
                    super::section::check_range(prefix, name, self.$setting, $range)?;
                )?)*
                Ok(())
            }

            /// What a setting must be that has a range.
            pub(super) fn range_of(name: &str) -> Option<String> {
                let _ = name;
                $($(
                    if name == stringify!($setting) {
                        return Some(super::section::describe($range));
                    }
                )?)*
                None
            }
        }
    };
}

pub(super) use section;

pub(super) fn check_range(
    prefix: &str,
    name: &str,
    value: impl TryInto<u64>,
    range: impl RangeBounds<u64>,
) -> Result<(), ConfigError> {
    let value = value.try_into().unwrap_or(u64::MAX);
    if range.contains(&value) {
        return Ok(());
    }
    // Ranges have both of their ends in them.
    let bound = match (range.start_bound(), range.end_bound()) {
        (Bound::Included(least), _) if value < *least => format!("at least {least}"),
        (_, Bound::Included(most)) => format!("at most {most}"),
        _ => "in its range".to_owned(),
    };
    Err(ConfigError::Range(format!(
        "{prefix}{name} must be {bound}"
    )))
}

/// A range in words.
pub(super) fn describe(range: impl RangeBounds<u64>) -> String {
    match (range.start_bound(), range.end_bound()) {
        (Bound::Included(least), Bound::Included(most)) => format!("from {least} to {most}"),
        (Bound::Included(least), _) => format!("at least {least}"),
        (_, Bound::Included(most)) => format!("at most {most}"),
        _ => "0 or more".to_owned(),
    }
}
