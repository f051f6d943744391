//! Other descriptions.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::bundle::{Bundle, Error};
use crate::call::{Item, List};
use crate::decorate::{Decorator, Describe, belongs_to};

pub(super) struct DescribedBundle {
    pub(super) inner: Arc<dyn Bundle>,
    pub(super) describe: Describe,
}

impl Decorator for DescribedBundle {
    fn inner(&self) -> &dyn Bundle {
        &*self.inner
    }

    fn list(&self, list: List) -> BoxFuture<'_, Result<Vec<Item>, Error>> {
        Box::pin(async move {
            let mut items = self.inner.list(list).await?;
            let descriptions = match list {
                List::Tools => &self.describe.tools,
                List::Prompts => &self.describe.prompts,
                List::Resources | List::Templates => &self.describe.resources,
            };
            let server = self.describe.server.as_deref();
            for item in items
                .iter_mut()
                .filter(|item| belongs_to(server, &item.origin))
            {
                let name = if server.is_some() {
                    &item.origin.name
                } else {
                    &item.name
                };
                if let Some(description) = descriptions.get(name) {
                    item.members.set_text("description", description);
                }
            }
            Ok(items)
        })
    }
}
