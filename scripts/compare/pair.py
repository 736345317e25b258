"""The servers of the engines compared, of which one runs at a time."""

import subprocess

from row import OURS
from server import Failed, Server


class Pair:
    """A server for each engine, with the same cache. What a peer cannot do is told and left out."""

    def __init__(self, base, plan, cache, seen):
        self.seen = seen
        self.servers = {e: Server(base, e, cache, plan.folders.get(e)) for e in plan.engines}
        try:
            for server in self.servers.values():
                server.start()
        except BaseException:
            self.stop()
            raise

    def each(self, what, work):
        """What `work(server)` gives, by engine; the others are paused meanwhile. A peer that fails
        has no entry; ours ends the run."""
        done = {}
        for engine, server in self.servers.items():
            others = [s for s in self.servers.values() if s is not server]
            for other in others:
                other.pause()
            try:
                done[engine] = work(server)
            except (Failed, subprocess.CalledProcessError) as error:
                if engine == OURS:
                    raise
                self.seen(f"{what}: {engine} cannot do it: {error}")
            finally:
                server.end_clients()
                for other in others:
                    other.go_on()
        return done

    def stop(self):
        for server in self.servers.values():
            server.stop()
