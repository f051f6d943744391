// The calls about the tasks of a session.
import type { Session } from './session.js';
import { SessionEvents } from './session-events.js';
import { createTask, fromTask, Task } from './task.js';
import type { TaskOptions, TaskView } from './types.js';

/** The calls about tasks of a session. */
export class SessionTasks extends SessionEvents {
  /**
   * Creates a task, which is kept when this resolves: its id may be told then. If this process exits before
   * the task has ended, the task has failed, and its error says that the outcome is unknown.
   * `quota_exceeded`: all of the session's tasks are under way.
   */
  async createTask(options: TaskOptions = {}): Promise<{ task: Task; view: TaskView }> {
    const view = await createTask(this, options);
    return { task: this.task(view.id), view };
  }

  /** The task of this id. Nothing is sent. */
  task(id: string): Task {
    // `Session` is the only class that extends this one.
    return new Task(this as unknown as Session, id);
  }

  /** All tasks, in order of their ids, without their requests and results. */
  async tasks(): Promise<TaskView[]> {
    return (await this.pages('list_tasks', (last) => last['task'])).map(fromTask);
  }
}
