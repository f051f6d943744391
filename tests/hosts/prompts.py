"""What hosts have in common that answer one prompt and end: two calls, and what follows when something is killed between two calls."""

from harness import number


def scenarios(run, restarts):
    """`run(world, steps)` is one such process, with the wrapped counter: its exit code and what it said. `restarts`: whether it starts
    a killed front again within a turn.
    """
    def print_mode(world):
        code, said = run(world, "one count count")
        world.check("it exits 0 with the model's answer", code == 0 and "done one" in said, (code, said[-500:]))
        world.counts([1, 2], "one", "two calls meet one server")
        world.lives(0, "after the end of the host")

    def killed(*what):
        def scenario(world):
            world.api.hooks["kill"] = lambda: world.kill(*what)
            run(world, "one count kill count count")
            seen = [number(text) for text in world.api.results("one")]
            goes_on = restarts or "front" not in what
            if goes_on:
                world.check("the same server goes on", seen == [1, 2, 3], world.api.told)
            else:
                world.check("nobody answers, since the host does not start a killed server again", seen[:1] == [1] and not any(seen[1:]), world.api.told)
            world.check("no second server is started", len(world.started()) == 1, world.started())
            world.lives(0, "after the end of the host")
        scenario.__name__ = "print_mode_SIGKILL_of_" + "_and_".join(what)
        return scenario
    return [print_mode, killed("front"), killed("daemon"), killed("front", "daemon")]
