//! Sections of the configuration: each setting stands once, with what it means, its type and its
//! default.

/// Makes a section of settings: a struct with public fields, and its `Default`. A name that is none
/// of them is refused.
macro_rules! section {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$what:meta])* $setting:ident: $type:ty = $default:expr,)*
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
    };
}

pub(super) use section;
