//! Tasks that are created, changed and ended. Whoever writes one is watched.

use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::tasks::{CreateTaskRequest, Task, UpdateTaskRequest};

use super::Conversation;
use crate::contents::Of;

impl Conversation {
    /// Creates a task. Its writer is the peer.
    pub(super) async fn create_task(&self, request: CreateTaskRequest) -> Result<Task, Error> {
        let access = self.access(&request.of).await?;
        let (contents, wills) = (&self.daemon.contents, &self.daemon.wills);
        self.daemon.fleet.needed().await?;
        let (task, is_writer) = contents
            .create_task(&access, &request, &wills.author(&self.peer))
            .await?;
        if is_writer && !task.status.is_final() {
            wills.made(self.peer.clone(), access.place, Of::Task(task.task.clone()))?;
        }
        Ok(task)
    }

    /// Changes or ends a task.
    pub(super) async fn update_task(&self, request: UpdateTaskRequest) -> Result<Task, Error> {
        let access = self.access(&request.of).await?;
        let (contents, wills) = (&self.daemon.contents, &self.daemon.wills);
        if request.take {
            self.daemon.fleet.needed().await?;
        }
        let task = contents
            .update_task(&access, &request, &wills.author(&self.peer))
            .await?;
        let of = Of::Task(request.task);
        if task.status.is_final() {
            wills.closed(&access.place, &of);
        } else if request.take {
            wills.made(self.peer.clone(), access.place, of)?;
        }
        Ok(task)
    }
}
